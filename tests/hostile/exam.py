"""What every hostile mode has to pass, in a host and behind a gateway."""

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import anyio

from fairlead.errors import FairleadError
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import ToolDefinition, ToolModel
from fairlead.testing.fixtures import open_host
from fairlead.testing.watchdog import watch_loop
from tests.gateway.support import Raw, serving

LIMIT_SECONDS = 0.05
ATTACK_SECONDS = 20.0
"""How long an attack may keep its caller, whatever it does: longer than all configured limits together."""
CLOSE_SECONDS = 15.0
NEIGHBOUR_SECONDS = 10.0
MAX_GROWTH_BYTES = 160 * 1024 * 1024
"""What an attack may cost in memory at its worst: twenty times the longest message."""

LIMITS = {"trust": "trusted", "startup_timeout_ms": 4_000, "request_timeout_ms": 1_500}

Call = Callable[[str, str], Awaitable[None]]


class Nothing(ToolModel):
    pass


async def _answer(_: object, __: Nothing) -> Nothing:
    return Nothing()


def neighbour() -> McpServer:
    """Return a server that means no harm."""
    server = McpServer("neighbour")
    server.register(
        ToolDefinition(name="answer", description="Answers.", input=Nothing, output=Nothing, handler=_answer)
    )
    return server


Surface = Callable[[Path, Mapping[str, Any]], AbstractAsyncContextManager[Call]]


@asynccontextmanager
async def in_a_host(folder: Path, entry: Mapping[str, Any]) -> AsyncGenerator[Call]:
    """Run the hostile server in a host. What a call fails with is one of our errors, or the test fails."""
    async with open_host(folder, seconds=90, hostile={**LIMITS, **entry}, neighbour=neighbour()) as host:

        async def call(server: str, tool: str) -> None:
            if server == "neighbour":
                await host.call(server, tool)
                return
            with suppress(FairleadError):
                await host.tools_of(server)
            with suppress(FairleadError):
                (await host.call(server, tool)).text  # noqa: B018 - it is read when asked for

        yield call


@asynccontextmanager
async def behind_a_gateway(folder: Path, entry: Mapping[str, Any]) -> AsyncGenerator[Call]:
    """Run the hostile server behind a gateway on a real socket; what comes back is a result or an error."""
    servers: dict[str, Any] = {"hostile": {**LIMITS, **entry}, "neighbour": neighbour()}
    config = {"policy": {"approval": "allow"}}
    async with (
        serving(folder, config=config, seconds=90, **servers) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, served.url + "/mcp")

        async def call(server: str, tool: str) -> None:
            if server == "neighbour":
                answered = await client.modern("tools/call", name="neighbour_answer", arguments={})
                assert "result" in answered, answered
                return
            listed = await client.modern("tools/list")
            names = [tool["name"] for tool in listed["result"]["tools"]]
            name = next((name for name in names if name.startswith("hostile")), "hostile_attack")
            answered = await client.modern_bytes("tools/call", name=name, arguments={})
            # What the client's own parser makes of megabytes is not what is examined.
            assert (b'"result":' in answered[:200]) != (b'"error":' in answered[:200]), answered[:200]

        yield call


SURFACES: Mapping[str, Surface] = {"host": in_a_host, "gateway": behind_a_gateway}


async def examine(surface: Surface, folder: Path, entry: Mapping[str, Any]) -> None:
    """Let a hostile server do its worst, and look at what that costs everyone else."""
    async with surface(folder, entry) as call:
        with anyio.fail_after(30):
            await call("neighbour", "answer")
        with watch_loop(LIMIT_SECONDS):
            before = _reset_peak()
            await _attack(call)
            growth = _peak() - before
        assert growth < MAX_GROWTH_BYTES
        began = time.monotonic()
    assert time.monotonic() - began < CLOSE_SECONDS


async def _attack(call: Call) -> None:
    over = False

    async def ask_neighbour() -> None:
        while not over:
            with anyio.fail_after(NEIGHBOUR_SECONDS):
                await call("neighbour", "answer")
            await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask_neighbour)
        try:
            with anyio.fail_after(ATTACK_SECONDS):
                await call("hostile", "attack")
        finally:
            over = True


def _reset_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pids_in(file: Path) -> list[int]:
    """Return the processes that noted themselves in a file."""
    return [int(line) for line in file.read_text().split()] if os.path.exists(file) else []
