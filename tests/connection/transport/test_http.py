"""Streamable HTTP against a server that misbehaves: what is sent, and how requests end."""

import asyncio
import json
import socket
import traceback

import anyio
import msgspec
import pytest
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError

from fairlead.connection.outcomes import (
    AnswerLost,
    AnswerUnreadable,
    ConnectionClosed,
    HttpRejected,
    NotSent,
    RequestExpired,
    RequestRejected,
    SessionExpired,
    Unreachable,
)
from fairlead.connection.transport import http
from fairlead.connection.transport.http import HttpDispatcher
from fairlead.connection.transport.http_endpoint import fixed_headers
from fairlead.net.http import open_client
from tests.connection.http_support import LEGACY, MODERN, SECONDS, call, call_text, connected, running
from tests.fixtures.hostile_http import serving

# ── answers ──


async def test_a_result_reaches_the_caller_as_the_bytes_that_came() -> None:
    async with serving() as server, connected(server) as dispatcher:
        result = await call(dispatcher, "echo", a=1)
        assert isinstance(result, msgspec.Raw)
        assert bytes(result) == b'{"content": [{"type": "text", "text": "{\\"a\\": 1}"}]}'


async def test_an_answer_may_come_on_a_stream_with_progress_before_it() -> None:
    reports: list[tuple[float, float | None]] = []
    reported = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total))
        reported.set()

    async with serving() as server, connected(server) as dispatcher:
        opts: CallOptions = {**LEGACY, "on_progress": on_progress}
        assert await call_text(dispatcher, "stream", opts) == "fine"
        await reported.wait()
        assert reports == [(1.0, 2.0)]


@pytest.mark.requirement("HARD-52")
async def test_an_answer_on_the_stream_for_everything_else_is_none() -> None:
    async with serving() as server, connected(server) as dispatcher:
        assert await call_text(dispatcher, "answer_elsewhere") == "where it belongs"


async def test_an_error_without_an_id_is_the_answer_to_the_request_it_came_for() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(RequestRejected, match="cannot be read"):
            await call(dispatcher, "null_id")


@pytest.mark.requirement("HARD-23")
@pytest.mark.parametrize(
    ("tool", "failure", "message"),
    [
        ("accept", HttpRejected, "accepted the request and gave no answer"),
        ("html", HttpRejected, "'text/html; charset=utf-8' where JSON is due"),
        ("empty", AnswerUnreadable, "it is empty"),
        ("garbage", AnswerUnreadable, "truncated"),
        ("wrong_id", AnswerUnreadable, "does not answer the request"),
        ("other_protocol", AnswerLost, "no HTTP that can be read"),
        ("endless_headers", AnswerLost, "no HTTP that can be read"),
        ("unknown_encoding", AnswerLost, "decode"),
        ("broken_gzip", AnswerLost, "cannot be decompressed"),
        ("drop_at_once", AnswerLost, "closed the connection"),
        ("drop_in_body", AnswerLost, "broke off"),
        ("drop_in_stream", AnswerLost, "ended without the answer"),
        ("end_of_stream", AnswerLost, "ended without the answer"),
    ],
)
@pytest.mark.parametrize("opts", [LEGACY, MODERN], ids=["2025", "2026"])
async def test_what_is_no_answer_is_a_clear_error_and_the_connection_lives_on(
    tool: str, failure: type[MCPError], message: str, opts: CallOptions
) -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(failure, match=message) as caught:
            await call(dispatcher, tool, opts)
        assert getattr(caught.value, "delivery", None) == (
            "done" if failure is AnswerUnreadable else "unknown"
        )
        assert await call_text(dispatcher, "echo", opts) == "{}"


@pytest.mark.parametrize(
    ("code", "delivery"),
    [
        (400, "done"),
        *((code, "not_sent") for code in (401, 403, 404, 405, 406, 407, 410, 413, 415, 429, 431)),
        (408, "unknown"),
        (409, "done"),
        (422, "done"),
        *((code, "unknown") for code in (500, 502, 503, 504)),
    ],
)
async def test_a_status_keeps_what_a_login_needs_to_know(code: int, delivery: str) -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(HttpRejected) as caught:
            await call(dispatcher, "status", code=code)
        assert caught.value.status == code
        assert caught.value.delivery == delivery
        assert caught.value.challenge == ('Bearer scope="more"' if code in (401, 403) else None)


