"""Positions of subschemas inside a JSON Schema (2020-12), and resolution of its references."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from fairlead.config.untyped import is_list, is_object

Schema = dict[str, Any] | bool

TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")

_YES, _NO = ("1", "true", "yes", "on", "y", "t"), ("0", "false", "no", "off", "n", "f")
FLAG_WORDS = {**dict.fromkeys(_YES, True), **dict.fromkeys(_NO, False)}
"""Texts that Pydantic and others take for a boolean, in any case."""

IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE_SINGLES = ("not", "if", "then", "else")

LISTS = (*IN_PLACE_LISTS, "prefixItems")
"""Keywords that hold a list of schemas."""
SINGLES = (
    *IN_PLACE_SINGLES,
    "items",
    "contains",
    "unevaluatedItems",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
)
"""Keywords that hold one schema."""
MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs")
"""Keywords that hold schemas by name."""
HOLDERS = frozenset((*LISTS, *SINGLES, *MAPS))
"""Keywords that hold schemas."""
CLOSING = frozenset(("additionalProperties", "unevaluatedProperties"))
"""Keywords that forbid the members that no other keyword names."""
INVERTING = frozenset(("not", "if", "oneOf", "contains"))
"""Keywords under which a wider subschema can make the whole narrower."""


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, Schema]]:
    """Every schema directly inside this one, with its keyword.

    In a schema of an older draft, `prefixItems` and `dependentSchemas` may hold anything.
    """
    for keyword, value in schema.items():
        if keyword not in HOLDERS:
            continue
        if keyword in SINGLES:
            yield keyword, value
        elif keyword in LISTS:
            for item in value if is_list(value) else ():
                yield keyword, item
        elif is_object(value):
            for item in value.values():
                yield keyword, item


def all_schemas(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """This schema and every one inside it, except booleans."""
    pending = [root]
    while pending:
        schema = pending.pop()
        yield schema
        pending.extend(inner for _, inner in subschemas(schema) if is_object(inner))


def map_schemas(schema: Schema, where: str, change: Callable[[dict[str, Any], str], Schema]) -> Schema:
    """Copy in which `change` is applied to every schema and its path, the inner ones first."""
    if isinstance(schema, bool):
        return schema
    new: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword not in HOLDERS:
            new[keyword] = value
            continue
        place = below(where, keyword)
        if keyword in SINGLES:
            new[keyword] = map_schemas(value, place, change)
        elif keyword in LISTS:
            new[keyword] = [
                map_schemas(item, f"{place}[{index}]", change) for index, item in enumerate(value)
            ]
        else:
            new[keyword] = {
                name: map_schemas(item, below(place, name), change) for name, item in value.items()
            }
    return change(new, where)


def below(where: str, step: str) -> str:
    """Dotted path one step further."""
    return f"{where}.{step}" if where else step


def in_place_schemas(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[Schema]:
    """Schemas that apply to the same value as this one."""
    for keyword in IN_PLACE_LISTS:
        yield from schema.get(keyword, ())
    for keyword in IN_PLACE_SINGLES:
        if keyword in schema:
            yield schema[keyword]
    yield from schema.get("dependentSchemas", {}).values()
    if (target := resolve_reference(schema, root)) is not None:
        yield target


def may_be_object(schema: Schema, root: dict[str, Any], known: dict[int, bool] | None = None) -> bool:
    """Whether an object may match a schema, as far as types, choices and references tell.

    Args:
        schema: The schema.
        root: The schema that references lead into.
        known: What was found of schemas before, by identity.
    """
    if isinstance(schema, bool):
        return schema
    known = {} if known is None else known
    if id(schema) not in known:
        known[id(schema)] = True  # one that refers to itself excludes nothing by that
        kind, choices = schema.get("type", "object"), schema.get("enum", [schema.get("const", {})])
        known[id(schema)] = (
            (kind == "object" or "object" in kind)
            and any(map(is_object, choices))
            and all(may_be_object(inner, root, known) for inner in schema.get("allOf", ()))
            and all(
                any(may_be_object(inner, root, known) for inner in schema[keyword])
                for keyword in ("anyOf", "oneOf")
                if keyword in schema
            )
            and ((target := resolve_reference(schema, root)) is None or may_be_object(target, root, known))
        )
    return known[id(schema)]


def is_endless(root: dict[str, Any]) -> bool:
    """Whether some schema applies itself to the same value again, by references: no check would end."""
    finished: set[int] = set()
    for start in all_schemas(root):
        under_way: dict[int, Iterator[Schema]] = {}
        current: dict[str, Any] | None = start
        while current is not None or under_way:
            if current is not None:
                if id(current) in under_way:
                    return True
                if id(current) not in finished:
                    under_way[id(current)] = in_place_schemas(current, root)
                current = None
                continue
            latest = next(reversed(under_way))
            current = next((inner for inner in under_way[latest] if is_object(inner)), None)
            if current is None:
                finished.add(latest)
                del under_way[latest]
    return False


def resolve_reference(schema: dict[str, Any], root: dict[str, Any]) -> Schema | None:
    """Schema that this one refers to, if any."""
    return resolve(root, schema["$ref"]) if "$ref" in schema else None


def resolve(root: dict[str, Any], reference: str) -> Schema | None:
    """Target of a reference such as `#/$defs/node` inside a schema; None if there is none."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found: Any = root
    for step in unquote(reference).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if is_object(found) and name in found:
            found = found[name]
        elif is_list(found) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found if isinstance(found, bool) or is_object(found) else None
