"""What a definition says, as a digest: to tell whether a tool is still the one that somebody looked at.

There are servers that write another text into the `default` of a parameter at every start. So there are two
digests: one of everything, and one that leaves out the texts which schemas have as defaults. Where only the
first differs the tool is the same but for those texts, and `without_default_texts` takes them out of it.

Digests have a format, which pins and locks record. Format 1 is a digest of six fields of the definition as it
came; format 2, of every field of the visible definition (see `catalog.definitions`).
"""

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from fairlead.catalog.definitions import TOOL_FIELDS, visible_definition
from fairlead.catalog.entries import ToolEntry
from fairlead.catalog.keywords import LISTS, MAPS, SINGLES
from fairlead.config.shapes import is_list, is_object

FORMAT: Final = 2
"""The format of digests made now."""
_FORMAT_1_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
SCHEMAS: Final = ("inputSchema", "outputSchema")

_SINGLES = frozenset((*SINGLES, "additionalItems", "contentSchema"))
_LISTS = frozenset((*LISTS, "items"))
_MAPS = frozenset((*MAPS, "definitions", "dependencies"))
"""Older drafts included: what is taken for a schema here is where a default is a default."""

_STRING_OR_KEY = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(\s*+:)?', re.DOTALL)
_MAYBE_DEFAULT_TEXT = re.compile(rb'"default"\s*+:\s*+"|\\u')

_Place = tuple[str | int, ...]
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Digests(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A definition in two digests; to `loose` it does not matter what texts the schemas have as defaults."""

    strict: str
    loose: str


def definition_digest(definition: bytes) -> str:
    """The digest of everything that counts, in whatever order its keys stand."""
    return digests_of(definition).strict


@lru_cache(maxsize=4096)
def digests_of(definition: bytes, format: int = FORMAT) -> Digests:  # noqa: A002 - what pins call it
    """Both digests of a tool's definition, in one of the formats."""
    counted_bytes, fields = _counted(definition, format)
    try:
        whole = read_for_certain(counted_bytes)
        counted = {field: whole[field] for field in fields if whole.get(field) is not None}
        strict = _digest(_encode_sorted(counted))
        if not _MAYBE_DEFAULT_TEXT.search(counted_bytes):
            return Digests(strict=strict, loose=strict)
        loose = counted | {name: _changed(counted[name], _dropped) for name in SCHEMAS if name in counted}
        return Digests(strict=strict, loose=_digest(_encode_sorted(loose)))
    except (ValueError, RecursionError):
        raw = _digest(counted_bytes)  # what cannot be read for certain counts byte for byte
        return Digests(strict=raw, loose=raw)


def entry_digests(entry: ToolEntry, format: int = FORMAT) -> Digests:  # noqa: A002 - what pins call it
    """Both digests of a tool as its server listed it, worked out once for as long as it is known."""
    if entry.listed_digests is not None:
        strict, loose = entry.listed_digests[format - 1]
        return Digests(strict=strict, loose=loose)
    return entry.derive(_digests, format)


def all_digests(entry: ToolEntry) -> tuple[tuple[str, str], ...]:
    """The digests of a tool in every format, to be kept beside a definition with secrets masked."""
    found = (entry_digests(entry, format) for format in range(1, FORMAT + 1))  # noqa: A001
    return tuple((digests.strict, digests.loose) for digests in found)


def _digests(entry: ToolEntry, format: int) -> Digests:  # noqa: A002
    return digests_of(entry.definition, format)


def _counted(definition: bytes, format: int) -> tuple[bytes, tuple[str, ...]]:  # noqa: A002
    """The bytes a digest is made of, and the fields of them that count."""
    if format == 1:
        return definition, _FORMAT_1_FIELDS
    try:
        return visible_definition("tool", definition), TOOL_FIELDS
    except (ValueError, RecursionError):
        return definition, TOOL_FIELDS


def read_for_certain(definition: bytes) -> dict[str, Any]:
    """A definition that says nothing twice: of those that do, it is up to who reads them what they say.

    Raises `ValueError` and `RecursionError` for others.
    """
    whole = _decode(definition)
    if _says_twice(definition, whole):
        raise ValueError("an object in it has one key more than once")
    return whole


def field_digests(definition: bytes, format: int = FORMAT) -> dict[str, str]:  # noqa: A002
    """A short digest of each field that counts, to name the ones that changed."""
    counted_bytes, fields = _counted(definition, format)
    try:
        whole = _decode(counted_bytes)
    except (ValueError, RecursionError):
        return {}
    counted = {field: whole[field] for field in fields if whole.get(field) is not None}
    return {field: _digest(_encode_sorted(value))[:12] for field, value in counted.items()}


def text_digest(text: str) -> str:
    """The digest of a text, such as a server's instructions."""
    return _digest(text.encode(errors="surrogatepass"))


def without_default_texts(definition: bytes, known: bytes | None = None) -> bytes:
    """The definition without the texts that its schemas have as defaults, but for those that are `known`.

    `known` is a definition that was looked at: what it has in the same place may stay.
    """
    seen = _default_texts(_decode(known)) if known is not None else {}
    whole = _decode(definition)
    for name in SCHEMAS:
        if name in whole:
            whole[name] = _changed(
                whole[name], lambda place, text: text if seen.get(place) == text else None, (name,)
            )
    return msgspec.json.encode(whole)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _says_twice(definition: bytes, whole: dict[str, Any]) -> bool:
    """Does any object have one key more than once? Readers differ in which of them they take."""
    read = msgspec.json.encode(whole)
    if msgspec.json.format(definition, indent=-1) == read:
        return False  # what was read is all there is
    return _count_keys(definition) != _count_keys(read)


def _count_keys(content: bytes) -> int:
    return sum(map(bool, _STRING_OR_KEY.findall(content)))


def _dropped(_place: _Place, _text: str) -> None:
    return None


def _default_texts(whole: dict[str, Any]) -> dict[_Place, str]:
    found: dict[_Place, str] = {}

    def note(place: _Place, text: str) -> str:
        found[place] = text
        return text

    for name in SCHEMAS:
        _changed(whole.get(name), note, (name,))
    return found


def _changed(schema: object, change: Callable[[_Place, str], str | None], place: _Place = ()) -> object:
    """The schema with every default that is a text as `change` has it, or without it where that is None.

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
            new[keyword] = [_changed(item, change, (*here, index)) for index, item in enumerate(value)]
        elif keyword in _MAPS and is_object(value):
            new[keyword] = {name: _changed(item, change, (*here, name)) for name, item in value.items()}
        elif keyword in _SINGLES:
            new[keyword] = _changed(value, change, here)
        else:
            new[keyword] = value
    return new
