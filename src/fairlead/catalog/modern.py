"""One level of a schema in the words of 2020-12: older drafts' said anew, what makes no sense refused."""

import math
from collections.abc import Callable
from typing import Any

from fairlead.catalog import gate
from fairlead.catalog.effort import pattern_states
from fairlead.catalog.keywords import TYPES
from fairlead.config.shapes import as_object, is_list, is_object

MAX_PATTERN_LENGTH = 1_000
MAX_PATTERN_STATES = 5_000
"""As `effort` counts them. Compiling one takes about a microsecond."""

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
"""Keywords that older drafts, or OpenAPI, use in another way, beside a list of `items`."""
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
"""What people write for a type, and what they mean."""


class Unusable(Exception):
    """A keyword's value means nothing. The message ends a sentence about it."""


def supported_dialect(uri: object) -> bool:
    """Is this `$schema` one of the drafts that can be read here? Many tools name none."""
    if not isinstance(uri, str) or not uri:
        return True
    return uri.removeprefix("http://").removeprefix("https://").rstrip("#") in _DIALECTS


def modernised(schema: dict[str, Any]) -> dict[str, Any]:
    """The same in 2020-12, this level only."""
    if _OLDER.isdisjoint(schema) and not is_list(schema.get("items")):
        return schema
    new = {**schema}
    for renew in _RENEWALS:
        renew(new)
    return new


def local_reference(reference: str) -> str:
    """A reference as it must be once `definitions` are `$defs`."""
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
    """The value of a keyword that holds no schemas; None for one that nobody here knows."""
    reader = _READERS.get(keyword)
    return reader(value) if reader else None


def schema_list(value: object) -> list[Any]:
    """The value of a keyword that holds a list of schemas."""
    if not is_list(value) or not value:
        raise Unusable("must be a list of schemas")
    return value


def schema_map(value: object) -> dict[str, Any]:
    """The value of a keyword that holds schemas by name."""
    if not is_object(value):
        raise Unusable("must be an object of schemas")
    return value


def _type(value: object) -> str | list[str]:
    words = value if is_list(value) else [value]
    types = [_type_named(word) for word in words]
    if not types:
        raise Unusable("must name a type")
    return list(dict.fromkeys(types)) if is_list(value) and len(types) > 1 else types[0]


def _type_named(word: object) -> str:
    name = word.lower() if isinstance(word, str) else ""
    name = _OTHER_WORDS.get(name, name)
    if name not in TYPES:
        raise Unusable(f"is {gate.content(str(word), 40)!r}, which is no type")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Unusable("must be a string")
    return value


def pattern_value(value: object) -> str:
    """A regular expression that is not too large."""
    pattern = _text(value)
    if len(pattern) > MAX_PATTERN_LENGTH or pattern_states(pattern) > MAX_PATTERN_STATES:
        raise Unusable("is a pattern that is too large to be checked")
    return pattern


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Unusable("must be true or false")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unusable("must be a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise Unusable("must be a number")
    return value


def _factor(value: object) -> float:
    if (number := _number(value)) <= 0:
        raise Unusable("must be above zero")
    return number


def _count(value: object) -> int:
    number = _number(value)
    if number < 0 or number != int(number):
        raise Unusable("must be a whole number")
    return int(number)


def _names(value: object) -> list[str]:
    if not is_list(value) or not all(isinstance(item, str) for item in value):
        raise Unusable("must be a list of names")
    return list(dict.fromkeys(value))


def _names_by_name(value: object) -> dict[str, list[str]]:
    return {name: _names(item) for name, item in schema_map(value).items()}


def _choices(value: object) -> list[Any]:
    if not is_list(value) or not value:
        raise Unusable("must be a list with something in it")
    return value


def _anything(value: object) -> Any:  # noqa: ANN401 - any JSON value
    return value


_READERS: dict[str, Callable[[object], Any]] = {
    "type": _type,
    "enum": _choices,
    "examples": _choices,
    "const": _anything,
    "default": _anything,
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
