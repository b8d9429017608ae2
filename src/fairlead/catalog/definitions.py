"""Visible definitions, and the digests of them that pins and locks compare.

A definition is reduced to the fields that the protocol names. Icons are bounded, of `_meta` only the keys in
`META_KEYS` are kept, and every other field is dropped. All surfaces show visible definitions, and pins and
locks are digests of them: a field that is not pinned does not reach a client.

Some servers write another text into the `default` of a parameter at every start. So there are two digests:
one of everything, and one without the texts that schemas have as defaults. Where only the first differs the
tool is the same but for those texts, and `without_default_texts` removes them. Digests have a format, which
pins and locks record: format 1 covers six fields of the raw definition, format 2 every field of the visible
one.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from fairlead.catalog.schema.keywords import LISTS, MAPS, SINGLES
from fairlead.catalog.tools import ToolEntry
from fairlead.config.untyped import is_list, is_object

DefinitionKind = Literal["tool", "resource", "template", "prompt"]

META_KEYS: Final = frozenset(
    {
        # MCP Apps: the page that shows a tool's results.
        "ui",
        "ui/resourceUri",
        "ui/visibility",
        "openai/outputTemplate",
        "openai/toolInvocation/invoked",
        "openai/toolInvocation/invoking",
        "openai/visibility",
        "openai/widgetAccessible",
        # Claude: how a tool is loaded and how large its results may be.
        "anthropic/alwaysLoad",
        "anthropic/maxResultSizeChars",
        "anthropic/searchHint",
    }
)
"""Keys of `_meta` that clients are known to act on."""

MAX_META_BYTES: Final = 8 * 1024
"""Most bytes of a value in `_meta`, as JSON."""
MAX_ICONS: Final = 8
MAX_ICON_URL: Final = 2 * 1024
MAX_ICON_DATA: Final = 64 * 1024
"""Most characters of an icon's `data:` URI."""

_IMAGE_TYPES = ("png", "jpeg", "jpg", "svg+xml", "webp", "gif", "x-icon", "vnd.microsoft.icon", "avif", "bmp")
_DATA_PREFIXES = tuple(
    f"data:image/{subtype}{end}" for subtype in _IMAGE_TYPES for end in (";", ",")
)  # as the media type is given, in lower case
_TOOL_HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_RESOURCE_HINTS = ("audience", "priority", "lastModified")

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def visible_definition(kind: DefinitionKind, definition: bytes) -> bytes:
    """Reduce a definition to its visible fields; the same object where nothing has to be dropped.

    Of a field that is given more than once the last counts, as in the parser here.

    Args:
        kind: What is defined.
        definition: The definition as the server listed it, JSON.

    Returns:
        The visible definition, which is its own visible definition.

    Raises:
        ValueError: It is not a JSON object, or cannot be parsed.
        RecursionError: It is nested too deeply.
    """
    fields = _decode_fields(definition)
    reduced = _FIELDS[kind]
    visible: dict[str, Any] = {}
    for name, value in fields.items():
        reduce = reduced.get(name, _drop)
        if reduce is None:
            visible[name] = value
        elif (kept := reduce(_decode(value))) is not None:
            visible[name] = kept
    encoded = _encode(visible)
    # Equal length: no field, space or escape in a name is gone, so it is the same text.
    return definition if len(encoded) == len(definition) and encoded == definition else encoded


def _drop(_value: object) -> None:
    return None


def _scalar(value: object) -> object:
    return value if _is_scalar(value) else None


def _only(names: tuple[str, ...]) -> Callable[[object], dict[str, Any] | None]:
    """Reducer that keeps these fields of an object, where they are plain values or lists of plain values."""

    def reduce(value: object) -> dict[str, Any] | None:
        if not is_object(value):
            return None
        return {name: value[name] for name in names if name in value and _is_plain(value[name])} or None

    return reduce


def _is_plain(value: object) -> bool:
    return all(map(_is_scalar, value)) if is_list(value) else _is_scalar(value)


def _is_scalar(value: object) -> bool:
    return not is_object(value) and not is_list(value)


def _icons(value: object) -> list[dict[str, Any]] | None:
    if not is_list(value):
        return None
    reduce = _only(("src", "mimeType", "sizes", "theme"))
    icons = (reduce(icon) for icon in value[:MAX_ICONS])
    return [icon for icon in icons if icon is not None and _may_show(icon.get("src"))] or None


