"""The visible definition: the part of what a server lists that clients, models and pages may see.

A definition is reduced to the fields that the protocol names. Icons are bounded, of `_meta` only the keys in
`META_KEYS` are kept, and every other field is dropped. All surfaces show visible definitions, and pins and
locks are digests of visible definitions: a field that is not pinned does not reach a client.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from fairlead.config.shapes import is_list, is_object

Kind = Literal["tool", "resource", "template", "prompt"]

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
"""Per value in `_meta`, as JSON."""
MAX_ICONS: Final = 8
MAX_ICON_URL: Final = 2 * 1024
MAX_ICON_DATA: Final = 64 * 1024
"""Characters of an icon's `data:` URI."""

_IMAGE_TYPES = ("png", "jpeg", "jpg", "svg+xml", "webp", "gif", "x-icon", "vnd.microsoft.icon", "avif", "bmp")
_DATA_PREFIXES = tuple(
    f"data:image/{subtype}{end}" for subtype in _IMAGE_TYPES for end in (";", ",")
)  # as the media type is given, in lower case
_TOOL_HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_RESOURCE_HINTS = ("audience", "priority", "lastModified")

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def visible_definition(kind: Kind, definition: bytes) -> bytes:
    """Reduce a definition to what may be seen; the same object where nothing has to be dropped.

    A field that is given more than once counts as it was given last, which is also how it is read here.

    Args:
        kind: What is defined.
        definition: The definition as the server listed it, JSON.

    Returns:
        The visible definition. It is its own visible definition.

    Raises:
        ValueError: It is no JSON object, or cannot be read.
        RecursionError: It is nested too deeply to be read.
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
    # Equal length: no field, no space and no escape in a name is gone, so it is the same text.
    return definition if len(encoded) == len(definition) and encoded == definition else encoded


def _drop(_value: object) -> None:
    return None


def _scalar(value: object) -> object:
    return value if _is_scalar(value) else None


def _only(names: tuple[str, ...]) -> Callable[[object], dict[str, Any] | None]:
    """Keep these fields of an object, where they are plain values or lists of plain values."""

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
    """Is it an image, or a link to one over HTTP? Other schemes, such as `javascript:`, are dropped."""
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
"""Makes the visible value of a field, None to drop it; where it is None itself, the field stays as it is."""
_COMMON: dict[str, _Reduce] = {
    "name": _scalar,
    "title": _scalar,
    "description": _scalar,
    "icons": _icons,
    "_meta": _meta,
}
_RESOURCE: dict[str, _Reduce] = _COMMON | {"mimeType": _scalar, "annotations": _only(_RESOURCE_HINTS)}
_FIELDS: Mapping[Kind, Mapping[str, _Reduce]] = {
    "tool": {
        "name": None,  # a text: a tool is not read otherwise
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
"""The fields of a visible tool, in the order in which people are shown them."""
