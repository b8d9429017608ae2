"""Coercion of arguments that models write to what the schema requires, only where it does.

Some models send `"[1]"` for a list, `"5"` for a number, or null for an absent value. A string is converted
only where the schema takes no string; a null is dropped only where it is refused and nothing is required.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from fairlead.catalog.sanitize.slices import decode_finite
from fairlead.catalog.schema.keywords import TYPES, Schema, resolve_reference
from fairlead.config.untyped import is_list, is_object

MAX_TEXT = 1_000_000
"""Most text that is parsed as JSON, of all strings together."""
MAX_ITEMS = 10_000
"""Longer lists are left unchanged."""
MAX_STEPS = 30_000
"""Most schemas, members and items that are visited: about 20 ms. Beyond that nothing is changed."""
MAX_PLACE = 200
MAX_CHANGES = 100
"""Most changed places that are reported."""

Types = frozenset[str]

_ANY: Types = frozenset(TYPES)
_NONE: Types = frozenset()
_NAMED = {name: frozenset((name,)) for name in TYPES} | {"number": frozenset(("number", "integer"))}


@dataclass(frozen=True, kw_only=True, slots=True)
class CoercedArguments:
    """Arguments to send, and the places where they were changed."""

    arguments: dict[str, Any]
    changed: tuple[str, ...] = ()


def coerce(schema: dict[str, Any], arguments: Mapping[str, Any]) -> CoercedArguments:
    """Make arguments match a screened schema, as far as that takes no guessing."""
    coercion = _Coercion(schema)
    try:
        coerced = coercion.members([schema], arguments, ())
    except (RecursionError, _CoercionExceeded):
        return CoercedArguments(arguments={**arguments})
    return CoercedArguments(arguments=coerced, changed=tuple(coercion.changed))


class _CoercionExceeded(Exception):
    """Too much to visit: the arguments stay unchanged."""


class TypesOf:
    """JSON types that the schemas of a document accept."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, tuple[Schema, Types]] = {}  # with the schema, so that its id is not reused

    def __call__(self, schema: Schema) -> Types:
        """Types that a schema does not rule out."""
        if isinstance(schema, bool):
            return _ANY if schema else _NONE
        if id(schema) not in self._known:
            self._known[id(schema)] = schema, _ANY  # found by a circular reference
            self._known[id(schema)] = schema, self._of(schema)
        return self._known[id(schema)][1]

    def views(self, schemas: list[Schema], kind: str) -> list[dict[str, Any]]:
        """Schemas that apply to a value of that type here: these, and those they certainly lead to."""
        found: dict[int, dict[str, Any]] = {}
        pending = [*schemas]
        while pending:
            schema = pending.pop()
            if isinstance(schema, bool) or id(schema) in found:
                continue
            found[id(schema)] = schema
            pending += schema.get("allOf", ())
            if (target := resolve_reference(schema, self._root)) is not None:
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
        target = resolve_reference(schema, self._root)
        return types if target is None else types & self(target)


_Place = tuple[str | int, ...]


class _Coercion:
    def __init__(self, root: dict[str, Any]) -> None:
        self.changed: list[str] = []
        self._types = TypesOf(root)
        self._views: dict[tuple[str, frozenset[int]], tuple[list[Schema], list[dict[str, Any]]]] = {}
        self._steps = MAX_STEPS
        self._text = MAX_TEXT

    def members(self, schemas: list[Schema], given: Mapping[str, Any], where: _Place) -> dict[str, Any]:
        views = self._views_of_type(schemas, "object")
        self._take(len(views))
        named = [properties for view in views if (properties := view.get("properties"))]
        required = {name for view in views for name in view.get("required", ())}
        others = _others(views)
        self._take(len(required))
        coerced: dict[str, Any] = {}
        for name, item in given.items():
            self._take(1 + len(named))
            inner = [properties[name] for properties in named if name in properties]
            place = (*where, name)
            if item is None and inner and name not in required and "null" not in self._intersect_types(inner):
                self._note(place)
            else:
                coerced[name] = self._value(inner or others, item, place)
        return coerced

    def _value(self, schemas: list[Schema], given: Any, where: _Place) -> Any:  # noqa: ANN401 - any JSON value
        if not schemas:
            return given
        if isinstance(given, str):
            given = self._parse_text(schemas, given, where)
        if is_object(given):
            return self.members(schemas, given, where)
        if is_list(given) and len(given) <= MAX_ITEMS:
            self._take(len(given))
            views = self._views_of_type(schemas, "array")
            self._take(len(views))
            items = [view["items"] for view in views if "items" in view]
            return [self._value(items, item, (*where, index)) for index, item in enumerate(given)]
        return given

    def _parse_text(self, schemas: list[Schema], text: str, where: _Place) -> Any:  # noqa: ANN401 - any JSON value
        accepted = self._intersect_types(schemas)
        if "string" in accepted or len(text) > self._text:
            return text
        self._text -= len(text)
        try:
            value = decode_finite(text.encode())
        except (ValueError, RecursionError):
            return text
        if accepted.isdisjoint(_types_of_value(value)):
            return text
        self._note(where)
        return value

    def _intersect_types(self, schemas: list[Schema]) -> Types:
        self._take(len(schemas))
        return reduce(Types.__and__, map(self._types, schemas))

    def _views_of_type(self, schemas: list[Schema], kind: str) -> list[dict[str, Any]]:
        """Schemas that apply to a value of that type here, computed once for all items of a list."""
        self._take(len(schemas))
        wanted = kind, frozenset(map(id, schemas))
        if wanted not in self._views:
            views = self._types.views(schemas, kind)
            self._take(sum(1 + len(view.get("anyOf", ())) + len(view.get("oneOf", ())) for view in views))
            self._views[wanted] = schemas, views  # with the schemas, so that their ids are not reused
        return self._views[wanted][1]

    def _take(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise _CoercionExceeded

    def _note(self, place: _Place) -> None:
        if len(self.changed) < MAX_CHANGES:
            self.changed.append(_as_text(place))


def _as_text(place: _Place) -> str:
    text = ""
    for step in place:
        if len(text) > MAX_PLACE:
            return f"{text[:MAX_PLACE]}…"
        text += f"[{step}]" if isinstance(step, int) else f".{step[:MAX_PLACE]}" if text else step[:MAX_PLACE]
    return text


def _others(views: list[dict[str, Any]]) -> list[Schema]:
    """Schemas of a member that is not named in a schema."""
    return [view["additionalProperties"] for view in views if "additionalProperties" in view]


def _any_of(types: Iterable[Types]) -> Types:
    return _NONE.union(*types)


def _types_of_value(value: object) -> Types:
    """Types of a value: a whole number is a number as well."""
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
