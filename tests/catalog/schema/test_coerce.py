"""What models write becomes what the schema demands, where it does and nowhere else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.catalog.schema.coerce import MAX_ITEMS, TypesOf, coerce
from fairlead.catalog.schema.normalize import screen

LIST = {"type": "array", "items": {"type": "integer"}}


def coerced(schema: object, value: Any) -> Any:
    """What becomes of the argument `a`, which has that schema."""
    return coerce(screen({"properties": {"a": schema}}).schema, {"a": value}).arguments.get("a", "left out")


@pytest.mark.requirement("NEED-7")
@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (LIST, "[1]", [1]),
        (LIST, '["1"]', [1]),
        ({"type": "object"}, '{"x": 1}', {"x": 1}),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, "5.0", 5.0),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, " 2 ", 2),
        ({"type": "boolean"}, "true", True),
        ({"type": ["integer", "null"]}, "null", None),
        ({"anyOf": [LIST, {"type": "null"}]}, '["1"]', [1]),
        ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "false", False),
        ({"allOf": [{"type": "array"}]}, "[1]", [1]),
        ({"enum": [1, 2]}, "1", 1),
        ({"const": 3}, "3", 3),
        ({"type": "array", "items": {"properties": {"n": {"type": "integer"}}}}, [{"n": "1"}], [{"n": 1}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": "1"}, {"x": 1}),
    ],
)
def test_text_becomes_what_the_schema_demands(schema: object, text: object, value: object) -> None:
    assert coerced(schema, text) == value


@pytest.mark.requirement("NEED-7")
@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "string"}, "[1]"),
        ({}, "[1]"),
        (True, "[1]"),
        ({"type": ["array", "string"]}, "[1]"),
        ({"anyOf": [LIST, {"type": "string"}]}, "[1]"),
        ({"enum": ["1", 1]}, "1"),
        (LIST, "1"),
        (LIST, "{}"),
        (LIST, "[1"),
        (LIST, ""),
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, "five"),
        ({"type": "boolean"}, "True"),
        ({"type": "boolean"}, "1"),
        ({"type": "array"}, "[" * 100_000),
        ({"type": "integer"}, "1" * 2_000_000),
    ],
)
def test_text_stays_text_where_it_may_be_meant_or_makes_no_sense(schema: object, text: str) -> None:
    assert coerced(schema, text) == text


def test_a_null_that_is_refused_and_not_required_is_left_out() -> None:
    schema = screen(
        {
            "properties": {
                "optional": {"type": "string"},
                "nullable": {"type": ["string", "null"]},
                "free": {},
                "needed": {"type": "string"},
                "inner": {"properties": {"optional": {"type": "integer"}}},
            },
            "required": ["needed"],
        }
    ).schema
    given_arguments = dict.fromkeys(("optional", "nullable", "free", "needed", "unknown"), None)
    result = coerce(schema, given_arguments | {"inner": {"optional": None}})
    assert result.arguments == {"nullable": None, "free": None, "needed": None, "unknown": None, "inner": {}}
    assert result.changed == ("optional", "inner.optional")


def test_references_and_all_that_applies_are_followed() -> None:
    schema = screen(
        {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
                }
            },
            "allOf": [{"properties": {"start": {"$ref": "#/$defs/node"}}}],
        }
    ).schema
    result = coerce(schema, {"start": '{"value": "1", "next": {"value": "2"}}'})
    assert result.arguments == {"start": {"value": 1, "next": {"value": 2}}}
    assert result.changed == ("start", "start.value", "start.next.value")


def test_alternatives_are_followed_only_where_one_is_left() -> None:
    numbered, named = (
        {"type": "object", "properties": {"x": {"type": kind}}} for kind in ("integer", "string")
    )
    assert coerced({"anyOf": [numbered, {"type": "null"}]}, {"x": "1"}) == {"x": 1}
    assert coerced({"anyOf": [numbered, named]}, {"x": "1"}) == {"x": "1"}


def test_what_was_given_is_not_changed_itself() -> None:
    given_arguments = {"a": ["1"]}
    assert coerced(LIST, given_arguments["a"]) == [1]
    assert given_arguments == {"a": ["1"]}


def test_long_lists_and_deep_arguments_are_left_alone() -> None:
    assert coerced(LIST, ["1"] * (MAX_ITEMS + 1))[0] == "1"
    deep: dict[str, Any] = {"a": "1"}
    for _ in range(5_000):
        deep = {"a": deep}
    schema = screen({"properties": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}}).schema
    assert coerce(schema, deep).changed == ()


@pytest.mark.requirement("HARD-43")
def test_references_that_double_are_looked_at_once() -> None:
    definitions: dict[str, Any] = {"n0": {"type": "integer"}}
    for level in range(20):
        definitions[f"n{level + 1}"] = {"allOf": [{"$ref": f"#/$defs/n{level}"}] * 2}
    schema = screen({"$defs": definitions, "properties": {"a": {"$ref": "#/$defs/n20"}}}).schema
    assert coerce(schema, {"a": "5"}).arguments == {"a": 5}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, {"string", "number", "integer", "boolean", "array", "object", "null"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"type": ["string", "null"], "enum": ["a"]}, {"string"}),
        ({"anyOf": [{"type": "string"}, False]}, {"string"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": ["null", "array"]}]}, {"null"}),
        ({"const": 1.5}, {"number"}),
        ({"$ref": "#"}, {"object"}),
    ],
)
def test_the_types_of_a_schema(schema: dict[str, Any], types: set[str]) -> None:
    root = {"type": "object", "properties": {"a": schema}}
    assert TypesOf(root)(schema) == types


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["[1]", '{"a": "1"}', "5"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from("abc"), json_values))
def test_a_schema_that_says_nothing_changes_nothing(arguments: dict[str, Any]) -> None:
    schemas: list[dict[str, Any]] = [
        {"type": "object"},
        {"type": "object", "properties": {"a": {}, "b": True}},
    ]
    for schema in schemas:
        assert coerce(schema, arguments).arguments == arguments
