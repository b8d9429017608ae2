"""Tools and results for the Gemini API."""

from typing import Any

import pytest

from fairlead.adapters.gemini import gemini_result, to_gemini
from tests.adapters.support import PIXEL, answer, image, text
from tests.catalog.support import tool


def parameter(schema: object, **rest: Any) -> dict[str, Any]:
    """What becomes of the argument `a`, which has that schema."""
    definition = to_gemini(tool({"properties": {"a": schema}} | rest), "name").definition
    assert definition is not None
    return definition["parameters"]["properties"]["a"]


def test_a_tool() -> None:
    schema = {
        "properties": {"path": {"type": "string", "description": "Where."}, "depth": {"type": "integer"}},
        "required": ["path", "gone"],
        "additionalProperties": False,
    }
    assert to_gemini(tool(schema), "mcp_server_tool").definition == {
        "name": "mcp_server_tool",
        "description": "[server/tool] Does it.",
        "parameters": {
            "type": "OBJECT",
            "properties": {"path": {"type": "STRING", "description": "Where."}, "depth": {"type": "INTEGER"}},
            "required": ["path"],
        },
    }


def test_a_tool_without_arguments_has_no_parameters() -> None:
    schemas: list[dict[str, Any]] = [{}, {"properties": {}}, {"additionalProperties": False}]
    for schema in schemas:
        adapted = to_gemini(tool(schema), "name")
        assert adapted.definition is not None
        assert "parameters" not in adapted.definition
        assert not adapted.changes
    assert to_gemini(tool({"additionalProperties": True}), "name").changes


@pytest.mark.parametrize(
    ("schema", "adapted"),
    [
        (
            {"type": "integer", "exclusiveMinimum": 0, "maximum": 9},
            {"type": "INTEGER", "minimum": 1, "maximum": 9},
        ),
        ({"type": "number", "exclusiveMaximum": 1}, {"type": "NUMBER", "maximum": 1}),
        ({"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
        (
            {"type": "null"},
            {"anyOf": [{"type": "STRING", "nullable": True}, {"type": "NUMBER"}, {"type": "BOOLEAN"}]},
        ),
        (
            {"enum": ["a", ""], "description": "Which."},
            {"type": "STRING", "enum": ["a"], "description": "Which."},
        ),
        ({"const": "a"}, {"type": "STRING", "enum": ["a"]}),
        ({"type": "boolean", "const": True}, {"type": "BOOLEAN"}),
        ({"type": "number", "enum": [1, 1.5]}, {"type": "STRING", "enum": ["1", "1.5"]}),
        ({"type": "string", "default": "x"}, {"type": "STRING", "description": '(default: "x")'}),
        ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}),
        ({"type": "string", "format": "email", "minLength": 1}, {"type": "STRING", "minLength": 1}),
        ({"type": "string", "pattern": "^a"}, {"type": "STRING", "pattern": "^a"}),
        ({"type": "string", "pattern": "("}, {"type": "STRING"}),
        (
            {"items": {"type": "string"}, "maxItems": 2},
            {"type": "ARRAY", "items": {"type": "STRING"}, "maxItems": 2},
        ),
        (
            {"type": ["string", "integer"], "description": "Either."},
            {"anyOf": [{"type": "STRING", "description": "Either."}, {"type": "INTEGER"}]},
        ),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "STRING", "nullable": True}),
        (
            {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            {"anyOf": [{"type": "STRING", "nullable": True}, {"type": "ARRAY", "items": {"type": "STRING"}}]},
        ),
        (
            {"prefixItems": [{"type": "string"}, {"type": "string"}, {"type": "integer"}], "type": "array"},
            {"type": "ARRAY", "items": {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}},
        ),
        (
            {"allOf": [{"properties": {"x": {"type": "string"}}}, {"required": ["x"]}], "type": "object"},
            {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}, "required": ["x"]},
        ),
        (
            {"properties": {"x": {"type": "string"}}, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]},
            {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}},
        ),
        (
            {"type": "object", "description": "Any."},
            {"type": "STRING", "description": "Any. (a JSON object, as text)"},
        ),
    ],
)
def test_what_becomes_of_a_schema(schema: dict[str, Any], adapted: dict[str, Any]) -> None:
    assert parameter(schema) == adapted


def test_references_are_written_out_and_words_beside_them_kept() -> None:
    definitions = {"point": {"type": "object", "properties": {"x": {"type": "number"}}}}
    written_out = {"type": "OBJECT", "properties": {"x": {"type": "NUMBER"}}}
    assert parameter(
        {"$ref": "#/$defs/point", "description": "Here."}, **{"$defs": definitions}
    ) == written_out | {"description": "Here."}
    adapted = to_gemini(
        tool({"$defs": definitions, "properties": {name: {"$ref": "#/$defs/point"} for name in "ab"}}), "name"
    )
    assert adapted.definition is not None
    assert adapted.definition["parameters"]["properties"] == {"a": written_out, "b": written_out}


def test_a_circle_ends_as_text() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
    adapted = parameter({"$ref": "#/$defs/node"}, **{"$defs": {"node": node}})
    assert adapted["properties"] == {
        "next": {"type": "STRING", "description": "(JSON, as text)"},
        "n": {"type": "INTEGER"},
    }


@pytest.mark.requirement("HARD-43")
def test_references_that_double_end_too() -> None:
    definitions: dict[str, Any] = {"n0": {"type": "string"}}
    for level in range(20):
        pair = {side: {"$ref": f"#/$defs/n{level}"} for side in ("left", "right")}
        definitions[f"n{level + 1}"] = {"type": "object", "properties": pair}
    adapted = to_gemini(tool({"$defs": definitions, "properties": {"a": {"$ref": "#/$defs/n20"}}}), "name")
    assert adapted.definition is not None
    assert len(str(adapted.definition)) < 1_000_000


def test_what_the_subset_cannot_say_is_told() -> None:
    schema = {
        "properties": {
            "a": {"type": "array", "uniqueItems": True, "items": {"type": "string", "format": "uri"}},
            "b": {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            },
        },
        "minProperties": 1,
    }
    assert [change.where for change in to_gemini(tool(schema), "name").changes] == [
        "minProperties",
        "properties.a.uniqueItems",
        "properties.a.items.format",
        "properties.b.additionalProperties",
    ]


def test_a_result() -> None:
    assert gemini_result(answer(text("done")), "f") == {
        "functionResponse": {"name": "f", "response": {"output": "done"}}
    }
    structured = answer(text('{"n": 1}'), structuredContent={"n": 1})
    assert gemini_result(structured, "f", "c1") == {
        "functionResponse": {"name": "f", "response": {"output": {"n": 1}}, "id": "c1"}
    }
    failed = gemini_result(answer(text("no"), isError=True, structuredContent={"n": 1}), "f")
    assert failed["functionResponse"]["response"] == {"error": "no"}


@pytest.mark.requirement("NEED-31")
def test_an_image_goes_as_an_image_where_the_model_takes_one() -> None:
    result = answer(text("Look:"), image())
    response = gemini_result(result, "f")["functionResponse"]
    assert response["response"] == {"output": "Look:"}
    assert response["parts"] == [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]
    without = gemini_result(result, "f", media=False)["functionResponse"]
    assert without["response"] == {"output": "Look:\n(image/png, 72 bytes: cannot be shown here)"}
    assert "parts" not in without
