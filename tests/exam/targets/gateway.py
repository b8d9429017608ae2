"""Requests to the gateway over HTTP: the fast path answers, or leaves the answer to the SDK's server.

The same request goes to both, and they must agree: on the status, on the id, on whether there is a result,
and on what the server was sent.
"""

import asyncio
import atexit
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, Final

from mcp_types import CLIENT_INFO_META_KEY
from starlette.types import Message, Scope

from fairlead.config.load import load_config
from fairlead.config.untyped import is_object
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.gateway import Gateway, GatewayApp, open_gateway
from fairlead.gateway.sdk_server import ADMITTED
from fairlead.jsonrpc.incoming import MessageRefusal, repair_body
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import ToolContext, ToolDefinition, ToolModel
from tests.exam.targets import Choices, split

MODERN: Final = b"2026-07-28"
HANDSHAKE: Final = b"2025-11-25"
SECONDS: Final = 10
WITHOUT_END: Final = frozenset({"initialize", "subscriptions/listen", "notifications/cancelled"})
"""Methods that begin sessions or streams, or end calls: not compared."""


class Anything(ToolModel):
    value: Any = None


async def _echo(context: ToolContext, given: Anything) -> Anything:
    return given


@dataclass
class Answer:
    """A response, read to its end."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    body: bytes = b""
    is_whole: bool = False

    def message(self) -> dict[str, Any] | None:
        """The JSON-RPC answer in it, as a whole or as an event."""
        if not self.body:
            return None
        kind = self.headers.get(b"content-type", b"")
        if kind.startswith(b"text/event-stream"):
            lines = [
                line[5:] for line in self.body.splitlines() if line.startswith(b"data:") and line[5:].strip()
            ]
            messages = [json.loads(line) for line in lines]
            return next((found for found in messages if "id" in found), None)
        if not kind.startswith(b"application/json"):
            return None
        found: Any = json.loads(self.body)
        assert is_object(found), "an answer that is no object"
        return dict(found)


class _LetIn:
    async def admit(self, scope: Scope) -> AuthenticatedRequest:
        return AuthenticatedRequest(principal="local", credential=None)


class GatewayInProcess:
    """A gateway without sockets, in front of one server, on an event loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._folder = TemporaryDirectory()
        self._ended = asyncio.Event()
        self._gateway: Gateway
        self._app: GatewayApp
        self.session = b""
        atexit.register(self._close)
        opened = self._loop.create_future()
        self._task = self._loop.create_task(self._run(opened))
        self._loop.run_until_complete(opened)
        self._loop.run_until_complete(self._begin_session())

    def both(self, body: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[Answer, Answer | None]:
        """What the gateway answers, and what it does without its fast path; None if it refuses the body."""
        return self._loop.run_until_complete(self._both(body, headers))

    async def _both(self, body: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[Answer, Answer | None]:
        async with asyncio.timeout(SECONDS):
            answer = await self._request(self._app, body, headers)
            sound = repair_body(body)
            if isinstance(sound, MessageRefusal):
                return answer, None
            endpoint = await self._gateway.endpoint()
            return answer, await self._request(endpoint.handle, sound, headers)

    async def _run(self, opened: "asyncio.Future[None]") -> None:
        env = {"HOME": self._folder.name, "FAIRLEAD_BUILTINS": "off"}
        loaded = load_config(None, {"gateway": {"approval": "allow"}}, env, self._folder.name)
        echo = ToolDefinition(
            name="echo", description="Echo.", input=Anything, output=Anything, handler=_echo
        )
        server = McpServer("bench", tools=[echo])
        async with AsyncExitStack() as stack:
            self._gateway = await stack.enter_async_context(
                open_gateway(loaded, env=env, servers={"bench": server})
            )
            self._app = self._gateway.app(_LetIn())
            opened.set_result(None)
            await self._ended.wait()

    async def _begin_session(self) -> None:
        params = {
            "protocolVersion": HANDSHAKE.decode(),
            "capabilities": {},
            "clientInfo": {"name": "fuzz", "version": "1"},
        }
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await self._request(self._app, json.dumps(first).encode(), _PLAIN)
        self.session = answer.headers[b"mcp-session-id"]
        second = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        await self._request(self._app, second, [*_PLAIN, *self.in_session()])

    def in_session(self) -> list[tuple[bytes, bytes]]:
        """The headers of a request in the session."""
        return [(b"mcp-session-id", self.session), (b"mcp-protocol-version", HANDSHAKE)]

    async def _request(self, app: Any, body: bytes, headers: list[tuple[bytes, bytes]]) -> Answer:
        answer, is_read = Answer(), False

        async def receive() -> Message:
            nonlocal is_read
            if is_read:
                await asyncio.Event().wait()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                assert not answer.status, "two responses to one request"
                answer.status, answer.headers = message["status"], dict(message.get("headers", ()))
                return
            assert answer.status, "a body without a response"
            assert not answer.is_whole, "two bodies"
            answer.body += message.get("body", b"")
            answer.is_whole = not message.get("more_body", False)

        await app(self._scope(body, headers), receive, send)
        return answer

    def _scope(self, body: bytes, headers: list[tuple[bytes, bytes]]) -> Scope:
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": [*headers, (b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body))],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            ADMITTED: AuthenticatedRequest(principal="local", credential=None),
        }

    def _close(self) -> None:
        self._ended.set()
        self._loop.run_until_complete(self._task)
        left = asyncio.all_tasks(self._loop)  # sse-starlette keeps one for as long as the loop
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.wait(left) if left else asyncio.sleep(0))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._folder.cleanup()


