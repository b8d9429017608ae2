"""What a tool call through the gateway costs, side by side with other gateways.

    benchmarks/install-gateways          # once
    uv run python -m benchmarks.gateway [--quick] [PART …]

Each gateway is a process of its own in front of a server of its own, and CPU is what that process used, as
the kernel counts it. They take turns, and the numbers are medians: the ratios hold on a busy machine too.
Ours does all it does for anybody: token, policy, pins, audit.
"""

import argparse
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import anyio
import msgspec

from benchmarks.callers import ALLOWED, Entry, stdio_entry
from benchmarks.calls import web_server
from benchmarks.contenders import (
    CONTEXTFORGE,
    FASTMCP,
    FASTMCP_BEST,
    FLOOR,
    LITELLM,
    MCP_HUB,
    MCP_PROXY,
    NAIVE,
    OURS,
    Contender,
    available,
    fairlead,
)
from benchmarks.load import Client, Load, Target, Wire, make_calls, open_client
from benchmarks.measuring import ROOT, Goal, show
from benchmarks.processes import cpu_of, descendants, resident_of

ARGUMENTS = b'{"size":5}'
EXPECTED = b'"xxxxx"'
CONCURRENCIES = (1, 16, 64)

REFERENCE_US: Mapping[tuple[str, Wire], float] = {
    ("fastmcp", "modern"): 2746,
    ("fastmcp", "legacy"): 1496,
    ("fastmcp, connected", "modern"): 2049,
    ("fastmcp, connected", "legacy"): 1078,
    ("mcp-proxy", "legacy"): 707,
    ("mcp-hub", "sse"): 379,
}
"""CPU of a call at 16 on the machine that absolute goals were set on: the others say how fast this one is."""
REFERENCE_LATENCY_MS = 0.90
"""A call through mcp-proxy there, one at a time."""
MEGABYTE = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is measured."""

    rounds: int
    seconds: float
    """How long a round of calls takes, about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What one call took: of the gateway's CPU, of time, and from its beginning to its end; seconds."""

    cpu: float
    wall: float
    latency: float


@dataclass(kw_only=True, slots=True)
class Track:
    """One way through one gateway, at one concurrency."""

    pid: int
    client: Client
    tool: str
    calls: int = 0
    costs: list[Cost] = field(default_factory=list[Cost])

    async def warm_up(self, seconds: float) -> None:
        """Make some calls, and find out how many a round has."""
        lines = len(self.client.lines)
        load = await self.load(10 * lines)
        self.calls = max(lines, int(seconds / load.wall * 10) * lines)

    async def run(self) -> None:
        """Make a round of calls."""
        before = cpu_of(self.pid)
        load = await self.load(self.calls)
        made = len(load.latencies)
        cpu, latency = (cpu_of(self.pid) - before) / made, statistics.median(load.latencies)
        self.costs.append(Cost(cpu=cpu, wall=load.wall / made, latency=latency))

    async def load(self, count: int) -> Load:
        """Make so many calls."""
        return await make_calls(self.client, self.tool, ARGUMENTS, expect=EXPECTED, count=count)

    @property
    def cost(self) -> Cost:
        """The median of its rounds."""
        return Cost(
            cpu=statistics.median(cost.cpu for cost in self.costs),
            wall=statistics.median(cost.wall for cost in self.costs),
            latency=statistics.median(cost.latency for cost in self.costs),
        )


Key = tuple[str, Wire]


async def tracks_of(
    stack: AsyncExitStack, contenders: Sequence[Contender], entry: Entry, concurrencies: Sequence[int]
) -> dict[Key, dict[int, Track]]:
    """Every way through these gateways, which run as long as the stack is open."""
    tracks: dict[Key, dict[int, Track]] = {}
    for contender in available(contenders):
        running = stack.enter_context(contender.run(entry))
        for wire in contender.wires:
            found = tracks[contender.name, wire] = dict[int, Track]()
            for concurrency in concurrencies:
                client = await stack.enter_async_context(open_client(running.target(wire), concurrency))
                tool = await client.tool_like("tool_0")
                found[concurrency] = Track(pid=running.pid, client=client, tool=tool)
    return tracks


