"""`fairlead gateway --stdio` with a running gateway: stdin and stdout carried over HTTP.

Messages pass as the bytes they are. Only what HTTP headers need is read from them: method, name, version, and
which responses belong to which requests. Stateless requests get a session key: this process serves one
client, whose servers are then its own.
"""

import secrets
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp
import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp_types import PROTOCOL_VERSION_META_KEY

from fairlead.catalog.results import DELIVERY
from fairlead.config.untyped import as_object
from fairlead.connection.peer import SESSION_META_KEY
from fairlead.connection.tasks import NAME_PARAMETERS
from fairlead.connection.transport.sse_parser import SseParser
from fairlead.errors import ConnectFailed, Delivery
from fairlead.net.http import open_client

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024

_NAMED = {**NAME_BEARING_METHODS, **NAME_PARAMETERS}
_SESSION_HEADER = "Mcp-Session-Id"
_LOST = -32000
_BYE_SECONDS = 2.0
_AGAIN_SECONDS = 1.0

Write = Callable[[bytes], Awaitable[None]]


class _Message(msgspec.Struct, frozen=True):
    """The members of a message that HTTP headers need."""

    id: int | str | None = None
    method: str | None = None
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.id is not None

    @property
    def version(self) -> str | None:
        """Its protocol version, which only stateless messages name."""
        said = as_object(as_object(self.params).get("_meta")).get(PROTOCOL_VERSION_META_KEY)
        return said if isinstance(said, str) else None


async def attach(url: str, token: str | None) -> int:
    """Connect stdin and stdout to the gateway at a URL, until stdin ends. Returns the exit status."""
    async with open_client() as client, _stdin() as lines:
        await StdioProxy(url, token, client, _write_line).run(lines)
    return 0


class StdioProxy:
    """One client's conversation with a gateway, carried over HTTP."""

    def __init__(self, url: str, token: str | None, client: aiohttp.ClientSession, write: Write) -> None:
        self._url = url
        self._client = client
        self._write = write
        self._writing = anyio.Lock()
        self._lost = anyio.Event()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: dict[str, str] = {}
        self._session_key = secrets.token_hex(16)
        """The session that all stateless requests belong to that come this way."""
        self._under_way: dict[int | str, anyio.CancelScope] = {}

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Carry messages in both directions until there are no more lines."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end, tasks.cancel_scope)
                async for line in lines:
                    await self._take(line, tasks)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_BYE_SECONDS):
                await self._end_session()
        if self._lost.is_set():
            raise ConnectFailed("gateway", "it was restarted, and this session is gone")

    async def _end(self, everything: anyio.CancelScope) -> None:
        await self._lost.wait()
        everything.cancel()

    async def _take(self, line: bytes, tasks: TaskGroup) -> None:
        if not line.strip():
            return
        message = _read(line)
        if message.method == "notifications/cancelled" and self._cancel(message):
            return
        # Requests run side by side; `initialize` and notifications in order: what follows depends on them.
        if message.is_request and message.method != "initialize":
            tasks.start_soon(self._ask, line, message)
            return
        await self._ask(line, message)
        if message.method == "notifications/initialized" and self._session:
            tasks.start_soon(self._listen)

    def _cancel(self, message: _Message) -> bool:
        """Cancel a stateless request by closing its response. Returns whether it was under way."""
        scope = self._under_way.get(as_object(message.params).get("requestId", ""))
        if scope is not None:
            scope.cancel()
        return scope is not None

    async def _ask(self, line: bytes, message: _Message) -> None:
        scope = anyio.CancelScope()
        if message.id is not None and message.version is not None:
            self._under_way[message.id] = scope
        try:
            with scope:
                await self._exchange(line, message)
        except aiohttp.ClientError as exc:
            delivery: Delivery = "not_sent" if isinstance(exc, aiohttp.ClientConnectorError) else "unknown"
            await self._fail(message, f"the gateway cannot be reached: {type(exc).__name__}", delivery)
        finally:
            if message.id is not None:
                self._under_way.pop(message.id, None)

    async def _exchange(self, line: bytes, message: _Message) -> None:
        headers = {
            **self._headers,
            **self._session,
            **_request_headers(message),
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        body = line.strip() if message.version is None else _with_session(line.strip(), self._session_key)
        async with self._client.post(self._url, data=body, headers=headers) as response:
            # The client knows no other session, and stdio has no way to tell it: it has to be started anew.
            if response.status == 404 and self._session:
                await self._fail(message, "the gateway was restarted", "not_sent")
                self._lost.set()
            elif response.content_type == "text/event-stream":
                await self._forward_stream(response, message)
            elif response.content_type == "application/json":
                if body := (await response.read()).replace(b"\n", b" ").strip():
                    await self._forward_answer(body, message, response)
            elif message.is_request:
                is_refused = 400 <= response.status < 500 and response.status != 408
                reason = f"the gateway answered with status {response.status}"
                await self._fail(message, reason, "not_sent" if is_refused else "unknown")

    async def _forward_answer(self, body: bytes, message: _Message, response: aiohttp.ClientResponse) -> None:
        answer = _read(body)
        # An error without an id ends no request: the client would wait for ever.
        if answer.id is None and answer.error is not None and message.is_request:
            error = msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "error": answer.error})
            await self._put(error)
            return
        self._note_session(answer, message, response)
        await self._put(body)

    async def _forward_stream(self, response: aiohttp.ClientResponse, message: _Message) -> None:
        events = SseParser(MAX_MESSAGE_BYTES)
        is_answered = not message.is_request
        async for chunk in response.content.iter_any():
            for event in events.feed(chunk):
                answer = _read(event.data)
                if answer.method is None and answer.id == message.id:
                    is_answered = True
                    self._note_session(answer, message, response)
                await self._put(bytes(event.data))
        if not is_answered:
            await self._fail(message, "the gateway closed the stream before it answered", "unknown")

    def _note_session(self, answer: _Message, message: _Message, response: aiohttp.ClientResponse) -> None:
        if message.method != "initialize" or answer.result is None:
            return
        self._session = {MCP_PROTOCOL_VERSION_HEADER: str(answer.result.get("protocolVersion"))}
        if session := response.headers.get(_SESSION_HEADER):
            self._session[_SESSION_HEADER] = session

    async def _listen(self) -> None:
        """Forward the gateway's own event stream, until cancelled."""
        events = SseParser(MAX_MESSAGE_BYTES)
        while True:
            headers = {**self._headers, **self._session, "Accept": "text/event-stream"}
            if events.last_id:
                # Messages that were sent while the stream was down are sent again after this one.
                headers["Last-Event-ID"] = events.last_id
            with suppress(aiohttp.ClientError):
                async with self._client.get(self._url, headers=headers) as response:
                    if response.status != 200:
                        return
                    async for chunk in response.content.iter_any():
                        for event in events.feed(chunk):
                            await self._put(bytes(event.data))
            events.restart()
            await anyio.sleep(_AGAIN_SECONDS)

    async def _end_session(self) -> None:
        if _SESSION_HEADER in self._session:
            with suppress(aiohttp.ClientError):
                async with self._client.delete(self._url, headers={**self._headers, **self._session}):
                    pass

    async def _fail(self, message: _Message, reason: str, delivery: Delivery) -> None:
        if message.is_request:
            error = {"code": _LOST, "message": reason, "data": {DELIVERY: delivery}}
            await self._put(msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "error": error}))

    async def _put(self, message: bytes) -> None:
        async with self._writing:
            await self._write(message + b"\n")