def _may_show(src: object) -> bool:
    """Whether it is an image, or an HTTP link to one. Other schemes, such as `javascript:`, are dropped."""
    if not isinstance(src, str):
        return False
    scheme = src[:40].lower()
    if scheme.startswith(_DATA_PREFIXES):
        return len(src) <= MAX_ICON_DATA
    return scheme.startswith(("https://", "http://")) and len(src) <= MAX_ICON_URL


def _meta(value: object) -> dict[str, Any] | None:
    if not is_object(value):
        return None
    known = {name: item for name, item in value.items() if name in META_KEYS}
    return {name: item for name, item in known.items() if len(_encode(item)) <= MAX_META_BYTES} or None


def _arguments(value: object) -> list[dict[str, Any]] | None:
    if not is_list(value):
        return None
    reduce = _only(("name", "title", "description", "required"))
    return [kept for argument in value if (kept := reduce(argument)) is not None]


_Reduce = Callable[[object], object] | None
"""Reduces a field to its visible value, None to drop it; a field without a reducer stays unchanged."""
_COMMON: dict[str, _Reduce] = {
    "name": _scalar,
    "title": _scalar,
    "description": _scalar,
    "icons": _icons,
    "_meta": _meta,
}
_RESOURCE: dict[str, _Reduce] = _COMMON | {"mimeType": _scalar, "annotations": _only(_RESOURCE_HINTS)}
_FIELDS: Mapping[DefinitionKind, Mapping[str, _Reduce]] = {
    "tool": {
        "name": None,  # always a text, or the tool is not read
        "title": _scalar,
        "description": _scalar,
        "icons": _icons,
        "_meta": _meta,
        "inputSchema": None,
        "outputSchema": None,
        "annotations": _only(_TOOL_HINTS),
        "execution": _only(("taskSupport",)),
    },
    "resource": _RESOURCE | {"uri": _scalar, "size": _scalar},
    "template": _RESOURCE | {"uriTemplate": _scalar},
    "prompt": _COMMON | {"arguments": _arguments},
}
TOOL_FIELDS: Final = (
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "execution",
    "icons",
    "_meta",
)
"""Fields of a visible tool, in display order."""


FORMAT: Final = 2
"""Format of digests made now."""
_FORMAT_1_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
SCHEMAS: Final = ("inputSchema", "outputSchema")

_SINGLES = frozenset((*SINGLES, "additionalItems", "contentSchema"))
_LISTS = frozenset((*LISTS, "items"))
_MAPS = frozenset((*MAPS, "definitions", "dependencies"))
"""Keywords with schemas, older drafts included: only inside a schema is a `default` a default."""

_STRING_OR_KEY = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(\s*+:)?', re.DOTALL)
_MAYBE_DEFAULT_TEXT = re.compile(rb'"default"\s*+:\s*+"|\\u')