async def take_turns(tracks: Sequence[Track], effort: Effort) -> None:
    """Run all of them, the rounds interleaved: what disturbs one disturbs all."""
    for track in tracks:
        await track.warm_up(effort.seconds)
    for _ in range(effort.rounds):
        for track in tracks:
            await track.run()


def show_tracks(
    title: str, tracks: Mapping[Key, Mapping[int, Track]], ratios: Mapping[Key, float], *, limit: float | None
) -> None:
    """Print what a call costs, and how many times that of ours, on the wire it is compared with."""
    concurrencies = next(iter(tracks.values())).keys()
    if limit is not None:
        limit *= _slowness({key: found[16].cost.cpu * 1e6 for key, found in tracks.items()})
    rows: list[tuple[object, ...]] = []
    for (name, wire), found in tracks.items():
        costs = [found[concurrency].cost for concurrency in concurrencies]
        ours = tracks["fairlead", "modern" if wire == "modern" else "legacy"]
        ratio = costs[1].cpu / ours[16].cost.cpu
        goal: object = None
        if name == "fairlead" and limit is not None:
            goal = Goal(value=max(cost.cpu for cost in costs[1:]) * 1e6, at_most=limit, unit=" us")
        elif (name, wire) in ratios:
            goal = Goal(value=ratio, at_least=ratios[name, wire], unit=" x")
        cpu = [cost.cpu * 1e6 for cost in costs]
        speed = [f"{1 / cost.wall:,.0f}" for cost in costs]
        rows.append((f"{name} ({wire})", *cpu, *speed, ratio, goal))
    columns = [f"us/call at {concurrency}" for concurrency in concurrencies]
    columns += [f"calls/s at {concurrency}" for concurrency in concurrencies]
    show(title, ("gateway", *columns, "x ours at 16", "goal"), rows)


def _slowness(measured: Mapping[Key, float]) -> float:
    """How many times longer things take here than on the machine that goals were set on; says so."""
    known = [cost / REFERENCE_US[key] for key, cost in measured.items() if key in REFERENCE_US]
    return _told(statistics.median(known)) if known else 1.0


def _told(factor: float) -> float:
    print(f"\nThe other gateways take {factor:.2f} x what they took where absolute goals were set.")
    return factor


# ── the parts ──


async def stdio(effort: Effort) -> None:
    """A small call to a server over stdio."""
    contenders = (OURS, FLOOR, NAIVE, FASTMCP, FASTMCP_BEST, MCP_PROXY, MCP_HUB)
    async with AsyncExitStack() as stack:
        tracks = await tracks_of(stack, contenders, stdio_entry(), CONCURRENCIES)
        await take_turns([track for found in tracks.values() for track in found.values()], effort)
        goals: dict[Key, float] = {
            ("fastmcp", "modern"): 15,
            ("fastmcp", "legacy"): 8,
            ("SDK, naive", "modern"): 4,
            ("SDK, naive", "legacy"): 4,
            ("mcp-proxy", "legacy"): 4,
            ("mcp-hub", "sse"): 2,
        }
        show_tracks("Small call, server over stdio: CPU of the gateway", tracks, goals, limit=150)


async def web(effort: Effort) -> None:
    """A small call to a server over HTTP."""
    with web_server() as address:
        async with AsyncExitStack() as stack:
            entry = {"url": f"{address}/json"}
            # fastmcp as its manual has it opens a client for every call: 50 ms each.
            contenders = (OURS, NAIVE, FASTMCP_BEST)
            tracks = await tracks_of(stack, contenders, entry, CONCURRENCIES)
            await take_turns([track for found in tracks.values() for track in found.values()], effort)
            connects = await _connects_per_1000(address, tracks["fairlead", "modern"][16])
        goals: dict[Key, float] = {("fastmcp, connected", "modern"): 5, ("fastmcp, connected", "legacy"): 5}
        show_tracks("Small call, server over HTTP: CPU of the gateway", tracks, goals, limit=None)
        # Each would have made a TLS context of its own, at some 20 ms, had it been https.
        print(f"TCP connects of ours per 1,000 calls: {Goal(value=connects, at_most=1)}")


