"""Repair of malformed definitions, one by one.

Clients parse a list as a whole: one malformed entry costs them every entry of every server. So a definition
is decoded by the strict models below before it is offered. A mismatch is repaired where that keeps its
meaning: a bad optional field is dropped, an input schema that is missing or cannot be repaired accepts any
arguments. What is still invalid then is left out, with the reason.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from fairlead.catalog.definitions import DefinitionKind
from fairlead.catalog.nesting import TOO_DEEP, is_deep
from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.keywords import CLOSING, below
from fairlead.catalog.schema.listed import has_valid_input, repair_input
from fairlead.catalog.schema.normalize import (
    SchemaChange,
    is_supported_dialect,
    needs_screening,
    permissive,
    screen,
    screen_definition,
    screen_output,
)
from fairlead.config.untyped import as_object, is_list, is_object

# Strict models: what every client accepts, which is in places less than the protocol's own schema allows.

_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_DATE_TIME = rf"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_TIME}:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-]{_TIME})$"
"""What the TypeScript SDKs take: seconds and the zone are required, which is less than ISO 8601 allows."""

_Text = str | UnsetType
_Flag = bool | UnsetType
_Name = Annotated[str, Meta(min_length=1)]
_Extra = dict[str, Raw] | UnsetType


class _Icon(Struct, gc=False, rename="camel"):
    src: str
    mime_type: _Text = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Literal["light", "dark"] | UnsetType = UNSET


class _DescribedEntry(Struct, gc=False, rename="camel", kw_only=True):
    name: _Name
    title: _Text = UNSET
    description: _Text = UNSET
    icons: list[_Icon] | UnsetType = UNSET
    meta: _Extra = field(name="_meta", default=UNSET)


class _InputSchema(Struct, gc=False, kw_only=True):
    type: Literal["object"]
    dialect: Annotated[str, Meta(pattern="://")] | UnsetType = field(name="$schema", default=UNSET)
    properties: dict[str, dict[str, Raw]] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET


class _ToolHints(Struct, gc=False, rename="camel"):
    title: _Text = UNSET
    read_only_hint: _Flag = UNSET
    destructive_hint: _Flag = UNSET
    idempotent_hint: _Flag = UNSET
    open_world_hint: _Flag = UNSET


class _ExecutionField(Struct, gc=False, rename="camel"):
    task_support: Literal["required", "optional", "forbidden"] | UnsetType = UNSET


class _ToolEntry(_DescribedEntry, gc=False, rename="camel", kw_only=True):
    input_schema: _InputSchema
    output_schema: Raw | UnsetType = UNSET
    annotations: _ToolHints | UnsetType = UNSET
    execution: _ExecutionField | UnsetType = UNSET


class _OfferHints(Struct, gc=False, rename="camel"):
    audience: list[Literal["user", "assistant"]] | UnsetType = UNSET
    priority: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    last_modified: Annotated[str, Meta(pattern=_DATE_TIME)] | UnsetType = UNSET


class _Resource(_DescribedEntry, gc=False, rename="camel", kw_only=True):
    uri: _Name
    mime_type: _Text = UNSET
    size: int | UnsetType = UNSET
    annotations: _OfferHints | UnsetType = UNSET


class _TemplateEntry(_DescribedEntry, gc=False, rename="camel", kw_only=True):
    uri_template: _Name
    mime_type: _Text = UNSET
    annotations: _OfferHints | UnsetType = UNSET


class _Argument(Struct, gc=False):
    name: _Name
    title: _Text = UNSET
    description: _Text = UNSET
    required: _Flag = UNSET


class _Prompt(_DescribedEntry, gc=False, rename="camel", kw_only=True):
    arguments: list[_Argument] | UnsetType = UNSET


_MODELS: Mapping[DefinitionKind, Callable[[bytes], _DescribedEntry]] = {
    "tool": msgspec.json.Decoder(_ToolEntry).decode,
    "resource": msgspec.json.Decoder(_Resource).decode,
    "template": msgspec.json.Decoder(_TemplateEntry).decode,
    "prompt": msgspec.json.Decoder(_Prompt).decode,
}
_decode = msgspec.json.Decoder().decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NUMBERS: Final = bytes.maketrans(b"123456789E-", b"000000000e+")
_HUGE_NUMBERS: Final = (b"0" * 300, b"0e000", b"0e+000")
"""Numbers near the largest double, with every digit replaced by a zero."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RepairedDefinition:
    """A valid definition and its changes, or why it cannot be made valid."""

    definition: bytes | None
    changes: tuple[SchemaChange, ...] = ()
    reason: str | None = None


