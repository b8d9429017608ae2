"""Schemas from servers are made fit for use, or replaced. References and sizes that harm refuse the tool."""

import json
import socket
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from fairlead.catalog.schema.effort import pattern_states, weigh
from fairlead.catalog.schema.keywords import resolve
from fairlead.catalog.schema.normalize import (
    MAX_BYTES,
    ScreenedSchema,
    needs_screening,
    permissive,
    screen,
    screen_definition,
    screen_output,
)
from tests.catalog.support import broken_schemas

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "hostile_schema_cases.json").read_text(encoding="utf-8")
)

SAID_OTHERWISE: list[object] = [
    {"type": "STRING"},
    {"type": "int"},
    {"type": ["string"]},
    {"minLength": 1.0},
    {"required": ["a", "a"]},
]


def screened(schema: object) -> ScreenedSchema:
    """The same as it comes from a server."""
    return screen_definition(json.dumps({"name": "t", "inputSchema": schema}).encode())


def state_of(result: ScreenedSchema) -> str:
    return "rejected" if result.rejected else "repaired" if result.changes else "usable"


@pytest.mark.requirement("HARD-44", "NEED-7")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_hostile_schemas_are_refused_repaired_or_harmless(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("something wanted the network")

    monkeypatch.setattr(socket, "socket", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    result = screened(case["schema"])
    assert state_of(result) == case["screened"]
    assert result.schema["type"] == "object"


@pytest.mark.requirement("HARD-44")
@pytest.mark.parametrize(
    "reference",
    [
        "http://127.0.0.1/x.json",
        "https://example.com/x.json#/$defs/a",
        "file:///etc/passwd",
        "other.json",
        "//example.com/x",
        "urn:uuid:0",
        "",
    ],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef"])
def test_a_reference_to_outside_refuses_the_tool(reference: str, keyword: str) -> None:
    nested = {"properties": {"a": {"items": {"anyOf": [{"type": "null"}, {keyword: reference}]}}}}
    result = screen(nested)
    assert result.rejected is not None
    assert "nothing is fetched" in result.rejected


def test_a_reference_that_is_only_a_name_or_a_value_is_none() -> None:
    schema = {
        "properties": {"$ref": {"type": "string"}},
        "default": {"$ref": "http://example.com"},
        "x-unknown": {"$ref": "http://example.com"},
    }
    result = screen(schema)
    assert result.rejected is None
    assert result.schema["properties"] == {"$ref": {"type": "string"}}
    assert "x-unknown" not in result.schema


def test_references_inside_are_kept_and_lead_where_they_did() -> None:
    result = screen(
        {
            "properties": {
                "a": {"$ref": "#/definitions/n~1m"},
                "b": {"$ref": "#/$defs/other"},
                "c": {"$ref": "#"},
            },
            "definitions": {"n/m": {"type": "string"}},
            "$defs": {"other": {"type": "integer"}},
        }
    )
    assert state_of(result) == "usable"
    properties = result.schema["properties"]
    assert resolve(result.schema, properties["a"]["$ref"]) == {"type": "string"}
    assert resolve(result.schema, properties["b"]["$ref"]) == {"type": "integer"}
    assert resolve(result.schema, properties["c"]["$ref"]) is result.schema


@pytest.mark.parametrize(
    "reference", ["#/$defs/missing", "#anchor", "#/default", "#/properties/a/7", f"#/{'x' * 600}"]
)
def test_a_reference_to_nothing_lets_anything_through(reference: str) -> None:
    result = screen({"properties": {"a": {"$ref": reference}}, "default": {"type": "string"}})
    assert state_of(result) == "repaired"
    assert result.schema["properties"]["a"] == {}


@pytest.mark.requirement("NEED-7")
@pytest.mark.parametrize(
    ("broken", "repaired"),
    [
        ({"type": "strng"}, {}),
        ({"type": "any"}, {}),
        ({"type": "STRING"}, {"type": "string"}),
        ({"type": "int"}, {"type": "integer"}),
        ({"type": []}, {}),
        ({"type": ["string"]}, {"type": "string"}),
        ({"type": "string", "required": True}, {"type": "string"}),
        ({"required": ["a", "a"]}, {"required": ["a"]}),
        ({"properties": ["a"]}, {}),
        ({"items": "string"}, {"items": {}}),
        ({"anyOf": []}, {}),
        ({"enum": "a"}, {}),
        ({"enum": []}, {}),
        ({"pattern": 5}, {}),
        ({"minimum": "5"}, {}),
        ({"multipleOf": 0}, {}),
        ({"minLength": 1.0}, {"minLength": 1}),
        ({"minLength": -1}, {}),
        ({"uniqueItems": "yes"}, {}),
        ({"title": 5}, {}),
        ({"not": {"type": "strng"}}, {}),
        ({"dependentRequired": {"a": "b"}}, {}),
        ({"pattern": "a" * 2000}, {}),
        ({"pattern": "(a{1000}){1000}"}, {}),
        ("nonsense", {}),
    ],
)
def test_what_is_broken_is_repaired_and_told(broken: object, repaired: dict[str, Any]) -> None:
    result = screen({"properties": {"a": broken, "b": {"type": "string"}}})
    assert result.schema["properties"] == {"a": repaired, "b": {"type": "string"}}
    assert bool(result.changes) == (broken not in SAID_OTHERWISE)
    assert all(change.where.startswith("properties.a") for change in result.changes)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"items": [{"type": "string"}]}, {"prefixItems": [{"type": "string"}]}),
        ({"items": [True], "additionalItems": False}, {"prefixItems": [True], "items": False}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        (
            {"dependencies": {"a": ["b"], "c": {"type": "object"}}},
            {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"type": "object"}}},
        ),
        ({"$recursiveRef": "#"}, {"$ref": "#"}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"enum": ["a"], "nullable": True}, {"enum": ["a", None]}),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "x", "type": "null"},
            {"type": "null"},
        ),
        ({"const": None, "default": None}, {"const": None, "default": None}),
    ],
)
def test_older_drafts_are_said_in_the_newest(older: dict[str, Any], newer: dict[str, Any]) -> None:
    result = screen({"properties": {"a": older}})
    assert state_of(result) == "usable"
    assert result.schema["properties"]["a"] == newer


