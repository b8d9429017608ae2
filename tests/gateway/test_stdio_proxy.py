"""Stdin and stdout as the way to a gateway, against one that does as a test says."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from anyio.streams.memory import MemoryObjectSendStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fairlead.connection.peer import SESSION_META_KEY
from fairlead.errors import ConnectFailed
from fairlead.gateway.stdio_proxy import StdioProxy
from fairlead.net.http import open_client
from fairlead.net.listen import bind, listening, url_of

Message = dict[str, Any]
Handler = Callable[[Request, Message | None], Awaitable[Response]]
META = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}


@dataclass
class Conversation:
    """One client's side: what it says, and what it hears."""

    lines: MemoryObjectSendStream[bytes]
    heard: list[Message] = field(default_factory=list[Message])
    news: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)
    failure: ConnectFailed | None = None

    async def say(self, **message: Any) -> None:
        await self.lines.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def hears(self, count: int) -> list[Message]:
        while len(self.heard) < count:
            self.news = anyio.Event()
            await self.news.wait()
        return self.heard


@asynccontextmanager
async def attached(handler: Handler, token: str | None = "secret") -> AsyncGenerator[Conversation]:
    """Run a conversation with a gateway that answers by `handler`; its end is waited for."""

    async def answer(request: Request) -> Response:
        body = await request.body()
        return await handler(request, json.loads(body) if body else None)

    send, receive = anyio.create_memory_object_stream[bytes](0)
    conversation = Conversation(send)

    async def write(line: bytes) -> None:
        assert line.count(b"\n") == 1
        conversation.heard.append(json.loads(line))
        conversation.news.set()

    async def converse(run: Awaitable[None]) -> None:
        try:
            await run
        except ConnectFailed as exc:
            conversation.failure = exc
        conversation.over.set()

    app = Starlette(routes=[Route("/mcp", answer, methods=["GET", "POST", "DELETE"])])
    with anyio.fail_after(30), bind("127.0.0.1", 0) as listener, send, receive:
        async with listening(app, listener), open_client() as client, anyio.create_task_group() as tasks:
            url = f"{url_of(listener)}/mcp"
            tasks.start_soon(converse, StdioProxy(url, token, client, write).run(receive))
            yield conversation
            await send.aclose()
            await conversation.over.wait()


def events(*messages: Message) -> StreamingResponse:
    text = "".join(f"event: message\ndata: {json.dumps(message)}\n\n" for message in messages)
    return StreamingResponse(iter([text]), media_type="text/event-stream")


async def test_a_session_of_the_older_protocol_is_kept_and_ended() -> None:
    seen: list[tuple[str, str | None, str | None]] = []

    async def handler(request: Request, message: Message | None) -> Response:
        headers = request.headers
        assert headers["authorization"] == "Bearer secret"
        what = request.method if message is None else message.get("method", "answer")
        seen.append((what, headers.get("mcp-session-id"), headers.get("mcp-protocol-version")))
        if what == "GET":
            return events({"jsonrpc": "2.0", "id": 7, "method": "ping"})
        if what == "initialize":
            result = {"protocolVersion": "2025-11-25"}
            return JSONResponse(
                {"jsonrpc": "2.0", "id": 1, "result": result}, headers={"Mcp-Session-Id": "s1"}
            )
        if what == "tools/list":
            progress = {"jsonrpc": "2.0", "method": "notifications/progress"}
            return events(progress, {"jsonrpc": "2.0", "id": 2, "result": {}})
        return Response(status_code=202)

    async with attached(handler) as talk:
        await talk.say(id=1, method="initialize", params={})
        await talk.hears(1)
        await talk.say(method="notifications/initialized")
        await talk.hears(2)  # what the gateway says of its own accord
        await talk.say(id=7, result={})
        await talk.say(id=2, method="tools/list")
        heard = await talk.hears(4)
        assert [message.get("method") for message in heard[1:3]] == ["ping", "notifications/progress"]
        assert heard[3] == {"jsonrpc": "2.0", "id": 2, "result": {}}
    assert seen[0] == ("initialize", None, None)
    assert set(seen[1:]) >= {
        (what, "s1", "2025-11-25") for what in ("notifications/initialized", "GET", "answer", "tools/list")
    }
    assert seen[-1] == ("DELETE", "s1", "2025-11-25")


async def test_messages_of_the_stateless_protocol_are_stamped() -> None:
    seen: list[dict[str, str]] = []

    async def handler(request: Request, message: Message | None) -> Response:
        seen.append({name: value for name, value in request.headers.items() if name.startswith("mcp-")})
        assert message is not None
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": {}})

    async with attached(handler) as talk:
        await talk.say(id=1, method="tools/call", params={"name": "echo", **META})
        await talk.hears(1)
        await talk.say(id="b", method="resources/read", params={"uri": "file:///ü", **META})
        await talk.hears(2)
    assert seen[0] == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "echo",
    }
    assert seen[1]["mcp-name"].isascii()


