"""A plain load balancer: each request goes to the next gateway, whatever connection or session it is of.

It does what any of them does and no more. A request whose connection is refused goes to the next gateway,
since nothing was sent; a gateway that breaks off ends the client's connection, and nothing is ever repeated.
Every gateway is asked for `/readyz` all the time: one that is not ready gets no new requests, and connections
to one that does not answer at all are ended.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio
import httptools

from fairlead.gateway.request_context import TaskStarter

HOST: Final = "127.0.0.1"
LOOK_SECONDS: Final = 0.25
ANSWER_SECONDS: Final = 2.0
"""How long a gateway may take to say whether it is ready, before it is taken for dead."""
CONNECT_SECONDS: Final = 2.0
_MAX_WAITING: Final = 256 * 1024
_UNAVAILABLE: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_READY: Final = b"GET /readyz HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"


class Backend:
    """One of the gateways."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_up = True
        """Whether it answers at all."""
        self.is_ready = True
        """Whether it may get new requests."""
        self.requests = 0
        self.idle: list[_BackConnection] = []
        self.busy: set[_BackConnection] = set()

    def drop_idle(self) -> None:
        """Close the connections that no request has."""
        for connection in self.idle:
            connection.transport.abort()
        self.idle.clear()

    def drop_all(self) -> None:
        """Close every connection: who waits for an answer on one is disconnected."""
        self.drop_idle()
        for connection in [*self.busy]:
            connection.transport.abort()


class _BackConnection(asyncio.Protocol):
    """A connection to a gateway, for one request at a time."""

    transport: asyncio.Transport

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._front: _FrontConnection | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._has_ended = False

    def begin(self, front: "_FrontConnection", request: bytes) -> None:
        """Send a request, and pass what comes back to its client."""
        self._front = front
        self._has_ended = False
        self._backend.busy.add(self)
        self.transport.write(request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by name

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()
            return
        front = self._front
        if front is None:
            self.transport.abort()  # it answers what was not asked
            return
        front.transport.write(data)
        if self._has_ended:
            self._release(front)

    def on_message_complete(self) -> None:
        self._has_ended = self._parser.get_status_code() >= 200

    def _release(self, front: "_FrontConnection") -> None:
        self._front = None
        self._backend.busy.discard(self)
        if self._parser.should_keep_alive() and self._backend.is_ready:
            self._backend.idle.append(self)
        else:
            self.transport.close()
        front.end_exchange()

    def connection_lost(self, exc: Exception | None) -> None:
        self._backend.busy.discard(self)
        if self in self._backend.idle:
            self._backend.idle.remove(self)
        if self._front is not None:
            self._front.transport.close()


class _FrontConnection(asyncio.Protocol):
    """A connection of a client: what it asks for one after the other goes to different gateways."""

    transport: asyncio.Transport

    def __init__(self, balancer: "Balancer") -> None:
        self._balancer = balancer
        self._parser = httptools.HttpRequestParser(self)
        self._received = bytearray()
        self._waiting = b""
        self._back: _BackConnection | None = None
        self._is_asking = False
        self._is_whole = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_MAX_WAITING)

    def data_received(self, data: bytes) -> None:
        if self._is_asking:
            self._waiting += data
            return
        self._received += data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()
            return
        if self._is_whole:
            self._is_whole = False
            self._is_asking = True
            request = bytes(self._received)
            self._received.clear()
            self._balancer.starter.start_soon(self._ask, request)

    def on_message_complete(self) -> None:
        self._is_whole = True

    async def _ask(self, request: bytes) -> None:
        back = await self._balancer.connect()
        if self.transport.is_closing():
            if back is not None:
                back.transport.abort()
        elif back is None:
            self.transport.write(_UNAVAILABLE)
            self.end_exchange()
        else:
            self._back = back
            back.begin(self, request)

    def end_exchange(self) -> None:
        """Go on with what the client asked for meanwhile."""
        self._back = None
        self._is_asking = False
        if self._waiting:
            data, self._waiting = self._waiting, b""
            self.data_received(data)

    def pause_writing(self) -> None:
        if self._back is not None:
            self._back.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._back is not None:
            self._back.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._back is not None:
            self._back.transport.abort()


class Balancer:
    """Round robin over gateways, request by request.

    Args:
        ports: Where the gateways listen, on this machine.
        port: Where it listens itself; any free port if not given.
    """

    def __init__(self, ports: Sequence[int], port: int = 0) -> None:
        self.backends = [Backend(each) for each in ports]
        self.port = port
        self._next = 0
        self.starter = TaskStarter()

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"http://{HOST}:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Serve for the length of the block."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _FrontConnection(self), HOST, self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.starter.run, tasks)
                for backend in self.backends:
                    tasks.start_soon(self._look_after, backend)
                yield
                tasks.cancel_scope.cancel()
        finally:
            server.close()
            for backend in self.backends:
                backend.drop_all()

    async def connect(self) -> _BackConnection | None:
        """A connection to the next gateway that takes one; None where none does."""
        for backend in self._choices():
            backend.requests += 1
            if backend.idle:
                return backend.idle.pop()
            loop = asyncio.get_running_loop()
            try:
                with anyio.fail_after(CONNECT_SECONDS):
                    _, back = await loop.create_connection(
                        lambda at=backend: _BackConnection(at), HOST, backend.port
                    )
            except (OSError, TimeoutError):
                continue
            return back
        return None

    def _choices(self) -> list[Backend]:
        self._next += 1
        turn = self._next % len(self.backends)
        ordered = self.backends[turn:] + self.backends[:turn]
        ready = [each for each in ordered if each.is_up and each.is_ready]
        return ready or [each for each in ordered if each.is_up] or ordered

    async def _look_after(self, backend: Backend) -> None:
        while True:
            await anyio.sleep(LOOK_SECONDS)
            try:
                with anyio.fail_after(ANSWER_SECONDS):
                    backend.is_ready = await _is_ready(backend.port)
            except ConnectionRefusedError:
                # New requests go elsewhere by themselves; those under way end with their connections.
                backend.is_ready = False
            except (OSError, TimeoutError, anyio.EndOfStream, anyio.BrokenResourceError):
                backend.is_ready = backend.is_up = False
                backend.drop_all()
                continue
            backend.is_up = True
            if not backend.is_ready:
                backend.drop_idle()


async def _is_ready(port: int) -> bool:
    async with await anyio.connect_tcp(HOST, port) as stream:
        await stream.send(_READY % f"{HOST}:{port}".encode())
        return b" 200 " in await stream.receive(64)
