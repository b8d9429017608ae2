"""Serve an ASGI application on a socket, for the length of a block.

Limits for the connections of an HTTP server: deadlines for requests, and room for those with credentials.

A connection counts as unauthenticated until a request on it was let in. Those are few at a time, for each
address and in all; of more, the oldest is closed, so that whoever holds connections open keeps nobody out.
"""

import asyncio
import math
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairlead.errors import ListenFailed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None

HEAD_SECONDS: Final = 10.0
"""How long a connection may take until the head of its first, or next, request is there."""
BODY_SECONDS: Final = 30.0
"""How long a request's body may take."""
STRANGER_IDLE_SECONDS: Final = 10.0
"""How long a connection without credentials may lie idle after an answer."""
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_PER_ADDRESS: Final = 128
MAX_UNAUTHENTICATED: Final = 256

_CONNECTION: Final = "fairlead.connection"
_SWEEP_SECONDS: Final = 1.0
_SHARE_OF_FILES: Final = 4
"""Unauthenticated connections get a quarter of the file descriptors, all together three quarters."""


class OpenConnection:
    """One connection: since when it waits for what."""

    __slots__ = ("_abort", "_limits", "address", "deadline", "is_authenticated", "is_idle")

    def __init__(self, limits: "ConnectionLimits", address: str, abort: Callable[[], None]) -> None:
        self._limits = limits
        self._abort = abort
        self.address = address
        self.is_authenticated = False
        self.is_idle = True
        """Is no request on it being answered?"""
        self.deadline = limits.clock() + HEAD_SECONDS

    def begin_head(self) -> None:
        """The first bytes of a request came."""
        self.deadline = self._limits.clock() + HEAD_SECONDS

    def begin_body(self) -> None:
        """The head of a request is there."""
        self.is_idle = False
        self.deadline = self._limits.clock() + BODY_SECONDS

    def begin_answer(self) -> None:
        """The whole request is there: from now on it waits for us."""
        self.deadline = math.inf

    def end_answer(self) -> None:
        """It may send the next request."""
        self.is_idle = True
        # Who has credentials is left to the server's own keep-alive limit.
        self.deadline = math.inf if self.is_authenticated else self._limits.clock() + STRANGER_IDLE_SECONDS

    def authenticate(self) -> None:
        """A request on it was let in."""
        if not self.is_authenticated:
            self.is_authenticated = True
            self._limits.trust(self)

    def abort(self) -> None:
        """Close it now."""
        self._abort()


class ConnectionLimits:
    """All open connections of one server."""

    def __init__(
        self,
        *,
        max_per_address: int = MAX_PER_ADDRESS,
        max_unauthenticated: int = MAX_UNAUTHENTICATED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        files = _max_open_files()
        self.clock = clock
        self._max_unauthenticated = max(8, min(max_unauthenticated, files // _SHARE_OF_FILES))
        self._max_per_address = min(max_per_address, self._max_unauthenticated)
        self._max_open = max(16, files * (_SHARE_OF_FILES - 1) // _SHARE_OF_FILES)
        self._strangers: dict[OpenConnection, None] = {}
        """Unauthenticated ones, the oldest first."""
        self._trusted: dict[OpenConnection, None] = {}
        self._by_address: Counter[str] = Counter()

    def open(self, address: str, abort: Callable[[], None]) -> OpenConnection:
        """Count a new connection; where there are too many, close the oldest of those without credentials."""
        if self._by_address[address] >= self._max_per_address:
            self._close_oldest(address)
        elif len(self._strangers) >= self._max_unauthenticated:
            self._close_oldest(None)
        if len(self._strangers) + len(self._trusted) >= self._max_open:
            self._close_idle()
        connection = OpenConnection(self, address, abort)
        self._strangers[connection] = None
        self._by_address[address] += 1
        return connection

    def trust(self, connection: OpenConnection) -> None:
        """Count a connection among those with credentials."""
        if self._forget_stranger(connection):
            self._trusted[connection] = None

    def close(self, connection: OpenConnection) -> None:
        """Count a connection no more."""
        self._forget_stranger(connection)
        self._trusted.pop(connection, None)

    async def sweep(self) -> None:
        """Close connections whose time is up, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            now = self.clock()
            for connection in [*self._strangers, *self._trusted]:
                if connection.deadline < now:
                    self._abort(connection)

    def _close_oldest(self, address: str | None) -> None:
        oldest = next((one for one in self._strangers if address is None or one.address == address), None)
        if oldest is not None:
            self._abort(oldest)

    def _close_idle(self) -> None:
        idle = next((one for one in (*self._strangers, *self._trusted) if one.is_idle), None)
        if idle is not None:
            self._abort(idle)

    def _abort(self, connection: OpenConnection) -> None:
        self.close(connection)
        connection.abort()

    def _forget_stranger(self, connection: OpenConnection) -> bool:
        if connection not in self._strangers:
            return False
        del self._strangers[connection]
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        return True


def attach(scope: MutableMapping[str, Any], connection: OpenConnection) -> None:
    """Say in an ASGI scope which connection its request came on."""
    scope[_CONNECTION] = connection


def mark_authenticated(scope: MutableMapping[str, Any]) -> None:
    """Note that a request was let in: its connection is not closed to make room for strangers."""
    connection: OpenConnection | None = scope.get(_CONNECTION)
    if connection is not None and not connection.is_authenticated:
        connection.authenticate()


def _max_open_files() -> int:
    if resource is None:
        return 8192
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


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


class _UvicornServer(uvicorn.Server):
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
    server = _UvicornServer(config)
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


async def _serve(server: _UvicornServer, listener: socket.socket) -> None:
    # It ends by `should_exit`, soon. If it were cancelled, by an error in the block say, its sockets would
    # stay open, and uvloop waits for them for ever when its loop is closed.
    with anyio.CancelScope(shield=True):
        await server.serve([listener])


async def _sweep(limits: ConnectionLimits, scope: anyio.CancelScope) -> None:
    with scope:
        await limits.sweep()
