"""Batches over HTTP: answered for the protocol version that has them, refused as a whole for all others."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.access.rate_limit import RateLimit
from fairlead.net.listen import bind, listening, url_of
from fairlead.testing.fixtures import FakeClock
from tests.gateway.support import serving
from tests.gateway.test_stdio_lines import INITIALIZE, call
from tests.gateway.test_tools import scripted

pytestmark = pytest.mark.requirement("HARD-85")

BATCHES = "2025-03-26"
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
PING = '{"jsonrpc":"2.0","id":%s,"method":"ping"}'
NOTE = '{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}'


class Peer:
    """A client that sends any bytes in a session of one protocol version."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self.headers = dict(HEADERS)

    async def post(self, body: str | bytes) -> tuple[int, list[dict[str, Any]]]:
        """The status and all messages of the response."""
        with anyio.fail_after(30):
            async with self._http.post(self._url, data=body, headers=self.headers) as response:
                text = await response.text()
                if session := response.headers.get("mcp-session-id"):
                    self.headers["mcp-session-id"] = session
                if response.content_type == "text/event-stream":
                    lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
                    return response.status, [json.loads(line) for line in lines]
                return response.status, [json.loads(text)] if text.startswith("{") else []

    async def begin(self, version: str, capabilities: dict[str, Any] | None = None) -> None:
        params = {**INITIALIZE["params"], "protocolVersion": version, "capabilities": capabilities or {}}
        status, (answer,) = await self.post(json.dumps({**INITIALIZE, "params": params}))
        assert (status, answer["result"]["protocolVersion"]) == (200, version)
        await self.post('{"jsonrpc":"2.0","method":"notifications/initialized"}')


@asynccontextmanager
async def peer(folder: Path, version: str = BATCHES) -> AsyncGenerator[Peer]:
    server = scripted(folder, "a", tools=["echo", "fail", "slow"])
    async with serving(folder, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Peer(http, f"{served.url}/mcp")
        await client.begin(version)
        yield client


def by_id(messages: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {message["id"]: message for message in messages if "method" not in message}


async def test_every_request_of_a_batch_is_answered_where_the_version_has_batches(tmp_path: Path) -> None:
    async with peer(tmp_path) as client:
        parts = [
            call(1).decode(),
            PING % '"two"',
            NOTE,
            '{"jsonrpc":"2.0","id":3,"method":"tools/list"}',
            '{"jsonrpc":"2.0","id":4,"method":"no/such"}',
            call(5).decode().replace("a_echo", "a_nothing"),
            call(6, '{"x":[1,2]}').decode(),
            "7",
            "[]",
            '{"jsonrpc":"2.0","id":8}',
            '{"jsonrpc":"2.0","id":null,"method":"ping"}',
            json.dumps({**INITIALIZE, "id": 9}),
            PING % "10.0",
        ]
        status, messages = await client.post(f"[{','.join(parts)}]")
        assert status == 200
        answers = by_id(messages)
        assert {key for key in answers if key is not None} == {1, "two", 3, 4, 5, 6, 8, 9, 10}
        assert all("result" in answers[key] for key in (1, "two", 3, 6, 10)), answers
        assert answers[4]["error"]["code"] == -32601
        assert answers[8]["error"]["code"] == answers[9]["error"]["code"] == -32600
        nulls = [message for message in messages if message.get("id", 0) is None]
        assert [message["error"]["code"] for message in nulls] == [-32600] * 3
        assert len(messages) == len(parts) - 1  # the notification has no answer


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ("[" + PING % 1 + "]", [1]),
        (" \n[" + PING % 1 + ", " + PING % 2 + "\r\n]", [1, 2]),
        ("\ufeff[" + PING % 1 + "]", [1]),
        ("[" + ",".join(PING % number for number in range(1, 201)) + "]", list(range(1, 201))),
        ("[" + NOTE + "]", []),
        ("[" + NOTE + "," + NOTE + "]", []),
        ('[{"jsonrpc":"2.0","id":77,"result":{}}]', []),
        ("[" + NOTE + "," + PING % 1 + "]", [1]),
        ("[" + PING % 1 + "," + PING % 1 + "]", [1, 1]),
    ],
)
async def test_batches_of_every_shape_are_answered(tmp_path: Path, body: str, ids: list[int]) -> None:
    async with peer(tmp_path) as client:
        status, messages = await client.post(body.encode())
        assert status == (200 if ids else 202)
        assert sorted(message["id"] for message in messages) == ids
        assert all("result" in message or len(set(ids)) < len(ids) for message in messages)


