"""ASGI server on a socket, with limits for connections.

Requests have deadlines. A connection counts as unauthenticated until a request on it was authenticated. Those
are limited, per address and in total; beyond that the oldest is closed, so that idle connections cannot lock
clients out.

A server may also take connections that another process accepted, and give one away with the request that came
on it: see `gateway/workers`.
"""

import asyncio
import errno
import math
import os
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairlead.errors import ListenFailed
from fairlead.net.exchange import PacketTransport
from fairlead.net.port_owner import explain_bind_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp


try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None

HEAD_SECONDS: Final = 10.0
"""Seconds until the head of a connection's first, or next, request must be complete."""
BODY_SECONDS: Final = 30.0
"""Seconds until a request's body must be complete."""
STRANGER_IDLE_SECONDS: Final = 10.0
"""Seconds an unauthenticated connection may be idle after a response."""
MAX_HEAD_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the largest request body that the gateway and the built-in servers take."""
MAX_PER_ADDRESS: Final = 128
MAX_UNAUTHENTICATED: Final = 256

_CONNECTION: Final = "fairlead.connection"
_PASSED: Final = "fairlead.passed"
_SWEEP_SECONDS: Final = 1.0
_SHARE_OF_FILES: Final = 4
"""Unauthenticated connections get a quarter of the file descriptors, all together three quarters."""


ConnectionPhase = Literal["head", "body", "answer"]
"""What is under way on a connection: the head of a request, its body, or the answer to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DetachedConnection:
    """A connection that was taken out of its server, and all that was read of its one open request."""

    socket: socket.socket
    received: bytes

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


class OpenConnection:
    """An open connection, with its deadline and whether a request on it is being answered."""

    __slots__ = (
        "_abort",
        "_limits",
        "address",
        "callee",
        "calls_in_row",
        "deadline",
        "detach",
        "is_authenticated",
        "is_idle",
        "is_of_peer",
    )

    def __init__(self, limits: "ConnectionLimits", address: str, abort: Callable[[], None]) -> None:
        self._limits = limits
        self._abort = abort
        self.address = address
        self.is_authenticated = False
        self.is_of_peer = False
        """Whether another process of the same server is at its other end."""
        self.is_idle = True
        """Whether no request on it is being answered."""
        self.detach: Callable[[], DetachedConnection | None] = _keep_connection
        """Takes it out of its server, which ends it there. None where that cannot be done now."""
        self.deadline = limits.clock() + HEAD_SECONDS
        self.callee: int | None = None
        """The other process that had to carry out the last call on it, if there was one."""
        self.calls_in_row = 0
        """How many calls on it had the same one, up to the last."""

    def note_call(self, callee: int | None) -> None:
        """Take note which other process has to carry out a call; None for this one."""
        self.calls_in_row = self.calls_in_row + 1 if callee == self.callee else 1
        self.callee = callee

    def enter(self, phase: ConnectionPhase) -> None:
        """Note a phase of a request: its first bytes arrived, its head, or all of it."""
        if phase == "answer":
            self.is_idle = False
            self.deadline = math.inf  # the client waits for us
        elif phase == "body":
            self.is_idle = False
            self.deadline = self._limits.clock() + BODY_SECONDS
        else:
            self.deadline = self._limits.clock() + HEAD_SECONDS

    def end_answer(self) -> None:
        """The response is sent: the next request may come."""
        self.is_idle = True
        # An authenticated connection is left to the server's own keep-alive limit.
        self.deadline = math.inf if self.is_authenticated else self._limits.clock() + STRANGER_IDLE_SECONDS

    def authenticate(self) -> None:
        """A request on it was authenticated."""
        if not self.is_authenticated:
            self.is_authenticated = True
            self._limits.trust(self)

    def abort(self) -> None:
        """Close it now."""
        self._abort()


