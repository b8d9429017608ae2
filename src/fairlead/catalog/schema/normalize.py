"""Normalization of servers' schemas: bounded, self-contained and in one dialect (2020-12).

Mistakes are repaired and reported. A schema that cannot be repaired (not of an object, nested too deeply) is
replaced by one that accepts any arguments. Only a reference that would have to be fetched, and a size beyond
the limits, make the tool unusable, with the reason. Other tools are not affected.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.catalog.schema.effort import (
    MULTIPLYING,
    EffortExceeded,
    TooDeep,
    Weight,
    measure,
    pattern_cost,
    weigh,
)
from fairlead.catalog.schema.keywords import (
    LISTS,
    MAPS,
    SINGLES,
    TYPES,
    Schema,
    all_schemas,
    below,
    is_endless,
    may_be_object,
    resolve,
)
from fairlead.config.untyped import as_object, is_list, is_object

MAX_PATTERN_LENGTH = 1_000
MAX_PATTERN_COST = 5_000
"""Most microseconds that a pattern may take to compile, as `effort` estimates them."""

_DIALECTS = frozenset(
    f"json-schema.org/{version}"
    for version in (
        "schema",
        "draft-04/schema",
        "draft-06/schema",
        "draft-07/schema",
        "draft/2019-09/schema",
        "draft/2020-12/schema",
    )
)
_OLDER = frozenset(
    (
        "exclusiveMinimum",
        "exclusiveMaximum",
        "dependencies",
        "$recursiveRef",
        "$dynamicRef",
        "definitions",
        "nullable",
    )
)
"""Keywords with another meaning in older drafts, or OpenAPI, next to a list of `items`."""
_OTHER_WORDS = {
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "str": "string",
    "text": "string",
    "bool": "boolean",
    "dict": "object",
    "map": "object",
    "list": "array",
    "none": "null",
}
"""Common misspellings of types."""


class UnusableKeyword(Exception):
    """A keyword's value is invalid. The message is the predicate of a sentence about it."""


def is_supported_dialect(uri: object) -> bool:
    """Whether this `$schema` is one of the supported drafts. Many tools name none."""
    if not isinstance(uri, str) or not uri:
        return True
    return uri.removeprefix("http://").removeprefix("https://").rstrip("#") in _DIALECTS