def repair_definition(kind: DefinitionKind, definition: bytes) -> RepairedDefinition:
    """Make a definition valid for the newest protocol version.

    Args:
        kind: What is defined.
        definition: The definition, JSON.

    Returns:
        The same bytes where they are valid already; else the repaired definition and the changes, or, with
        `definition` None, the reason why there is none.
    """
    repairing = _Repairing()
    try:
        is_readable = _is_readable(definition)
        if is_readable and _is_valid(kind, definition):
            return RepairedDefinition(definition=definition)
        value: object = _decode(definition) if is_readable else _readable_fields(definition, repairing)
        if not is_object(value):
            return RepairedDefinition(definition=None, reason="it is not a JSON object")
        fields = repairing.read_fields(value, _REPAIRS[kind])
        _add_required(kind, fields, repairing)
        repaired = _encode(fields)
        _check(kind, repaired)
    except (ValueError, RecursionError) as exc:
        return RepairedDefinition(definition=None, reason=gate.content(str(exc)))
    return RepairedDefinition(definition=repaired, changes=tuple(repairing.changes))


def _is_valid(kind: DefinitionKind, definition: bytes) -> bool:
    try:
        output = _check(kind, definition)
    except (ValueError, RecursionError):
        return False
    if kind == "tool" and needs_screening(definition) and screen_definition(definition).is_replaced:
        return False
    if kind == "tool" and not has_valid_input(definition):
        return False
    return output is None or _sound_output(output).schema == output


def _check(kind: DefinitionKind, definition: bytes) -> bytes | None:
    """Decode strictly. Returns a tool's output schema; raises `ValueError` for an invalid definition."""
    model = _MODELS[kind](definition)
    if isinstance(model, _ToolEntry):
        if not is_supported_dialect(model.input_schema.dialect):
            raise ValueError("its schema is in a dialect that is not supported")
        return None if model.output_schema is UNSET else bytes(model.output_schema)
    hints = getattr(model, "annotations", UNSET)
    if isinstance(hints, _OfferHints) and hints.last_modified is not UNSET:
        datetime.fromisoformat(hints.last_modified)
    return None


def _is_readable(definition: bytes) -> bool:
    try:
        _require_readable(definition)
    except (ValueError, RecursionError):
        return False
    return True


def _readable_fields(definition: bytes, repairing: "_Repairing") -> dict[str, Any]:
    """Parse a definition without the fields that some client's parser refuses."""
    kept: dict[str, Any] = {}
    for name, raw in _decode_fields(definition).items():
        try:
            _require_readable(bytes(raw))
            kept[name] = _decode(raw)
        except (ValueError, RecursionError) as exc:
            repairing.note(name, f"cannot be read, since {exc}; left out")
    return kept


def _require_readable(definition: bytes) -> None:
    """Raise `ValueError` for JSON that some client's parser refuses, though it is well-formed."""
    zeros = definition.translate(_NUMBERS)  # a tenth of what a regular expression takes
    is_huge = any(number in zeros for number in _HUGE_NUMBERS)
    if is_huge or (b"\\u" in definition and _SURROGATE.search(definition)):
        _require_values(_decode(definition))
    if is_deep(definition):
        raise ValueError(f"it {TOO_DEEP}")