async def test_the_words_of_an_error_are_fit_to_be_read() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(HttpRejected) as caught:
            await call(dispatcher, "status", code=503)
        assert caught.value.message == "the server answered with HTTP 503 Whatever: no way"


@pytest.mark.parametrize("code", [200, 307, 401, 503])
async def test_headers_that_are_no_text_are_an_error_like_any_other(code: int) -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(HttpRejected) as caught:
            await call(dispatcher, "stray_bytes", code=code)
        assert caught.value.message.isprintable()


async def test_a_method_the_server_lacks_is_an_error_of_the_protocol() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(RequestRejected) as caught:
            await dispatcher.call_raw("no/such", None, LEGACY)
        assert caught.value.code == -32601


# ── failures on the way ──


async def test_a_server_that_cannot_be_reached_is_no_answer_about_its_protocol() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with open_client() as client:
        dispatcher = HttpDispatcher(f"http://127.0.0.1:{port}/mcp", client)
        async with running(dispatcher) as session:
            with pytest.raises(Unreachable, match=rf"no connection to 127\.0\.0\.1:{port}") as caught:
                await session.send_discover("2026-07-28")
            assert not isinstance(caught.value, MCPError)
            assert caught.value.delivery == "not_sent"


async def test_a_server_that_speaks_no_tls_cannot_be_reached_with_it() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Speak plainly\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server, open_client() as client:
        port = server.sockets[0].getsockname()[1]
        dispatcher = HttpDispatcher(f"https://127.0.0.1:{port}/mcp", client)
        async with running(dispatcher):
            with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port} does not speak TLS"):
                await call(dispatcher, "echo", MODERN)


async def test_a_subscription_that_cannot_be_sent_does_not_take_the_session_with_it() -> None:
    async with serving() as server:
        url = server.url
    async with open_client() as client:
        dispatcher = HttpDispatcher(url, client)
        async with running(dispatcher):
            with pytest.raises(AnswerLost) as caught:
                await dispatcher.call_raw("subscriptions/listen", {}, MODERN)
            assert caught.value.delivery == "not_sent"


async def test_a_header_that_cannot_be_sent_is_not_sent() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(NotSent):
            await call(dispatcher, "echo", {"headers": {"Mcp-Name": "a\r\nEvil: yes"}})
        assert server.seen("tools/call") == []


async def test_an_error_shows_nothing_of_what_was_sent() -> None:
    secret = "hunter2"
    headers = fixed_headers({"Authorization": secret})
    async with serving() as server, connected(server, headers=headers) as dispatcher:
        with pytest.raises(AnswerLost) as caught:
            await call(dispatcher, "other_protocol", key=secret)
        assert secret not in "".join(traceback.format_exception(caught.value))


# ── sessions ──


async def test_requests_carry_the_session_and_the_version() -> None:
    async with serving() as server, connected(server) as dispatcher:
        await call(dispatcher, "echo")
        initialize, initialized, called = (
            server.seen(method)[0].headers
            for method in ("initialize", "notifications/initialized", "tools/call")
        )
        assert "mcp-session-id" not in initialize
        assert "mcp-protocol-version" not in initialize
        for headers in (initialized, called):
            assert headers["mcp-session-id"] == "session-1"
            assert headers["mcp-protocol-version"] == "2025-11-25"
        assert called["accept"] == "application/json, text/event-stream"
        assert called["content-type"] == "application/json"


async def test_a_probe_leaves_no_trace_on_the_handshake() -> None:
    async with serving() as server, open_client() as client:
        async with HttpDispatcher(server.url, client) as dispatcher, running(dispatcher) as session:
            with pytest.raises(RequestRejected):
                await session.send_discover("2026-07-28")
            await session.initialize()
        assert server.seen("server/discover")[0].headers["mcp-protocol-version"] == "2026-07-28"
        assert "mcp-protocol-version" not in server.seen("initialize")[0].headers


async def test_the_headers_of_one_request_are_sent_with_it_alone() -> None:
    async with serving() as server, connected(server) as dispatcher:
        headers = {**LEGACY.get("headers", {}), "Mcp-Param-Region": "north"}
        await call(dispatcher, "echo", {"headers": headers})
        await call(dispatcher, "echo")
        first, second = server.seen("tools/call")
        assert first.headers["mcp-param-region"] == "north"
        assert "mcp-param-region" not in second.headers