async def teams(effort: Effort) -> None:
    """A small call through gateways that are made for teams, each as it is installed."""
    with web_server() as address:
        async with AsyncExitStack() as stack:
            contenders = (OURS, CONTEXTFORGE, LITELLM)
            tracks = await tracks_of(stack, contenders, {"url": f"{address}/json"}, (1, 16))
            await take_turns([track for found in tracks.values() for track in found.values()], effort)
        title = "Small call, gateways for teams, server over HTTP: CPU of the gateway"
        goals: dict[Key, float] = {("ContextForge", "legacy"): 20, ("LiteLLM", "legacy"): 20}
        show_tracks(title, tracks, goals, limit=None)


async def _connects_per_1000(address: str, track: Track) -> int:
    def connects() -> int:
        with urllib.request.urlopen(f"{address}/connects") as response:
            return int(response.read())

    await track.load(160)  # what was idle meanwhile is closed by now
    before = await anyio.to_thread.run_sync(connects)
    await track.load(992)
    return await anyio.to_thread.run_sync(connects) - before - 1  # the one that asks


async def latency(effort: Effort) -> None:
    """How much longer one call takes through the gateway than straight to the server."""
    with web_server() as address:
        async with AsyncExitStack() as stack:
            floor = (await tracks_of(stack, (FLOOR,), {}, (1,)))["ASGI floor", "modern"][1]
            proxies = [
                found[1] for found in (await tracks_of(stack, (MCP_PROXY,), stdio_entry(), (1,))).values()
            ]
            over_stdio = await tracks_of(stack, (OURS,), stdio_entry(), (1,))
            over_http = await tracks_of(stack, (OURS,), {"url": f"{address}/json"}, (1,))
            target = Target(url=f"{address}/json", wire="modern")
            straight = await stack.enter_async_context(open_client(target, 1))
            piped = stack.enter_context(Piped())
            tracks = [floor, *proxies, *(found[1] for found in (*over_stdio.values(), *over_http.values()))]
            direct: dict[str, list[float]] = {"stdio": [], "HTTP": []}
            for track in tracks:
                await track.warm_up(effort.seconds)
            for _ in range(effort.rounds):
                for track in tracks:
                    await track.run()
                direct["stdio"].append(statistics.median(piped.call() for _ in range(500)))
                load = await make_calls(straight, "tool_0", ARGUMENTS, expect=EXPECTED, count=500)
                direct["HTTP"].append(statistics.median(load.latencies))
    hop = floor.cost.latency
    factor = _told(proxies[0].cost.latency * 1e3 / REFERENCE_LATENCY_MS) if proxies else 1.0
    rows: list[tuple[object, ...]] = []
    for kind, found, limit in (("stdio", over_stdio, 0.15), ("HTTP", over_http, 0.5)):
        alone = statistics.median(direct[kind])
        for (_, wire), by_concurrency in found.items():
            through = by_concurrency[1].cost.latency
            goal = Goal(value=(through - alone - hop) * 1e3, at_most=limit * factor, unit=" ms")
            rows.append(
                (f"{kind} ({wire})", *(f"{value * 1e3:.3f}" for value in (alone, hop, through)), goal)
            )
    columns = ("server over", "straight ms", "hop ms", "through ms", "added to both")
    show("One call at a time, medians; the hop is an ASGI application that only answers", columns, rows)