def _require_values(value: object) -> None:
    """Raise `ValueError` for a number too large for a double, which most clients parse it as."""
    pending = [value]
    while pending:
        item = pending.pop()
        if is_object(item):
            pending += item.values()
        elif is_list(item):
            pending += item
        elif isinstance(item, int | float) and abs(item) > sys.float_info.max:
            raise ValueError("a number in it is too large")


# Repairs.


class _Unusable(Exception):
    """An invalid value that cannot be repaired. The message is the predicate of a sentence about it."""


_Reader = Callable[[Any, "_Repairing", str], Any]
"""Reads a value at a path: returns it valid, or raises `_Unusable`."""


class _Repairing:
    """Repair of one definition, with notes of all changes."""

    def __init__(self) -> None:
        self.changes: list[SchemaChange] = []

    def note(self, where: str, what: str) -> None:
        self.changes.append(SchemaChange(where=where, what=what))

    def read_fields(
        self, value: dict[str, Any], readers: Mapping[str, _Reader], at: str = ""
    ) -> dict[str, Any]:
        """Fields of an object without invalid ones. Fields without a reader stay."""
        kept: dict[str, Any] = {}
        for name, item in value.items():
            reader = readers.get(name)
            place = f"{at}{name}"
            if reader is None:
                kept[name] = item
                continue
            try:
                kept[name] = reader(item, self, place)
            except _Unusable as exc:
                self.note(place, f"{exc}; left out")
        return kept

    def read_items(self, value: object, reader: _Reader, at: str) -> list[Any]:
        """Items of a list without invalid ones."""
        if not is_list(value):
            raise _Unusable(_describe_mismatch(value, "a list"))
        kept: list[Any] = []
        for index, item in enumerate(value):
            place = f"{at}[{index}]"
            try:
                kept.append(reader(item, self, place))
            except _Unusable as exc:
                self.note(place, f"{exc}; left out")
        return kept


def _describe_mismatch(value: object, wanted: str) -> str:
    return "is null" if value is None else f"is not {wanted}"


def _text(value: object, _repairing: _Repairing, _at: str) -> str:
    if not isinstance(value, str):
        raise _Unusable(_describe_mismatch(value, "a text"))
    return value


def _flag(value: object, _repairing: _Repairing, _at: str) -> bool:
    if not isinstance(value, bool):
        raise _Unusable(_describe_mismatch(value, "true or false"))
    return value


def _object(value: object, _repairing: _Repairing, _at: str) -> dict[str, Any]:
    if not is_object(value):
        raise _Unusable(_describe_mismatch(value, "an object"))
    return value


def _one_of(*words: str) -> _Reader:
    def read(value: object, _repairing: _Repairing, _at: str) -> str:
        if not isinstance(value, str) or value not in words:
            raise _Unusable(_describe_mismatch(value, f"one of {', '.join(words)}"))
        return value

    return read


def _fields(readers: Mapping[str, _Reader], needed: str | None = None) -> _Reader:
    def read(value: object, repairing: _Repairing, at: str) -> dict[str, Any]:
        kept = repairing.read_fields(_object(value, repairing, at), readers, f"{at}.")
        if needed is not None and not kept.get(needed):
            raise _Unusable(f"has no `{needed}`")
        if not kept:
            raise _Unusable("has no valid content")
        return kept

    return read


def _items(reader: _Reader) -> _Reader:
    def read(value: object, repairing: _Repairing, at: str) -> list[Any]:
        kept = repairing.read_items(value, reader, at)
        if value and not kept:
            raise _Unusable("has no valid content")
        return kept

    return read


def _size(value: object, repairing: _Repairing, at: str) -> int:
    if isinstance(value, float) and value.is_integer():
        repairing.note(at, "is a whole number written as a fraction")
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Unusable(_describe_mismatch(value, "a whole number"))
    return value