def _request_headers(message: _Message) -> dict[str, str]:
    """Return the HTTP headers that a stateless message requires."""
    version = message.version
    if version is None or message.method is None:
        return {}
    headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: message.method}
    name = as_object(message.params).get(_NAMED.get(message.method, ""))
    return headers | {MCP_NAME_HEADER: encode_header_value(name)} if isinstance(name, str) else headers


def _with_session(line: bytes, key: str) -> bytes:
    """Return a stateless message with a session key, unless it has one."""
    message = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    params = msgspec.json.decode(message["params"], type=dict[str, msgspec.Raw])
    meta = msgspec.json.decode(params["_meta"], type=dict[str, msgspec.Raw])
    if SESSION_META_KEY in meta:
        return line
    meta[SESSION_META_KEY] = msgspec.Raw(msgspec.json.encode(key))
    params["_meta"] = msgspec.Raw(msgspec.json.encode(meta))
    message["params"] = msgspec.Raw(msgspec.json.encode(params))
    return msgspec.json.encode(message)


def _read(line: bytes | bytearray) -> _Message:
    """Parse a message. An invalid one is passed on, too, and refused by the gateway."""
    try:
        return msgspec.json.decode(line, type=_Message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Message()


@asynccontextmanager
async def _stdin() -> AsyncGenerator[AsyncIterator[bytes]]:
    """Read stdin line by line, in a thread that nothing has to wait for when the process ends."""
    send, receive = anyio.create_memory_object_stream[bytes](0)

    def read(portal: BlockingPortal) -> None:
        # These come when the process ends.
        with suppress(RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            for line in sys.stdin.buffer:
                portal.call(send.send, line)
            portal.call(send.aclose)

    async with BlockingPortal() as portal:
        with send, receive:
            # A daemon: a blocking read of stdin cannot be cancelled, and must not keep the process alive.
            threading.Thread(target=read, args=(portal,), name="stdin", daemon=True).start()
            yield receive


async def _write_line(line: bytes) -> None:
    def write() -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    await anyio.to_thread.run_sync(write)