def test_arguments_are_always_an_object() -> None:
    assert screen({}).schema == {"type": "object"}
    assert screen({"type": ["object", "null"]}).schema == {"type": "object"}
    assert screen({"type": ["null", "string"]}).schema == permissive()
    assert screen(False).schema == permissive()


@pytest.mark.parametrize("missing", [None, [], "x", 5, True])
def test_no_schema_lets_any_arguments_through(missing: object) -> None:
    result = screened(missing)
    assert state_of(result) == "repaired"
    assert result.schema == permissive()


def test_a_definition_without_the_field_lets_any_arguments_through() -> None:
    assert screen_definition(b'{"name": "t"}').schema == permissive()


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {f"p{index}": True for index in range(2_001)}}, "2000 properties"),
        ({"anyOf": [{"anyOf": [{"type": "null"}] * 60}] * 60}, "3000 schemas"),
        ({"properties": {f"p{index}": {"pattern": "a"} for index in range(51)}}, "50 patterns"),
        ({"enum": [1] * 20_001}, "too much"),
    ],
)
def test_the_caps_hold(schema: dict[str, Any], reason: str) -> None:
    rejected = screen(schema).rejected
    assert rejected is not None
    assert reason in rejected


def test_a_huge_definition_is_refused_unread() -> None:
    definition = json.dumps({"name": "t", "description": "x" * MAX_BYTES}).encode()
    assert "bytes" in (screen_definition(definition).rejected or "")


@pytest.mark.parametrize("opening", ['{"properties":{"a":', '{"items":', '{"default":['])
def test_a_schema_that_is_nested_without_end_is_replaced_by_the_permissive_one(opening: str) -> None:
    """Seed 003, 7.2: an invalid `inputSchema` falls back to an object with any properties."""
    closing = "".join({"{": "}", "[": "]"}[letter] for letter in reversed(opening) if letter in "{[")
    for depth in (64, 200, 5_000):
        text = opening * depth + "1" + closing * depth
        found = screen_definition(f'{{"name":"t","inputSchema":{text}}}'.encode())
        assert (found.rejected, found.is_replaced) == (None, True)
        assert found.schema == {"type": "object", "additionalProperties": True}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "object"}},
        {"type": "string"},
        {"type": ["null", "array"]},
        {"$ref": "#/$defs/L", "$defs": {"L": {"type": "array"}}},
        {
            "type": "object",
            "allOf": [{"anyOf": [{"type": "array"}, {"$ref": "#/$defs/S"}]}],
            "$defs": {"S": False},
        },
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
        {"enum": ["a", "b"]},
        {"type": "object", "const": 5},
        False,
        5,
    ],
)
def test_a_schema_that_is_not_of_an_object_is_replaced_by_the_permissive_one(schema: object) -> None:
    """Seed 003, 7.2: the fallback for what cannot be repaired."""
    found = screened(schema)
    assert (found.rejected, found.is_replaced) == (None, True)
    assert found.schema == {"type": "object", "additionalProperties": True}
    assert "any arguments are accepted" in found.changes[0].what


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/T", "$defs": {"T": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/T"}]}}},
        {"anyOf": [{"type": "array"}, {"required": ["a"]}]},
        {"enum": ["a", {"a": 1}]},
        {"not": {"type": "array"}},
    ],
)
def test_a_schema_that_an_object_may_match_stays(schema: dict[str, Any]) -> None:
    assert screened(schema).is_replaced is False


