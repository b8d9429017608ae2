"""What the tests of the host share: scripted servers, and a host of them."""

import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from fairlead.host.host import Host
from tests.conftest import Machine

SECONDS = 30 if sys.gettrace() is None else 120
"""How long a test may take at most, on a machine with much else to do; under a tracer all takes longer."""


def is_running(pid: int) -> bool:
    """Does this process still exist?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def unasked(servers: Mapping[str, Any], **document: Any) -> dict[str, Any]:
    """A configuration in which calls are not asked about, unless an entry says so."""
    return {"servers": servers, "policy": {"approval": "allow"}, **document}


@asynccontextmanager
async def hosting(machine: Machine, **servers: dict[str, Any]) -> AsyncGenerator[Host]:
    """Run a host with these servers, which are the user's own."""
    with anyio.fail_after(SECONDS):
        async with Host.open(overrides=unasked(servers), env=machine.env, cwd=machine.project) as host:
            yield host


@asynccontextmanager
async def running(host: Host, server_id: str, tool: str, **arguments: Any) -> AsyncGenerator["Running"]:
    """Run a call beside the block, which begins when the server has reported its first progress."""
    async with anyio.create_task_group() as tasks:
        yield await begin(tasks, host, server_id, tool, **arguments)


async def begin(tasks: TaskGroup, host: Host, server_id: str, tool: str, **arguments: Any) -> "Running":
    """Start a call and wait until the server has reported its first progress."""
    call = Running(host, server_id, tool, arguments)
    tasks.start_soon(call.run)
    await call.begun.wait()
    return call


class Running:
    """A call under way, and how it ended."""

    def __init__(self, host: Host, server_id: str, tool: str, arguments: dict[str, Any]) -> None:
        self._host = host
        self._call = (server_id, tool, arguments)
        self.begun = anyio.Event()
        self.scope = anyio.CancelScope()
        self.text: str | None = None
        self.error: Exception | None = None

    async def run(self) -> None:
        """Call, and keep what comes."""
        with self.scope:
            try:
                result = await self._host.call(*self._call, on_progress=self._progressed)
                self.text = result.text
            except Exception as exc:  # noqa: BLE001 - which error it is, is what tests are about
                self.error = exc

    async def _progressed(self, progress: float, total: float | None, message: str | None) -> None:
        self.begun.set()
