"""Streamable HTTP with the SDK's own server and its session, in both eras of the protocol."""

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import anyio.to_thread
import pytest
from mcp.client.session import ClientSession
from mcp.client.subscriptions import ToolsListChanged, listen

from fairlead.connection.transport.http import HttpDispatcher
from fairlead.net.http import open_client
from tests.connection.http_support import SECONDS, running
from tests.fixtures.sdk_http import MemoryEventStore, Tools, serving

Era = Literal["2025-11-25", "2026-07-28"]
both_eras = pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
both_answers = pytest.mark.parametrize("json", [True, False], ids=["json", "stream"])


@asynccontextmanager
async def session_with(tools: Tools, era: Era, *, json: bool = False) -> AsyncGenerator[ClientSession]:
    store = None if json else MemoryEventStore()
    app = tools.server.streamable_http_app(json_response=json, event_store=store, retry_interval=100)
    with serving(app) as url:
        async with (
            open_client() as client,
            HttpDispatcher(f"{url}/mcp", client) as dispatcher,
            running(dispatcher) as session,
        ):
            await (session.initialize() if era == "2025-11-25" else session.discover())
            assert session.protocol_version == era
            yield session


def text(result: object) -> str:
    content = getattr(result, "content", [])
    return content[0].text


async def until(event: threading.Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, SECONDS)


@both_eras
@both_answers
async def test_tools_are_listed_and_called(era: Era, json: bool) -> None:
    tools = Tools()
    async with session_with(tools, era, json=json) as session:
        assert len((await session.list_tools()).tools) == len(await tools.server.list_tools())
        assert text(await session.call_tool("echo", {"text": "hello"})) == "hello"


@both_eras
async def test_progress_is_reported_in_order(era: Era) -> None:
    reports: list[float] = []
    complete = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)
        if progress == total:
            complete.set()

    async with session_with(Tools(), era) as session:
        assert text(await session.call_tool("count", {"to": 3}, progress_callback=on_progress)) == "3"
        await complete.wait()
        assert reports == [1, 2, 3]


@both_answers
async def test_the_server_can_ask_the_client_on_a_stream_of_its_own(json: bool) -> None:
    async with session_with(Tools(), "2025-11-25", json=json) as session:
        assert text(await session.call_tool("ping_client")) == "it answered"


async def test_an_answer_is_come_back_for_when_the_server_closes_its_stream() -> None:
    async with session_with(Tools(), "2025-11-25") as session:
        assert text(await session.call_tool("come_back")) == "resumed"


@both_eras
async def test_a_call_that_is_given_up_is_cancelled_at_the_server(era: Era) -> None:
    tools = Tools()
    async with session_with(tools, era) as session:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.call_tool, "wait")
            await until(tools.waiting)
            tasks.cancel_scope.cancel()
        await until(tools.cancelled)
        assert text(await session.call_tool("echo", {"text": "still here"})) == "still here"


async def test_changes_are_listened_to_on_a_stream_of_their_own() -> None:
    async with (
        session_with(Tools(), "2026-07-28") as session,
        listen(session, tools_list_changed=True) as subscription,
    ):
        await session.call_tool("change")
        assert isinstance(await anext(subscription), ToolsListChanged)