def _keep_connection() -> None:
    return None


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
        """Unauthenticated connections, oldest first."""
        self._trusted: dict[OpenConnection, None] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._strangers) + len(self._trusted)

    def open(self, address: str, abort: Callable[[], None]) -> OpenConnection:
        """Register a new connection; over the limit, close the oldest unauthenticated one."""
        if self._by_address[address] >= self._max_per_address:
            self._close_oldest(address)
        elif len(self._strangers) >= self._max_unauthenticated:
            self._close_oldest(None)
        if len(self) >= self._max_open:
            self._close_idle()
        connection = OpenConnection(self, address, abort)
        self._strangers[connection] = None
        self._by_address[address] += 1
        return connection

    def trust(self, connection: OpenConnection) -> None:
        """Count a connection as authenticated."""
        if self._forget_stranger(connection):
            self._trusted[connection] = None

    def close(self, connection: OpenConnection) -> None:
        """Unregister a connection."""
        self._forget_stranger(connection)
        self._trusted.pop(connection, None)

    async def sweep(self) -> None:
        """Close connections past their deadline, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP_SECONDS)
            now = self.clock()
            for connection in [*self._strangers, *self._trusted]:
                if connection.deadline < now:
                    self._abort(connection)

    def close_idle(self) -> None:
        """Close idle connections; not those of other processes of the server, which know themselves."""
        for connection in [*self._strangers, *self._trusted]:
            if connection.is_idle and not connection.is_of_peer:
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


def mark_authenticated(scope: MutableMapping[str, Any], *, is_of_peer: bool = False) -> None:
    """Mark a request as authenticated: its connection is not closed to make room.

    Args:
        scope: The request.
        is_of_peer: Whether it is one of another process of the same server.
    """
    connection: OpenConnection | None = scope.get(_CONNECTION)
    if connection is not None and is_of_peer:
        connection.is_of_peer = True
    if connection is not None and not connection.is_authenticated:
        connection.authenticate()


def connection_of(scope: MutableMapping[str, Any]) -> OpenConnection | None:
    """Return the connection that a request came on, if it came to a server of this module."""
    return scope.get(_CONNECTION)


def detach_connection(scope: MutableMapping[str, Any]) -> DetachedConnection | None:
    """Take the connection of an unanswered request out of its server.

    Returns:
        The connection and what was read of it; None where that cannot be done: its server does not keep what
        it reads, the request before is not answered yet, or the client is gone.
    """
    connection: OpenConnection | None = scope.get(_CONNECTION)
    return connection.detach() if connection is not None else None


def was_passed(scope: MutableMapping[str, Any]) -> bool:
    """Whether another process passed this request here with its connection, to be answered here."""
    return _PASSED in scope


def _max_open_files() -> int:
    if resource is None:
        return 8192
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


GRACE_SECONDS = 3
"""Seconds that requests under way may take after the block is left."""
KEEP_ALIVE_SECONDS = 75
"""Keep-alive limit in seconds: longer than most clients', so that they close first."""


def bind(host: str, port: int) -> socket.socket:
    """Bind a port, any free one for 0, before it is announced."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on a socket that is TCP by name; without it responses wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as exc:
        listener.close()
        hint = "choose another with `--port`, or `--port 0` for any that is free"
        if exc.errno == errno.EADDRINUSE:
            hint = f"end the process that has it, or {hint}"
        reason = explain_bind_error(exc, port)
        raise ListenFailed(f"cannot listen on {host}:{port}: {reason}", hint=hint) from exc
    return listener


@contextmanager
def bind_unix(path: Path) -> Generator[socket.socket]:
    """Bind a Unix socket that only this user can connect to, in a folder of theirs, for a block."""
    with suppress(FileNotFoundError):
        path.unlink()  # of a process that died
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        try:
            path.chmod(0o600)
            listener.listen(1024)
            yield listener
        finally:
            with suppress(OSError):
                path.unlink()


def url_of(listener: socket.socket) -> str:
    """URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _UvicornServer(uvicorn.Server):
    """Uvicorn without its own signal handlers: the opener of the block decides when it ends."""

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


