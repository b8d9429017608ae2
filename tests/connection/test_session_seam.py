"""The SDK's typed session on top of our dispatchers, against the SDK's own server."""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import ClientSession
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged

from fairlead.connection.process.child import Command
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.memory import MemoryDispatcher
from fairlead.connection.transport.stdio import StdioDispatcher
from tests.connection.servers import SERVERS
from tests.fixtures.sdk_stdio import make_server


def first_text(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@asynccontextmanager
async def dispatcher_to(where: str) -> AsyncGenerator[WireDispatcher]:
    if where == "memory":
        async with MemoryDispatcher(make_server()) as dispatcher:
            yield dispatcher
    else:
        command = Command(argv=(sys.executable, str(SERVERS / "sdk_stdio.py")))
        async with StdioDispatcher(command) as dispatcher:
            yield dispatcher


async def open_session(session: ClientSession, era: str) -> None:
    if era == "2025-11-25":
        await session.initialize()
    else:
        await session.discover()
    assert session.protocol_version == era


@pytest.mark.parametrize(
    ("where", "era"), [("stdio", "2025-11-25"), ("stdio", "2026-07-28"), ("memory", "2026-07-28")]
)
async def test_a_typed_session_works_in_both_eras(where: str, era: str) -> None:
    reports: list[tuple[float, float | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total))

    with anyio.fail_after(60):
        async with dispatcher_to(where) as dispatcher, ClientSession(dispatcher=dispatcher) as session:
            await open_session(session, era)
            tools = await session.list_tools()
            total = await session.call_tool("add", {"a": 2, "b": 3})
            counted = await session.call_tool("count", {"to": 3}, progress_callback=report)
            with pytest.raises(MCPError):
                await session.get_prompt("none")
            with anyio.move_on_after(0.05):
                await session.call_tool("wait", {})
            again = await session.call_tool("add", {"a": 1, "b": 1})

    assert [tool.name for tool in tools.tools] == ["add", "count", "ask", "change", "wait"]
    assert [first_text(result) for result in (total, counted, again)] == ["5", "3", "2"]
    assert reports == [(1.0, 3.0), (2.0, 3.0), (3.0, 3.0)]


async def test_the_server_can_ask_the_client_in_the_handshake_era() -> None:
    async def answer(context: ClientRequestContext, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    with anyio.fail_after(60):
        async with (
            dispatcher_to("stdio") as dispatcher,
            ClientSession(dispatcher=dispatcher, elicitation_callback=answer) as session,
        ):
            await session.initialize()
            result = await session.call_tool("ask", {})

    assert first_text(result) == "{'name': 'Ada'}"


@pytest.mark.parametrize("where", ["stdio", "memory"])
async def test_a_subscription_sees_changes_in_the_stateless_era(where: str) -> None:
    with anyio.fail_after(60):
        async with dispatcher_to(where) as dispatcher, ClientSession(dispatcher=dispatcher) as session:
            await session.discover()
            async with listen(session, tools_list_changed=True) as subscription:
                await session.call_tool("change", {})
                assert await anext(aiter(subscription)) == ToolsListChanged()


async def test_a_dead_server_looks_like_a_closed_connection_to_the_session() -> None:
    with anyio.fail_after(60):
        async with dispatcher_to("stdio") as dispatcher, ClientSession(dispatcher=dispatcher) as session:
            await session.initialize()
            async with anyio.create_task_group() as tasks:

                async def call() -> None:
                    with pytest.raises(MCPError) as caught:
                        await session.call_tool("wait", {})
                    assert caught.value.code == types.CONNECTION_CLOSED

                tasks.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                assert isinstance(dispatcher, StdioDispatcher)
                os.kill(dispatcher.pid, signal.SIGKILL)
