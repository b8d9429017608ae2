"""Arguments as models write them, made what the schema demands, and only where it does.

Some models send `"[1]"` for a list, `"5"` for a number, or null for what they would leave out. A string
becomes something else only where the schema takes no string; a null goes only where it is refused and nothing
is required.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import msgspec

from fairlead.catalog.keywords import TYPES, Schema, referenced
from fairlead.config.shapes import is_list, is_object

MAX_TEXT = 1_000_000
MAX_ITEMS = 10_000
"""Longer lists are left as they are."""

Types = frozenset[str]

_ANY: Types = frozenset(TYPES)
_NONE: Types = frozenset()
_NAMED = {name: frozenset((name,)) for name in TYPES} | {"number": frozenset(("number", "integer"))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Coerced:
    """The arguments to send, and the places where they differ from what was given."""

    arguments: dict[str, Any]
    changed: tuple[str, ...] = ()


def coerce(schema: dict[str, Any], arguments: Mapping[str, Any]) -> Coerced:
    """Make arguments fit a screened schema, as far as that takes no guessing."""
    coercion = _Coercion(schema)
    try:
        coerced = coercion.members([schema], arguments, "")
    except RecursionError:
        return Coerced(arguments={**arguments})
    return Coerced(arguments=coerced, changed=tuple(coercion.changed))


class TypesOf:
    """Which types of JSON the schemas of a document take."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, tuple[Schema, Types]] = {}  # with the schema, lest another gets its id

    def __call__(self, schema: Schema) -> Types:
        """The types that a schema does not rule out."""
        if isinstance(schema, bool):
            return _ANY if schema else _NONE
        if id(schema) not in self._known:
            self._known[id(schema)] = schema, _ANY  # what whoever comes back here in a circle finds
            self._known[id(schema)] = schema, self._of(schema)
        return self._known[id(schema)][1]

    def views(self, schemas: list[Schema], kind: str) -> list[dict[str, Any]]:
        """The schemas that judge a value of that type here: these, and those they lead to beyond doubt."""
        found: dict[int, dict[str, Any]] = {}
        pending = [*schemas]
        while pending:
            schema = pending.pop()
            if isinstance(schema, bool) or id(schema) in found:
                continue
            found[id(schema)] = schema
            pending += schema.get("allOf", ())
            if (target := referenced(schema, self._root)) is not None:
                pending.append(target)
            for keyword in ("anyOf", "oneOf"):
                fitting = [one for one in schema.get(keyword, ()) if kind in self(one)]
                if len(fitting) == 1:
                    pending += fitting
        return list(found.values())

    def _of(self, schema: dict[str, Any]) -> Types:
        types = _ANY
        if (named := schema.get("type")) is not None:
            types = _NAMED[named] if isinstance(named, str) else _any_of(map(_NAMED.__getitem__, named))
        if "enum" in schema:
            types &= _any_of(map(_types_of_value, schema["enum"]))
        if "const" in schema:
            types &= _types_of_value(schema["const"])
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                types &= _any_of(map(self, schema[keyword]))
        for one in schema.get("allOf", ()):
            types &= self(one)
        target = referenced(schema, self._root)
        return types if target is None else types & self(target)


class _Coercion:
    def __init__(self, root: dict[str, Any]) -> None:
        self.changed: list[str] = []
        self._types = TypesOf(root)

    def members(self, schemas: list[Schema], given: Mapping[str, Any], where: str) -> dict[str, Any]:
        views = self._types.views(schemas, "object")
        coerced: dict[str, Any] = {}
        for name, item in given.items():
            inner = [view["properties"][name] for view in views if name in view.get("properties", ())]
            place = f"{where}.{name}" if where else name
            required = any(name in view.get("required", ()) for view in views)
            if item is None and inner and not required and "null" not in self._accepted(inner):
                self.changed.append(place)
            else:
                coerced[name] = self._value(inner or _others(views), item, place)
        return coerced

    def _value(self, schemas: list[Schema], given: Any, where: str) -> Any:  # noqa: ANN401 - any JSON value
        if not schemas:
            return given
        if isinstance(given, str):
            given = self._parsed(schemas, given, where)
        if is_object(given):
            return self.members(schemas, given, where)
        if is_list(given) and len(given) <= MAX_ITEMS:
            items = [view["items"] for view in self._types.views(schemas, "array") if "items" in view]
            return [self._value(items, item, f"{where}[{index}]") for index, item in enumerate(given)]
        return given

    def _parsed(self, schemas: list[Schema], text: str, where: str) -> Any:  # noqa: ANN401 - any JSON value
        accepted = self._accepted(schemas)
        if "string" in accepted or len(text) > MAX_TEXT:
            return text
        try:
            value = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            return text
        if accepted.isdisjoint(_types_of_value(value)):
            return text
        self.changed.append(where)
        return value

    def _accepted(self, schemas: list[Schema]) -> Types:
        return reduce(Types.__and__, map(self._types, schemas))


def _others(views: list[dict[str, Any]]) -> list[Schema]:
    """What judges a member that is not named in a schema."""
    return [view["additionalProperties"] for view in views if "additionalProperties" in view]


def _any_of(types: Iterable[Types]) -> Types:
    return _NONE.union(*types)


def _types_of_value(value: object) -> Types:
    """The types a value is of: a whole number is a number as well."""
    if value is None:
        return _NAMED["null"]
    if isinstance(value, bool):
        return _NAMED["boolean"]
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return _NAMED["number"]
    if isinstance(value, float):
        return frozenset(("number",))
    if isinstance(value, str):
        return _NAMED["string"]
    return _NAMED["array" if is_list(value) else "object"]
