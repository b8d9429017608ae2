"""A well-behaved MCP server on the SDK's low-level server. As a program, it serves stdio in both eras."""

from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

Context = ServerRequestContext[Any]

TOOLS = ("add", "count", "ask", "change", "wait")


def text(value: object) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str(value))])


def make_server() -> Server[Any]:
    bus = InMemorySubscriptionBus()

    async def list_tools(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in TOOLS]
        )

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        match params.name:
            case "add":
                return text(arguments["a"] + arguments["b"])
            case "count":
                for number in range(1, arguments["to"] + 1):
                    await context.session.report_progress(number, arguments["to"])
                return text(arguments["to"])
            case "ask":
                form: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
                answer = await context.session.elicit_form("Who?", form)
                return text(answer.content)
            case "change":
                await bus.publish(ToolsListChanged())
                return text("changed")
            case _:
                await anyio.sleep_forever()
                return text("never")

    return Server(
        "polite",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(bus),
        get_tool_input_schema=lambda name: {"type": "object"} if name in TOOLS else None,
    )


async def main() -> None:
    server = make_server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