def upgrade_to_2020_12(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert one level of a schema to 2020-12."""
    if _OLDER.isdisjoint(schema) and not is_list(schema.get("items")):
        return schema
    new = {**schema}
    for renew in _RENEWALS:
        renew(new)
    return new


def local_reference(reference: str) -> str:
    """Reference after `definitions` became `$defs`."""
    return f"#/$defs/{reference[14:]}" if reference.startswith("#/definitions/") else reference


def _renew_tuple(schema: dict[str, Any]) -> None:
    if is_list(schema.get("items")):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema["additionalItems"]


def _renew_limits(schema: dict[str, Any]) -> None:
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and limit in schema:
            schema[exclusive] = schema.pop(limit)


def _renew_dependencies(schema: dict[str, Any]) -> None:
    dependencies = schema.get("dependencies")
    for name, value in dependencies.items() if is_object(dependencies) else ():
        keyword = "dependentRequired" if is_list(value) else "dependentSchemas"
        schema[keyword] = {**as_object(schema.get(keyword)), name: value}


def _renew_references(schema: dict[str, Any]) -> None:
    for keyword in ("$recursiveRef", "$dynamicRef"):
        if keyword in schema:
            schema["$ref"] = schema[keyword]


def _renew_nullable(schema: dict[str, Any]) -> None:
    if schema.get("nullable") is True:
        kind, enum = schema.get("type"), schema.get("enum")
        if isinstance(kind, str):
            schema["type"] = [kind, "null"]
        if is_list(enum) and None not in enum:
            schema["enum"] = [*enum, None]


def _renew_definitions(schema: dict[str, Any]) -> None:
    old, new = schema.get("definitions"), schema.get("$defs", {})
    if is_object(old) and is_object(new):
        schema["$defs"] = old | new


_RENEWALS = (
    _renew_tuple,
    _renew_limits,
    _renew_dependencies,
    _renew_references,
    _renew_definitions,
    _renew_nullable,
)


def keyword_value(keyword: str, value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Value of a keyword that holds no schemas; None for an unknown keyword."""
    reader = _READERS.get(keyword)
    return reader(value) if reader else None


def schema_list(value: object) -> list[Any]:
    """Value of a keyword that holds a list of schemas."""
    if not is_list(value) or not value:
        raise UnusableKeyword("must be a list of schemas")
    return value


def schema_map(value: object) -> dict[str, Any]:
    """Value of a keyword that holds schemas by name."""
    if not is_object(value):
        raise UnusableKeyword("must be an object of schemas")
    return value


def _type(value: object) -> str | list[str]:
    words = value if is_list(value) else [value]
    types = [_type_of_name(word) for word in words]
    if not types:
        raise UnusableKeyword("must name a type")
    return list(dict.fromkeys(types)) if is_list(value) and len(types) > 1 else types[0]


def _type_of_name(word: object) -> str:
    name = word.lower() if isinstance(word, str) else ""
    name = _OTHER_WORDS.get(name, name)
    if name not in TYPES:
        raise UnusableKeyword(f"is {gate.content(str(word), 40)!r}, which is not a type")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise UnusableKeyword("must be a string")
    return value


def pattern_value(value: object) -> str:
    """A regular expression that is not too large."""
    pattern = _text(value)
    if len(pattern) > MAX_PATTERN_LENGTH or pattern_cost(pattern) > MAX_PATTERN_COST:
        raise UnusableKeyword("is a pattern that is too large to be checked")
    return pattern


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise UnusableKeyword("must be true or false")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnusableKeyword("must be a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise UnusableKeyword("must be a number")
    return value


def _factor(value: object) -> float:
    if (number := _number(value)) <= 0:
        raise UnusableKeyword("must be above zero")
    return number


def _count(value: object) -> int:
    number = _number(value)
    if number < 0 or number != int(number):
        raise UnusableKeyword("must be a whole number")
    return int(number)


def _names(value: object) -> list[str]:
    if not is_list(value) or not all(isinstance(item, str) for item in value):
        raise UnusableKeyword("must be a list of names")
    return list(dict.fromkeys(value))


def _names_by_name(value: object) -> dict[str, list[str]]:
    return {name: _names(item) for name, item in schema_map(value).items()}


def _choices(value: object) -> list[Any]:
    if not is_list(value) or not value:
        raise UnusableKeyword("must be a list that is not empty")
    return value


def _keep_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    return value


_READERS: dict[str, Callable[[object], Any]] = {
    "type": _type,
    "enum": _choices,
    "examples": _choices,
    "const": _keep_value,
    "default": _keep_value,
    "required": _names,
    "dependentRequired": _names_by_name,
    **dict.fromkeys(("title", "description", "format", "contentEncoding", "contentMediaType"), _text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    "multipleOf": _factor,
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count
    ),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _flag),
}


MAX_BYTES = 256 * 1024
"""Most bytes of a tool's whole definition."""
_SURELY_SOUND_BYTES = 8 * 1024
"""Largest definition that cannot be over the limits, apart from references and patterns."""
MAX_VALUES = 20_000
MAX_SCHEMAS = 3_000
MAX_PROPERTIES = 2_000
MAX_PATTERNS = 50
MAX_PATTERN_COSTS = 4 * MAX_PATTERN_COST
"""Most microseconds of all patterns together."""
MAX_REFERENCE_LENGTH = 500
MAX_HEIGHT = 64
"""Deepest nesting of schemas, references followed."""
MAX_EXPANSION = 100_000_000
"""Most schemas with every reference expanded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaChange:
    """One change of a tool's schema."""

    where: str
    """Dotted path into the schema, such as `properties.tags.items`; empty for all of it."""
    what: str
    """Predicate of a sentence whose subject is the path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenedSchema:
    """A usable schema with its changes, or the reason why its tool cannot be used."""

    schema: dict[str, Any] = field(repr=False)
    changes: tuple[SchemaChange, ...] = ()
    rejected: str | None = None
    is_replaced: bool = False
    """Whether nothing of the server's own schema could be used, and any arguments are accepted."""


def permissive() -> dict[str, Any]:
    """Schema that accepts any arguments."""
    return {"type": "object", "additionalProperties": True}


def screen(raw: object) -> ScreenedSchema:
    """Normalize an input schema, as parsed from JSON."""
    try:
        if not is_object(raw):
            return _replace_schema("is missing" if raw is None else "is not an object")
        measure(raw, MAX_VALUES, max_bits=math.inf)  # numbers matter only to validation
        reading = _Reading()
        schema = reading.read_root(raw)
        return ScreenedSchema(schema=schema, changes=tuple(reading.changes))
    except (TooDeep, RecursionError):
        return _replace_schema("is nested too deeply")
    except EffortExceeded as exc:
        return _reject_schema(f"its schema cannot be used: {exc}")
    except _Irreparable as exc:
        return _replace_schema(str(exc))
    except _Harmful as exc:
        return _reject_schema(str(exc))


def screen_output(raw: dict[str, Any]) -> ScreenedSchema:
    """Normalize an output schema of any type: rejected where it is malformed, and never guessed.

    Clients refuse results that do not match it, so a changed meaning would cost results. Returns the same
    schema where every validator can compile it; one of an older draft is converted to 2020-12.
    """
    from fairlead.catalog.schema.portable import (  # native code, which few need
        is_well_formed,
        portable_schema,
    )

    known = screen_output_assertions(raw)
    if known.rejected is not None:
        return known
    if not is_well_formed(raw):
        return _reject_schema("it is not a schema in any draft")
    portable = portable_schema(raw)
    if portable is None:
        portable = portable_schema(known.schema)
    return (
        _reject_schema("not every validator can compile it")
        if portable is None
        else ScreenedSchema(schema=portable)
    )


def screen_output_assertions(raw: dict[str, Any]) -> ScreenedSchema:
    """Normalize an output schema for validation: rejected where it is malformed.

    Unknown keywords such as `$schema` and `x-…` are left out, as clients' validators ignore them. They would
    prevent the check, since its cost would not be known.
    """
    try:
        measure(raw, MAX_VALUES, max_bits=math.inf)
        reading = _Reading()
        schema = reading.read_any_root(raw)
    except (EffortExceeded, _Irreparable) as exc:
        return _reject_schema(str(exc))
    except _Harmful as exc:
        return _reject_schema(str(exc).removeprefix("its schema "))
    if reading.changes:
        first = reading.changes[0]
        return _reject_schema(f"{first.where or 'it'} {first.what}")
    if is_endless(schema):
        return _reject_schema("it refers to itself without end")
    return ScreenedSchema(schema=schema)


class _Harmful(Exception):
    """The tool cannot be offered. The message says why."""


class _Irreparable(Exception):
    """The schema cannot be used, and the tool can. The message is the predicate of a sentence about it."""


class _SchemaDefinition(msgspec.Struct, rename="camel"):
    input_schema: Any = None


class _RootChoices(msgspec.Struct, rename="camel"):
    all_of: msgspec.Raw | None = None
    any_of: msgspec.Raw | None = None
    one_of: msgspec.Raw | None = None
    enum: msgspec.Raw | None = None
    const: msgspec.Raw | None = None


class _RootDefinition(msgspec.Struct, rename="camel"):
    input_schema: _RootChoices


_decode = msgspec.json.Decoder(_SchemaDefinition).decode
_decode_root = msgspec.json.Decoder(_RootDefinition).decode


@lru_cache(maxsize=2048)
def screen_definition(definition: bytes) -> ScreenedSchema:
    """Normalize the input schema in a tool's definition. Cached by its bytes."""
    if len(definition) > MAX_BYTES:
        return _reject_schema(f"its definition has {len(definition)} bytes; the limit is {MAX_BYTES}")
    try:
        return screen(_decode(definition).input_schema)
    except RecursionError:
        return _replace_schema("is nested too deeply")
    except ValueError:
        return _reject_schema("its definition cannot be parsed")


def needs_screening(definition: bytes) -> bool:
    """Whether a definition's input schema may be replaced or rejected, if it is of an object.

    Most are so plain that they need no parsing.
    """
    return (
        len(definition) > _SURELY_SOUND_BYTES
        or b"$" in definition
        or b"\\u" in definition  # an escape may spell one as well
        or b'"pattern' in definition
        or definition.count(b"{") > MAX_HEIGHT
        or definition.count(b"[") > MAX_HEIGHT
        or b'"object"' not in definition
        or _has_choices(definition)
    )


def _has_choices(definition: bytes) -> bool:
    """Whether an input schema has choices besides its type, which may exclude every object."""
    if b'Of"' not in definition and b'"enum"' not in definition and b'"const"' not in definition:
        return False
    try:
        return _decode_root(definition).input_schema != _RootChoices()
    except (ValueError, RecursionError):
        return True


def _replace_schema(reason: str) -> ScreenedSchema:
    change = SchemaChange(where="", what=f"{reason}; any arguments are accepted")
    return ScreenedSchema(schema=permissive(), changes=(change,), is_replaced=True)


def _reject_schema(reason: str) -> ScreenedSchema:
    return ScreenedSchema(schema=permissive(), rejected=reason)


class _Reading:
    """Normalization of one schema."""

    def __init__(self) -> None:
        self.changes: list[SchemaChange] = []
        self._schemas = self._properties = self._patterns = self._pattern_costs = 0
        self._multiplies = False

    def read_root(self, raw: dict[str, Any]) -> dict[str, Any]:
        root = self._read_object(raw, "")
        kind = root.get("type", "object")
        if kind != "object":
            if "object" not in kind:
                raise _Irreparable(f"wants a value of type {kind}, and arguments are always an object")
            self._note("type", "names other types than `object`, which arguments never are")
        schema = self._with_references({"type": "object"} | root | {"type": "object"})
        if not may_be_object(schema, schema):
            raise _Irreparable("takes no object, and arguments are always one")
        return schema

    def read_any_root(self, raw: dict[str, Any]) -> dict[str, Any]:
        return self._with_references(self._read_object(raw, ""))

    def _with_references(self, root: dict[str, Any]) -> dict[str, Any]:
        if self._multiplies:
            self._drop_lost_references(root)
            _limit(weigh(root))
        return root

    def _note(self, where: str, what: str) -> None:
        self.changes.append(SchemaChange(where=where, what=what))

    def _read(self, raw: object, where: str) -> Schema:
        if isinstance(raw, bool):
            return raw
        if not is_object(raw):
            self._note(where, "is not a schema; anything is accepted there")
            return {}
        return self._read_object(raw, where)

    def _read_object(self, raw: dict[str, Any], where: str) -> dict[str, Any]:
        if not is_supported_dialect(raw.get("$schema")):
            dialect = _quote_excerpt(raw["$schema"])
            self._note(below(where, "$schema"), f"is {dialect}, which is not supported; read as 2020-12")
        schema: dict[str, Any] = {}
        modern = upgrade_to_2020_12(raw)
        self._multiplies |= not MULTIPLYING.isdisjoint(modern)
        self._count(modern)
        for keyword, value in modern.items():
            place = below(where, keyword)
            try:
                read = self._keyword(keyword, value, place)
            except UnusableKeyword as exc:
                self._note(place, f"{exc}; ignored")
                continue
            if read is not None or keyword in ("const", "default"):
                schema[keyword] = read
        return schema

    def _keyword(self, keyword: str, value: object, where: str) -> Any:  # noqa: ANN401 - any JSON value
        if keyword in SINGLES:
            repairs = len(self.changes)
            schema = self._read(value, where)
            if keyword in ("not", "if") and len(self.changes) > repairs:
                raise UnusableKeyword("would mean something else once repaired")
            return schema
        if keyword in LISTS:
            return [self._read(item, f"{where}[{index}]") for index, item in enumerate(schema_list(value))]
        if keyword in MAPS:
            named = schema_map(value)
            for pattern in named if keyword == "patternProperties" else ():
                self._pattern(pattern)
            return {name: self._read(item, below(where, name)) for name, item in named.items()}
        if keyword == "pattern":
            return self._pattern(value)
        return _local(value) if keyword == "$ref" else keyword_value(keyword, value)

    def _pattern(self, value: object) -> str:
        if self._pattern_costs > MAX_PATTERN_COSTS:
            raise UnusableKeyword("is one pattern too many")
        pattern = pattern_value(value)
        self._pattern_costs += pattern_cost(pattern)
        if self._pattern_costs > MAX_PATTERN_COSTS:
            raise UnusableKeyword("is one pattern too many")
        return pattern

    def _count(self, schema: dict[str, Any]) -> None:
        self._schemas += 1
        properties, patterns = schema.get("properties"), schema.get("patternProperties")
        self._properties += len(properties) if is_object(properties) else 0
        self._patterns += ("pattern" in schema) + (len(patterns) if is_object(patterns) else 0)
        if self._schemas > MAX_SCHEMAS:
            raise _Harmful(f"its schema has more than {MAX_SCHEMAS} schemas")
        if self._properties > MAX_PROPERTIES:
            raise _Harmful(f"its schema has more than {MAX_PROPERTIES} properties")
        if self._patterns > MAX_PATTERNS:
            raise _Harmful(f"its schema has more than {MAX_PATTERNS} patterns")

    def _drop_lost_references(self, root: dict[str, Any]) -> None:
        """Remove references to nothing, or to what was not read as a schema."""
        sound = {id(schema) for schema in all_schemas(root)}
        for schema in all_schemas(root):
            if "$ref" not in schema:
                continue
            target = resolve(root, schema["$ref"])
            if not isinstance(target, bool) and id(target) not in sound:
                self._note(schema.pop("$ref"), "leads to nothing; anything is accepted there")


def _limit(weight: Weight) -> None:
    if weight.height > MAX_HEIGHT:
        raise TooDeep("its schemas and references are nested too deeply")
    if MAX_EXPANSION < weight.schemas < math.inf:
        raise _Harmful("its references multiply beyond what can be checked")


def _quote_excerpt(text: str) -> str:
    """Short excerpt of a schema, through the gate before it is cut: half a secret is not found."""
    return repr(gate.content(text, 100))


def _local(value: object) -> str:
    if not isinstance(value, str):
        raise UnusableKeyword("must be a string")
    if not value.startswith("#"):
        raise _Harmful(
            f"its schema refers to {_quote_excerpt(value)}, which is outside of it, and nothing is fetched"
        )
    if len(value) > MAX_REFERENCE_LENGTH:
        raise UnusableKeyword("is longer than any reference need be")
    return local_reference(value)
