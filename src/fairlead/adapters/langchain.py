"""Tools for LangChain and LangGraph. Needs `langchain-core`."""

from collections.abc import Callable
from typing import Any, Literal

from langchain_core.tools import BaseTool, ToolException
from pydantic import ConfigDict

from fairlead.adapters.common import to_common
from fairlead.adapters.content import Part, parts_of, text_of
from fairlead.adapters.definition import AdaptedTool, Caller
from fairlead.catalog.results import ToolResult
from fairlead.catalog.tools import ToolEntry


class FairleadTool(BaseTool):
    """One tool of an MCP server. The message's `artifact` is the server's result."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    adapted: AdaptedTool
    """The tool as models see it."""
    call: Caller
    """Makes the call."""
    call_waiting: Callable[[dict[str, Any]], ToolResult] | None = None
    """Makes the call and waits for it, where there is a synchronous host."""
    vision: bool = True
    """Whether the model takes images. Where not, notes stand in their place."""
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    """Content for the model, and the server's result as the artifact."""
    handle_tool_error: Any = True
    """Whether the model reads errors, rather than the program."""

    def _run(self, /, **arguments: object) -> tuple[list[dict[str, Any]], ToolResult]:
        if self.call_waiting is None:
            raise NotImplementedError("MCP tools are asynchronous: use `ainvoke`, or `fairlead.open()`")
        return _read(self.call_waiting(self.adapted.arguments(arguments)), vision=self.vision)

    # Arguments may have any name, also `self` and `config`.
    async def _arun(self, /, **arguments: object) -> tuple[list[dict[str, Any]], ToolResult]:
        result = await self.call(self.adapted.key, self.adapted.arguments(arguments))
        return _read(result, vision=self.vision)


def _read(result: ToolResult, *, vision: bool) -> tuple[list[dict[str, Any]], ToolResult]:
    """Content and artifact of a tool message. Raises `ToolException` where the call failed."""
    if result.is_error:
        raise ToolException(text_of(result))
    return [_block(part) for part in parts_of(result, vision=vision)], result


def to_langchain(entry: ToolEntry, name: str, call: Caller, *, vision: bool = True) -> FairleadTool | None:
    """Convert a tool to a LangChain tool.

    Args:
        entry: The tool, as its server describes it.
        name: The public name that the model calls it by.
        call: Makes the call, such as `lambda key, arguments: host.call(key.server_id, key.tool, arguments)`.
        vision: Whether the model takes images. Where not, notes stand in their place.

    Returns:
        The tool; None where its schema cannot be used.
    """
    adapted = to_common(entry, name)
    if adapted.definition is None:
        return None
    return FairleadTool(
        name=name,
        description=adapted.definition["description"],
        args_schema=adapted.definition["input_schema"],
        adapted=adapted,
        call=call,
        vision=vision,
    )


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.mime_type.partition("/")[0]
    return {
        "type": kind if kind in ("image", "audio") else "file",
        "base64": part.data,
        "mime_type": part.mime_type,
    }