class _Protocol(HttpToolsProtocol):
    """Uvicorn's protocol over such transports, with deadlines for requests and a limit to their heads."""

    limits: ConnectionLimits
    on_end: Callable[[], None] | None = None
    """Called when the connection has ended."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._packets = PacketTransport(transport)
        super().connection_made(cast("asyncio.Transport", self._packets))
        self._open = self.limits.open(self.client[0] if self.client else "", transport.abort)
        self._head_bytes = 0
        self._in_body = False
        self._phase: ConnectionPhase | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.close(self._open)
        super().connection_lost(exc)
        if self.on_end is not None:
            self.on_end()

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head_bytes += len(data)
        self._phase = None
        super().data_received(data)
        # Only what these bytes led to counts: a small request begins and ends with the same ones.
        if self._phase is not None:
            self._open.enter(self._phase)
        # Data in the same packet as the end of a head may be a body, and does not count.
        if not self._in_body and self._head_bytes > MAX_HEAD_BYTES:
            self._packets.write(_HEAD_TOO_LARGE)
            self._packets.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = "head"
        scope: Any = self.scope
        scope[_CONNECTION] = self._open  # for `mark_authenticated` and `detach_connection`

    def on_header(self, name: bytes, value: bytes) -> None:
        # As uvicorn's own; the parser leaves whitespace after values, which are compared as bytes everywhere.
        name, value = name.lower(), value.strip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._phase = "body"
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._head_bytes = 0
        self._phase = "answer"
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._packets.flush()
        self._open.end_answer()
        super().on_response_complete()


_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class _DetachableProtocol(_Protocol):
    """The same, for connections that another process may have to take over with the request that came.

    What was read since the connection was idle is kept until the request is answered. A second request that
    came before that cannot be separated in it: then the connection stays where it is.
    """

    received_before = b""
    """What another process read of the connection before this one took it over."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._bytes: list[bytes] = []
        self._begun = 0
        """Requests of which there is something in these bytes."""
        self._unanswered = 0
        self._is_incomplete = False
        self._wire = transport
        super().connection_made(transport)
        self._open.detach = self._detach
        if self.received_before:
            # Here, since nothing can have been read from the socket yet: order is kept.
            self.data_received(self.received_before)

    def data_received(self, data: bytes) -> None:
        self._forget_if_idle()
        self._bytes.append(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._begun += 1
        self._unanswered += 1
        self._is_incomplete = True
        super().on_message_begin()
        if self.received_before:
            self.received_before = b""
            cast("dict[str, object]", self.scope)[_PASSED] = True

    def on_message_complete(self) -> None:
        self._is_incomplete = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        self._forget_if_idle()
        super().on_response_complete()

    def _forget_if_idle(self) -> None:
        if not self._unanswered and not self._is_incomplete:
            self._bytes.clear()
            self._begun = 0

    def _detach(self) -> DetachedConnection | None:
        wire = self._wire
        is_only = self._begun == 1 and self._unanswered == 1
        if not is_only or self.cycle.response_started or wire.is_closing():
            return None
        # A copy of the descriptor: the transport closes its own, which does not end the connection then.
        try:
            copy = socket.socket(fileno=os.dup(wire.get_extra_info("socket").fileno()))
        except OSError:  # no descriptor is free: the connection stays as it is
            return None
        wire.pause_reading()
        detached = DetachedConnection(socket=copy, received=b"".join(self._bytes))
        wire.abort()
        return detached


def _protocol_with(limits: ConnectionLimits, kind: type[_Protocol]) -> type[_Protocol]:
    """Protocol class for the connections of one server, as uvicorn requires."""
    return type("LimitedProtocol", (kind,), {"limits": limits})


class ConnectionServer:
    """A server that is up, and takes connections which were accepted elsewhere."""

    def __init__(self, server: _UvicornServer, limits: ConnectionLimits) -> None:
        self._server = server
        self._limits = limits

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._limits)

    def close_idle(self) -> None:
        """Close the connections of clients on which nothing is under way."""
        self._limits.close_idle()

    async def serve(
        self, connection: socket.socket, received: bytes = b"", *, on_end: Callable[[], None]
    ) -> None:
        """Serve a connection from now on. Returns at once.

        Args:
            connection: The connection; it is closed when it has ended.
            received: What was read of it before.
            on_end: Called when it has ended.
        """
        config, state = self._server.config, self._server.server_state

        def make_protocol() -> _Protocol:
            protocol = cast("type[_Protocol]", config.http_protocol_class)(
                config=config, server_state=state, app_state=self._server.lifespan.state
            )
            protocol.on_end = on_end
            if isinstance(protocol, _DetachableProtocol):
                protocol.received_before = received
            return protocol

        try:
            connection.setblocking(False)
            with suppress(OSError):  # a Unix socket, say
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(make_protocol, connection)
        except OSError:  # it ended on the way
            connection.close()
            on_end()


@asynccontextmanager
async def listening(app: "ASGIApp", listener: socket.socket | None) -> AsyncGenerator[ConnectionServer]:
    """Serve on a bound socket until the block is left; requests under way get a little time to finish.

    Args:
        app: The application.
        listener: The socket; None where connections come from another process, and may go on to a third.
    """
    limits = ConnectionLimits()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # forwarded client addresses are not trusted
        lifespan="on",
        http=_protocol_with(limits, _Protocol if listener is not None else _DetachableProtocol),
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
            yield ConnectionServer(server, limits)
        finally:
            server.should_exit = True
            sweeping.cancel()


async def _serve(server: _UvicornServer, listener: socket.socket | None) -> None:
    # It ends soon by `should_exit`. If it were cancelled, such as by an error in the block, its sockets would
    # stay open, and uvloop waits for them for ever when its loop is closed.
    with anyio.CancelScope(shield=True):
        await server.serve([] if listener is None else [listener])


async def _sweep(limits: ConnectionLimits, scope: anyio.CancelScope) -> None:
    with scope:
        await limits.sweep()
