"""A client that costs next to nothing: it writes bytes to connections that are kept, and reads bytes back.

Whatever answers is what is measured, so there is no SDK here, no model and no retry: one request at a time on
each connection, and as many connections as calls are to be under way.
"""

import asyncio
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import urlsplit

import anyio
import msgspec

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
PATIENCE_SECONDS = 60.0

Wire = Literal["modern", "legacy", "sse"]

_META = msgspec.json.encode(
    {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    }
)
_HELLO = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}


class Unanswered(Exception):
    """The other side hung up instead of answering."""


class UnexpectedAnswer(Exception):
    """It answered with something that is no answer to what was asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where a gateway is, and how it is spoken to."""

    url: str
    wire: Wire
    token: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Its host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        return parts.hostname, parts.port or 80

    def head(self, path: str | None = None) -> bytes:
        """The part of a request's head that is the same for all of them."""
        host, port = self.address
        token = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        return (
            f"POST {path or urlsplit(self.url).path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
            "Accept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\n{token}"
        ).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: bytes) -> str | None:
        """A header, by its name in lower case."""
        for line in self.head.split(b"\r\n")[1:]:
            found, _, value = line.partition(b":")
            if found.strip().lower() == name:
                return value.strip().decode()
        return None

    @property
    def message(self) -> bytes:
        """The JSON-RPC message in it: all of it, or what the last event says that says anything."""
        if self.body.startswith(b"{"):
            return self.body
        said = [line[5:].strip() for line in self.body.splitlines() if line.startswith(b"data:")]
        return next((data for data in reversed(said) if data), b"")


class Line(asyncio.Protocol):
    """One connection, and the request that waits for its answer. One that was closed is made anew."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._received = bytearray()
        self._head_end = -1
        self._wanted = 0  # how long the answer is; 0 where its end has to be looked for
        self._waiting: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by name
        self._received.clear()  # what a connection before this one broke off with
        self._head_end = -1

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Unanswered("the connection was closed"))

    async def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its answer."""
        loop = asyncio.get_running_loop()
        if self._transport is None or self._transport.is_closing():
            await loop.create_connection(lambda: self, *self._address)
        assert self._transport is not None
        self._waiting = loop.create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if self._head_end < 0:
            self._head_end = received.find(b"\r\n\r\n")
            if self._head_end < 0:
                return
            self._wanted = self._length(bytes(received[: self._head_end]).lower())
        complete = len(received) >= self._wanted if self._wanted else received.endswith(b"0\r\n\r\n")
        if complete:
            self._finish()

    def _length(self, head: bytes) -> int:
        _, found, rest = head.partition(b"\r\ncontent-length:")
        if found:
            return self._head_end + 4 + int(rest.split(b"\r\n", 1)[0])
        return 0 if b"\r\ntransfer-encoding: chunked" in head else self._head_end + 4

    def _finish(self) -> None:
        head = bytes(self._received[: self._head_end])
        body = bytes(self._received[self._head_end + 4 :])
        answer = Answer(int(head[9:12]), head, body if self._wanted else _unchunked(body))
        self._received.clear()
        self._head_end = -1
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(answer)


def _unchunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        parts.append(rest[:length])
        body = rest[length + 2 :]
    return b"".join(parts)


# ── clients ──


class Client(ABC):
    """Whoever asks, over as many connections as requests are to be under way."""

    def __init__(self, target: Target, lines: Sequence[Line]) -> None:
        self.target = target
        self.lines = lines
        self._head = target.head()
        self._ids = itertools.count(1)

    @abstractmethod
    async def ask(self, line: Line, method: str, params: bytes = b"{}", name: str = "") -> Answer:
        """Make a request over one of its connections; what came back."""

    async def request(self, line: Line, method: str, params: bytes = b"{}", name: str = "") -> bytes:
        """Make a request over one of its connections; the message that answers it."""
        return (await self.ask(line, method, params, name)).message

    @abstractmethod
    async def begin(self) -> None:
        """Say hello, where that is done."""

    async def call(self, line: Line, tool: str, arguments: bytes) -> bytes:
        """Call a tool; the message that answers it."""
        params = b'{"name":"%b","arguments":%b}' % (tool.encode(), arguments)
        return await self.request(line, "tools/call", params, tool)

    async def tool_like(self, ending: str) -> str:
        """The name that a tool goes by here."""
        listed = msgspec.json.decode(await self.request(self.lines[0], "tools/list"))
        names: list[str] = [tool["name"] for tool in listed["result"]["tools"]]
        # ContextForge lists `tool_0` as `tool-0`.
        return next(name for name in names if name.replace("-", "_").endswith(ending))

    async def close(self) -> None:
        """Hang up."""
        for line in self.lines:
            line.close()

    async def _post(self, line: Line, head: bytes, body: bytes) -> Answer:
        return await line.ask(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))