def _share(value: object, _repairing: _Repairing, _at: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _Unusable(_describe_mismatch(value, "a number from 0 to 1"))
    return value


def _date_time(value: object, _repairing: _Repairing, _at: str) -> str:
    if isinstance(value, str) and re.match(_DATE_TIME, value):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            pass  # such as month 13: reported below
        else:
            return value
    raise _Unusable(_describe_mismatch(value, "a date and time with seconds and zone, as in ISO 8601"))


def _sizes(value: object, repairing: _Repairing, at: str) -> list[str]:
    if isinstance(value, str):  # as in HTML, and in the first drafts of icons
        repairing.note(at, "is a text and not a list of texts")
        return value.split()
    return repairing.read_items(value, _text, at)


def _property(value: object, repairing: _Repairing, at: str) -> dict[str, Any]:
    if isinstance(value, bool):
        # The same meaning in the form that all versions take: `true` accepts anything, `false` nothing.
        repairing.note(at, "is true or false instead of an object")
        return {} if value else {"not": {}}
    if not is_object(value):
        repairing.note(at, f"{_describe_mismatch(value, 'a schema')}; accepts anything")
        return {}
    return value


def _properties(value: object, repairing: _Repairing, at: str) -> dict[str, Any]:
    return {
        name: _property(item, repairing, f"{at}.{name}")
        for name, item in _object(value, repairing, at).items()
    }


def _input_schema(value: object, repairing: _Repairing, at: str) -> dict[str, Any]:
    schema: object = value
    if is_object(value):
        fields = repairing.read_fields(value, _SCHEMA_FIELDS, f"{at}.")
        if "properties" in value and "properties" not in fields:
            for word in CLOSING & fields.keys():
                del fields[word]
                repairing.note(f"{at}.{word}", "would forbid more than before; left out")
        schema = _of_object(fields, repairing, at)
    screened = screen(schema)
    if screened.is_replaced:
        repairing.note(at, screened.changes[0].what)
        return permissive()
    whole = as_object(schema)
    if screened.rejected is not None:
        return {**whole, "type": "object"}  # the reason is reported in place of its type
    if whole.get("type") != "object":
        repairing.note(f"{at}.type", "is no type; any arguments are accepted")
        return permissive()
    repaired = repair_input(whole)
    for change in repaired.changes:
        repairing.note(below(at, change.where) if change.where else at, change.what)
    if repaired.schema is None:
        repairing.note(at, "cannot be made valid; any arguments are accepted")
        return permissive()
    return repaired.schema


def _of_object(schema: dict[str, Any], repairing: _Repairing, at: str) -> dict[str, Any]:
    """The schema with the type `object`, where it may mean that."""
    kind: object = schema.get("type")
    if kind == "object":
        return schema
    words: list[Any] = kind if is_list(kind) else [kind]
    names = {word.lower() for word in words if isinstance(word, str)}
    if words and len(names) == len(words) and not names & {"object", "dict", "map", "none", "null"}:
        return schema
    repairing.note(f"{at}.type", "is not `object`" if "type" in schema else "is missing")
    return {**schema, "type": "object"}


def _output_schema(value: object, repairing: _Repairing, at: str) -> dict[str, Any]:
    raw = _encode(_object(value, repairing, at))
    sound = _sound_output(raw)
    if sound.schema is None:
        raise _Unusable(sound.reason)
    if sound.schema != raw:
        repairing.note(at, sound.reason)
    return _decode(sound.schema)


def _names(value: object, _repairing: _Repairing, _at: str) -> list[str]:
    # One invalid name casts doubt on the others, and a wrong requirement costs calls.
    if not is_list(value) or not all(isinstance(name, str) for name in value):
        raise _Unusable(_describe_mismatch(value, "a list of names"))
    return value


def _dialect(value: object, repairing: _Repairing, at: str) -> str:
    if "://" not in _text(value, repairing, at):
        raise _Unusable("is not a URI")
    if not is_supported_dialect(value):
        raise _Unusable("is a dialect that is not supported")
    return str(value)


_SCHEMA_FIELDS: Mapping[str, _Reader] = {
    "$schema": _dialect,
    "properties": _properties,
    "required": _names,
}
_ICON: Mapping[str, _Reader] = {
    "src": _text,
    "mimeType": _text,
    "sizes": _sizes,
    "theme": _one_of("light", "dark"),
}
_COMMON: Mapping[str, _Reader] = {
    "name": _text,
    "title": _text,
    "description": _text,
    "icons": _items(_fields(_ICON, needed="src")),
    "_meta": _object,
}
_FLAGS = dict.fromkeys(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), _flag)
_RESOURCE_HINTS: Mapping[str, _Reader] = {
    "audience": _items(_one_of("user", "assistant")),
    "priority": _share,
    "lastModified": _date_time,
}
_RESOURCE: Mapping[str, _Reader] = {
    **_COMMON,
    "mimeType": _text,
    "annotations": _fields(_RESOURCE_HINTS),
}
_ARGUMENT: Mapping[str, _Reader] = {"name": _text, "title": _text, "description": _text, "required": _flag}
_REPAIRS: Mapping[DefinitionKind, Mapping[str, _Reader]] = {
    "tool": {
        **_COMMON,
        "inputSchema": _input_schema,
        "outputSchema": _output_schema,
        "annotations": _fields({"title": _text, **_FLAGS}),
        "execution": _fields({"taskSupport": _one_of("required", "optional", "forbidden")}),
    },
    "resource": {**_RESOURCE, "uri": _text, "size": _size},
    "template": {**_RESOURCE, "uriTemplate": _text},
    "prompt": {**_COMMON, "arguments": _items(_fields(_ARGUMENT, needed="name"))},
}
IDENTITY: Mapping[DefinitionKind, str] = {
    "tool": "name",
    "resource": "uri",
    "template": "uriTemplate",
    "prompt": "name",
}
"""Field by which a server identifies an entry: it cannot be made up."""