class Piped:
    """The fast server, spoken to over its pipes with nothing in between."""

    _REQUEST = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool_0","arguments":{"size":5}}}\n'
    )

    def __enter__(self) -> "Piped":
        argv = [sys.executable, "-m", "benchmarks.servers.stdio"]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, bufsize=0
        )
        self.call()
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()

    def call(self) -> float:
        """Make a call; the seconds it took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        began = time.perf_counter()
        self._process.stdin.write(self._REQUEST)
        answer = self._process.stdout.read(4096)
        took = time.perf_counter() - began
        assert answer is not None
        assert EXPECTED in answer
        return took


async def sizes(effort: Effort) -> None:
    """Many servers, many tools: memory, lists, and whether a call notices."""
    many = {
        f"server{number}": {**stdio_entry(20), "allow_tools": ALLOWED, "approval": "allow"}
        for number in range(10)
    }
    async with AsyncExitStack() as stack:
        running = stack.enter_context(fairlead(many))
        client = await stack.enter_async_context(open_client(running.target("modern"), 10))
        await client.tool_like("tool_0")
        for line, name in zip(client.lines, many, strict=True):
            await client.call(line, f"{name}_tool_0", ARGUMENTS)
        before = descendants(running.pid).keys()
        for line, name in zip(client.lines, many, strict=True):
            for _ in range(100):
                await client.call(line, f"{name}_tool_0", ARGUMENTS)
        spawned = len(descendants(running.pid).keys() - before)
        held = resident_of(running.pid) / MEGABYTE
        tracks: dict[int, Track] = {}
        for tools in (10, 10_000):
            entry = {
                **stdio_entry(tools),
                "allow_tools": ["tool_*"],
                "approval": "allow",
                "max_list_items": 20_000,
            }
            gateway = stack.enter_context(fairlead({"bench": entry}))
            found = await stack.enter_async_context(open_client(gateway.target("modern"), 16))
            tracks[tools] = Track(pid=gateway.pid, client=found, tool=await found.tool_like("tool_0"))
        await take_turns([*tracks.values()], effort)
        wall, cpu, size = await _listed(tracks[10_000])
    ratio = tracks[10_000].cost.cpu / tracks[10].cost.cpu
    rows: list[tuple[object, ...]] = [
        ("memory with 10 servers", "", Goal(value=held, at_most=110, unit=" MB")),
        ("processes started by 1,000 calls", "", Goal(value=spawned, at_most=0)),
        (
            f"tools/list of 10,000 ({size / MEGABYTE:.1f} MB)",
            f"{wall:.1f} ms",
            Goal(value=cpu, at_most=5, unit=" ms of CPU"),
        ),
        ("a call with 10,000 tools to one with 10", "", Goal(value=ratio, at_most=1.1, unit=" x")),
    ]
    show("Many servers and many tools", ("what", "time", "goal"), rows)


async def _listed(track: Track) -> tuple[float, float, int]:
    """What it takes to list the tools once more, in milliseconds: of time, and of the gateway's CPU."""
    line = track.client.lines[0]
    walls: list[float] = []
    listed = b""
    before = cpu_of(track.pid)
    for _ in range(50):
        began = time.perf_counter()
        listed = await track.client.request(line, "tools/list")
        walls.append(time.perf_counter() - began)
    assert len(msgspec.json.decode(listed)["result"]["tools"]) >= 10_000
    return statistics.median(walls) * 1e3, (cpu_of(track.pid) - before) / 50 * 1e3, len(listed)


PARTS = {"stdio": stdio, "web": web, "teams": teams, "latency": latency, "sizes": sizes}


async def main(parts: list[str], effort: Effort) -> None:
    """Measure these parts, all where none is named."""
    for name in parts or PARTS:
        await PARTS[name](effort)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: fewer and shorter rounds")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of: {', '.join(PARTS)}")
    arguments = parser.parse_args()
    chosen = Effort(rounds=5, seconds=0.5) if arguments.quick else Effort(rounds=11, seconds=1.5)
    anyio.run(main, arguments.parts, chosen, backend_options={"use_uvloop": True})
