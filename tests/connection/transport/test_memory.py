from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.server import Server, ServerRequestContext

from fairlead.connection.outcomes import ConnectionClosed, RequestRejected
from fairlead.connection.transport.memory import MemoryDispatcher
from tests.connection.servers import running
from tests.fixtures.sdk_stdio import make_server

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "_meta": META}


async def test_the_raw_lane_gives_the_bytes_of_a_result() -> None:
    with anyio.fail_after(20):
        async with MemoryDispatcher(make_server()) as dispatcher, running(dispatcher):
            raw = await dispatcher.call_raw("tools/call", call("add", a=2, b=3))

    assert b'"text":"5"' in bytes(raw)


async def test_a_server_in_this_process_is_cancelled_like_any_other() -> None:
    with anyio.fail_after(20):
        async with MemoryDispatcher(make_server()) as dispatcher, running(dispatcher):
            with anyio.move_on_after(0.01):
                await dispatcher.call_raw("tools/call", call("wait"))
            assert await dispatcher.call_raw("tools/call", call("add", a=1, b=1))


async def test_hundreds_of_calls_at_once_are_not_too_many() -> None:
    results: list[int] = []

    async with MemoryDispatcher(make_server()) as dispatcher, running(dispatcher):

        async def add(number: int) -> None:
            result = await dispatcher.send_raw_request("tools/call", call("add", a=number, b=0))
            results.append(int(result["content"][0]["text"]))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for number in range(300):
                    tasks.start_soon(add, number)

    assert sorted(results) == list(range(300))


async def test_leaving_ends_the_lifespan_and_fails_whoever_waits() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server[dict[str, Any]]) -> AsyncGenerator[dict[str, Any]]:
        events.append("begun")
        yield {}
        events.append("ended")

    async def hang(
        context: ServerRequestContext[dict[str, Any]], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        events.append("called")
        await anyio.sleep_forever()
        return types.CallToolResult(content=[])

    server = Server("slow", lifespan=lifespan, on_call_tool=hang)

    async def wait(dispatcher: MemoryDispatcher) -> None:
        with pytest.raises(ConnectionClosed):
            await dispatcher.call_raw("tools/call", call("any"))

    with anyio.fail_after(20):
        async with (
            anyio.create_task_group() as tasks,
            MemoryDispatcher(server) as dispatcher,
            running(dispatcher),
        ):
            tasks.start_soon(wait, dispatcher)
            await anyio.wait_all_tasks_blocked()

    assert events == ["begun", "called", "ended"]


async def test_an_error_inside_comes_out_as_itself() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with MemoryDispatcher(make_server()):
            raise KeyError("mine")


async def test_an_unknown_method_is_rejected() -> None:
    with anyio.fail_after(20):
        async with MemoryDispatcher(make_server()) as dispatcher, running(dispatcher):
            with pytest.raises(RequestRejected) as caught:
                await dispatcher.call_raw("no/such", {"_meta": META})

    assert caught.value.code == types.METHOD_NOT_FOUND
