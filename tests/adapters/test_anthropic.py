"""Tools and results for Anthropic's Messages API."""

import pytest

from fairlead.adapters.anthropic import anthropic_result, to_anthropic
from tests.adapters.support import PIXEL, answer, image, text
from tests.catalog.support import tool


def test_a_tool() -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a.b": {"type": "string"}}}
    assert to_anthropic(tool(schema), "mcp_server_tool").definition == {
        "name": "mcp_server_tool",
        "description": "[server/tool] Does it.",
        "input_schema": {"type": "object", "properties": {"a.b": {"type": "string"}}},
    }


def test_a_pattern_that_is_none_is_left_out() -> None:
    adapted = to_anthropic(tool({"properties": {"a": {"type": "string", "pattern": "["}}}), "name")
    assert adapted.definition is not None
    assert adapted.definition["input_schema"]["properties"]["a"] == {"type": "string"}
    assert [change.where for change in adapted.changes] == ["properties.a.pattern"]


def test_repairs_made_on_the_way_in_are_told_too() -> None:
    adapted = to_anthropic(tool({"properties": {"a": {"type": "strng"}}}), "name")
    assert [change.where for change in adapted.changes] == ["properties.a.type"]


def test_a_result_of_text() -> None:
    assert anthropic_result(answer(text("done")), "t1") == {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": "done"}],
    }


def test_a_failure_is_marked() -> None:
    result = anthropic_result(answer(text("no such file"), isError=True), "t1")
    assert result["is_error"] is True
    assert result["content"] == [{"type": "text", "text": "no such file"}]


def test_no_text_block_is_ever_empty() -> None:
    assert anthropic_result(answer(text("")), "t1")["content"][0]["text"]
    assert anthropic_result(answer(isError=True), "t1")["content"][0]["text"]


@pytest.mark.requirement("NEED-31")
def test_images_and_documents_go_as_such_and_others_are_named() -> None:
    pdf = {
        "type": "resource",
        "resource": {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": PIXEL},
    }
    content = anthropic_result(answer(image("image/webp"), pdf, image("image/tiff")), "t1")["content"]
    assert content == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": PIXEL}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL}},
        {"type": "text", "text": "(image/tiff, 72 bytes: cannot be shown here)"},
    ]
