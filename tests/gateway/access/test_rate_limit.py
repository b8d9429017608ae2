"""What one client, with or without a token, can take from the others: connections, sessions, bad bytes."""

import json
import logging
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
import anyio
import pytest
from anyio.lowlevel import checkpoint

from fairlead.connection.peer import SESSION_META_KEY
from fairlead.gateway.gateway import GatewayOptions
from fairlead.net import listen
from fairlead.net.listen import ConnectionLimits
from tests.gateway.guarded_support import TOKEN, guarded
from tests.gateway.support import MODERN, Raw, Served, serving, until

pytestmark = pytest.mark.slow

HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"

BAD_BODIES = {
    "invalid UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"x":"\xff"}}',
    "invalid UTF-8 in a name": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\xc3("}}',
    "invalid UTF-8 in a method": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "invalid UTF-8 in a key": b'{"jsonrpc":"2.0","id":1,"method":"initialize","\xff":1}',
    "an encoded surrogate": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xed\xa0\x80"}}',
    "a lone surrogate": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud800"}}',
    "a lone low surrogate": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\udc00 "}}',
    "an overlong form": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xc0\xaf"}}',
    "a raw NUL": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\x00"}}',
    "only NUL": b"\x00" * 10,
    "UTF-16": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    "UTF-32": '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-32"),
    "nothing": b"",
    "half of an object": b'{"jsonrpc":"2.0","id":1,"method":',
    "deep arrays": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "not a number": b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    "latin-1": '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"é"}}'.encode("latin-1"),
}


@contextmanager
def half_open(port: int, count: int, first: bytes = HALF) -> Generator[list[socket.socket]]:
    """Connections that begin a request and never end it."""
    with ExitStack() as stack:
        opened: list[socket.socket] = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            connection.setblocking(False)
            if first:
                _send(connection, first)
            opened.append(connection)
        yield opened


def _send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.send(data)
    except OSError:
        return  # it was closed already, which is the point


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def until_closed(opened: list[socket.socket], count: int) -> None:
    with anyio.fail_after(40):
        while sum(map(_is_closed, opened)) < count:
            await checkpoint()


@asynccontextmanager
async def connecting(port: int, count: int, first: bytes = HALF) -> AsyncGenerator[list[socket.socket]]:
    """Such connections, opened beside the server that runs in this very loop."""
    stack = ExitStack()
    with stack:
        opened = await anyio.to_thread.run_sync(lambda: stack.enter_context(half_open(port, count, first)))
        yield opened


@pytest.mark.requirement("HARD-71")
@pytest.mark.parametrize("first", [b"", HALF, b"G", HALF + b"Content-Length: 1000\r\n\r\n{"])
async def test_a_client_with_a_token_gets_through_whatever_half_open_connections_stand(first: bytes) -> None:
    async with guarded() as served, connecting(served.port, 1_500, first) as opened:
        for _ in range(5):
            assert (await served.ask()).status == 200
        await until_closed(opened, 1_500 - listen.MAX_UNAUTHENTICATED)


@pytest.mark.requirement("HARD-71")
async def test_a_connection_that_was_let_in_is_kept_while_strangers_come() -> None:
    request = (
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    async with guarded() as served, await anyio.connect_tcp("127.0.0.1", served.port) as stream:
        with anyio.fail_after(40):
            await stream.send(request % (served.port, TOKEN.encode()))
            assert (await stream.receive()).startswith(b"HTTP/1.1 200")
            async with connecting(served.port, 600):
                await stream.send(request % (served.port, TOKEN.encode()))
                assert (await stream.receive()).startswith(b"HTTP/1.1 200")


@pytest.mark.requirement("HARD-71")
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HALF, id="half a head"),
        pytest.param(HALF + b"Content-Length: 1000\r\n\r\n{", id="half a body"),
    ],
)
async def test_what_never_comes_is_not_waited_for(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(listen, "BODY_SECONDS", 0.5)
    async with guarded() as served, connecting(served.port, 5, first) as opened:
        await until_closed(opened, 5)
        assert (await served.ask()).status == 200


@pytest.mark.requirement("HARD-71")
async def test_a_head_that_comes_byte_by_byte_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "HEAD_SECONDS", 1.0)
    async with guarded() as served, connecting(served.port, 1) as opened:
        with anyio.fail_after(30):
            while not _is_closed(opened[0]):
                _send(opened[0], b"X")
                await anyio.sleep(0.05)


@pytest.mark.requirement("HARD-71")
async def test_a_head_without_end_is_refused() -> None:
    async with guarded() as served:
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            answer = b""
            with anyio.fail_after(20), suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                await stream.send(HALF + b"X-Long: " + b"a" * listen.MAX_HEAD_BYTES)
                while True:
                    answer += await stream.receive()
        assert answer.startswith(b"HTTP/1.1 431")
        assert (await served.ask()).status == 200


