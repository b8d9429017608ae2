"""How long the dashboard's pages take to be made, with 50 servers and 10,000 tools.

    uv run python -m benchmarks.dashboard [--tools 10000] [--servers 50] [--running 10] [--rounds 20]

The pages are fetched over HTTP from this very process, so that what is measured is the time of the server and
next to nothing else. The first fetch of each page is told apart: it makes what the others find made.
"""

import argparse
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import anyio
from starlette.applications import Starlette

from benchmarks.callers import open_host, stdio_entry
from benchmarks.measuring import Goal, show
from fairlead.config.load import LoadedConfig
from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.access.tokens import Tokens
from fairlead.host.host import Host
from fairlead.net.listen import bind, listening, url_of
from fairlead.web.app import dashboard_routes
from fairlead.web.host_panel import HostPanel
from fairlead.web.sessions import LoginSessions

TOKEN = "the-token-of-this-benchmark"
GOAL_MS = 150.0
PAGES = (
    "/",
    "/servers",
    "/servers?sort=tokens",
    "/servers/s0",
    "/tools",
    "/tools?sort=tokens",
    "/tools?q=echo+size",
    "/tools?start=5000",
    "/tool?server=s0&name=tool_0",
    "/add",
    "/tokens",
    "/reviews",
    "/reviews?start=5000",
    "/servers/s0/review",
    "/calls",
    "/approvals",
    "/agents",
    "/logs",
    "/audit",
)


class Configuration:
    """The configuration of a host that does not change."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def loaded(self) -> LoadedConfig:
        """As it is in effect."""
        return self._host.config

    async def reload(self) -> None:
        """There is nothing to read again."""


@asynccontextmanager
async def dashboard(host: Host) -> AsyncGenerator[str]:
    """Serve the dashboard of a host, and yield its address."""
    with bind("127.0.0.1", 0) as listener:
        env = next(iter(host.config.servers.values())).env  # that of a folder of its own
        panel = HostPanel(host, Configuration(host), env=env)
        perimeter = OriginPolicy("127.0.0.1", listener.getsockname()[1])
        keeper = TokenAuthenticator(perimeter, tokens=Tokens(None, None, decide=TOKEN))
        app = GuardedApp(Starlette(routes=dashboard_routes(panel, LoginSessions(keeper))), keeper)
        async with listening(app, listener), panel.running():
            yield url_of(listener)


class LoopHold:
    """The most processor time that the event loop's thread used between two turns of a waiting task."""

    def __init__(self) -> None:
        self.most_ms = 0.0

    async def watch(self) -> None:
        """Measure until cancelled. Not by the clock, which other processes of the machine hold up."""
        while True:
            before = time.thread_time()
            await anyio.sleep(0.001)
            self.most_ms = max(self.most_ms, (time.thread_time() - before) * 1e3)


async def measure(url: str, rounds: int) -> list[tuple[object, ...]]:
    """Fetch every page, and say how long its first fetch and the others took, and what held the loop."""
    rows: list[tuple[object, ...]] = []
    hold = LoopHold()
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(hold.watch)
        for path in PAGES:
            took: list[float] = []
            size, status = 0, 0
            hold.most_ms = 0.0
            for _ in range(rounds):
                started = time.perf_counter()
                async with session.get(url + path, allow_redirects=False) as response:
                    size, status = len(await response.read()), response.status
                took.append((time.perf_counter() - started) * 1e3)
            later = statistics.median(took[1:])
            goal: object = f"status {status}"
            if status == 200:
                goal = Goal(value=later, at_most=GOAL_MS, unit=" ms", label="later fetches:")
            rows.append((path, took[0], later, hold.most_ms, size / 1024, goal))
        tasks.cancel_scope.cancel()
    return rows


async def main() -> None:
    """Measure all pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=10_000, help="of all servers together")
    parser.add_argument("--servers", type=int, default=50)
    parser.add_argument("--running", type=int, default=10, help="how many of them run and have the tools")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    # As all that is there without a review: every tool is offered, and every one is still to be reviewed.
    entry = {**stdio_entry(given.tools // given.running), "allow_tools": ["*"]}
    running = {f"s{number}": entry for number in range(given.running)}
    broken = {f"b{number}": {"command": "no-such-program"} for number in range(given.servers - given.running)}
    async with open_host(running | broken) as host:
        await host.connect(*running)
        await host.connect(*[*broken][:5])
        await host.wait_for_catalog(host.tools.selection)
        async with dashboard(host) as url:
            rows = await measure(url, given.rounds)
    title = f"{given.servers} servers, {given.tools:,} tools"
    show(title, ("page", "first, ms", "later, ms", "loop held, ms", "KB", "goal"), rows)


if __name__ == "__main__":
    anyio.run(main)
