"""Whatever a server writes as an input schema, clients get a valid one, and are held to no more than that."""

import json
import re
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from fairlead.catalog.repair.definitions import RepairedDefinition, repair_definition
from fairlead.catalog.repair.protocol_versions import valid_listing
from fairlead.catalog.schema.keywords import all_schemas, is_endless, resolve
from fairlead.catalog.schema.listed import MAX_NAMED_CHANGES
from fairlead.catalog.schema.normalize import screen_definition
from fairlead.catalog.schema.portable import is_pattern
from fairlead.catalog.schema.validate import check_arguments
from fairlead.catalog.tools import Listing, ToolEntry, ToolKey, read_tools
from fairlead.config.untyped import is_object
from tests.catalog.support import broken_schemas

pytestmark = pytest.mark.requirement("HARD-85")

DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
META: Any = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)


def repaired(**schema: Any) -> RepairedDefinition:
    return repair_definition("tool", json.dumps({"name": "t", "inputSchema": schema}).encode())


def input_of(found: RepairedDefinition) -> dict[str, Any]:
    assert found.definition is not None
    return json.loads(found.definition)["inputSchema"]


def changes_of(found: RepairedDefinition) -> list[str]:
    return [f"{change.where} {change.what}" for change in found.changes]


def assert_valid(schema: dict[str, Any]) -> None:
    assert META.is_valid(schema)
    assert not is_endless(schema)
    anchors = {f"#{inner.get('$anchor')}" for inner in all_schemas(schema)}
    for inner in all_schemas(schema):
        assert is_pattern(inner.get("pattern", ""))
        assert all(map(is_pattern, inner.get("patternProperties", ())))
        if "$ref" in inner:
            assert inner["$ref"] in anchors or resolve(schema, inner["$ref"]) is not None


BROKEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "strng"}, {}),
    ({"type": ["string", 5]}, {}),
    ({"type": "int"}, {"type": "integer"}),
    ({"pattern": "["}, {}),
    ({"pattern": "(?P<year>[0-9]+)"}, {}),
    ({"pattern": "(?i)yes"}, {}),
    ({"pattern": 5}, {}),
    ({"$ref": "#/$defs/nothing"}, {}),
    ({"$ref": "#nothing"}, {}),
    ({"$ref": "#/properties/a"}, {}),
    ({"$ref": 5}, {}),
    ({"allOf": [{"$ref": "#/properties/a"}]}, {"allOf": [{}]}),
    ({"minimum": "3"}, {}),
    ({"maxLength": -1}, {}),
    ({"multipleOf": 0}, {}),
    ({"uniqueItems": "yes"}, {}),
    ({"enum": {}}, {}),
    ({"enum": []}, {}),
    ({"required": "a"}, {}),
    ({"required": ["a", "a"]}, {"required": ["a"]}),
    ({"properties": []}, {}),
    ({"properties": {"b": None}}, {"properties": {"b": {}}}),
    ({"items": "string"}, {"items": {}}),
    ({"anyOf": []}, {}),
    ({"anyOf": [None, {"type": "string"}]}, {"anyOf": [{}, {"type": "string"}]}),
    ({"description": None, "title": 5, "format": [], "$comment": {}}, {}),
    ({"$id": 5, "$anchor": "1 2"}, {}),
    ({"dependentRequired": {"b": "c"}}, {}),
    ({"dependencies": {"b": 5}}, {"dependentSchemas": {"b": {}}}),
    ({"definitions": {"b": {"type": "x"}}}, {"$defs": {"b": {}}}),
    ({"items": [{"type": "string"}]}, {"prefixItems": [{"type": "string"}]}),
    ({"minimum": 3, "exclusiveMinimum": True}, {"exclusiveMinimum": 3}),
]


@pytest.mark.parametrize(("broken", "listed"), BROKEN)
@pytest.mark.parametrize("depth", [0, 5])
def test_what_is_not_valid_is_left_out_wherever_it_stands_and_nothing_else_changes(
    broken: dict[str, Any], listed: dict[str, Any], depth: int
) -> None:
    def around(inner: dict[str, Any]) -> dict[str, Any]:
        for _ in range(depth):
            inner = {"type": "object", "properties": {"b": inner}, "x-more": [1]}
        return {"type": "object", "properties": {"a": inner, "c": {"const": "x", "$comment": "kept"}}}

    text = json.dumps(broken).replace("#/properties/a", "#/properties/a" + "/properties/b" * depth)
    found = repaired(**around(json.loads(text)))
    assert input_of(found) == around(listed)
    assert_valid(input_of(found))
    assert found.changes
    assert all(change.where.startswith("inputSchema") for change in found.changes)


WIDENED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"not": {"type": "strng"}}, {}),
    ({"not": {"not": {"pattern": "["}}}, {}),
    ({"if": {"type": "strng"}, "then": False}, {"then": False}),
    ({"oneOf": [{"type": "strng"}, {"type": "string"}]}, {"anyOf": [{}, {"type": "string"}]}),
    ({"oneOf": [{"type": "strng"}], "anyOf": [True]}, {"anyOf": [True]}),
    ({"contains": {"type": "strng"}, "maxContains": 1}, {"contains": {}}),
    ({"properties": [], "additionalProperties": False}, {}),
    (
        {"patternProperties": {"[": True, "^b": True}, "additionalProperties": False},
        {"patternProperties": {"^b": True}},
    ),
    (
        {"allOf": [{"properties": 5}], "unevaluatedProperties": False},
        {"allOf": [{}]},
    ),
    ({"not": {"$ref": "#/$defs/repaired"}}, {}),
    ({"oneOf": [{"$ref": "#/$defs/repaired"}, True]}, {"anyOf": [{"$ref": "#/$defs/repaired"}, True]}),
]