def repair_annotations(value: object) -> dict[str, Any] | None:
    """Valid annotations of a content block; None where none is."""
    if value == {}:
        return {}
    try:
        return _fields(_RESOURCE_HINTS)(value, _Repairing(), "")
    except _Unusable:
        return None


def repair_icons(value: object) -> list[dict[str, Any]]:
    """Valid icons of a list."""
    return _Repairing().read_items(value, _fields(_ICON, needed="src"), "") if is_list(value) else []


def _add_required(kind: DefinitionKind, fields: dict[str, Any], repairing: _Repairing) -> None:
    identity = IDENTITY[kind]
    if not fields.get(identity):
        raise ValueError(f"it has no `{identity}`")
    if not fields.get("name"):
        # Only a label: no client reads a resource by it.
        fields["name"] = fields.get("title") or fields[identity]
        repairing.note("name", f"is missing; its {'title' if fields.get('title') else identity} is used")
    if kind == "tool" and "inputSchema" not in fields:
        repairing.note("inputSchema", "is missing; any arguments are accepted")
        fields["inputSchema"] = permissive()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Output:
    schema: bytes | None
    """None where no part of it can be used."""
    reason: str = ""


@lru_cache(maxsize=4096)
def _sound_output(raw: bytes) -> _Output:
    """Output schema that clients' validators can compile.

    The TypeScript SDK compiles every output schema as soon as it has a list, and drops the list if one fails.
    """
    try:
        value: object = _decode(raw)
    except (ValueError, RecursionError):
        return _Output(schema=None, reason="cannot be read")
    if not is_object(value):
        return _Output(schema=None, reason=_describe_mismatch(value, "an object"))
    screened = screen_output(value)
    if screened.rejected is not None:
        return _Output(schema=None, reason=f"cannot be used: {screened.rejected}")
    schema = screened.schema
    named = schema.get("properties")
    if is_object(named):
        schema = {**schema, "properties": _properties(named, _Repairing(), "")}
    if schema == value:
        return _Output(schema=raw)
    return _Output(schema=_encode(schema), reason="is rewritten so that every validator can compile it")