async def test_no_cookie_is_kept() -> None:
    async with serving() as server, connected(server) as dispatcher:
        await call(dispatcher, "echo")
        assert not any("cookie" in request.headers for request in server.requests)


@pytest.mark.requirement("HARD-24")
@pytest.mark.parametrize("quirks", [(), ("forgets-with-400",)], ids=["404", "400"])
async def test_a_forgotten_session_means_that_the_request_was_not_sent(quirks: tuple[str, ...]) -> None:
    async with serving(*quirks) as server, connected(server) as dispatcher:
        with pytest.raises(SessionExpired) as caught:
            await call(dispatcher, "forget_session")
        assert caught.value.delivery == "not_sent"
        assert caught.value.session_id == "session-1" == dispatcher.session_id


@pytest.mark.requirement("HARD-24")
async def test_a_new_session_can_be_begun_and_listened_to() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(SessionExpired):
            await call(dispatcher, "forget_session")
        server.listening.clear()
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "a", "version": "1"},
        }
        await dispatcher.call_raw("initialize", params)
        await dispatcher.notify("notifications/initialized", None, LEGACY)
        await server.listening.wait()
        assert dispatcher.session_id == "session-2"
        assert await call_text(dispatcher, "answer_elsewhere") == "where it belongs"


async def test_the_session_is_ended_on_leaving() -> None:
    async with serving() as server:
        async with connected(server):
            pass
        assert server.requests[-1].method == "DELETE"
        assert server.requests[-1].headers["mcp-session-id"] == "session-1"
        assert server.sessions == set()


@pytest.mark.requirement("HARD-25")
async def test_a_server_that_does_not_let_go_is_left_all_the_same() -> None:
    async with serving("delete-hangs") as server:
        with anyio.fail_after(SECONDS):
            async with connected(server):
                begun = anyio.current_time()
            assert anyio.current_time() - begun < 5
        assert server.requests[-1].method == "DELETE"


async def test_a_request_after_the_end_is_not_sent() -> None:
    async with serving() as server:
        async with connected(server) as dispatcher:
            pass
        with pytest.raises(ConnectionClosed) as caught:
            await call(dispatcher, "echo")
        assert caught.value.delivery == "not_sent"


# ── the stream for everything else ──


async def test_what_the_server_asks_is_answered() -> None:
    async with serving() as server, connected(server) as dispatcher:
        reply = json.loads(await call_text(dispatcher, "ask_first"))
        assert reply["id"] == "question"
        assert "error" in reply


async def test_a_server_that_offers_no_stream_is_used_without_one() -> None:
    async with serving("no-stream") as server, connected(server) as dispatcher:
        assert await call_text(dispatcher, "echo") == "{}"
        assert [request.method for request in server.requests].count("GET") == 1


async def test_a_session_that_is_gone_when_its_stream_is_opened_again_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_RETRY_SECONDS", 0.01)
    async with serving() as server, connected(server) as dispatcher:
        await server.listening.wait()
        server.sessions.clear()
        assert server.listener is not None
        server.listener.drop()
        ending = await dispatcher.wait_closed()
        assert ending.kind == "hung_up"
        assert "no longer knows the session" in ending.message


async def test_a_stream_that_broke_off_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_RETRY_SECONDS", 0.01)
    async with serving() as server, connected(server) as dispatcher:
        await server.listening.wait()
        assert server.listener is not None
        await server.listener.event(None, event_id="seen")
        server.listening.clear()
        server.listener.writer.close()
        await server.listening.wait()
        assert server.requests[-1].headers["last-event-id"] == "seen"
        assert await call_text(dispatcher, "answer_elsewhere") == "where it belongs"


async def test_a_message_too_long_on_it_costs_that_message_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_RETRY_SECONDS", 0.01)
    async with serving() as server, connected(server, max_message_bytes=2000) as dispatcher:
        await server.listening.wait()
        assert server.listener is not None
        server.listening.clear()
        await server.listener.event({"method": "x" * 3000}, event_id="long")
        await server.listening.wait()
        assert "last-event-id" not in server.requests[-1].headers
        assert await call_text(dispatcher, "answer_elsewhere") == "where it belongs"


async def test_from_2026_on_nothing_the_server_asks_is_answered() -> None:
    async with serving() as server, open_client() as client:
        dispatcher = HttpDispatcher(server.url, client)
        async with running(dispatcher):
            assert await call_text(dispatcher, "ask_on_own_stream", MODERN) == "fine"
            assert await call_text(dispatcher, "echo", MODERN) == "{}"
        assert server.replies.empty()
        assert [request.method for request in server.requests] == ["POST", "POST"]


