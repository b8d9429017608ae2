"""`McpServer`: an MCP server made of tool definitions, served in this process, over stdio or over HTTP."""

import secrets
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version as installed_version
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.caching import CacheHint
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import BaseModel

from fairlead.bounded_repr import names
from fairlead.catalog.tools import NOTES_META_KEY
from fairlead.config.argument_types import check_types, fits, wrong_type
from fairlead.errors import WrongType
from fairlead.jsonrpc.stdio import open_stdio
from fairlead.servers.framework.http import ServedEndpoint, serving_http
from fairlead.servers.framework.tools import (
    PREVIEW_METHOD,
    AnyTool,
    describe_tool,
    preview_tool,
    run_tool,
)

LISTS_TTL_MS = 3_600_000
"""How long a client may keep the list of tools: it does not change while the server runs."""


GRACE_SECONDS = 10.0
"""How long calls under way may go on after the client closed stdin."""


class McpServer:
    """A server: a name and tools. Register tools first, then serve them, as often as you like.

    ```python
    class Greeting(ToolModel):
        text: str

    async def greet(context: ToolContext, given: Greeting) -> Greeting:
        return Greeting(text=f"Hello, {given.text}!")

    greeter = McpServer("greeter")
    greeter.register(
        ToolDefinition(name="greet", description="Greets.", input=Greeting, output=Greeting, handler=greet)
    )
    async with Host.open(servers={"greeter": greeter}) as host:
        print(await host.call("greeter.greet", text="Ada"))
    ```
    """

    def __init__(
        self,
        name: str,
        *,
        version: str | None = None,
        instructions: str | None = None,
        tools: Iterable[AnyTool] = (),
        call_seconds: float | None = None,
    ) -> None:
        if not fits(name, str) or not name:
            raise wrong_type(McpServer, "name", str, name)
        self.name = name
        self._version = version or installed_version("fairlead")
        self._instructions = instructions
        self.notes: list[str] = []
        """What the user of a host should know of its list, such as what was left out: `fairlead status`
        shows it. Not for models."""
        self.call_seconds = call_seconds
        """How long a host in this process waits for a call; as for every server if None."""
        self._tools: dict[str, AnyTool] = {}
        for tool in tools:
            self.register(tool)

    def __repr__(self) -> str:
        return f"<McpServer {self.name}: {names(self._tools) or 'no tools'}>"

    @check_types
    def register(self, tool: AnyTool) -> None:
        """Add a tool.

        Args:
            tool: The tool, with a name that no other one has.

        Raises:
            ValueError: There is a tool of that name already.
            WrongType: The definition could not be listed or called.
        """
        _require_sound(tool)
        if tool.name in self._tools:
            raise ValueError(f"there is a tool `{tool.name}` already")
        self._tools[tool.name] = tool
        self.__dict__.pop("_tool_list", None)

    @property
    def tools(self) -> tuple[AnyTool, ...]:
        """The tools, in the order they were registered."""
        return tuple(self._tools.values())

    def sdk_server(self) -> Server[Any]:
        """The SDK's server for these tools, for any transport."""
        server: Server[Any] = Server(
            self.name,
            version=self._version,
            instructions=self._instructions,
            cache_hints={"tools/list": CacheHint(ttl_ms=LISTS_TTL_MS, scope="public")},
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._on_list_tools,
            on_call_tool=self._on_call_tool,
        )
        if any(tool.preview is not None for tool in self._tools.values()):
            server.add_request_handler(PREVIEW_METHOD, types.CallToolRequestParams, self._on_preview)
        return server

    @check_types
    @asynccontextmanager
    async def serve(
        self, *, token: str | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncGenerator[ServedEndpoint]:
        """Serve over HTTP at `/mcp` for the length of the block.

        Args:
            token: Bearer token that clients must send; a random one by default.
            host: The address to listen at.
            port: The port to listen at; any free one for 0.

        Yields:
            The endpoint with its URL and token.
        """
        token = token or secrets.token_urlsafe(32)
        async with serving_http({"/mcp": self.sdk_server()}, token=token, host=host, port=port) as endpoint:
            yield replace(endpoint, url=f"{endpoint.url}/mcp")

    async def serve_stdio(self) -> None:
        """Serve the client that started this process, over its stdin and stdout, until it closes stdin.

        Calls under way are then given a few seconds to end. A line that is no message costs only itself.
        """
        server = self.sdk_server()
        async with open_stdio(GRACE_SECONDS) as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    @cached_property
    def _tool_list(self) -> dict[str, types.Tool]:
        return {name: describe_tool(tool) for name, tool in self._tools.items()}

    def _input_schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tool_list.get(name)
        return tool.input_schema if tool else None

    async def _on_list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        meta: dict[str, Any] | None = {NOTES_META_KEY: self.notes} if self.notes else None
        return types.ListToolsResult(tools=list(self._tool_list.values()), _meta=meta)

    async def _on_call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool `{params.name}`")
        return await run_tool(tool, _Context(context), params.arguments or {})

    async def _on_preview(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        tool = self._tools.get(params.name)
        return {"preview": await preview_tool(tool, params.arguments or {}) if tool else None}


def _require_sound(tool: AnyTool) -> None:
    """Raise `WrongType` for a definition that could not be listed or called."""
    models = (tool.input, tool.output)
    wrong = [
        (not fits(tool.name, str) or not tool.name, "its `name` is a text of at least one character"),
        (not fits(tool.description, str), "its `description` is a text"),
        (not fits(tool.title, str | None), "its `title` is a text or None"),
        (not callable(tool.handler), "its `handler` is a coroutine function"),
        (
            not all(fits(model, type) and issubclass(model, BaseModel) for model in models),
            "its `input` and `output` are subclasses of `ToolModel`",
        ),
    ]
    for is_wrong, rule in wrong:
        if is_wrong:
            raise WrongType(f"a tool cannot be registered: {rule}")


class _Context:
    """The call context of a handler, on the SDK's server."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._session = context.session

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        await self._session.report_progress(done, total, message)
