"""What the tests of the host share: scripted servers, and a host of them."""

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from fairlead.host.host import Host
from tests.conftest import Machine

SECONDS = 30
"""How long a test may take at most, on a machine with much else to do."""

SCRIPT = Path(__file__).parent.parent / "servers" / "scripted_stdio.py"


class Scripted:
    """A server that follows a script (`tests/servers/scripted_stdio.py`), and what its processes noted."""

    def __init__(self, record: Path, **script: Any) -> None:
        self.record = record
        self.script = {"record": str(record), **script}

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that starts it."""
        return (sys.executable, "-I", "-S", str(SCRIPT), json.dumps(self.script))

    def entry(self, **fields: Any) -> dict[str, Any]:
        """Its entry in a configuration."""
        command, *args = self.argv
        return {"command": command, "args": args, "trust": "trusted", **fields}

    def notes(self, what: str) -> list[Any]:
        """What its processes noted of one kind, in order."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [note[what] for note in map(json.loads, lines) if what in note]

    @property
    def starts(self) -> int:
        """How many processes were started."""
        return len(self.notes("started"))

    def calls(self, tool: str) -> int:
        """How often a tool was carried out."""
        return self.notes("called").count(tool)


def is_running(pid: int) -> bool:
    """Does this process still exist?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def hosting(machine: Machine, **servers: dict[str, Any]) -> AsyncGenerator[Host]:
    """Run a host with these servers, which are the user's own."""
    with anyio.fail_after(SECONDS):
        async with Host.open(overrides={"servers": servers}, env=machine.env, cwd=machine.project) as host:
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
