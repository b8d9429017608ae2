"""A TCP proxy that can be cut: while it is, bytes and connections wait, as in a partitioned network."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio

from fairlead.gateway.request_context import TaskStarter

HOST: Final = "127.0.0.1"


class _Side(asyncio.Protocol):
    """One end of a connection."""

    transport: asyncio.Transport

    def __init__(self, proxy: "CutProxy", other: "_Side | None" = None) -> None:
        self._proxy = proxy
        self.other = other
        self._kept: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by name
        self._proxy.sides.add(self)
        if self.other is None:
            self._proxy.starter.start_soon(self._proxy.connect, self)

    def data_received(self, data: bytes) -> None:
        self._kept.append(data)
        self.flush()

    def flush(self) -> None:
        """Pass on what came, where it is not cut."""
        if self.other is not None and not self._proxy.is_cut and self._kept:
            if not self.other.transport.is_closing():
                self.other.transport.write(b"".join(self._kept))
            self._kept.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        # One that ends during a partition is not seen to end at the other side before it is over.
        self._proxy.sides.discard(self)
        self._proxy.ended.append(self)
        self._proxy.end_lost()


class CutProxy:
    """Passes connections on to a port of this machine, unless it is cut."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.is_cut = False
        self.sides: set[_Side] = set()
        self.ended: list[_Side] = []
        """Sides that ended, and whose other side has not been told."""
        self.starter = TaskStarter()
        self._server: asyncio.Server | None = None
        self._is_mended = asyncio.Event()
        self._is_mended.set()

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Pass on for the length of the block."""
        await self.accept()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.starter.run, tasks)
                yield
                tasks.cancel_scope.cancel()
        finally:
            self.refuse()
            for side in [*self.sides]:
                side.transport.abort()

    async def accept(self) -> None:
        """Take connections, at the same port as ever."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Side(self), HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Refuse connections from now on, as where no process listens any more."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def connect(self, front: _Side) -> None:
        """Connect a client to the target, once there is a way."""
        await self._is_mended.wait()
        try:
            loop = asyncio.get_running_loop()
            _, back = await loop.create_connection(lambda: _Side(self, front), HOST, self.target)
        except OSError:
            front.transport.abort()
            return
        if front.transport.is_closing():
            back.transport.abort()
            return
        front.other = back
        front.flush()

    def cut(self) -> None:
        """Let nothing through from now on."""
        self.is_cut = True
        self._is_mended.clear()

    def mend(self) -> None:
        """Let everything through again, what waited first."""
        self.is_cut = False
        self._is_mended.set()
        for side in [*self.sides]:
            side.flush()
        self.end_lost()

    def end_lost(self) -> None:
        """End the other sides of connections that ended, where they are reached."""
        if not self.is_cut:
            for side in self.ended:
                side.flush()
                if side.other is not None:
                    side.other.transport.close()
            self.ended.clear()
