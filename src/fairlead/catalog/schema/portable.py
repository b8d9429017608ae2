"""Checks of schemas against the drafts of JSON Schema, and schemas that every client's validator compiles.

Uses the native validator, so that modules which few commands need it for import this one on first use.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any

import jsonschema_rs

from fairlead.catalog.schema.keywords import HOLDERS, INVERTING, all_schemas
from fairlead.config.untyped import is_list, is_object

_OTHER_DIALECTS = frozenset(
    (
        "$id",
        "id",
        "$anchor",
        "$async",
        "$dynamicAnchor",
        "$dynamicRef",
        "$recursiveAnchor",
        "$recursiveRef",
        "additionalItems",
        "contentSchema",
        "definitions",
        "dependencies",
        "nullable",
    )
)
"""Keywords that validators of other drafts read in another way, or refuse."""
_IDENTIFIERS = ("$id", "$anchor", "$dynamicAnchor")
_VALUES = frozenset(("const", "default", "enum", "examples"))
"""Keywords in whose values no validator looks for identifiers."""
_DRAFT_4 = "http://json-schema.org/draft-04/schema#"
_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
_COMMON_DRAFTS = frozenset((_DRAFT_7.removesuffix("#"), _DRAFT_2020))
_ESCAPE_OR_CLASS = re.compile(r"\\(.)|([\[\]])", re.DOTALL)
_SET_OPERATION = re.compile(r"\[\^?\[|--|&&|~~|\|\|")
"""What Python warns of, since it may come to mean operations on sets."""
_ESCAPE_OR_FLAGS = re.compile(r"\\.|(\(\?[^:=!<])", re.DOTALL)
"""The second is a group with flags of its own, such as `(?i:x)`, which older JavaScript lacks."""
_ESCAPES = frozenset("dDwWsSbBnrtfv0123456789ukxcpP^$\\.*+?()[]{}|/")


def is_well_formed(schema: dict[str, Any]) -> bool:
    """Whether it is a schema in some draft, except for patterns. Types of keywords must have been checked."""
    plain = _without_patterns(schema)
    return any(
        jsonschema_rs.meta.is_valid({**plain, "$schema": draft})
        for draft in (_DRAFT_2020, _DRAFT_7, _DRAFT_4)
    )


def portable_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Schema that validators of drafts 7 to 2020-12 can compile: the same object where they can already.

    Patterns that not all of them support are left out. None where they have to stay, or where something else
    cannot be compiled. References and keywords' types must have been checked (see `normalize`).
    """
    plain = _without_patterns(schema)
    if not all(jsonschema_rs.meta.is_valid({**plain, "$schema": draft}) for draft in (_DRAFT_7, _DRAFT_2020)):
        return None
    odd = False
    for inner in all_schemas(schema):
        if not _OTHER_DIALECTS.isdisjoint(inner) or inner.get("enum") == []:
            return None
        if any(map(_has_identifiers, (inner[word] for word in inner.keys() - HOLDERS - _VALUES))):
            return None
        if _names_rare_draft(inner):
            return portable_schema(_without_rare_drafts(schema))
        if not all(map(_is_portable, inner.get("patternProperties", ()))):
            return None
        odd = odd or ("pattern" in inner and not _is_portable(inner["pattern"]))
    try:
        return without_odd_patterns(schema, _is_portable) if odd else schema
    except ValueError:
        return None


def _has_identifiers(value: object) -> bool:
    """Whether an unknown keyword's value has identifiers of schemas.

    The validator of the TypeScript SDK looks for them there, too: one that it has seen or that is malformed
    makes it refuse the schema.
    """
    pending = [value]
    while pending:
        item = pending.pop()
        if is_object(item):
            if any(isinstance(item.get(name), str) for name in _IDENTIFIERS):
                return True
            pending += item.values()
        elif is_list(item):
            pending += item
    return False


def _names_rare_draft(schema: dict[str, Any]) -> bool:
    """Whether it names a draft that clients' validators lack. They refuse to compile such a schema."""
    draft = schema.get("$schema")
    return "$schema" in schema and (
        not isinstance(draft, str) or draft.removesuffix("#") not in _COMMON_DRAFTS
    )


def _without_rare_drafts(schema: dict[str, Any]) -> dict[str, Any]:
    copy = deepcopy(schema)
    for inner in all_schemas(copy):
        if _names_rare_draft(inner):
            del inner["$schema"]
    return copy


def _without_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    """Copy without patterns, and with the schemas of `patternProperties` under plain names."""
    copy = deepcopy(schema)
    for inner in all_schemas(copy):
        inner.pop("pattern", None)
        if "patternProperties" in inner:
            named = inner["patternProperties"].values()
            inner["patternProperties"] = {f"p{number}": value for number, value in enumerate(named)}
    return copy


@lru_cache(maxsize=1024)
def _is_portable(pattern: str) -> bool:
    """Whether it is a regular expression in JavaScript (in the stricter syntax of flag `u`) and in Python."""
    in_class = False
    for escape, bracket in _ESCAPE_OR_CLASS.findall(pattern):
        if bracket:
            in_class = bracket == "["
        elif escape not in _ESCAPES and not (in_class and escape == "-"):
            return False
    if "\\p" in pattern or "\\P" in pattern or any(_ESCAPE_OR_FLAGS.findall(pattern)):
        return False
    if not is_pattern(pattern) or _SET_OPERATION.search(pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def without_odd_patterns(schema: dict[str, Any], is_usable: Callable[[str], bool]) -> dict[str, Any]:
    """Copy without unusable patterns. It accepts everything that the schema accepts."""
    copy = deepcopy(schema)
    for inner in all_schemas(copy):
        if not INVERTING.isdisjoint(inner):
            raise ValueError("it has patterns that cannot be checked here")
        if "pattern" in inner and not is_usable(inner["pattern"]):
            del inner["pattern"]
    return copy


@lru_cache(maxsize=1024)
def is_pattern(text: str) -> bool:
    """Whether this is a regular expression as JSON Schema means it."""
    return jsonschema_rs.is_valid({"format": "regex"}, text, validate_formats=True)