@pytest.mark.parametrize("body", ["[]", "[" + PING % 1, "[1,2", "[" + NOTE + ",]", "[" * 5_000])
async def test_what_is_no_batch_is_refused_as_one_message(tmp_path: Path, body: str) -> None:
    async with peer(tmp_path) as client:
        status, (answer,) = await client.post(body)
        assert (status, answer["id"]) == (400, None)
        assert answer["error"]["code"] in (-32600, -32700)
        assert by_id((await client.post(PING % 5))[1])[5]["result"] == {}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_versions_without_batches_refuse_one_as_a_whole(tmp_path: Path, version: str) -> None:
    async with peer(tmp_path, version) as client:
        for body in ("[" + PING % 1 + "]", "[" + PING % 1 + "," + PING % 2 + "]", "[" + NOTE + "]"):
            status, (answer,) = await client.post(body)
            assert (status, answer["id"], answer["error"]["code"]) == (400, None, -32600)
            assert BATCHES in answer["error"]["message"]


async def test_a_batch_outside_a_session_is_refused(tmp_path: Path) -> None:
    async with peer(tmp_path) as client:
        for session in (None, "none", "0" * 32):
            client.headers.pop("mcp-session-id", None)
            if session:
                client.headers["mcp-session-id"] = session
            status, (answer,) = await client.post("[" + PING % 1 + "," + json.dumps(INITIALIZE) + "]")
            assert (status, answer["error"]["code"]) == (400, -32600)


