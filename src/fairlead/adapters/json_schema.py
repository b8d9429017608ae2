"""Conversions of JSON Schema that more than one provider needs."""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from fairlead.adapters.definition import DefinitionChanges
from fairlead.catalog.schema.coerce import Types
from fairlead.catalog.schema.keywords import (
    MAPS,
    SINGLES,
    TYPES,
    Schema,
    all_schemas,
    below,
    map_schemas,
    resolve_reference,
)
from fairlead.catalog.schema.portable import is_pattern
from fairlead.config.untyped import is_list

FURTHER_RULES = (
    *("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "propertyNames", "uniqueItems"),
    *("contains", "minContains", "maxContains", "minProperties", "maxProperties"),
    *("unevaluatedItems", "unevaluatedProperties"),
)
"""Keywords that only narrow a value further, and that no subset has."""
MAX_HINT = 300
MAX_DEFAULT = 80

_COMPOSED = ("allOf", "anyOf", "oneOf", "$ref")
_REFUSED_AT_ROOT = ("not", "enum", "const")
_CHOICES = ("anyOf", "oneOf")


def without_root_choices(
    schema: dict[str, Any], changes: DefinitionChanges
) -> tuple[dict[str, Any], str | None]:
    """Remove composition at the root, which no provider accepts, and return a hint on what that lost.

    Properties that all alternatives require stay required; others become optional.
    """
    root = {keyword: value for keyword, value in schema.items() if keyword not in _REFUSED_AT_ROOT}
    for keyword in (keyword for keyword in _REFUSED_AT_ROOT if keyword in schema):
        changes.note(keyword, "is not accepted at the top; left for the server to check")
    if not any(keyword in root for keyword in _COMPOSED):
        return root, None
    properties, required = _Members(schema).of(schema)
    for keyword in _COMPOSED:
        if root.pop(keyword, None) is not None:
            changes.note(keyword, "is not accepted at the top; its properties are merged with the others")
    root["properties"] = properties
    if required:
        root["required"] = required
    return root, _hint_on_choices(schema)


class _Members:
    """Properties that objects of a schema may have, and those they must."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, tuple[dict[str, Schema], list[str]]] = {}

    def of(self, schema: Schema) -> tuple[dict[str, Schema], list[str]]:
        if isinstance(schema, bool):
            return {}, []
        if id(schema) not in self._known:
            self._known[id(schema)] = {}, []  # found by a circular reference
            self._known[id(schema)] = self._of(schema)
        return self._known[id(schema)]

    def _of(self, schema: dict[str, Any]) -> tuple[dict[str, Schema], list[str]]:
        properties: dict[str, Schema] = {**schema.get("properties", {})}
        required: list[str] = [*schema.get("required", ())]
        target = resolve_reference(schema, self._root)
        for part in (*schema.get("allOf", ()), *(() if target is None else (target,))):
            inner, needed = self.of(part)
            properties = inner | properties
            required += needed
        for keyword in _CHOICES:
            branches = [self.of(branch) for branch in schema.get(keyword, ())]
            properties = _one_of_each(inner for inner, _ in branches) | properties
            required += [name for name in _all(branches) if all(name in needed for _, needed in branches)]
        return properties, list(dict.fromkeys(required))


def _all(branches: list[tuple[dict[str, Schema], list[str]]]) -> list[str]:
    return branches[0][1] if branches else []


def _one_of_each(branches: Iterable[dict[str, Schema]]) -> dict[str, Schema]:
    """Properties of all branches. One that several define may be as in any of them."""
    found: dict[str, list[Schema]] = {}
    for branch in branches:
        for name, schema in branch.items():
            if schema not in found.setdefault(name, []):
                found[name].append(schema)
    return {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in found.items()}


def _hint_on_choices(schema: dict[str, Any]) -> str | None:
    """Hint for a model about alternatives that were removed."""
    members = _Members(schema)
    for keyword in _CHOICES:
        branches = [members.of(branch) for branch in schema.get(keyword, ())]
        sets = [
            ", ".join(f"`{name}`" for name in required or properties) for properties, required in branches
        ]
        hint = f"Give the arguments of one of these sets: {' | '.join(filter(None, sets))}."
        if any(sets) and len(hint) <= MAX_HINT and hint.isprintable():
            return hint
    return None


def with_legal_names(
    schema: dict[str, Any], legal: re.Pattern[str], changes: DefinitionChanges
) -> tuple[dict[str, Any], dict[str, str]]:
    """Rename properties to names that a provider accepts; returns the server's name for each new one."""
    names = {name for inner in all_schemas(schema) for name in inner.get("properties", ())}
    new_names = {name: _legal_name(name, legal) for name in sorted(names) if not legal.fullmatch(name)}
    if not new_names:
        return schema, {}

    def rename(inner: dict[str, Any], where: str) -> Schema:
        for keyword in ("properties", "dependentRequired", "dependentSchemas"):
            if keyword in inner:
                inner[keyword] = {new_names.get(name, name): value for name, value in inner[keyword].items()}
        if "required" in inner:
            inner["required"] = [new_names.get(name, name) for name in inner["required"]]
        if "$ref" in inner:
            inner["$ref"] = "/".join(_step(step, new_names) for step in inner["$ref"].split("/"))
        return inner

    for name, new in new_names.items():
        changes.note(below("properties", name), f"is called `{new}` there, and `{name}` again in the call")
    return _object(map_schemas(schema, "", rename)), {new: name for name, new in new_names.items()}


def _legal_name(name: str, legal: re.Pattern[str]) -> str:
    """A legal name like this one. The hash makes it unique."""
    slug = re.sub(r"[^a-zA-Z0-9_]+", "_", name[:200]).strip("_")[:50]
    new = f"{slug}_{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"
    return new if legal.fullmatch(new) else f"_{new}"


def _step(step: str, new_names: Mapping[str, str]) -> str:
    return new_names.get(step.replace("~1", "/").replace("~0", "~"), step)


def add_description(new: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Add the description, with the default in it: providers accept that nowhere else."""
    description = schema.get("description", "")
    if "default" in schema and schema["default"] is not None:
        default = msgspec.json.encode(schema["default"]).decode()
        if len(default) <= MAX_DEFAULT and default not in description:
            description = f"{description} (default: {default})".lstrip()
    return new | {"description": description} if description else new


def name_types(schema: dict[str, Any], accepted: Types) -> list[str]:
    """Types to name for a schema, which may name none; empty where it accepts anything."""
    if accepted >= set(TYPES):
        return ["object"] if "properties" in schema else ["array"] if "items" in schema else []
    return [name for name in TYPES if name in accepted and not (name == "integer" and "number" in accepted)]


def with_sound_patterns(schema: dict[str, Any], changes: DefinitionChanges) -> dict[str, Any]:
    """Remove `pattern`s that are no regular expressions."""

    def drop(inner: dict[str, Any], where: str) -> Schema:
        if "pattern" in inner and not is_pattern(inner["pattern"]):
            changes.note(below(where, "pattern"), "is not a regular expression; left out")
            del inner["pattern"]
        return inner

    return _object(map_schemas(schema, "", drop))


def with_objects_for_booleans(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace `true` by `{}` where a provider requires an object. It means the same."""

    def spell_out(inner: dict[str, Any], _: str) -> Schema:
        for keyword, value in inner.items():
            if keyword in MAPS:
                inner[keyword] = {name: _expand_boolean_schema(item) for name, item in value.items()}
            elif keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
                inner[keyword] = [_expand_boolean_schema(item) for item in value]
            elif keyword == "items" or (keyword in SINGLES and not isinstance(value, bool)):
                inner[keyword] = _expand_boolean_schema(value)
        return inner

    return _object(map_schemas(schema, "", spell_out))


def complete_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Add `items` to every list and `properties` to every object, as OpenAI requires."""

    def complete(inner: dict[str, Any], _: str) -> Schema:
        types = inner.get("type", ())
        if types == "array" or (is_list(types) and "array" in types):
            inner.setdefault("items", {})
        if types == "object":
            inner.setdefault("properties", {})
        return inner

    return _object(map_schemas(schema, "", complete))


def _expand_boolean_schema(schema: Schema) -> dict[str, Any]:
    return ({} if schema else {"not": {}}) if isinstance(schema, bool) else schema


def _object(schema: Schema) -> dict[str, Any]:
    assert not isinstance(schema, bool)
    return schema
