"""A gateway as one writes it in an afternoon: the SDK's server in front, its client behind.

    python -m benchmarks.gateways.naive ENTRY

ENTRY is the server behind, as JSON. The protocol's newer version is spoken to it where it can be.
"""

import sys
from typing import Any

import anyio
import msgspec
import uvicorn
from mcp import Client
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from benchmarks.callers import sdk_parameters
from fairlead.net.listen import bind

Context = ServerRequestContext[Any, Any]


async def main(entry: dict[str, Any]) -> None:
    """Serve until it is ended."""
    async with Client(sdk_parameters(entry)) as client:

        async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
            return await client.list_tools()

        async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
            return await client.call_tool(params.name, params.arguments)

        server = Server[Any]("naive", on_list_tools=list_tools, on_call_tool=call_tool)
        with bind("127.0.0.1", 0) as listener:
            print(listener.getsockname()[1], flush=True)
            config = uvicorn.Config(server.streamable_http_app(), log_config=None, access_log=False)
            await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    anyio.run(main, msgspec.json.decode(sys.argv[1]), backend_options={"use_uvloop": True})