async def test_a_request_of_a_batch_may_ask_its_client(tmp_path: Path) -> None:
    """The question comes while the batch runs, and its answer in another request."""
    server = scripted(tmp_path, "a", tools=["ask", "echo"])
    async with (
        serving(tmp_path, a={**server.entry(), "elicitation": True}) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Peer(http, f"{served.url}/mcp")
        await client.begin(BATCHES, {"roots": {}})
        status, messages = await client.post(b"[" + call(1) + b"," + call(2) + b"]")
        assert status == 200
        assert {*by_id(messages)} == {1, 2}


async def test_every_message_of_a_batch_counts_towards_the_rate_limit(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, aiohttp.ClientSession() as http:
        with bind("127.0.0.1", 0) as listener:
            perimeter = OriginPolicy("127.0.0.1", listener.getsockname()[1])
            access = TokenAuthenticator(perimeter, tokens=None, rate=RateLimit(20, clock=FakeClock()))
            async with listening(GuardedApp(served.gateway.app(access), access), listener):
                client = Peer(http, f"{url_of(listener)}/mcp")
                await client.begin(BATCHES)
                pings = ",".join(PING % number for number in range(60))
                status, messages = await client.post(f"[{pings}]")
        assert status == 200
        refused = [message for message in messages if "error" in message]
        assert len(refused) == 60 - (20 - 2)  # two requests opened the session, and the batch is one itself
        assert all("too many requests" in message["error"]["message"] for message in refused)


@pytest.mark.parametrize("version", [BATCHES, "2025-11-25"])
async def test_a_request_with_the_id_null_is_answered_with_an_error(tmp_path: Path, version: str) -> None:
    async with peer(tmp_path, version) as client:
        for line in (
            '{"jsonrpc":"2.0","id":null,"method":"ping"}',
            '{"jsonrpc":"2.0","method":"tools/list","id":null}',
            '{ "id" : null , "jsonrpc" : "2.0", "method" : "tools/call", "params": {"name": "a_echo"} }',
            '{"\\u0069d":null,"jsonrpc":"2.0","method":"ping"}',
            '{"id":1,"jsonrpc":"2.0","method":"ping","id":null}',
            '{"jsonrpc":"2.0","id":true,"method":"ping"}',
            '{"jsonrpc":"2.0","id":{},"method":"ping"}',
            '{"jsonrpc":"2.0","id":[1],"method":"ping"}',
        ):
            status, (answer,) = await client.post(line)
            assert (status, answer["id"], answer["error"]["code"]) == (400, None, -32600), line
        for line in (NOTE, '{"jsonrpc":"2.0","method":"notifications/x","params":{"id":null}}'):
            assert await client.post(line) == (202, [])


class OldestPeer:
    """A client of the oldest HTTP transport: an event stream, and messages in POST requests beside it."""

    def __init__(self, http: aiohttp.ClientSession, url: str, stream: aiohttp.ClientResponse) -> None:
        self._http = http
        self._url = url
        self._stream = stream
        self.messages_url = ""

    async def begin(self, version: str) -> None:
        self.messages_url = self._url + await self._next_data()
        params = {**INITIALIZE["params"], "protocolVersion": version}
        assert await self.post(json.dumps({**INITIALIZE, "params": params})) == 202
        (answer,) = await self.receive(1)
        assert answer["result"]["protocolVersion"] == version
        await self.post('{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def post(self, body: str) -> int:
        return (await self.post_whole(body))[0]

    async def post_whole(self, body: str) -> tuple[int, str]:
        with anyio.fail_after(30):
            async with self._http.post(self.messages_url, data=body, headers=HEADERS) as response:
                return response.status, await response.text()

    async def receive(self, count: int) -> list[dict[str, Any]]:
        """So many messages of the event stream."""
        return [json.loads(await self._next_data()) for _ in range(count)]

    async def _next_data(self) -> str:
        with anyio.fail_after(30):
            while not (line := (await self._stream.content.readline()).decode().rstrip()).startswith(
                "data: "
            ):
                pass
        return line.removeprefix("data: ")


@asynccontextmanager
async def oldest_peer(folder: Path, version: str = BATCHES) -> AsyncGenerator[OldestPeer]:
    server = scripted(folder, "a", tools=["echo"])
    async with (
        serving(folder, a=server.entry()) as served,
        aiohttp.ClientSession() as http,
        http.get(f"{served.url}/sse", headers={"Accept": "text/event-stream"}) as stream,
    ):
        client = OldestPeer(http, served.url, stream)
        await client.begin(version)
        yield client


async def test_batches_over_the_oldest_transport_are_answered_in_its_event_stream(tmp_path: Path) -> None:
    async with oldest_peer(tmp_path) as client:
        parts = [
            call(1).decode(),
            PING % '"two"',
            NOTE,
            '{"jsonrpc":"2.0","id":4,"method":"no/such"}',
            "7",
            '{"jsonrpc":"2.0","id":null,"method":"ping"}',
            json.dumps({**INITIALIZE, "id": 9}),
            PING % '"two"',
            PING % "10.0",
        ]
        assert await client.post(f"[{','.join(parts)}]") == 202
        messages = await client.receive(len(parts) - 1)
        answers = by_id([message for message in messages if message["id"] != "two"])
        assert {*answers} == {None, 1, 4, 9, 10}
        assert all("result" in answers[key] for key in (1, 10)), answers
        assert answers[4]["error"]["code"] == -32601
        assert answers[9]["error"]["code"] == -32600
        assert len([message for message in messages if message["id"] is None]) == 2
        twice = [message for message in messages if message["id"] == "two"]
        assert sorted("result" in message for message in twice) == [False, True]
        assert await client.post(PING % 11) == 202
        assert await client.receive(1) == [{"jsonrpc": "2.0", "id": 11, "result": {}}]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_the_oldest_transport_refuses_batches_of_versions_without_them(
    tmp_path: Path, version: str
) -> None:
    async with oldest_peer(tmp_path, version) as client:
        for body in ("[" + PING % 1 + "]", "[" + NOTE + "]"):
            status, text = await client.post_whole(body)
            assert (status, json.loads(text)["error"]["code"]) == (400, -32600)
            assert BATCHES in text
        assert await client.post(PING % 2) == 202
        assert await client.receive(1) == [{"jsonrpc": "2.0", "id": 2, "result": {}}]


async def test_batches_for_a_session_of_the_oldest_transport_that_is_not_there_are_refused(
    tmp_path: Path,
) -> None:
    async with oldest_peer(tmp_path) as client:
        url = client.messages_url
        for other in (url[:-32] + "0" * 32, url[:-32] + "x", url.partition("?")[0]):
            client.messages_url = other
            assert (await client.post_whole("[" + PING % 1 + "]"))[0] in (400, 404)
        client.messages_url = url
        assert await client.post("[" + PING % 2 + "]") == 202
        assert [message["id"] for message in await client.receive(1)] == [2]


async def test_every_message_of_a_batch_over_the_oldest_transport_counts_towards_the_rate_limit(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served, aiohttp.ClientSession() as http:
        with bind("127.0.0.1", 0) as listener:
            perimeter = OriginPolicy("127.0.0.1", listener.getsockname()[1])
            access = TokenAuthenticator(perimeter, tokens=None, rate=RateLimit(20, clock=FakeClock()))
            async with (
                listening(GuardedApp(served.gateway.app(access), access), listener),
                http.get(f"{url_of(listener)}/sse") as stream,
            ):
                client = OldestPeer(http, url_of(listener), stream)
                await client.begin(BATCHES)
                assert await client.post(f"[{','.join(PING % number for number in range(60))}]") == 202
                messages = await client.receive(60)
        refused = [message for message in messages if "error" in message]
        assert len(refused) == 60 - (20 - 3)  # three requests opened the session, and the batch is one itself
