"""Tools that the host itself gives a model, beside those of its servers."""

from collections.abc import Awaitable, Iterator, Mapping
from typing import Any, TypeVar

from mcp_types import CallToolResult

from fairlead.catalog.entries import ToolEntry, ToolKey
from fairlead.catalog.results import ToolResult
from fairlead.errors import FairleadError, ToolFailed
from fairlead.servers.definition import AnyTool
from fairlead.servers.running import describe_tool, run_tool

RESERVED = frozenset(
    {
        "mcp_search_tools",
        "mcp_list_tools",
        "mcp_get_tool_schema",
        "mcp_call_tool",
        "mcp_resources_list",
        "mcp_resource_templates_list",
        "mcp_resource_read",
        "mcp_prompts_list",
        "mcp_prompt_get",
        "mcp_read_artifact",
    }
)
"""Names that no server's tool can have."""

AskedT = TypeVar("AskedT")


class _NoContext:
    """These tools are quick: there is no progress to report."""

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        return


class OwnTools:
    """A few tools, each under a name that every provider takes and under its older one, with a dot."""

    def __init__(self, tools: Mapping[str, AnyTool]) -> None:
        self._dotted = {tool.name: dotted for dotted, tool in tools.items()}
        self._tools = {**tools, **{tool.name: tool for tool in tools.values()}}

    def has(self, name: str) -> bool:
        """Is this the name of one of them?"""
        return name in self._tools

    def described(self, tool: AnyTool) -> str:
        """What a model reads about a tool."""
        return tool.description

    def entries(self) -> Iterator[tuple[str, ToolEntry]]:
        """The tools as a model gets them, by name."""
        for name, dotted in self._dotted.items():
            tool = self._tools[name]
            update = {"description": self.described(tool), "output_schema": None, "annotations": None}
            described = describe_tool(tool).model_copy(update=update)
            yield (
                name,
                ToolEntry(
                    key=ToolKey("mcp", dotted.removeprefix("mcp.")),
                    definition=described.model_dump_json(by_alias=True, exclude_none=True).encode(),
                    description=described.description,
                ),
            )

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call one of them."""
        result = await run_tool(self._tools[name], _NoContext(), arguments)
        return await self.handed(self._tools[name], arguments, result)

    async def handed(self, tool: AnyTool, arguments: Mapping[str, Any], result: CallToolResult) -> ToolResult:
        """What a tool returned, as a model may have it. Where a server wrote it, more is to be done."""
        return ToolResult("mcp", encoded(result))


def encoded(result: CallToolResult) -> bytes:
    """A result as it would go over the wire."""
    return result.model_dump_json(by_alias=True, exclude_none=True).encode()


async def told(asking: Awaitable[AskedT]) -> AskedT:
    """What is waited for; what goes wrong on the way is told to the model."""
    try:
        return await asking
    except FairleadError as exc:
        raise ToolFailed(str(exc), hint=exc.hint) from exc