_Place = tuple[str | int, ...]
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Digests(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Two digests of a definition; `loose` ignores the texts that schemas have as defaults."""

    strict: str
    loose: str


def definition_digest(definition: bytes) -> str:
    """Digest of all fields that count, independent of the order of keys."""
    return digests_of(definition).strict


@lru_cache(maxsize=4096)
def digests_of(definition: bytes, format: int = FORMAT) -> Digests:  # noqa: A002 - what pins call it
    """Both digests of a tool's definition, in one of the formats."""
    counted_bytes, fields = _digest_input(definition, format)
    try:
        whole = read_for_certain(counted_bytes)
        counted = {field: whole[field] for field in fields if whole.get(field) is not None}
        strict = _digest(_encode_sorted(counted))
        if not _MAYBE_DEFAULT_TEXT.search(counted_bytes):
            return Digests(strict=strict, loose=strict)
        loose = counted | {
            name: _map_default_texts(counted[name], _drop_default) for name in SCHEMAS if name in counted
        }
        return Digests(strict=strict, loose=_digest(_encode_sorted(loose)))
    except (ValueError, RecursionError):
        raw = _digest(counted_bytes)  # an ambiguous definition counts byte for byte
        return Digests(strict=raw, loose=raw)


def entry_digests(entry: ToolEntry, format: int = FORMAT) -> Digests:  # noqa: A002 - what pins call it
    """Both digests of a tool as its server listed it, computed once per entry."""
    if entry.listed_digests is not None:
        strict, loose = entry.listed_digests[format - 1]
        return Digests(strict=strict, loose=loose)
    return entry.derive(_digests, format)


def all_digests(entry: ToolEntry) -> tuple[tuple[str, str], ...]:
    """Digests of a tool in every format, to be stored with a definition whose secrets are masked."""
    found = (entry_digests(entry, format) for format in range(1, FORMAT + 1))  # noqa: A001
    return tuple((digests.strict, digests.loose) for digests in found)


def _digests(entry: ToolEntry, format: int) -> Digests:  # noqa: A002
    return digests_of(entry.definition, format)


def _digest_input(definition: bytes, format: int) -> tuple[bytes, tuple[str, ...]]:  # noqa: A002
    """Input of a digest, and the fields of it that count."""
    if format == 1:
        return definition, _FORMAT_1_FIELDS
    try:
        return visible_definition("tool", definition), TOOL_FIELDS
    except (ValueError, RecursionError):
        return definition, TOOL_FIELDS


def read_for_certain(definition: bytes) -> dict[str, Any]:
    """Parse a definition without repeated keys: parsers differ in which of them counts.

    Raises:
        ValueError: It is not JSON, or repeats a key.
        RecursionError: It is nested too deeply.
    """
    whole = _decode_object(definition)
    if _says_twice(definition, whole):
        raise ValueError("an object in it has one key more than once")
    return whole


def field_digests(definition: bytes, format: int = FORMAT) -> dict[str, str]:  # noqa: A002
    """Short digest of each field that counts, to name the ones that changed."""
    counted_bytes, fields = _digest_input(definition, format)
    try:
        whole = _decode_object(counted_bytes)
    except (ValueError, RecursionError):
        return {}
    counted = {field: whole[field] for field in fields if whole.get(field) is not None}
    return {field: _digest(_encode_sorted(value))[:12] for field, value in counted.items()}


def text_digest(text: str) -> str:
    """Digest of a text, such as a server's instructions."""
    return _digest(text.encode(errors="surrogatepass"))


def without_default_texts(definition: bytes, known: bytes | None = None) -> bytes:
    """Remove the texts that schemas have as defaults, except those in `known`.

    `known` is a reviewed definition: what it has at the same place may stay.
    """
    seen = _default_texts(_decode_object(known)) if known is not None else {}
    whole = _decode_object(definition)
    for name in SCHEMAS:
        if name in whole:
            whole[name] = _map_default_texts(
                whole[name], lambda place, text: text if seen.get(place) == text else None, (name,)
            )
    return msgspec.json.encode(whole)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _says_twice(definition: bytes, whole: dict[str, Any]) -> bool:
    """Whether any object repeats a key. Parsers differ in which one counts."""
    read = msgspec.json.encode(whole)
    if msgspec.json.format(definition, indent=-1) == read:
        return False  # as many keys as were parsed
    return _count_keys(definition) != _count_keys(read)


def _count_keys(content: bytes) -> int:
    return sum(map(bool, _STRING_OR_KEY.findall(content)))


def _drop_default(_place: _Place, _text: str) -> None:
    return None


def _default_texts(whole: dict[str, Any]) -> dict[_Place, str]:
    found: dict[_Place, str] = {}

    def note(place: _Place, text: str) -> str:
        found[place] = text
        return text

    for name in SCHEMAS:
        _map_default_texts(whole.get(name), note, (name,))
    return found


def _map_default_texts(
    schema: object, change: Callable[[_Place, str], str | None], place: _Place = ()
) -> object:
    """Replace every default that is a text by what `change` returns, or remove it where that is None.

    Only the keyword counts: a property may be called `default`, and an example may have one.
    """
    if not is_object(schema):
        return schema
    new: dict[str, Any] = {}
    for keyword, value in schema.items():
        here = (*place, keyword)
        if keyword == "default" and isinstance(value, str):
            changed = change(here, value)
            if changed is not None:
                new[keyword] = changed
        elif keyword in _LISTS and is_list(value):
            new[keyword] = [
                _map_default_texts(item, change, (*here, index)) for index, item in enumerate(value)
            ]
        elif keyword in _MAPS and is_object(value):
            new[keyword] = {
                name: _map_default_texts(item, change, (*here, name)) for name, item in value.items()
            }
        elif keyword in _SINGLES:
            new[keyword] = _map_default_texts(value, change, here)
        else:
            new[keyword] = value
    return new