_PLAIN: Final = [
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
]
_gateways: list[GatewayInProcess] = []


def check(data: bytes) -> None:
    """Send the content as a request of a client of either protocol family."""
    choices, content = split(data)
    plain = _strict(content)
    if plain is not None and (str(plain.get("method")) in WITHOUT_END or not _says_who(plain)):
        return
    if not _gateways:
        _gateways.append(GatewayInProcess())
    gateway = _gateways[0]
    answer, other = gateway.both(content, _headers(gateway, choices, plain))
    assert answer.is_whole, answer
    assert answer.status != 500, answer
    message = answer.message()
    if message is not None:
        assert ("result" in message) != ("error" in message), message
    if other is None:
        # What a call does not read may be beyond what a float holds.
        assert answer.status == 400 or not _is_finite(plain), answer
        return
    assert (answer.status, _outcome(message)) == (other.status, _outcome(other.message())), answer


def _headers(
    gateway: GatewayInProcess, choices: Choices, plain: dict[str, Any] | None
) -> list[tuple[bytes, bytes]]:
    headers = [*_PLAIN]
    if choices.number(2):
        return [*headers, *gateway.in_session()]
    headers.append((b"mcp-protocol-version", MODERN))
    method, params = (plain or {}).get("method"), (plain or {}).get("params")
    if isinstance(method, str) and method.isascii() and method.isprintable():
        headers.append((b"mcp-method", method.encode()))
    name = params.get("name") if is_object(params) else None
    if isinstance(name, str) and name.isascii() and name.isprintable() and choices.number(8) != 7:
        headers.append((b"mcp-name", name.encode()))
    return headers


def _outcome(message: dict[str, Any] | None) -> Any:
    """What two ways to answer must agree on: not the words, nor what a header repeats."""
    if message is None:
        return None
    result = message.get("result")
    if not is_object(result):
        return message.get("id"), type(message.get("id")), message["error"]["code"]
    kept = {
        name: result.get(name) for name in ("isError", "structuredContent", "tools", "prompts", "resources")
    }
    return message.get("id"), type(message.get("id")), json.dumps(kept, sort_keys=True)


def _says_who(plain: dict[str, Any]) -> bool:
    """Whether `clientInfo` is complete where there is one: the fast path does not insist on that."""
    params = plain.get("params")
    meta: object = params.get("_meta") if is_object(params) else None
    if not is_object(meta):
        return True
    info: object = meta.get(CLIENT_INFO_META_KEY)
    return is_object(info) and isinstance(info.get("name"), str) and isinstance(info.get("version"), str)


def _is_finite(message: dict[str, Any] | None) -> bool:
    """Whether no number of a message is beyond what a float holds."""
    try:
        json.dumps(message, allow_nan=False)
    except ValueError:
        return False
    return True


def _strict(content: bytes) -> dict[str, Any] | None:
    """The message as any JSON parser reads it; None where there is none."""
    try:
        message: Any = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return message if is_object(message) else None