@pytest.mark.requirement("HARD-71")
async def test_a_connection_without_credentials_may_not_lie_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "STRANGER_IDLE_SECONDS", 0.5)
    request = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
    async with guarded() as served, connecting(served.port, 3, request % served.port) as opened:
        with anyio.fail_after(30):
            for connection in opened:
                while not _is_closed(connection):
                    await checkpoint()


@pytest.mark.requirement("HARD-71")
def test_the_oldest_connection_of_the_same_address_makes_room() -> None:
    closed: list[str] = []
    limits = ConnectionLimits(max_per_address=8, max_unauthenticated=16, clock=lambda: 0.0)
    other = limits.open("10.0.0.1", lambda: closed.append("other"))
    for number in range(9):
        limits.open("10.0.0.2", lambda number=number: closed.append(f"own {number}"))
    assert closed == ["own 0"]
    other.authenticate()
    for number in range(40):
        limits.open(f"10.0.1.{number}", lambda: closed.append("stranger"))
    assert "other" not in closed


# Sessions.


@asynccontextmanager
async def limited(
    folder: Path, options: GatewayOptions | None = None
) -> AsyncGenerator[tuple[Served, aiohttp.ClientSession]]:
    async with (
        serving(folder, options=options) as served,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        yield served, http


def raw(served: Served, http: aiohttp.ClientSession, name: str) -> Raw:
    return Raw(http, f"{served.url}/mcp", name)


@pytest.mark.requirement("HARD-71")
async def test_one_principal_cannot_take_the_sessions_of_others(tmp_path: Path) -> None:
    async with limited(tmp_path, GatewayOptions(max_sessions=30, max_sessions_of_principal=10)) as (
        served,
        http,
    ):
        greedy = [raw(served, http, "greedy") for _ in range(25)]
        for client in greedy:
            await client.begin()
        infos = served.gateway.sessions()
        assert sum(info.principal == "greedy" for info in infos) <= 10
        modest = raw(served, http, "modest")
        await modest.begin()
        assert "tools" in (await modest.older("tools/list"))["result"]
        newest = greedy[-1]
        assert "tools" in (await newest.older("tools/list"))["result"]
        status, _, _ = await greedy[0].post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert status == 404  # its own oldest made room


@pytest.mark.requirement("HARD-71")
@pytest.mark.parametrize("era", ["session", "stateless", "both"])
async def test_one_token_cannot_take_the_sessions_of_its_principals_other_tokens(
    tmp_path: Path, era: str
) -> None:
    options = GatewayOptions(max_sessions_of_principal=10, max_sessions_of_token=6)
    async with limited(tmp_path, options) as (served, http):
        modest = raw(served, http, "ann#modest")
        await modest.begin()
        for number in range(20):
            greedy = raw(served, http, "ann#greedy")
            if era == "session" or (era == "both" and number % 2):
                await greedy.begin()
            else:
                listed = await greedy.modern("tools/list", meta={SESSION_META_KEY: f"s{number}"})
                assert "result" in listed
        with anyio.fail_after(10):  # the last one to go may be about to
            await until(lambda: len(served.gateway.sessions()) <= 7)
        assert "tools" in (await modest.older("tools/list"))["result"]
        for number in range(3):
            await raw(served, http, f"ann#other-{number}").begin()
        assert "tools" in (await modest.older("tools/list"))["result"]


@pytest.mark.requirement("HARD-71")
async def test_a_token_whose_sessions_are_all_in_use_is_refused_and_another_of_its_principal_is_not(
    tmp_path: Path,
) -> None:
    async with limited(tmp_path, GatewayOptions(max_sessions_of_token=2)) as (served, http):
        streams: list[aiohttp.ClientResponse] = []
        for _ in range(2):
            client = raw(served, http, "ann#greedy")
            await client.begin()
            headers = {**client.headers, "Accept": "text/event-stream"}
            streams.append(await http.get(client.url, headers=headers))
        ping = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
        status, headers, body = await raw(served, http, "ann#greedy").post(ping)
        assert (status, "too many sessions" in body["error"]["message"]) == (429, True)
        assert int(headers["Retry-After"]) > 0
        refused = await raw(served, http, "ann#greedy").modern("tools/list", meta={SESSION_META_KEY: "s"})
        assert "too many sessions" in refused["error"]["message"]
        await raw(served, http, "ann#modest").begin()
        assert "result" in await raw(served, http, "ann").modern("tools/list")
        for stream in streams:
            stream.close()


@pytest.mark.requirement("HARD-71")
async def test_a_principal_at_its_quota_loses_the_sessions_of_the_token_that_wants_more(
    tmp_path: Path,
) -> None:
    options = GatewayOptions(max_sessions_of_principal=4, max_sessions_of_token=3)
    async with limited(tmp_path, options) as (served, http):
        modest = raw(served, http, "ann#modest")
        await modest.begin()
        for _ in range(8):
            await raw(served, http, "ann#greedy").begin()
        assert "tools" in (await modest.older("tools/list"))["result"]
        assert len(served.gateway.sessions()) == 4


@pytest.mark.requirement("HARD-71")
async def test_a_full_gateway_ends_no_session_of_another_principal(tmp_path: Path) -> None:
    options = GatewayOptions(max_sessions=4, max_sessions_of_principal=3)
    async with limited(tmp_path, options) as (served, http):
        kept = [raw(served, http, name) for name in ("ann", "ben", "cem", "dee")]
        for client in kept:
            await client.begin()
        status, _, _ = await raw(served, http, "eve").post({"jsonrpc": "2.0", "id": 0, "method": "ping"})
        assert status == 429
        for client in kept:
            assert "tools" in (await client.older("tools/list"))["result"]


@pytest.mark.requirement("HARD-71")
async def test_sessions_begun_at_once_keep_within_the_quota(tmp_path: Path) -> None:
    async with limited(tmp_path, GatewayOptions(max_sessions_of_principal=5)) as (served, http):
        statuses: list[int] = []

        async def begin() -> None:
            client = raw(served, http, "greedy")
            info = {"name": "a", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            status, headers, _ = await client.post(message)
            statuses.append(status)
            if status == 429:
                assert int(headers["Retry-After"]) > 0

        async with anyio.create_task_group() as tasks:
            for _ in range(60):
                tasks.start_soon(begin)
        assert set(statuses) <= {200, 429}
        assert 200 in statuses
        assert len(served.gateway.sessions()) <= 5


@pytest.mark.requirement("HARD-71")
async def test_a_principal_whose_sessions_are_all_in_use_is_told_to_wait(tmp_path: Path) -> None:
    async with limited(tmp_path, GatewayOptions(max_sessions_of_principal=2)) as (served, http):
        streams: list[aiohttp.ClientResponse] = []
        for _ in range(2):
            client = raw(served, http, "greedy")
            await client.begin()
            headers = {**client.headers, "Accept": "text/event-stream"}
            streams.append(await http.get(client.url, headers=headers))
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
        status, headers, body = await raw(served, http, "greedy").post(message)
        assert (status, body["error"]["code"]) == (429, -32603)
        assert int(headers["Retry-After"]) > 0
        await raw(served, http, "modest").begin()
        for stream in streams:
            stream.close()


@pytest.mark.requirement("HARD-71")
@pytest.mark.parametrize(
    ("options", "names", "refused"),
    [
        (GatewayOptions(max_streams_of_principal=2), ("ann", "ann#a", "ann#b", "ben"), 2),
        (GatewayOptions(max_streams_of_token=1), ("ann#a", "ann#a", "ann#b", "ann"), 1),
    ],
)
async def test_streams_of_principals_and_tokens_are_counted(
    tmp_path: Path, options: GatewayOptions, names: tuple[str, ...], refused: int
) -> None:
    async with limited(tmp_path, options) as (served, http):
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        }
        streams: list[aiohttp.ClientResponse] = []
        for number, name in enumerate(names):
            client = raw(served, http, name)
            headers = {**client.headers, "Mcp-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
            params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": params}
            response = await http.post(client.url, json=message, headers=headers)
            first = await response.content.readany()
            streams.append(response)
            assert (b"too many streams" in first) == (number == refused)
        for stream in streams:
            stream.close()


# Bytes that are no text.


@pytest.mark.requirement("HARD-71")
@pytest.mark.parametrize("version", [None, "2025-11-25", MODERN])
@pytest.mark.parametrize("bad", [name for name in BAD_BODIES if "lone" not in name])
async def test_what_is_not_json_in_utf_8_is_a_parse_error_and_no_traceback(
    tmp_path: Path, bad: str, version: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with limited(tmp_path) as (served, http):
        client = raw(served, http, "local")
        headers = {**client.headers, **({"Mcp-Protocol-Version": version} if version else {})}
        with caplog.at_level(logging.INFO):
            async with http.post(client.url, data=BAD_BODIES[bad], headers=headers) as response:
                answer = json.loads(await response.read())
        assert response.status == 400
        assert answer["error"]["code"] == -32700
        assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.requirement("HARD-71")
@pytest.mark.parametrize("bad", ["invalid UTF-8", "a raw NUL", "nothing", "deep arrays"])
async def test_the_oldest_transport_refuses_it_as_well(tmp_path: Path, bad: str) -> None:
    async with limited(tmp_path) as (served, http):
        headers = raw(served, http, "local").headers
        url = f"{served.url}/messages?session_id={'0' * 32}"
        async with http.post(url, data=BAD_BODIES[bad], headers=headers) as response:
            assert response.status == 400


@pytest.mark.requirement("HARD-71")
async def test_odd_bytes_in_heads_are_answered_and_not_traced(caplog: pytest.LogCaptureFixture) -> None:
    heads = (
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer \xff\xfe\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: \xff:%d\r\n",
        b"POST /mcp/\xff HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n",
        b"POST /mcp/%%ff HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n",
        b"GET /mcp?\xff=\xfe HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: http://\xff\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: \xff\xff\r\n",
    )
    async with guarded() as served:
        for head in heads:
            end = b"Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
            answer = await served.raw(head % served.port + end)
            assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
    assert not [record for record in caplog.records if record.exc_info]
