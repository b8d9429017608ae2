"""The transport of 2024-11-05, against a server that misbehaves and against the SDK's own."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import msgspec
import pytest
from mcp.shared.exceptions import MCPError

from fairlead.connection.outcomes import (
    AnswerLost,
    AnswerTooLong,
    AnswerUnreadable,
    ConnectionClosed,
    HttpRejected,
    RequestExpired,
    RequestRejected,
    SessionExpired,
    Unreachable,
)
from fairlead.connection.transport.http import HttpDispatcher
from fairlead.connection.transport.http_endpoint import fixed_headers
from fairlead.connection.transport.legacy_sse import SseDispatcher, is_fallback_worthy
from fairlead.jsonrpc.limits import MAX_LINE_BYTES
from fairlead.net.http import open_client
from tests.connection.http_support import LEGACY, SECONDS, call, call_text, running
from tests.fixtures.hostile_http import HostileServer, serving
from tests.fixtures.sdk_http import Tools
from tests.fixtures.sdk_http import serving as serving_sdk


def older_url(server: HostileServer) -> str:
    return server.url.replace("/mcp", "/sse")


@asynccontextmanager
async def connected(
    server: HostileServer, *, max_message_bytes: int = MAX_LINE_BYTES
) -> AsyncGenerator[SseDispatcher]:
    async with (
        open_client() as client,
        SseDispatcher(older_url(server), client, max_message_bytes=max_message_bytes) as dispatcher,
        running(dispatcher),
    ):
        yield dispatcher


async def test_what_is_posted_is_answered_on_the_stream() -> None:
    headers = fixed_headers({"X-Team": "blue"})
    async with serving() as server, open_client() as client:
        dispatcher = SseDispatcher(older_url(server), client, headers=headers)
        async with dispatcher, running(dispatcher) as session:
            await session.initialize()
            assert await call_text(dispatcher, "echo") == "fine"
        await server.abandoned.wait()
        assert {request.path for request in server.requests} == {"/sse", "/messages"}
        assert {request.headers["x-team"] for request in server.requests} == {"blue"}


async def test_an_answer_may_come_before_the_message_is_accepted() -> None:
    async with serving() as server, connected(server) as dispatcher:
        assert await call_text(dispatcher, "answer_first") == "fine"


async def test_messages_are_posted_to_the_origin_of_the_stream_alone() -> None:
    async with serving("sse-elsewhere") as server, open_client() as client:
        with (
            anyio.fail_after(SECONDS),
            pytest.raises(HttpRejected, match=r"of another origin, 'http://evil\.test"),
        ):
            async with SseDispatcher(older_url(server), client):
                pass


@pytest.mark.parametrize(
    ("quirk", "failure", "message"),
    [
        ("sse-refused", HttpRejected, "HTTP 404 Whatever: not here"),
        ("sse-html", HttpRejected, "'text/html' where an event stream is due"),
        ("sse-silent", AnswerLost, "closed the stream"),
    ],
)
async def test_what_is_no_such_stream_is_a_clear_error(
    quirk: str, failure: type[MCPError], message: str
) -> None:
    async with serving(quirk) as server, open_client() as client:
        with anyio.fail_after(SECONDS), pytest.raises(failure, match=message):
            async with SseDispatcher(older_url(server), client):
                pass


async def test_a_server_that_cannot_be_reached_is_no_answer() -> None:
    async with serving() as server:
        url = older_url(server)
    async with open_client() as client:
        with anyio.fail_after(SECONDS), pytest.raises(Unreachable):
            async with SseDispatcher(url, client):
                pass


async def test_a_first_event_too_long_is_a_clear_error() -> None:
    async with serving() as server, open_client() as client:
        with anyio.fail_after(SECONDS), pytest.raises(AnswerTooLong):
            async with SseDispatcher(older_url(server), client, max_message_bytes=10):
                pass


async def test_a_message_that_is_refused_was_not_carried_out() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(SessionExpired) as caught:
            await call(dispatcher, "not_found")
        assert caught.value.delivery == "not_sent"


async def test_the_end_of_the_stream_is_the_end_of_the_connection() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(ConnectionClosed) as caught:
            await call(dispatcher, "hang_up")
        assert caught.value.delivery == "unknown"
        assert (await dispatcher.wait_closed()).kind == "hung_up"


@pytest.mark.requirement("HARD-23")
async def test_an_event_too_long_is_the_end_of_the_connection() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(ConnectionClosed, match="longer than the limit"):
            await call(dispatcher, "endless_event")
        assert (await dispatcher.wait_closed()).kind == "overflow"


@pytest.mark.requirement("HARD-23")
@pytest.mark.parametrize(
    "shape", ["id first", "id last", "error", "many lines", "no space", "carriage returns"]
)
async def test_an_answer_too_long_costs_its_own_call_alone(shape: str) -> None:
    """Other calls that are under way, and those after it, get their answers."""
    async with serving() as server, connected(server, max_message_bytes=100_000) as dispatcher:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, dispatcher, "wait")
            for size in (100_001, 1_000_000):
                with pytest.raises(AnswerUnreadable, match="longer than the limit"):
                    await oversize(dispatcher, shape, size)
                assert await call_text(dispatcher, "echo") == "fine"
            tasks.cancel_scope.cancel()
        assert dispatcher.ending is None


@pytest.mark.parametrize("shape", ["notification", "request"])
async def test_a_message_too_long_that_answers_nothing_costs_no_call(shape: str) -> None:
    async with serving() as server, connected(server, max_message_bytes=100_000) as dispatcher:
        with pytest.raises(RequestExpired):
            await oversize(dispatcher, shape, 300_000, seconds=0.3)
        assert await call_text(dispatcher, "echo") == "fine"


async def test_a_comment_too_long_costs_nothing() -> None:
    async with serving() as server, connected(server, max_message_bytes=100_000) as dispatcher:
        for size in (100_001, 1_000_000):
            assert b'"fine"' in bytes(await oversize(dispatcher, "comment", size))


async def test_an_event_that_does_not_end_ends_the_connection() -> None:
    async with serving() as server, connected(server, max_message_bytes=10_000) as dispatcher:
        with pytest.raises(ConnectionClosed, match="longer than the limit"):
            await oversize(dispatcher, "id first", 5_000_000)


async def oversize(dispatcher: SseDispatcher, shape: str, size: int, *, seconds: float = 20.0) -> msgspec.Raw:
    return await call(dispatcher, "oversize", {**LEGACY, "timeout": seconds}, shape=shape, size=size)


async def test_a_caller_that_gives_up_says_so() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(RequestExpired):
            await call(dispatcher, "wait", {**LEGACY, "timeout": 0.2})
        told = await server.saw("notifications/cancelled")
        assert told.message["params"]["requestId"] == server.seen("tools/call")[0].message["id"]


async def test_a_session_with_the_sdks_own_server() -> None:
    tools = Tools()
    with serving_sdk(tools.server.sse_app()) as url:
        async with (
            open_client() as client,
            SseDispatcher(f"{url}/sse", client) as dispatcher,
            running(dispatcher) as session,
        ):
            await session.initialize()
            assert len((await session.list_tools()).tools) == len(await tools.server.list_tools())
            assert await call_text(dispatcher, "echo", text="hello") == "hello"
            assert await call_text(dispatcher, "ping_client") == "it answered"
            with pytest.raises(RequestExpired):
                await call(dispatcher, "wait", {**LEGACY, "timeout": 0.2})
            assert await anyio.to_thread.run_sync(tools.cancelled.wait, SECONDS)


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_url_that_refuses_the_newer_transport_may_speak_the_older(status: int) -> None:
    assert is_fallback_worthy(HttpRejected(status, "no"))


@pytest.mark.parametrize(
    "failure",
    [
        HttpRejected(401, "who are you"),
        HttpRejected(500, "oh no"),
        RequestRejected(-32601, "no such method"),
        Unreachable("nobody there"),
    ],
)
def test_any_other_failure_is_no_reason_to_try_the_older_transport(failure: Exception) -> None:
    assert not is_fallback_worthy(failure)


async def test_the_sdks_older_server_refuses_the_newer_transport_so_that_the_older_is_tried() -> None:
    tools = Tools()
    with serving_sdk(tools.server.sse_app()) as url:
        async with open_client() as client:
            dispatcher = HttpDispatcher(f"{url}/sse", client)
            async with dispatcher, running(dispatcher) as session:
                with pytest.raises(HttpRejected) as caught:
                    await session.initialize()
                assert is_fallback_worthy(caught.value)