# ── resuming ──


async def test_a_stream_that_breaks_off_is_resumed_where_it_was() -> None:
    tokens: list[str] = []

    async def on_token(token: str) -> None:
        tokens.append(token)

    async with serving() as server, connected(server) as dispatcher:
        opts: CallOptions = {**LEGACY, "on_resumption_token": on_token}
        assert await call_text(dispatcher, "break_off_and_go_on", opts) == "resumed"
        resumed = server.requests[-1]
        assert resumed.method == "GET"
        assert [resumed.headers["last-event-id"]] == tokens
        assert len(server.seen("tools/call")) == 1


async def test_an_answer_can_be_come_back_for() -> None:
    async with serving() as server, connected(server) as dispatcher:
        server.unsaid["event-1"] = {"id": "again", "result": {}}
        opts: CallOptions = {**LEGACY, "request_id": "again", "resumption_token": "event-1"}
        assert bytes(await call(dispatcher, "echo", opts)) == b"{}"
        assert server.seen("tools/call") == []


@pytest.mark.requirement("HARD-25")
async def test_a_server_cannot_make_us_wait_for_ever_before_a_stream_is_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert http.MAX_RETRY_SECONDS <= 60
    monkeypatch.setattr(http, "MAX_RETRY_SECONDS", 0.1)
    async with serving() as server, connected(server) as dispatcher:
        assert await call_text(dispatcher, "break_off_and_go_on", retry=999_999_999) == "resumed"


async def test_a_stream_that_cannot_be_resumed_leaves_it_open_whether_the_call_was_made() -> None:
    async with serving("no-stream") as server, connected(server) as dispatcher:
        with pytest.raises(AnswerLost, match="could not be resumed") as caught:
            await call(dispatcher, "break_off_for_good")
        assert caught.value.delivery == "unknown"


async def test_from_2026_on_nothing_is_resumed() -> None:
    async with serving() as server, open_client() as client:
        dispatcher = HttpDispatcher(server.url, client)
        async with running(dispatcher):
            with pytest.raises(AnswerLost):
                await call(dispatcher, "break_off_and_go_on", MODERN)
        assert [request.method for request in server.requests] == ["POST"]


# ── giving up ──


@pytest.mark.requirement("NEED-20")
@pytest.mark.parametrize("tool", ["wait", "wait_on_stream"])
async def test_up_to_2025_a_caller_that_gives_up_says_so(tool: str) -> None:
    async with serving() as server, connected(server) as dispatcher:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, dispatcher, tool)
            await server.saw("tools/call")
            tasks.cancel_scope.cancel()
        await server.abandoned.wait()
        told = await server.saw("notifications/cancelled")
        assert told.message["params"]["requestId"] == server.seen("tools/call")[0].message["id"]
        assert told.headers["mcp-session-id"] == "session-1"


@pytest.mark.requirement("NEED-20")
@pytest.mark.parametrize("tool", ["wait", "wait_on_stream"])
async def test_from_2026_on_closing_the_request_says_it_all(tool: str) -> None:
    async with serving() as server, connected(server) as dispatcher:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, dispatcher, tool, MODERN)
            await server.saw("tools/call")
            tasks.cancel_scope.cancel()
        await server.abandoned.wait()
        await call(dispatcher, "echo", MODERN)
        assert server.seen("notifications/cancelled") == []


async def test_an_answer_that_does_not_come_in_time_is_given_up() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(RequestExpired) as caught:
            await call(dispatcher, "wait", {**LEGACY, "timeout": 0.2})
        assert caught.value.delivery == "unknown"
        await server.abandoned.wait()
        await server.saw("notifications/cancelled")


async def test_requests_in_flight_end_with_the_connection() -> None:
    failures: list[ConnectionClosed] = []

    async def wait(dispatcher: HttpDispatcher) -> None:
        with pytest.raises(ConnectionClosed) as caught:
            await call(dispatcher, "wait")
        failures.append(caught.value)

    async with serving() as server, anyio.create_task_group() as tasks, connected(server) as dispatcher:
        tasks.start_soon(wait, dispatcher)
        await server.saw("tools/call")
    assert [failure.delivery for failure in failures] == ["unknown"]
