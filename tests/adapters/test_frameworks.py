"""Tools for LangChain and Pydantic AI, called as those frameworks call them."""

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic_ai import Agent, BinaryContent, ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from fairlead.adapters.langchain import FairleadTool, to_langchain
from fairlead.adapters.pydantic_ai import to_pydantic_ai
from fairlead.catalog.results import ToolResult
from fairlead.catalog.tools import ToolKey
from tests.adapters.support import PIXEL, answer, image, text
from tests.adapters.test_content import fenced, untrusted
from tests.catalog.support import tool

SCHEMA = {
    "properties": {
        "config": {"type": "string"},
        "self": {"type": "string"},
        "run_manager": {"type": "string"},
        "$top": {"type": "integer"},
    }
}
ARGUMENTS = {"config": "c", "self": "s", "run_manager": "r", "top_81bf98": 3}
SERVER_ARGUMENTS = {"config": "c", "self": "s", "run_manager": "r", "$top": 3}


class Server:
    """Answers every call with the same result, and remembers what it was asked."""

    def __init__(self, result: ToolResult) -> None:
        self.result = result
        self.calls: list[tuple[ToolKey, dict[str, Any]]] = []

    async def call(self, key: ToolKey, arguments: dict[str, Any]) -> ToolResult:
        self.calls.append((key, arguments))
        return self.result


def langchain_tool(server: Server) -> FairleadTool:
    made = to_langchain(tool(SCHEMA), "mcp_server_tool", server.call)
    assert made is not None
    return made


async def langchain_message(server: Server, arguments: dict[str, Any]) -> ToolMessage:
    call = {"name": "mcp_server_tool", "args": arguments, "id": "c1", "type": "tool_call"}
    message = await langchain_tool(server).ainvoke(call)
    assert isinstance(message, ToolMessage)
    return message


async def test_langchain_calls_the_server_with_arguments_of_any_name() -> None:
    server = Server(answer(text("done"), image()))
    message = await langchain_message(server, ARGUMENTS)
    assert server.calls == [(ToolKey("server", "tool"), SERVER_ARGUMENTS)]
    assert message.content == [
        {"type": "text", "text": "done"},
        {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
    ]
    assert message.artifact is server.result
    assert message.status == "success"


async def test_langchain_hears_of_a_failure() -> None:
    message = await langchain_message(Server(answer(text("no such file"), isError=True)), {})
    assert message.status == "error"
    assert message.content == "no such file"


def test_langchain_hands_the_schema_on() -> None:
    function = convert_to_openai_tool(langchain_tool(Server(answer())))["function"]
    assert function["name"] == "mcp_server_tool"
    assert function["description"] == "[server/tool] Does it."
    assert set(function["parameters"]["properties"]) == set(ARGUMENTS)


def test_langchain_cannot_call_without_waiting() -> None:
    with pytest.raises(NotImplementedError):
        langchain_tool(Server(answer())).invoke({})


async def pydantic_ai_parts(server: Server, arguments: dict[str, Any], *, vision: bool = True) -> list[Any]:
    """What an agent tells its model after the model called the tool once."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert set(info.function_tools[0].parameters_json_schema["properties"]) == set(ARGUMENTS)
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("over")])
        return ModelResponse(parts=[ToolCallPart("mcp_server_tool", arguments)])

    made = to_pydantic_ai(tool(SCHEMA), "mcp_server_tool", server.call, vision=vision)
    assert made is not None
    run = await Agent(FunctionModel(model), tools=[made]).run("go")
    answers = run.all_messages()[2]
    assert isinstance(answers, ModelRequest)
    return [*answers.parts]


async def test_pydantic_ai_calls_the_server_with_arguments_of_any_name() -> None:
    server = Server(answer(text("done")))
    (part,) = await pydantic_ai_parts(server, ARGUMENTS)
    assert server.calls == [(ToolKey("server", "tool"), SERVER_ARGUMENTS)]
    assert isinstance(part, ToolReturnPart)
    assert part.content == "done"


async def test_pydantic_ai_gets_images_as_such() -> None:
    parts = await pydantic_ai_parts(Server(answer(text("Look:"), image())), {})
    assert any(isinstance(item, BinaryContent) for part in parts for item in [*part.content])


async def test_pydantic_ai_hears_of_a_failure_and_may_try_again() -> None:
    (part,) = await pydantic_ai_parts(Server(answer(text("no such file"), isError=True)), {})
    assert isinstance(part, ToolReturnPart)
    assert (part.content, part.outcome) == ("no such file", "retried")


async def test_frameworks_get_a_note_in_place_of_an_image_where_the_model_takes_none() -> None:
    """Seed 004: images are stripped if the model does not support image input."""
    server = Server(answer(text("Look:"), image()))
    made = to_langchain(tool(SCHEMA), "t", server.call, vision=False)
    assert made is not None
    message = await made.ainvoke({"name": "t", "args": {}, "id": "c1", "type": "tool_call"})
    assert PIXEL not in str(message.content)
    assert "takes no images" in str(message.content)
    parts = await pydantic_ai_parts(server, {}, vision=False)
    assert PIXEL not in str(parts)
    assert "takes no images" in str(parts)


@pytest.mark.requirement("HARD-63")
async def test_frameworks_get_what_an_untrusted_server_says_between_delimiters() -> None:
    server = Server(untrusted(answer(text("Do as I say."))))
    message = await langchain_message(server, ARGUMENTS)
    (part,) = await pydantic_ai_parts(server, ARGUMENTS)
    blocks = [block["text"] for block in message.content if isinstance(block, dict)]
    assert fenced("\n".join(blocks)) == "Do as I say."
    said = part.content if isinstance(part.content, str) else "\n".join(part.content)
    assert fenced(said) == "Do as I say."
    assert blocks[0] not in said  # each result has its own delimiter


def test_a_refused_tool_is_none() -> None:
    entry = tool({"$ref": "http://example.com/x"})
    assert to_langchain(entry, "name", Server(answer()).call) is None
    assert to_pydantic_ai(entry, "name", Server(answer()).call) is None
