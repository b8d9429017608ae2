"""Arguments are checked in bounded time, and what is wrong with them is said in plain words."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.catalog.schema.effort import FLAT_AND_SHORT, EffortExceeded, effort, is_flat_and_short, measure
from fairlead.catalog.schema.normalize import screen
from fairlead.catalog.schema.validate import (
    MAX_MESSAGE,
    MAX_PROBLEMS,
    Check,
    ValidationResult,
    check_arguments,
    fit_arguments,
)
from fairlead.catalog.tools import ToolEntry, ToolKey
from tests.catalog.support import tool

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "hostile_schema_cases.json").read_text(encoding="utf-8")
)
SMALL = {
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def verdict_on(schema: object, value: object) -> ValidationResult:
    return Check(screen(schema)).verdict(value)


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def doubling(levels: int, inner: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    definitions: dict[str, Any] = {"n0": {"type": ["string", "object"]}}
    for level in range(levels):
        definitions[f"n{level + 1}"] = {"allOf": [inner(f"#/$defs/n{level}"), inner(f"#/$defs/n{level}")]}
    return {"$defs": definitions, "properties": {"a": {"$ref": f"#/$defs/n{levels}"}}}


def unevaluated(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(depth):
        schema = {"anyOf": [schema, {"type": "string"}], "unevaluatedProperties": {"type": "number"}}
    return schema


HOSTILE: list[tuple[str, object, Any]] = [
    *((case["name"], case["schema"], case["instance"]) for case in CASES),
    ("doubling through references", doubling(25, lambda ref: {"$ref": ref}), {"a": "v"}),
    ("doubling that stays under the cap", doubling(20, lambda ref: {"$ref": ref}), {"a": "v"}),
    (
        "doubling through properties",
        doubling(20, lambda ref: {"properties": {"a": {"$ref": ref}}}),
        nested(20),
    ),
    (
        "a circle that doubles",
        {"$defs": {"n": {"allOf": [{"properties": {"a": {"$ref": "#/$defs/n"}}}] * 2}}, "$ref": "#/$defs/n"},
        nested(50),
    ),
    ("a reference to itself", {"$ref": "#"}, {}),
    (
        "a circle of two",
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {},
    ),
    ("look-ahead", {"properties": {"a": {"pattern": "(?=[01]*1[01]{1000}$)[01]"}}}, {"a": "01" * 50_000}),
    ("a large automaton", {"properties": {"a": {"pattern": "1[01]{1000}x"}}}, {"a": "01" * 50_000}),
    ("nested repetition", {"properties": {"a": {"pattern": "((a*)*)*b"}}}, {"a": "a" * 100_000}),
    ("a back-reference", {"properties": {"a": {"pattern": r"^(.*)(.*)(.*)(.*)\1x$"}}}, {"a": "a" * 100_000}),
    ("patterns for names", {"patternProperties": {"^(a+)+$": {"type": "string"}}}, {"a" * 50_000 + "!": 1}),
    (
        "many patterns",
        {"properties": {f"p{n}": {"pattern": rf"^\p{{L}}{{1,16}}{n}$"} for n in range(50)}},
        {},
    ),
    ("unevaluated twenty times", unevaluated(20), {"a": 1}),
    ("unevaluated nine times", unevaluated(9), {"a": 1}),
    ("deep arguments", {"properties": {"a": {"$ref": "#"}}}, nested(100_000)),
    ("long arguments", {"properties": {"a": {"items": {"type": "string"}}}}, {"a": [1] * 1_000_000}),
    (
        "many mistakes",
        {"properties": {"a": {"anyOf": [{"items": {"type": "string"}}, {"type": "null"}]}}},
        {"a": [1] * 15_000},
    ),
    ("a mistake in a large text", {"properties": {"a": {"type": "integer"}}}, {"a": "x" * 8_000_000}),
]


@pytest.mark.requirement("HARD-43")
@pytest.mark.parametrize(("schema", "value"), [pytest.param(*rest, id=name) for name, *rest in HOSTILE])
def test_reading_and_checking_a_hostile_schema_never_holds_anybody_up(schema: object, value: Any) -> None:
    def once() -> float:
        started = time.thread_time()  # the time others take on a busy machine does not count
        verdict = verdict_on(schema, value)
        assert (verdict.reason is not None) == (verdict.outcome == "unchecked")
        return time.thread_time() - started

    assert min(once() for _ in range(3)) < 0.1


@pytest.mark.requirement("HARD-43")
def test_a_pattern_that_would_backtrack_for_ever_is_decided() -> None:
    schema = {"properties": {"s": {"type": "string", "pattern": "^(a+)+$"}}}
    assert verdict_on(schema, {"s": "a" * 40 + "!"}).outcome == "invalid"
    assert verdict_on(schema, {"s": "a" * 40}).outcome == "valid"


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"path": "/"}, ()),
        ({"path": "/", "limit": 5, "tags": ["a"]}, ()),
        ({}, ('"path" is a required property',)),
        ({"path": 1}, ('path: 1 is not of type "string"',)),
        ({"path": "/", "tags": ["a", 2]}, ('tags[1]: 2 is not of type "string"',)),
        ({"path": "/", "limit": 0}, ("limit: 0 is less than the minimum of 1",)),
        ({"path": "/", "x": 1}, ("Additional properties are not allowed ('x' was unexpected)",)),
    ],
)
def test_what_is_wrong_is_said_with_its_place(value: dict[str, Any], problems: tuple[str, ...]) -> None:
    verdict = check_arguments(tool(SMALL), value)
    assert verdict.problems == problems
    assert verdict.outcome == ("invalid" if problems else "valid")


def test_of_alternatives_the_one_that_was_nearly_met_is_explained() -> None:
    item = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    schema = {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "array", "items": item}]}}}
    assert verdict_on(schema, {"a": [{"id": "x"}]}).problems == ('a[0].id: "x" is not of type "integer"',)
    assert "anyOf" in verdict_on(schema, {"a": 5}).problems[0]


def test_only_the_first_problems_are_told_and_none_at_length() -> None:
    schema = {"properties": {f"p{index}": {"type": "integer"} for index in range(50)}}
    verdict = verdict_on(schema, {f"p{index}": "x" * 300 for index in range(50)})
    assert len(verdict.problems) == MAX_PROBLEMS
    assert all(len(problem) < MAX_MESSAGE + 20 for problem in verdict.problems)


def test_large_arguments_are_judged_without_an_explanation() -> None:
    schema = {"properties": {"rows": {"type": "array", "items": {"type": "integer"}}}}
    assert verdict_on(schema, {"rows": [1] * 15_000}).outcome == "valid"
    assert verdict_on(schema, {"rows": ["x"] * 15_000}) == ValidationResult(
        outcome="invalid", problems=("something in it does not fit the schema",)
    )


def test_a_large_schema_is_no_reason_to_leave_small_arguments_unexplained() -> None:
    schema = {"properties": {f"p{index}": {"type": "integer"} for index in range(1_900)}}
    assert verdict_on(schema, {"p7": "x", "p8": 2, "p9": 3}).problems == ('p7: "x" is not of type "integer"',)


def test_recursive_schemas_are_checked() -> None:
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {"node": {"properties": {"children": {"items": {"$ref": "#"}}, "name": {"type": "string"}}}},
    }
    assert (
        verdict_on(schema, {"name": "a", "children": [{"name": "b", "children": [{"name": "c"}]}]}).outcome
        == "valid"
    )
    verdict = verdict_on(schema, {"children": [{"children": [{"name": 5}]}]})
    assert verdict.problems == ('children[0].children[0].name: 5 is not of type "string"',)


@pytest.mark.parametrize("pattern", ["^(?!x)y", r"(a)\1", "(?<=a)b", "("])
def test_a_pattern_that_only_other_engines_know_is_left_to_the_server(pattern: str) -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": pattern}, "b": {"type": "integer"}}}
    assert verdict_on(schema, {"a": "x"}).outcome == "valid"
    assert verdict_on(schema, {"a": "x", "b": "y"}).outcome == "invalid"
    upside_down = {"properties": {"a": {"not": {"pattern": pattern}}}}
    assert verdict_on(upside_down, {"a": "x"}).outcome == "unchecked"
    for_names = {"patternProperties": {pattern: {"type": "integer"}}}
    assert verdict_on(for_names, {"a": "x"}).outcome == "unchecked"


def test_formats_are_left_to_the_server() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"format": "email"}}}
    assert verdict_on(schema, {"a": "no address"}).outcome == "valid"


@pytest.mark.parametrize("value", [{"a": b"x"}, {"a": {1, 2}}, {"a": object()}, {1: 2}])
def test_what_is_no_json_is_wrong(value: dict[Any, Any]) -> None:
    verdict = verdict_on({"properties": {"a": {"type": "string"}}, "additionalProperties": False}, value)
    assert verdict.outcome == "invalid"


def test_any_mapping_can_be_checked() -> None:
    assert check_arguments(tool(SMALL), MappingProxyType({"path": "/"})).outcome == "valid"
    assert fit_arguments(tool(SMALL), MappingProxyType({"path": "/"})).arguments == {"path": "/"}


@pytest.mark.requirement("NEED-7")
def test_arguments_that_fit_are_sent_as_they_are() -> None:
    given_arguments = {"path": "[1]", "tags": ["x"]}
    fitted = fit_arguments(tool(SMALL), given_arguments)
    assert fitted.arguments is given_arguments
    assert not fitted.changed


@pytest.mark.requirement("NEED-7")
def test_arguments_that_do_not_fit_are_tried_again_as_the_schema_demands() -> None:
    fitted = fit_arguments(tool(SMALL), {"path": "/", "limit": "5", "tags": '["a"]'})
    assert fitted.arguments == {"path": "/", "limit": 5, "tags": ["a"]}
    assert fitted.changed == ("limit", "tags")
    assert fitted.verdict.outcome == "valid"


def test_arguments_that_fit_in_no_way_are_left_as_they_came() -> None:
    given_arguments = {"path": 5, "limit": "5"}
    fitted = fit_arguments(tool(SMALL), given_arguments)
    assert fitted.arguments is given_arguments
    assert fitted.verdict.outcome == "invalid"
    assert len(fitted.verdict.problems) == 2


Schemas = st.SearchStrategy[Any]
leaves: Schemas = st.sampled_from(
    [
        *(
            {"type": "string"},
            {"type": "integer", "minimum": 0},
            {"type": ["boolean", "null"]},
            {"maxLength": 1},
        ),
        *({"enum": ["a", 1, None]}, {"const": "b"}, {"$ref": "#/$defs/n"}, {"pattern": "^a*$"}, True, False),
    ]
)


def combined(inner: Schemas) -> Schemas:
    two: Schemas = st.lists(inner, min_size=1, max_size=2)
    holders: list[dict[str, Schemas]] = [
        {"properties": st.fixed_dictionaries({"a": inner, "b": inner}), "required": st.just(["a"])},
        {"properties": st.just({"a": True}), "additionalProperties": inner},
        {"prefixItems": st.lists(inner, min_size=1, max_size=1), "items": inner},
        {"allOf": two},
        {"anyOf": two},
        {"oneOf": two},
        {"not": inner},
        {"if": inner, "then": inner},
        {"contains": inner},
        {"propertyNames": inner},
        {"anyOf": two, "unevaluatedProperties": inner},
    ]
    return st.one_of([st.fixed_dictionaries(holder) for holder in holders])


schemas: Schemas = st.recursive(leaves, combined, max_leaves=6)
values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(["a", "b", "", 0, 1, -1, 1.5, True, None]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(["a", "b"]), schemas),
    schemas,
    st.dictionaries(st.sampled_from(["a", "b"]), values),
)
def test_the_verdict_is_that_of_another_implementation(
    properties: dict[str, Any], definition: Any, value: dict[str, Any]
) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "$defs": {"n": definition}}
    verdict = verdict_on(schema, value)
    if verdict.outcome == "unchecked":
        return
    other: Any = jsonschema.Draft202012Validator(schema)
    assert (verdict.outcome == "valid") == other.is_valid(value)


def test_what_a_check_costs_is_counted_where_references_meet_the_same_value_again() -> None:
    schema = screen(doubling(10, lambda ref: {"$ref": ref})).schema
    assert 1024 <= effort(schema, {"a": "v"}, 50_000) < 50_000
    assert effort(schema, {"b": "v"}, 10_000) < 10
    with pytest.raises(EffortExceeded):
        effort(schema, {"a": "v"}, 1_000)


def test_what_a_check_costs_grows_with_the_text_that_patterns_see() -> None:
    schema = {"properties": {"a": {"pattern": "[a-z]{10}"}}, "patternProperties": {"xy": {"type": "string"}}}
    assert 1_000 < effort(schema, {"a": "x" * 100}, 10_000) < 1_050
    assert 12 < effort({"items": {"pattern": "abc"}, "prefixItems": [True]}, ["xx", "xx"], 100) < 40
    assert 6 < effort({"propertyNames": {"pattern": "abc"}}, {"xx": 1}, 100) < 40


def test_too_many_meetings_are_not_looked_at() -> None:
    schema = {"properties": {"a": {"$ref": "#"}, "b": {"items": {"type": "string"}}}}
    with pytest.raises(EffortExceeded, match="too much"):
        effort(schema, {"b": [str(number) for number in range(20_000)]}, 10**9)


def test_the_size_of_a_value_counts_all_its_parts_and_characters() -> None:
    size = measure({"abc": [1, "xy", {"d": None}]}, 100)
    assert (size.values, size.characters) == (6, 6)


@pytest.mark.requirement("HARD-85")
@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"type": {"type": "string", "default": "png"}}, "required": ["type"]}, {}),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/a"}},
                "required": ["a"],
                "$defs": {"a": {"enum": ["b"], "default": "b"}},
            },
            {},
        ),
        (
            {"properties": {"a": {"anyOf": [{"type": "null"}, {"default": 1}]}}, "required": ["a"]},
            {},
        ),
        (
            {
                "properties": {
                    "o": {"type": "object", "properties": {"a": {"default": 1}}, "required": ["a"]},
                },
            },
            {"o": {}},
        ),
        ({"properties": {"a": {"$ref": "#/$defs/a", "maxLength": 1}}, "$defs": {"a": {}}}, {"a": "long"}),
        ({"properties": {"a": {"oneOf": [{"type": "strng"}, {"type": "string"}]}}}, {"a": "x"}),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, {"a": "tomorrow"}),
        ({"properties": {"a": {"pattern": "^\\w+$"}}}, {"a": "M\u00fcller"}),
        ({"properties": {"a": {"pattern": "^\\d+$"}}}, {"a": "\u0663"}),
        ({"properties": {"a": {"pattern": "^a$"}}}, {"a": "a\n"}),
        ({"patternProperties": {"^\\w+$": {}}, "additionalProperties": False}, {"\u00fc": 1}),
        ({"properties": {"a": {"type": "boolean"}}}, {"a": "Yes"}),
        ({"properties": {"a": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}}, {"a": 1}),
        ({"properties": {"a": {"type": "array", "uniqueItems": True}}}, {"a": ["x", "x"]}),
        ({"properties": {"a": {"type": "string", "format": "date-time"}}}, {"a": 1700000000}),
        # zod 3 prints `additionalProperties: false` for every object, and drops other members.
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}),
        (
            {"properties": {"o": {"type": "object", "properties": {}, "additionalProperties": False}}},
            {"o": {"b": 1}},
        ),
        (
            {"properties": {"o": {"anyOf": [{"type": "object", "additionalProperties": False}]}}},
            {"o": {"b": 1}},
        ),
        (
            {
                "properties": {"o": {"$ref": "#/$defs/o"}},
                "$defs": {"o": {"type": "object", "additionalProperties": False}},
            },
            {"o": {"b": 1}},
        ),
        # Without the other members both alternatives fit: zod takes the first.
        (
            {
                "oneOf": [
                    {"properties": {"a": {"type": "integer"}}, "additionalProperties": False},
                    {"properties": {"b": {"type": "integer"}}, "additionalProperties": False},
                ]
            },
            {"a": 1, "b": 2},
        ),
        ({"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}, {"a": 1}),
        (
            {"properties": {"a": {"anyOf": [{"type": "integer"}], "oneOf": [{}, {"type": "integer"}]}}},
            {"a": 1},
        ),
        # What is wider inside a negation or a condition must not make the whole narrower.
        (
            {
                "properties": {
                    "a": {},
                    "o": {"not": {"properties": {"b": {}}, "additionalProperties": False}},
                },
                "additionalProperties": False,
            },
            {"o": {"c": 1}, "x": 1},
        ),
        (
            {
                "if": {"properties": {"a": {}}, "additionalProperties": False},
                "then": {"required": ["a"]},
                "properties": {"l": {"uniqueItems": True}},
            },
            {"l": [1, 1]},
        ),
    ],
)
def test_what_the_server_may_accept_is_not_refused(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    definition = json.dumps({"name": "t", "inputSchema": {"type": "object", **schema}}).encode()
    entry = ToolEntry(key=ToolKey("s", "t"), definition=definition)
    assert fit_arguments(entry, arguments).verdict.outcome != "invalid"
    assert fit_arguments(entry, arguments).arguments == arguments


@pytest.mark.requirement("HARD-85")
@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, {}),
        ({"properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, {"b": 1}),
        ({"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "null"}]}}}, {"a": "x"}),
        ({"properties": {"a": {"anyOf": [True], "oneOf": [{"type": "integer"}]}}}, {"a": "x"}),
        ({"properties": {"a": {"anyOf": [{"type": "integer"}], "oneOf": [True]}}}, {"a": "x"}),
        ({"properties": {"a": {"not": {"type": "string"}}}, "additionalProperties": False}, {"a": "x"}),
        ({"additionalProperties": {"type": "integer"}}, {"a": "x"}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": "x"}),
        ({"properties": {"a": {"default": 1, "type": "integer"}}, "required": ["a"]}, {"a": "x"}),
        ({"properties": {"a": {"enum": ["x"]}}}, {"a": "y"}),
        ({"properties": {"a": {"pattern": "^\\w+$"}}}, {"a": "a-b"}),
        ({"properties": {"a": {"type": "boolean"}}}, {"a": "perhaps"}),
        ({"properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}}}, {"a": "yes", "b": "x"}),
        ({"properties": {"a": {"pattern": "^\\w+$", "maxLength": 2}}}, {"a": "M\u00fcller"}),
    ],
)
def test_what_the_server_would_certainly_refuse_is_refused(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    definition = json.dumps({"name": "t", "inputSchema": {"type": "object", **schema}}).encode()
    entry = ToolEntry(key=ToolKey("s", "t"), definition=definition)
    assert fit_arguments(entry, arguments).verdict.outcome == "invalid"


def test_arguments_are_coerced_next_to_those_that_are_left_to_the_server() -> None:
    properties = {"n": {"type": "integer"}, "name": {"pattern": "^\\w+$"}}
    definition = json.dumps({"name": "t", "inputSchema": {"type": "object", "properties": properties}})
    entry = ToolEntry(key=ToolKey("s", "t"), definition=definition.encode())
    fit = fit_arguments(entry, {"n": "5", "name": "M\u00fcller"})
    assert (fit.verdict.outcome, fit.arguments) == ("unchecked", {"n": 5, "name": "M\u00fcller"})


_LONG = "x" * 257
_LIMITS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        ({}, True),
        ({"a": "x" * 256, "b": 3, "c": 0.5, "d": True, "e": None}, True),
        ({f"k{number}": number for number in range(16)}, True),
        ({f"k{number}": number for number in range(17)}, False),
        ({"a": _LONG}, False),
        ({_LONG: 1}, False),
        ({"a": 2**53}, True),
        ({"a": 2**53 + 1}, False),
        ({"a": -(2**70)}, False),
        ({"a": 10**5000}, False),
        ({"a": 1e-300}, False),
        ({"a": 0.0}, True),
        ({"a": float("nan")}, False),
        ({"a": float("inf")}, False),
        ({"a": []}, False),
        ({"a": {}}, False),
        ({"a": ()}, False),
        ({"a": b"bytes"}, False),
        ({1: "a"}, False),
        (MappingProxyType({"a": 1}), False),
        ([1], False),
        ("text", False),
        (None, False),
    ],
)
def test_what_is_flat_and_short_is_judged_as_what_is_measured(value: Any, flat: bool) -> None:
    assert is_flat_and_short(value) == flat
    for schema in (_LIMITS, SMALL, {"type": "object", "patternProperties": {"^(a+)+$": {"maximum": 3}}}):
        check = Check(screen(schema))
        if flat:
            size = measure(value, 1_000)
            assert all(part <= most for part, most in zip(size, FLAT_AND_SHORT, strict=True))
            assert check.accepts(value, is_flat=True) == check.accepts(value)