async def test_stateless_messages_say_that_they_are_of_one_session_unless_they_name_one() -> None:
    seen: list[Message] = []

    async def handler(request: Request, message: Message | None) -> Response:
        assert message is not None
        seen.append(message)
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": {}})

    own = {"_meta": {**META["_meta"], SESSION_META_KEY: "mine"}}
    async with attached(handler) as talk:
        for number, params in enumerate(({"a": [1, "ü", None], **META}, META, own), start=1):
            await talk.say(id=number, method="tools/list", params=params)
            await talk.hears(number)
    keys = [message["params"]["_meta"].pop(SESSION_META_KEY) for message in seen]
    assert keys[0] == keys[1] != keys[2] == "mine"
    assert len(keys[0]) >= 32
    assert seen[0]["params"] == {"a": [1, "ü", None], **META}


async def test_a_question_of_the_stateless_protocol_is_taken_back_by_hanging_up() -> None:
    begun, gone = anyio.Event(), anyio.Event()

    async def handler(request: Request, message: Message | None) -> Response:
        async def body() -> AsyncIterator[bytes]:
            begun.set()
            try:
                yield b": waiting\n\n"
                await anyio.sleep_forever()
            finally:
                gone.set()

        return StreamingResponse(body(), media_type="text/event-stream")

    async with attached(handler) as talk:
        await talk.say(id=1, method="tools/call", params={"name": "slow", **META})
        await begun.wait()
        await talk.say(method="notifications/cancelled", params={"requestId": 1})
        await gone.wait()
        assert talk.heard == []


@pytest.mark.parametrize(
    ("response", "said", "delivery"),
    [
        (Response("too large", 413, media_type="text/plain"), "status 413", "not_sent"),
        (Response("gone", 502, media_type="text/plain"), "status 502", "unknown"),
        (
            JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}, 400),
            "no",
            None,
        ),
        (events({"jsonrpc": "2.0", "method": "notifications/progress"}), "closed the stream", "unknown"),
    ],
)
async def test_a_request_is_always_answered(response: Response, said: str, delivery: str | None) -> None:
    async def handler(request: Request, message: Message | None) -> Response:
        return response

    async with attached(handler, token=None) as talk:
        await talk.say(id=5, method="tools/list")
        while not any("error" in message for message in talk.heard):
            await talk.hears(len(talk.heard) + 1)
    error = next(message for message in talk.heard if "error" in message)
    assert error["id"] == 5
    assert said in error["error"]["message"]
    assert error["error"].get("data") == ({"fairlead/delivery": delivery} if delivery else None)


async def test_a_call_that_ends_with_its_gateway_may_have_been_carried_out() -> None:
    async def handler(request: Request, message: Message | None) -> Response:
        async def body() -> AsyncIterator[bytes]:
            yield b": under way\n\n"
            raise ConnectionResetError

        return StreamingResponse(body(), media_type="text/event-stream")

    async with attached(handler) as talk:
        await talk.say(id=1, method="tools/call", params={"name": "slow", **META})
        (answer,) = await talk.hears(1)
    assert answer["error"]["data"] == {"fairlead/delivery": "unknown"}


async def test_a_gateway_that_is_gone_is_an_answer_too() -> None:
    with bind("127.0.0.1", 0) as listener:
        url = f"{url_of(listener)}/mcp"
    heard: list[Message] = []

    async def write(line: bytes) -> None:
        heard.append(json.loads(line))

    async def lines() -> AsyncIterator[bytes]:
        yield b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}\n'
        yield b"\n"
        yield b"no json\n"

    with anyio.fail_after(30):
        async with open_client() as client:
            await StdioProxy(url, None, client, write).run(lines())
    assert "cannot be reached" in heard[0]["error"]["message"]
    assert heard[0]["error"]["data"] == {"fairlead/delivery": "not_sent"}
    assert len(heard) == 1


async def test_a_gateway_that_forgot_the_session_ends_the_conversation() -> None:
    async def handler(request: Request, message: Message | None) -> Response:
        if message is not None and message.get("method") == "initialize":
            result = {"protocolVersion": "2025-11-25"}
            return JSONResponse(
                {"jsonrpc": "2.0", "id": 1, "result": result}, headers={"Mcp-Session-Id": "s1"}
            )
        return Response("who?", 404)

    async with attached(handler) as talk:
        await talk.say(id=1, method="initialize", params={})
        await talk.hears(1)
        await talk.say(id=2, method="tools/list")
        error = (await talk.hears(2))[1]["error"]
        assert "was restarted" in error["message"]
        assert error["data"] == {"fairlead/delivery": "not_sent"}
        await talk.over.wait()
    assert talk.failure is not None