@pytest.mark.parametrize(("schema", "listed"), WIDENED)
def test_a_repaired_schema_never_refuses_more_than_before(
    schema: dict[str, Any], listed: dict[str, Any]
) -> None:
    more = {"$defs": {"repaired": {"type": "strng"}}} if "repaired" in json.dumps(schema) else {}
    found = repaired(type="object", properties={"a": schema}, **more)
    assert input_of(found)["properties"]["a"] == listed
    assert_valid(input_of(found))


def test_arguments_named_by_properties_that_cannot_be_read_are_not_refused() -> None:
    found = repaired(type="object", properties=["a"], additionalProperties=False)
    assert input_of(found) == {"type": "object"}
    assert "inputSchema.additionalProperties would forbid more than before; left out" in changes_of(found)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#n"}}, "$defs": {"n": {"$anchor": "n", "items": {"$ref": "#"}}}},
        {"properties": {"a": {"$ref": "#/x-types/b"}}, "x-types": {"b": {"type": "string"}}},
        {
            "$schema": DRAFT_7,
            "properties": {"a": {"items": [{"$ref": "#/definitions/b"}]}},
            "definitions": {"b": {}},
        },
        {"$schema": DRAFT_4, "properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}},
        {"properties": {"a": {"pattern": "^\\p{Lu}(?<=x)\\d{3}$"}}},
        {"properties": {"a": {"pattern": "a" * 5_000}}},
        {"properties": {"a": {"x-unknown": {"$ref": 5}, "default": {"pattern": "["}, "examples": []}}},
        {"properties": {"pattern": {"type": "string"}, "$ref": {"type": "string"}, "enum": {}}},
    ],
)
def test_a_valid_schema_stays_byte_for_byte(schema: dict[str, Any]) -> None:
    definition = json.dumps({"name": "t", "inputSchema": {"type": "object", **schema}}).encode()
    assert repair_definition("tool", definition).definition is definition


def test_references_in_a_ring_are_cut_once_and_those_to_nested_values_stay() -> None:
    found = repaired(
        type="object",
        allOf=[{"$ref": "#"}],
        properties={"child": {"$ref": "#"}, "x": {"$ref": "#/$defs/a"}},
        **{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [True, {"$ref": "#/$defs/a"}]}}},
    )
    schema = input_of(found)
    assert schema["properties"] == {"child": {"$ref": "#"}, "x": {"$ref": "#/$defs/a"}}
    assert schema["allOf"] == [{}]
    assert sum("leads back to itself" in change for change in changes_of(found)) == 2
    assert_valid(schema)


def test_a_faulty_schema_is_named_and_its_calls_are_held_to_what_is_left() -> None:
    broken = {"type": "object", "properties": {"a": {"type": "string", "pattern": "["}}, "required": ["a"]}
    sound = {"type": "object", "properties": {"a": {"type": "integer"}}}
    raw = [json.dumps({"name": name, "inputSchema": each}) for name, each in (("x", broken), ("y", sound))]
    tools, _ = read_tools("s", iter(text.encode() for text in raw))
    listing = valid_listing(Listing(tools=tuple(tools)))
    first, second = listing.tools
    assert second.read() == tools[1].read()
    assert [repair.name for repair in listing.repairs] == ["x"]
    assert "inputSchema.properties.a.pattern is not a regular expression; left out" in listing.notes[0]
    assert check_arguments(first, {"a": "anything ["}).outcome == "valid"
    assert check_arguments(first, {}).outcome == "invalid"


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(broken_schemas)
def test_whatever_comes_is_listed_as_a_valid_schema_or_not_at_all(raw: object) -> None:
    schema = {"type": "object", **raw} if is_object(raw) else raw
    found = repair_definition("tool", json.dumps({"name": "t", "inputSchema": schema}).encode())
    if found.definition is None or screen_definition(found.definition).rejected is not None:
        return
    listed = input_of(found)
    if re.search(r'draft-0[467]|2019-09|"\$id"|"id"', json.dumps(listed)) is None:
        assert_valid(listed)
    assert repair_definition("tool", found.definition).definition is found.definition
    entry = ToolEntry(key=ToolKey(server_id="s", tool="t"), definition=found.definition)
    check_arguments(entry, {"a": "x"})


def _ring(count: int) -> dict[str, Any]:
    return {"$defs": {f"n{index}": {"$ref": f"#/$defs/n{(index + 1) % count}"} for index in range(count)}}


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"p{index}": {"type": "strng"} for index in range(1_999)}},
        {"properties": {f"p{index}": {"$ref": f"#/{index}"} for index in range(1_999)}},
        _ring(1_999),
        {"properties": {f"p{index}": {"pattern": "(" * 4_000} for index in range(49)}},
        {"properties": {"a": {"enum": ["x" * 1_000] * 1_000, "type": "strng"}}},
        {"$defs": {f"n{i}": {"$ref": "#" + "/$defs/n0" * 50} for i in range(400)}},
    ],
    ids=["types", "references", "ring", "patterns", "large", "pointers"],
)
def test_a_hostile_schema_is_repaired_in_bounded_time_with_a_bounded_report(schema: dict[str, Any]) -> None:
    started = time.thread_time()
    found = repaired(type="object", **schema)
    assert time.thread_time() - started < 1
    assert len(found.changes) <= MAX_NAMED_CHANGES + 1
