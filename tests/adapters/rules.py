"""What each provider's API documents or answers 400 to, in checks that share nothing with what they judge."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema

from fairlead.config.untyped import is_object

SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCHEMA_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs")
SCHEMA_SINGLES = ("not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames")
ROOT_CHOICES = ("oneOf", "anyOf", "allOf", "enum", "not", "$ref")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
GEMINI_PROPERTY = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
GEMINI_TYPES = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"}
GEMINI_FIELDS = {
    *("type", "format", "description", "nullable", "enum", "items", "properties", "required", "anyOf"),
    *("minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "pattern"),
}
GEMINI_FORMATS = {"STRING": {"date-time"}, "INTEGER": {"int32", "int64"}, "NUMBER": {"float", "double"}}
STRICT_FIELDS = {
    *("type", "description", "enum", "const", "anyOf", "$ref", "$defs", "properties", "required", "items"),
    *("additionalProperties", "pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "minItems", "maxItems"),
}
STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}

_META: Any = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)


def openai_faults(definition: dict[str, Any]) -> list[str]:
    """What is wrong with a tool in the form of the Responses API."""
    parameters = definition["parameters"]
    faults = [*_named(definition["name"], NAME), *_json_schema_faults(parameters)]
    if "properties" not in parameters:
        faults.append("object schema missing properties")
    for where, schema in walk(parameters, ""):
        types = schema.get("type", [])
        if "array" in ([types] if isinstance(types, str) else types) and "items" not in schema:
            faults.append(f"{where}: array schema missing items")
    if definition["strict"]:
        for where, schema in walk(parameters, ""):
            faults += (f"{where}: {fault}" for fault in _strict_faults(schema))
    return faults


def anthropic_faults(definition: dict[str, Any]) -> list[str]:
    """What is wrong with a tool for the Messages API."""
    schema = definition["input_schema"]
    faults = [*_named(definition["name"], NAME), *_json_schema_faults(schema)]
    for where, inner in walk(schema, ""):
        faults += (
            f"{where}: property {name!r}"
            for name in inner.get("properties", ())
            if not ANTHROPIC_PROPERTY.fullmatch(name)
        )
    return faults


def gemini_faults(declaration: dict[str, Any]) -> list[str]:
    """What is wrong with a function declaration."""
    faults = [*_named(declaration["name"], GEMINI_NAME)]
    if "parameters" in declaration:
        if declaration["parameters"].get("type") != "OBJECT":
            faults.append("parameters are no OBJECT")
        faults += _gemini_schema_faults(declaration["parameters"], "")
    return faults


def walk(schema: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a JSON Schema, with its place."""
    if not is_object(schema):
        return
    yield where, schema
    for keyword in SCHEMA_SINGLES:
        if keyword in schema:
            yield from walk(schema[keyword], f"{where}.{keyword}")
    for keyword in SCHEMA_LISTS:
        for index, inner in enumerate(schema.get(keyword, ())):
            yield from walk(inner, f"{where}.{keyword}[{index}]")
    for keyword in SCHEMA_MAPS:
        for name, inner in schema.get(keyword, {}).items():
            yield from walk(inner, f"{where}.{keyword}.{name}")


def _named(name: str, legal: re.Pattern[str]) -> Iterator[str]:
    if not legal.fullmatch(name):
        yield f"name {name!r}"


def _json_schema_faults(root: dict[str, Any]) -> Iterator[str]:
    if root.get("type") != "object":
        yield "the top is no object"
    yield from (f"{keyword} at the top" for keyword in ROOT_CHOICES if keyword in root)
    yield from (f"{error.json_path}: {error.message[:100]}" for error in _META.iter_errors(root))
    for where, schema in walk(root, ""):
        if "$ref" in schema and not _leads_somewhere(root, schema["$ref"]):
            yield f"{where}: {schema['$ref']} leads nowhere"


def _leads_somewhere(root: Any, reference: str) -> bool:
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not is_object(found) or name not in found:
            return False
        found = found[name]
    return reference.startswith("#")


def _strict_faults(schema: dict[str, Any]) -> Iterator[str]:
    yield from (f"'{keyword}' is not permitted" for keyword in schema.keys() - STRICT_FIELDS)
    if "$ref" in schema and len(schema) > 1:
        yield "$ref cannot have other keywords"
    if not schema.keys() & {"type", "anyOf", "$ref"}:
        yield "schema must have a 'type' key"
    types = schema.get("type", ())
    if "object" in ([types] if isinstance(types, str) else types):
        if schema.get("additionalProperties") is not False:
            yield "'additionalProperties' is required to be supplied and to be false"
        if set(schema.get("required", ())) != set(schema.get("properties", ())):
            yield "'required' is required to include every key in properties"
    if schema.get("format", "date") not in STRICT_FORMATS:
        yield f"{schema['format']!r} is not a valid format"
    if re.search(r"\(\?(?!:)", schema.get("pattern", "")):
        yield "look-around is not supported"


def _gemini_schema_faults(schema: dict[str, Any], where: str) -> Iterator[str]:
    yield from (f"{where}: Unknown name {name!r}" for name in schema.keys() - GEMINI_FIELDS)
    if "anyOf" in schema:
        if len(schema) > 1:
            yield f"{where}: when using any_of, it must be the only field set"
        for index, inner in enumerate(schema["anyOf"]):
            yield from _gemini_schema_faults(inner, f"{where}.anyOf[{index}]")
        return
    kind = schema.get("type")
    if kind not in GEMINI_TYPES:
        yield f"{where}: schema didn't specify the schema type field"
    if "enum" in schema and (
        kind != "STRING" or not all(isinstance(one, str) and one for one in schema["enum"])
    ):
        yield f"{where}: enum: only allowed for STRING type, cannot be empty"
    if "format" in schema and schema["format"] not in GEMINI_FORMATS.get(str(kind), ()):
        yield f"{where}: format {schema['format']!r}"
    if kind == "ARRAY":
        yield from _gemini_schema_faults(schema.get("items", {}), f"{where}.items")
    if kind == "OBJECT":
        yield from _gemini_object_faults(schema, where)


def _gemini_object_faults(schema: dict[str, Any], where: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    if not properties:
        yield f"{where}: properties: should be non-empty for OBJECT type"
    yield from (
        f"{where}: required[{name}] is not defined"
        for name in schema.get("required", ())
        if name not in properties
    )
    for name, inner in properties.items():
        if not GEMINI_PROPERTY.fullmatch(name):
            yield f"{where}: property {name!r}"
        yield from _gemini_schema_faults(inner, f"{where}.{name}")
