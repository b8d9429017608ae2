"""Output schemas without the assertions that clients check in different ways.

A client that refuses a result loses it. So a schema is listed with no assertion that some client's validator
makes and the check of results here does not make in the same way: JavaScript's assert formats, know draft 7
alone and compute with floats; the one here leaves out look-around and limits beyond 64 bits; all differ in
what a dot or a space in a regular expression is. What is listed never accepts less than what was declared.
"""

import re
from functools import lru_cache
from typing import Any, Final

from fairlead.catalog.schema.keywords import Schema, all_schemas, map_schemas
from fairlead.config.untyped import as_object, is_object

_OF_EVERY_OBJECT: Final = frozenset(
    (
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
        "__defineGetter__",
        "__defineSetter__",
        "__lookupGetter__",
        "__lookupSetter__",
        "__proto__",
    )
)
"""Properties that every JavaScript object has: validators there find them in results that lack them."""
_FORMATS: Final = frozenset(
    ("format", "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum")
)
"""Asserted by JavaScript clients alone. Those with a limit cannot be compiled without the first."""
_MODERN: Final = frozenset(
    (
        "dependentRequired",
        "dependentSchemas",
        "maxContains",
        "minContains",
        "prefixItems",
    )
)
"""Not read by clients that know draft 7 alone, which then accept more."""
_UNEVALUATED: Final = frozenset(("unevaluatedItems", "unevaluatedProperties"))
"""The same. They also make narrower what is left of a schema from which an alternative was taken out."""
_LIMITS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_DEPENDENTS: Final = ("dependentRequired", "dependentSchemas")
_INTEGERS: Final = range(-(2**63), 2**63)
_LARGEST_FACTOR: Final = 10**15
_ESCAPED_OR_CLASS: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_ODD_ESCAPE: Final = re.compile(r"\\[sSWDbB]")
_MAY_BE_DISPUTED: Final = re.compile(
    rb'\\u|[0-9]{16}|[0-9][eE]|"(?:multipleOf|pattern|%b)'
    % "|".join(sorted(_FORMATS | _MODERN | _UNEVALUATED | _OF_EVERY_OBJECT)).encode()
)
"""What may be one of these keywords, names, numbers and patterns, also spelled with escapes."""


def may_be_disputed(schema: bytes) -> bool:
    """Whether JSON of a schema may have a disputed assertion. Most have none, and need no parsing."""
    return _MAY_BE_DISPUTED.search(schema) is not None


def without_disputed(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Schema that accepts at least as much, and that all clients and the check here read alike.

    None where no part of it can be checked here.
    """
    from fairlead.catalog.schema.normalize import screen_output_assertions
    from fairlead.catalog.schema.validate import Check  # native code, which few need

    is_disputed = any(map(_has_dispute, all_schemas(schema)))

    def relax(inner: dict[str, Any], _where: str) -> dict[str, Any]:
        return _without_inversions(inner, is_any=is_disputed)

    relaxed = as_object(map_schemas(map_schemas(schema, "", relax), "", _without_assertions))
    return relaxed if Check(screen_output_assertions(relaxed), is_lenient=False).is_usable else None


def _has_dispute(schema: dict[str, Any]) -> bool:
    """Whether a keyword of this very schema is disputed."""
    if not _MODERN.isdisjoint(schema):
        return True
    return _without_assertions(schema, "") != schema


def _is_disputed(schema: Schema, *, is_any: bool) -> bool:
    """Whether something in a schema is disputed, or perhaps in what it refers to."""
    if not is_any or not is_object(schema):
        return False
    return any(
        "$ref" in inner or inner.get("not") is False or _has_dispute(inner) for inner in all_schemas(schema)
    )


def _without_inversions(schema: dict[str, Any], *, is_any: bool) -> dict[str, Any]:
    """Schema without keywords under which a wider subschema makes the whole narrower, if that is disputed.

    Inner schemas come first. `not: false`, which accepts everything, stays for the outer ones to see.
    """
    schema = {**schema}
    if "not" in schema and _is_disputed(schema["not"], is_any=is_any):
        schema["not"] = False
    if "if" in schema and _is_disputed(schema["if"], is_any=is_any):
        schema.pop("then", None)
        schema.pop("else", None)
    if "maxContains" in schema and _is_disputed(schema.get("contains", True), is_any=is_any):
        del schema["maxContains"]
    if "oneOf" in schema and any(_is_disputed(one, is_any=is_any) for one in schema["oneOf"]):
        alternatives = {"anyOf": schema.pop("oneOf")}
        if "anyOf" in schema:
            alternatives = {"allOf": [*schema.get("allOf", ()), alternatives]}
        schema |= alternatives
    return schema


def _without_assertions(schema: dict[str, Any], _where: str) -> dict[str, Any]:
    """Schema without disputed keywords of its own."""
    kept = {keyword: value for keyword, value in schema.items() if not _is_odd(keyword, value)}
    if is_object(properties := schema.get("properties")):
        kept["properties"] = {
            name: {} if name in _OF_EVERY_OBJECT else value for name, value in properties.items()
        }
    for keyword in _DEPENDENTS:
        if is_object(dependents := schema.get(keyword)):
            kept[keyword] = {
                name: value for name, value in dependents.items() if name not in _OF_EVERY_OBJECT
            }
    if "prefixItems" in schema:
        kept.pop("items", None)  # draft 7 holds the first items to the schema of the rest
    if schema.get("minContains") == 0:
        for keyword in ("contains", "minContains", "maxContains"):
            kept.pop(keyword, None)
    return kept


def _is_odd(keyword: str, value: Any) -> bool:  # noqa: ANN401 - any JSON value
    if keyword in _FORMATS or keyword in _UNEVALUATED:
        return True
    if keyword in _LIMITS:
        return isinstance(value, int) and value not in _INTEGERS
    if keyword == "multipleOf":  # 1.15 is no multiple of 0.01 as floats divide
        return value > _LARGEST_FACTOR or not float(value).is_integer()
    if keyword == "pattern":
        return _is_odd_pattern(value)
    return keyword == "not" and value is False


@lru_cache(maxsize=1024)
def _is_odd_pattern(pattern: str) -> bool:
    """Whether validators find it in different texts, such as those with a carriage return."""
    from fairlead.catalog.schema.validate import is_known_pattern  # native code

    has_dot = "." in _ESCAPED_OR_CLASS.sub("", pattern)
    return has_dot or _ODD_ESCAPE.search(pattern) is not None or not is_known_pattern(pattern)