def test_references_that_fan_out_are_followed_once() -> None:
    chain: dict[str, Any] = {f"n{at}": {"anyOf": [{"$ref": f"#/$defs/n{at + 1}"}] * 2} for at in range(20)}
    assert screen({"$defs": {**chain, "n20": {"type": "array"}}, "$ref": "#/$defs/n0"}).is_replaced


def test_choices_without_an_object_are_looked_for_in_every_definition() -> None:
    assert needs_screening(b'{"inputSchema":{"type":"object","anyOf":[{"type":"string"}]}}')
    assert needs_screening(b'{"inputSchema":{"const":5,"type":"object"}}')
    optional = (
        b'{"inputSchema":{"type":"object","properties":{"a":{"anyOf":[{"type":"string"}]},"b":{"enum":[1]}}}}'
    )
    assert not needs_screening(optional)


def test_a_dialect_that_is_not_known_costs_only_its_name() -> None:
    found = screened({"$schema": "https://evil.test/meta", "type": "object", "required": ["a"]})
    assert (found.rejected, found.is_replaced) == (None, False)
    assert found.schema == {"type": "object", "required": ["a"]}


@pytest.mark.requirement("HARD-43")
def test_a_chain_of_references_that_is_too_long_accepts_any_arguments() -> None:
    for length in (100, 1_000):
        chain: dict[str, Any] = {f"n{index}": {"$ref": f"#/$defs/n{index + 1}"} for index in range(length)}
        chain[f"n{length}"] = {}
        found = screen({"$defs": chain, "$ref": "#/$defs/n0"})
        assert "nested" in found.changes[0].what
        assert found.schema == permissive()


def test_patterns_that_are_too_large_together_are_left_out() -> None:
    schema = {"properties": {f"p{index}": {"pattern": f"a{{4000}}{index}"} for index in range(10)}}
    result = screen(schema)
    kept = [name for name, inner in result.schema["properties"].items() if "pattern" in inner]
    assert kept == ["p0", "p1", "p2", "p3"]
    assert len(result.changes) == 6


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(broken_schemas)
def test_whatever_comes_is_refused_or_becomes_a_sound_schema(raw: object) -> None:
    result = screen(raw)
    if result.rejected is None:
        # Whether a pattern is one is not looked at when a schema comes in, so formats are not asserted.
        meta: Any = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
        assert meta.is_valid(result.schema)
        assert screen(result.schema).schema == result.schema


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        ("", 0),
        ("abc", 3),
        ("^[a-z0-9]{1,64}$", 66),
        ("(a{10}){10}", 100),
        ("a{10}{10}", 100),
        ("((ab){2}c){3}", 15),
        (r"\d{3}-[^\]]{2,}", 12),
        (r"\p{L}{2}", 600),
        ("x{,5}", 5),
        ("(?:a|b)+", 3),
        ("{2}", 0),
        ("a)b", 3),
        ("((a", 1),
    ],
)
def test_the_size_of_a_pattern_is_its_length_with_repetitions_written_out(pattern: str, states: int) -> None:
    assert pattern_states(pattern) == states


@pytest.mark.parametrize(
    "unit",
    [
        "[\u0100-\uffff]",
        r"[\u0061ffff-\uffff]",
        r"[\x00-\uffff]",
        "(?i:[\u0100-\U0010ffff])",
        "(?i:[a-z])",
        "[a\u0101e]",
        r"\s",
        r"\w|",
        r"(?:\S)",
        r"\cA",
    ],
)
def test_a_short_pattern_that_takes_long_to_compile_is_left_out(unit: str) -> None:
    long = unit * (1_000 // len(unit))
    schema = {"type": "object", "properties": {"a": {"pattern": long}, "b": {"pattern": f"^{unit}$"}}}
    screened = screen(schema)
    assert "pattern" not in screened.schema["properties"]["a"]
    assert screen_output(schema).rejected is not None
    # One of them does no harm, except over all of Unicode.
    assert ("pattern" in screened.schema["properties"]["b"]) == (unit != "(?i:[\u0100-\U0010ffff])")


def test_the_weight_of_a_schema_counts_what_references_multiply() -> None:
    doubling: dict[str, Any] = {"n0": {"type": "string"}}
    for level in range(10):
        doubling[f"n{level + 1}"] = {"allOf": [{"$ref": f"#/$defs/n{level}"}] * 2}
    weight = weigh({"$defs": doubling, "properties": {"a": {"$ref": "#/$defs/n10"}}})
    assert 1024 <= weight.schemas < 10_000
    assert weigh({"properties": {"a": {"$ref": "#"}}}).schemas == float("inf")