class ModernClient(Client):
    """One that speaks the stateless protocol."""

    async def begin(self) -> None:
        """Say nothing: every request says it all."""

    async def ask(self, line: Line, method: str, params: bytes = b"{}", name: str = "") -> Answer:
        """Make a request."""
        named = b"Mcp-Name: %b\r\n" % name.encode() if name else b""
        head = b"%bMcp-Protocol-Version: %b\r\nMcp-Method: %b\r\n%b" % (
            self._head,
            MODERN.encode(),
            method.encode(),
            named,
        )
        fields = params[1:-1] + b"," if len(params) > 2 else b""
        body = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b"_meta":%b}}' % (
            next(self._ids),
            method.encode(),
            fields,
            _META,
        )
        return await self._post(line, head, body)


class LegacyClient(Client):
    """One of the older protocol, in a session where the gateway has sessions."""

    async def begin(self) -> None:
        """Begin a session, or only say hello."""
        line = self.lines[0]
        answer = await self._post(line, self._head, self._message("initialize", msgspec.json.encode(_HELLO)))
        session_id = answer.header(b"mcp-session-id")
        if answer.status != 200:
            raise UnexpectedAnswer(f"{answer.status} to initialize: {answer.body[:200]!r}")
        version: str = msgspec.json.decode(answer.message)["result"]["protocolVersion"]
        session = "" if session_id is None else f"Mcp-Session-Id: {session_id}\r\n"
        self._head = self.target.head() + f"{session}Mcp-Protocol-Version: {version}\r\n".encode()
        await self._post(line, self._head, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def end(self) -> None:
        """End the session."""
        await self._post(self.lines[0], self._head.replace(b"POST", b"DELETE", 1), b"")

    async def ask(self, line: Line, method: str, params: bytes = b"{}", name: str = "") -> Answer:
        """Make a request."""
        return await self._post(line, self._head, self._message(method, params))

    def _message(self, method: str, params: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (
            next(self._ids),
            method.encode(),
            params,
        )


class _Events(asyncio.Protocol):
    """The stream that a server of the oldest transport answers on; each of its events comes in one piece."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._partial = b""
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        self.endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(Unanswered("the stream ended"))

    def data_received(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                self._answered(line[6:].strip())
            elif line.startswith(b"data: /"):
                self.endpoint.set_result(line[6:].strip().decode())

    def _answered(self, message: bytes) -> None:
        request_id = msgspec.json.decode(message, type=_Answered).id
        future = self.waiting.pop(request_id, None) if request_id is not None else None
        if future is not None and not future.done():
            future.set_result(message)


class _Answered(msgspec.Struct):
    id: int | None = None


class SseClient(Client):
    """One that listens to one stream, and posts beside it."""

    _events: _Events

    async def begin(self) -> None:
        """Listen, and say hello."""
        get = self.target.head().replace(b"POST", b"GET", 1) + b"\r\n"
        loop = asyncio.get_running_loop()
        _, self._events = await loop.create_connection(lambda: _Events(get), *self.target.address)
        self._head = self.target.head(await self._events.endpoint)
        await self.request(self.lines[0], "initialize", msgspec.json.encode(_HELLO))
        await self._post(self.lines[0], self._head, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def ask(self, line: Line, method: str, params: bytes = b"{}", name: str = "") -> Answer:
        """Make a request: its answer comes on the stream, where it was accepted."""
        number = next(self._ids)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._events.waiting[number] = future
        body = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (number, method.encode(), params)
        accepted = await self._post(line, self._head, body)
        return Answer(accepted.status, accepted.head, await future)

    async def close(self) -> None:
        """Hang up."""
        self._events.transport.close()
        await super().close()


_CLIENTS: dict[Wire, type[Client]] = {"modern": ModernClient, "legacy": LegacyClient, "sse": SseClient}


@asynccontextmanager
async def open_client(target: Target, connections: int) -> AsyncGenerator[Client]:
    """A client of a gateway for the length of the block."""
    client = _CLIENTS[target.wire](target, [Line(target.address) for _ in range(connections)])
    try:
        with anyio.fail_after(PATIENCE_SECONDS):
            await client.begin()
        yield client
    finally:
        await client.close()


# ── load ──


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """How long a number of calls took, and each of them."""

    wall: float
    latencies: list[float]


async def make_calls(client: Client, tool: str, arguments: bytes, *, expect: bytes, count: int) -> Load:
    """Make so many calls, one at a time on each connection. Each answer must say what is expected."""
    latencies: list[float] = []
    share = count // len(client.lines)

    async def work(line: Line) -> None:
        for _ in range(share):
            began = time.perf_counter()
            message = await client.call(line, tool, arguments)
            latencies.append(time.perf_counter() - began)
            if expect not in message:
                raise UnexpectedAnswer(message[:300].decode(errors="replace"))

    started = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for line in client.lines:
            tasks.start_soon(work, line)
    return Load(wall=time.perf_counter() - started, latencies=latencies)
