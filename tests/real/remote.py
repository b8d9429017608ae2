"""The server that does everything, running by itself at a URL, as nobody's child but the test's."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from tests.conftest import Machine
from tests.real.servers import NPM_BIN

Mode = Literal["streamableHttp", "sse"]

# It would listen on every network this machine is on.
_LOOPBACK_ONLY = """data:text/javascript,
import net from 'node:net';
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, port, '127.0.0.1', ...rest);
};
"""

_PATHS = {"streamableHttp": "/mcp", "sse": "/sse"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass(kw_only=True)
class RemoteServer:
    """A server that can be killed and started again at the same URL."""

    mode: Mode
    machine: Machine
    port: int = field(default_factory=free_port)
    log: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{_PATHS[self.mode]}"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run it, from when it listens until it is killed at the end of the block."""
        argv = ["node", "--import", _LOOPBACK_ONLY, str(NPM_BIN / "mcp-server-everything"), self.mode]
        env = self.machine.env | {"PORT": str(self.port)}
        async with (
            await anyio.open_process(argv, env=env) as process,
            anyio.create_task_group() as tasks,
        ):
            listening = anyio.Event()
            tasks.start_soon(self._read, process, listening)
            try:
                with anyio.fail_after(30):
                    await listening.wait()
                yield
            finally:
                process.kill()

    async def _read(self, process: Process, listening: anyio.Event) -> None:
        async def read(stream: anyio.abc.ByteReceiveStream | None) -> None:
            assert stream is not None
            async for text in TextReceiveStream(stream):
                self.log += text
                if "on port" in text:
                    listening.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, process.stdout)
            tasks.start_soon(read, process.stderr)
