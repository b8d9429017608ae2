"""Serve an ASGI application on a socket, for the length of a block."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, cast

import anyio
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairlead.errors import ListenFailed
from fairlead.net.connections import MAX_HEAD_BYTES, ConnectionLimits, attach

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

GRACE_SECONDS = 3
"""How long requests under way may go on once the block is left."""
KEEP_ALIVE_SECONDS = 75
"""How long a connection may lie idle: longer than most clients keep theirs, so that they hang up first."""


def bind(host: str, port: int) -> socket.socket:
    """Take a port, any free one for 0, before anything is told about it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only a socket that is TCP by name gets TCP_NODELAY from asyncio, without which answers wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as exc:
        listener.close()
        hint = "choose another with `--port`, or `--port 0` for any that is free"
        raise ListenFailed(f"cannot listen on {host}:{port}: {exc.strerror or exc}", hint=hint) from exc
    return listener


def url_of(listener: socket.socket) -> str:
    """The URL of what listens there."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handlers: who opened the block decides when it ends."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.settled.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _Packets:
    """A connection that sends an answer's head and the body that follows in one packet rather than two.

    Each costs a system call, and wakes up whoever waits for the answer.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it; a head that says how long its body is goes with the body, which comes next."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data.startswith(b"HTTP/1.1 ") and b"\r\ncontent-length: " in data:
            self._head = data
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Hang up once everything is sent."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send what waits: an answer may have no body, whatever its head says."""
        if self._head:
            self.write(b"")


class _Protocol(HttpToolsProtocol):
    """Uvicorn's, over such connections, with deadlines for requests and a limit to their heads."""

    limits: ConnectionLimits

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._packets = _Packets(transport)
        super().connection_made(cast("asyncio.Transport", self._packets))
        self._open = self.limits.open(self.client[0] if self.client else "", transport.abort)
        self._head_bytes = 0
        self._in_body = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.close(self._open)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head_bytes += len(data)
        super().data_received(data)
        # What is in the same packet as the end of a head may be a body, and does not count.
        if not self._in_body and self._head_bytes > MAX_HEAD_BYTES:
            self._packets.write(_HEAD_TOO_LARGE)
            self._packets.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._open.begin_head()
        attach(cast("dict[str, object]", self.scope), self._open)

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._open.begin_body()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._head_bytes = 0
        self._open.begin_answer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._packets.flush()
        self._open.end_answer()
        super().on_response_complete()


_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


def _protocol_with(limits: ConnectionLimits) -> type[_Protocol]:
    """Return the protocol for the connections of one server, as uvicorn wants it: a class."""
    return type("LimitedProtocol", (_Protocol,), {"limits": limits})


class _Trimmed:
    """An application that gets header values without the whitespace around them, whoever parsed the request.

    Of the two parsers that uvicorn may use, the quick one leaves what comes after a value.
    """

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "http":
            scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await self._app(scope, receive, send)


@asynccontextmanager
async def listening(app: "ASGIApp", listener: socket.socket) -> AsyncGenerator[None]:
    """Serve on a bound socket until the block is left; what is under way then has a little time to finish."""
    limits = ConnectionLimits()
    config = uvicorn.Config(
        _Trimmed(app),
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nobody's word for where a request comes from counts here
        lifespan="on",
        http=_protocol_with(limits),
        ws="none",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_serve, server, listener)
        sweeping = anyio.CancelScope()
        tasks.start_soon(_sweep, limits, sweeping)
        try:
            await server.settled.wait()
            if not server.started:
                raise ListenFailed("the application did not start")
            yield
        finally:
            server.should_exit = True
            sweeping.cancel()


async def _serve(server: _Server, listener: socket.socket) -> None:
    # It ends by `should_exit`, soon. If it were cancelled, by an error in the block say, its sockets would
    # stay open, and uvloop waits for them for ever when its loop is closed.
    with anyio.CancelScope(shield=True):
        await server.serve([listener])


async def _sweep(limits: ConnectionLimits, scope: anyio.CancelScope) -> None:
    with scope:
        await limits.sweep()
