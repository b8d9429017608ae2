"""Whatever a server sends, what goes to a provider is what its API takes, or the tool is refused alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.adapters.anthropic import to_anthropic
from fairlead.adapters.common import PROVIDERS, Adapter, to_common
from fairlead.adapters.gemini import to_gemini
from fairlead.adapters.openai import to_openai
from fairlead.catalog.naming import public_name
from fairlead.catalog.schema.validate import fit_arguments
from tests.adapters.rules import anthropic_faults, gemini_faults, openai_faults
from tests.catalog.support import broken_schemas, tool

Judge = Callable[[dict[str, Any]], list[str]]

ADAPTERS: dict[str, tuple[Adapter, Judge]] = {
    "openai": (PROVIDERS["openai"], openai_faults),
    "openai-strict": (PROVIDERS["openai-strict"], openai_faults),
    "anthropic": (PROVIDERS["anthropic"], anthropic_faults),
    "gemini": (PROVIDERS["gemini"], gemini_faults),
    "common": (to_common, anthropic_faults),
}
CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "hostile_schema_cases.json").read_text(encoding="utf-8")
)
every_adapter = pytest.mark.parametrize(("adapter", "judge"), ADAPTERS.values(), ids=ADAPTERS)

TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name"],
        }
    },
}
ODD_SCHEMAS: dict[str, Any] = {
    "a recursive tree": TREE,
    "a choice at the top": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "title": {"type": "string"}},
        "required": ["id"],
        "anyOf": [
            {"required": ["title"]},
            {"required": ["body"], "properties": {"body": {"type": "string"}}},
        ],
    },
    "alternatives at the top": {
        "oneOf": [
            {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
            {"properties": {"kind": {"const": "b"}, "y": {"type": "integer"}}, "required": ["kind"]},
        ]
    },
    "all of several": {
        "allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"required": ["b"]}]
    },
    "an enum at the top": {"enum": [{}], "not": {"required": ["x"]}},
    "names that are no names": {
        "properties": {"$top": {"type": "integer"}, "filter[id]": {}, "x" * 70: {}, "": {}},
        "required": ["$top"],
    },
    "draft 4": {"properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}},
    "tuples": {"properties": {"t": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}}},
    "lists of anything": {"properties": {"a": {"type": "array"}, "b": {"type": ["array", "null"]}}},
    "numbers to choose from": {
        "properties": {"n": {"type": "integer", "enum": [0, 1, 2]}, "m": {"enum": [1.5, "x", None]}}
    },
    "an empty choice": {
        "properties": {
            "s": {"enum": ["", "a"]},
            "t": {"enum": [""]},
            "b": {"type": "boolean", "enum": [True]},
        }
    },
    "free objects": {
        "properties": {
            "o": {"type": "object"},
            "p": {"type": "object", "additionalProperties": {"type": "string"}},
        }
    },
    "free arguments": {"type": "object", "additionalProperties": True},
    "no arguments": {"type": "object", "properties": {}},
    "booleans for schemas": {
        "properties": {"a": True, "b": False, "c": {"items": True, "anyOf": [True, {"type": "null"}]}}
    },
    "unions": {
        "properties": {
            "u": {"type": ["string", "integer", "null"]},
            "v": {
                "anyOf": [
                    {"type": "string", "description": "x"},
                    {"type": "array", "items": {"type": "string"}},
                ],
                "description": "A",
            },
        }
    },
    "formats": {
        "properties": {
            "u": {"type": "string", "format": "uri"},
            "d": {"type": "string", "format": "date-time"},
            "n": {"type": "number", "format": "float"},
        }
    },
    "patterns": {
        "properties": {
            "e": {"type": "string", "pattern": r"^(?!\.)x"},
            "f": {"type": "string", "pattern": "("},
        }
    },
    "conditions": {
        "properties": {"a": {"type": "string"}},
        "if": {"required": ["a"]},
        "then": {"minProperties": 1},
        "dependentRequired": {"a": ["b"]},
    },
    "required but unknown": {"properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
    "references with words beside": {
        "$defs": {"d": {"type": "string"}},
        "properties": {"a": {"$ref": "#/$defs/d", "description": "A", "default": "x"}},
    },
    "references into properties": {
        "properties": {"a b": {"type": "string"}, "c": {"$ref": "#/properties/a b"}}
    },
}


@pytest.mark.requirement("NEED-7")
@every_adapter
@pytest.mark.parametrize("schema", ODD_SCHEMAS.values(), ids=ODD_SCHEMAS)
def test_odd_schemas_become_what_the_provider_takes(adapter: Adapter, judge: Judge, schema: object) -> None:
    adapted = adapter(tool(schema), "mcp_server_tool_12345678")
    assert adapted.refused is None
    assert adapted.definition is not None
    assert judge(adapted.definition) == []


@pytest.mark.requirement("NEED-7", "HARD-44")
@every_adapter
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_hostile_schema_costs_its_own_tool_only(
    adapter: Adapter, judge: Judge, case: dict[str, Any]
) -> None:
    entry = tool(case["schema"])
    adapted = adapter(entry, public_name(entry.key))
    assert (adapted.definition is None) == (adapted.refused is not None) == (case["screened"] == "rejected")
    if adapted.definition is not None:
        assert judge(adapted.definition) == []


@pytest.mark.requirement("NEED-7")
@every_adapter
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(schema=broken_schemas)
def test_no_schema_makes_a_request_fail(adapter: Adapter, judge: Judge, schema: object) -> None:
    adapted = adapter(tool({"properties": {"a": schema, "b": {"type": "string"}}}), "name")
    if adapted.definition is not None:
        assert judge(adapted.definition) == []
        msgspec_safe = json.loads(json.dumps(adapted.definition))
        assert msgspec_safe == adapted.definition


@every_adapter
def test_the_same_tool_gives_the_same_bytes(adapter: Adapter, judge: Judge) -> None:
    entries = [tool(schema, name=f"t{index}") for index, schema in enumerate(ODD_SCHEMAS.values())]
    first = [json.dumps(adapter(entry, entry.key.tool).definition) for entry in entries]
    assert [json.dumps(adapter(entry, entry.key.tool).definition) for entry in entries] == first
    assert judge is not None


@every_adapter
def test_a_description_says_where_the_tool_comes_from(adapter: Adapter, judge: Judge) -> None:
    entry = tool({}, server="files", name="read\u202efile", description=" Reads. ")
    definition = adapter(entry, "name").definition
    assert definition is not None
    assert definition["description"] == "[files/readfile] Reads."
    assert judge(definition) == []


@pytest.mark.requirement("NEED-7")
@pytest.mark.parametrize(
    "adapter", [to_anthropic, to_common, to_gemini], ids=lambda adapter: adapter.__name__
)
def test_renamed_arguments_reach_the_server_under_its_own_names(adapter: Adapter) -> None:
    schema = {
        "properties": {
            "$top": {"type": "integer"},
            "list": {"items": {"properties": {"a b": {"type": "string"}}}},
        },
        "required": ["$top"],
    }
    adapted = adapter(tool(schema), "name")
    new = {old: name for name, old in adapted.renamed.items()}
    given_by_model = {new["$top"]: 1, "list": [{new["a b"]: "x", "c": 2}]}
    assert adapted.arguments(given_by_model) == {"$top": 1, "list": [{"a b": "x", "c": 2}]}
    assert adapted.definition is not None
    held = adapted.definition.get("input_schema") or adapted.definition["parameters"]
    assert held["required"] == [new["$top"]]
    assert any("$top" in change.where for change in adapted.changes)


@pytest.mark.parametrize("count", [1, 8])
def test_alternatives_at_the_top_are_hinted_at(count: int) -> None:
    schema = {
        "properties": {f"{'long' * 20}{index}": {"type": "string"} for index in range(count)},
        "anyOf": [{"required": [f"{'long' * 20}{index}"]} for index in range(count)],
    }
    definition = to_anthropic(tool(schema), "name").definition
    assert definition is not None
    assert ("Give the arguments of one of these sets" in definition["description"]) == (count == 1)


def test_a_property_that_alternatives_define_differently_may_be_as_any_has_it() -> None:
    definition = to_anthropic(tool(ODD_SCHEMAS["alternatives at the top"]), "name").definition
    assert definition is not None
    assert definition["input_schema"] == {
        "type": "object",
        "properties": {
            "kind": {"anyOf": [{"const": "a"}, {"const": "b"}]},
            "x": {"type": "integer"},
            "y": {"type": "integer"},
        },
        "required": ["kind"],
    }
    assert definition["description"].endswith("sets: `kind`, `x` | `kind`.")


def test_what_a_model_is_asked_for_as_text_arrives_as_the_server_wants_it() -> None:
    schema = {
        "properties": {
            "options": {"type": "object"},
            "level": {"type": "integer", "enum": [1, 2]},
            "children": {"type": "array", "items": {"$ref": "#"}},
        }
    }
    entry = tool(schema)
    definition = to_gemini(entry, "name").definition
    assert definition is not None
    asked = definition["parameters"]["properties"]
    assert asked["options"] == {"type": "STRING", "description": "(a JSON object, as text)"}
    assert asked["level"] == {"type": "STRING", "enum": ["1", "2"]}
    fitted = fit_arguments(entry, {"options": '{"deep": true}', "level": "2", "children": ['{"level": "1"}']})
    assert fitted.verdict.outcome == "valid"
    assert fitted.arguments == {"options": {"deep": True}, "level": 2, "children": [{"level": 1}]}


def test_nulls_that_strict_mode_asks_for_do_not_reach_the_server() -> None:
    entry = tool(
        {"properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["path"]}
    )
    definition = to_openai(entry, "name", strict=True).definition
    assert definition is not None
    assert definition["strict"] is True
    assert definition["parameters"]["required"] == ["path", "limit"]
    assert fit_arguments(entry, {"path": "/", "limit": None}).arguments == {"path": "/"}


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=50)
def test_any_two_property_names_stay_apart(one: str, other: str) -> None:
    adapted = to_gemini(tool({"properties": {one: {"type": "string"}, other: {"type": "string"}}}), "name")
    assert adapted.definition is not None
    names = list(adapted.definition["parameters"]["properties"])
    assert len(names) == len({one, other})
    assert set(adapted.arguments(dict.fromkeys(names, 1))) == {one, other}


def test_the_rules_know_what_is_wrong_with_these_schemas_as_they_come() -> None:
    """Else the tests above would prove nothing."""
    refused_by: dict[str, int] = dict.fromkeys(("openai", "strict", "anthropic", "gemini"), 0)
    for schema in ODD_SCHEMAS.values():
        function = {"name": "name", "parameters": schema}
        refused_by["openai"] += bool(openai_faults(function | {"strict": False}))
        refused_by["strict"] += bool(openai_faults(function | {"strict": True}))
        refused_by["anthropic"] += bool(anthropic_faults({"name": "name", "input_schema": schema}))
        refused_by["gemini"] += bool(gemini_faults(function))
    assert refused_by["gemini"] == refused_by["strict"] == len(ODD_SCHEMAS)
    assert min(refused_by.values()) >= 10
