"""Tools and results for OpenAI's two APIs."""

from typing import Any

import pytest

from fairlead.adapters.openai import openai_arguments, openai_messages, openai_result, to_openai
from tests.adapters.support import PIXEL, answer, image, text
from tests.catalog.support import tool

SCHEMA = {"properties": {"path": {"type": "string"}}, "required": ["path"]}


def strict_parameters(schema: object) -> dict[str, Any]:
    definition = to_openai(tool(schema), "name", strict=True).definition
    assert definition is not None
    assert definition["strict"] is True
    return definition["parameters"]


def test_a_tool_in_both_forms() -> None:
    function = {
        "name": "mcp_files_read",
        "description": "[files/read] Reads.",
        "parameters": {"type": "object", **SCHEMA},
        "strict": False,
    }
    entry = tool(SCHEMA, server="files", name="read", description="Reads.")
    assert to_openai(entry, "mcp_files_read").definition == {"type": "function", **function}
    assert to_openai(entry, "mcp_files_read", api="chat").definition == {
        "type": "function",
        "function": function,
    }


def test_a_description_is_cut_only_where_that_is_asked_for() -> None:
    entry = tool({}, description="x" * 3_000)
    whole, cut = (to_openai(entry, "name", max_description=most) for most in (None, 1_024))
    assert whole.definition is not None
    assert cut.definition is not None
    assert len(whole.definition["description"]) > 3_000
    assert len(cut.definition["description"]) == 1_024
    assert [change.where for change in cut.changes] == ["description"]


def test_strict_closes_objects_and_makes_everything_required() -> None:
    parameters = strict_parameters(
        {
            "properties": {
                "name": {"type": "string", "title": "Name", "maxLength": 5, "format": "uri"},
                "size": {"type": "integer", "default": 5, "description": "How large."},
                "kind": {"enum": ["a", "b"]},
                "fixed": {"const": 3},
                "maybe": {"type": ["string", "null"]},
                "choice": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                "inner": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
            },
            "required": ["name", "inner"],
        }
    )
    assert parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "size": {"type": ["integer", "null"], "description": "How large. (default: 5)"},
            "kind": {"type": ["string", "null"], "enum": ["a", "b", None]},
            "fixed": {"anyOf": [{"type": "number", "const": 3}, {"type": "null"}]},
            "maybe": {"type": ["string", "null"]},
            "choice": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            "inner": {
                "type": "object",
                "properties": {"x": {"type": "number"}},
                "required": ["x"],
                "additionalProperties": False,
            },
        },
        "required": ["name", "size", "kind", "fixed", "maybe", "choice", "inner"],
        "additionalProperties": False,
    }


def test_strict_keeps_references() -> None:
    parameters = strict_parameters(
        {
            "$defs": {
                "node": {
                    "properties": {"next": {"$ref": "#/$defs/node"}, "all": {"$ref": "#"}},
                    "required": ["next"],
                },
                "unused": {"type": "object"},
            },
            "properties": {"start": {"$ref": "#/$defs/node", "description": "Where."}},
            "required": ["start"],
        }
    )
    assert parameters["properties"] == {"start": {"$ref": "#/$defs/node"}}
    assert parameters["$defs"]["node"]["properties"] == {
        "next": {"$ref": "#/$defs/node"},
        "all": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    }
    assert "unused" not in parameters["$defs"]


def test_a_tool_without_arguments_can_be_strict() -> None:
    assert strict_parameters({}) == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({}, "accepts anything"),
        (False, "accepts nothing"),
        ({"type": "object"}, "accepts properties that are not named"),
        (
            {"type": "object", "properties": {"x": {"type": "null"}}, "additionalProperties": True},
            "not named",
        ),
        ({"type": "array"}, "accepts anything"),
        ({"type": "array", "prefixItems": [{"type": "null"}]}, "has `prefixItems`"),
        ({"type": "object", "patternProperties": {"x": {}}}, "has `patternProperties`"),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "combines several schemas"),
        ({"$ref": "#/properties/b"}, "refers to"),
        ({"properties": {"x": {"type": "null"}}, "anyOf": [{"type": "object"}]}, "combines alternatives"),
        ({"enum": [str(number) for number in range(2_000)]}, "too many"),
    ],
)
def test_what_cannot_be_strict_is_sent_without_and_says_why(schema: object, why: str) -> None:
    adapted = to_openai(tool({"properties": {"a": schema, "b": {"type": "string"}}}), "name", strict=True)
    assert adapted.definition is not None
    assert adapted.definition["strict"] is False
    assert [change.where.partition(".anyOf")[0].partition(".items")[0] for change in adapted.changes] == [
        "properties.a"
    ]
    assert why in adapted.changes[0].what


def test_too_deep_for_strict() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(12):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    adapted = to_openai(tool(schema), "name", strict=True)
    assert adapted.definition is not None
    assert adapted.definition["strict"] is False


def test_arguments_come_as_text() -> None:
    assert openai_arguments('{"a": 1}') == {"a": 1}
    assert openai_arguments(" ") == {}
    for wrong in ("[1]", "{", "null"):
        with pytest.raises(ValueError, match=r"."):
            openai_arguments(wrong)


def test_a_result_of_text() -> None:
    result = answer(text("one"), text(""), text("two"))
    assert openai_result(result, "c1") == {
        "type": "function_call_output",
        "call_id": "c1",
        "output": "one\ntwo",
    }
    assert openai_messages(result, "c1") == [{"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"}]


@pytest.mark.requirement("NEED-31")
def test_an_image_goes_as_an_image_and_never_as_text() -> None:
    result = answer(text("Look:"), image(), {"type": "audio", "mimeType": "audio/wav", "data": PIXEL})
    output = openai_result(result, "c1")["output"]
    assert output == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        {"type": "input_text", "text": "(audio/wav, 72 bytes: cannot be shown here)"},
    ]
    tool_message, user_message = openai_messages(result, "c1")
    assert PIXEL not in tool_message["content"]
    assert "image/png, 72 bytes: shown in the user message that follows" in tool_message["content"]
    assert "audio/wav, 72 bytes: cannot be shown here" in tool_message["content"]
    assert user_message["role"] == "user"
    assert user_message["content"][1] == {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{PIXEL}"},
    }


def test_a_file_goes_as_a_file() -> None:
    blob = {
        "type": "resource",
        "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": PIXEL},
    }
    output = openai_result(answer(blob), "c1")["output"]
    assert output == [
        {"type": "input_file", "filename": "result.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}
    ]
