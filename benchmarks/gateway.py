"""What a tool call through the gateway costs, side by side with other gateways.

    benchmarks/install-gateways          # once
    uv run python -m benchmarks.gateway [--quick] [PART …]

Each gateway is a process of its own in front of a server of its own, and CPU is what that process used, as
the kernel counts it; MB is the memory it holds at the end. They take turns, and the numbers are medians: the
ratios hold on a busy machine too. Ours does all it does for anybody: token, policy, pins, audit.

Behind each name is how it is spoken to: `modern` is protocol version 2026-07-28, whose requests stand alone;
`legacy` is 2025-11-25, with a session that begins with a handshake; `sse` is the oldest HTTP transport, whose
answers come on one stream of events. "At 16" is with 16 calls under way at once. `ASGI floor` is a web
application that answers each request with a fixed text, the least that any gateway in Python could cost;
`SDK, naive` is the SDK's server in front of its client, with nothing in between.

Goals in microseconds or milliseconds were set on one machine. Elsewhere they are scaled by the machine
factor: how many times longer the other gateways take here than they took there.
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
from benchmarks.measuring import ROOT, Goal, begin_part, show
from benchmarks.peers import name_own
from benchmarks.processes import cpu_of, descendants, resident_of

ARGUMENTS = b'{"size":5}'
EXPECTED = b'"xxxxx"'
CONCURRENCIES = (1, 4, 16, 64)

REFERENCE_US: Mapping[tuple[str, Wire], float] = {
    ("fastmcp", "modern"): 2746,
    ("fastmcp", "legacy"): 1496,
    ("fastmcp, connected", "modern"): 2049,
    ("fastmcp, connected", "legacy"): 1078,
    ("mcp-proxy", "legacy"): 707,
    ("mcp-hub", "sse"): 379,
}
"""CPU of a call at 16 on the machine that absolute goals were set on: the others say how fast this one is."""
FLOOR_RATIO = 4.0
"""How many times the CPU of the ASGI floor a small call through ours may take."""
HTTP_US = 200.0
"""The CPU of a call to a server over HTTP, where absolute goals were set."""
ADDED_MS = {"stdio": 0.12, "HTTP": 0.35}
"""How much longer a call may take than straight to its server and the hop, where absolute goals were set."""
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
    memory: int = 0
    """The most bytes that the gateway's process held after a round."""
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
        self.memory = max(self.memory, resident_of(self.pid))

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
OUR_KEYS: tuple[Key, ...] = (("fairlead", "modern"), ("fairlead", "legacy"))


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """How many times longer things take here than where goals were set, and how that is known."""

    value: float
    note: str


def machine_factor(measured: Mapping[Key, float]) -> Factor:
    """The machine factor by the CPU of the other gateways' calls to a server over stdio, in microseconds."""
    known = sorted(cost / REFERENCE_US[key] for key, cost in measured.items() if key in REFERENCE_US)
    return _factor(known, "the other gateways' CPU for a small call to a server over stdio, 16 at once")


def _factor(known: Sequence[float], what: str) -> Factor:
    if not known:
        return Factor(value=1.0, note="Machine factor 1: no other gateway is installed that would tell it.")
    value = statistics.median(known)
    spread = f", the median of {len(known)} from {known[0]:.2f} to {known[-1]:.2f}" if len(known) > 1 else ""
    return Factor(value=value, note=f"Machine factor {value:.2f}, by {what}{spread}.")


def cpu_at_16(tracks: Mapping[Key, Mapping[int, Track]]) -> dict[Key, float]:
    """The CPU of a call at 16, in microseconds."""
    return {key: found[16].cost.cpu * 1e6 for key, found in tracks.items()}


def show_tracks(
    title: str,
    tracks: Mapping[Key, Mapping[int, Track]],
    goals: Mapping[Key, Goal],
    note: str = "",
) -> None:
    """Print what a call costs, and how many times that of ours, on the wire it is compared with."""
    concurrencies = [*next(iter(tracks.values()))]
    rows: list[tuple[object, ...]] = []
    for (name, wire), found in tracks.items():
        costs = [found[concurrency].cost for concurrency in concurrencies]
        ratio = found[16].cost.cpu / _ours(tracks, wire)[16].cost.cpu
        cpu = [cost.cpu * 1e6 for cost in costs]
        speed = [f"{1 / cost.wall:,.0f}" for cost in costs]
        held = max(track.memory for track in found.values()) / MEGABYTE
        rows.append((f"{name} ({wire})", *cpu, *speed, held, ratio, goals.get((name, wire))))
    columns = [f"us/call at {concurrency}" for concurrency in concurrencies]
    columns += [f"calls/s at {concurrency}" for concurrency in concurrencies]
    columns = ("gateway", *columns, "MB", "x ours at 16", "goal")
    show(title, columns, rows, plot="us/call at 16", note=note)


def show_growth(title: str, tracks: Mapping[Key, Mapping[int, Track]]) -> None:
    """Print what a call costs with more and more of them under way."""
    names = [f"{name} ({wire})" for name, wire in tracks]
    rows: list[tuple[object, ...]] = [
        (concurrency, *(found[concurrency].cost.cpu * 1e6 for found in tracks.values()))
        for concurrency in next(iter(tracks.values()))
    ]
    show(title, ("calls at once", *names), rows, plot=names, unit="CPU us/call")


def show_memory(title: str, tracks: Mapping[Key, Mapping[int, Track]]) -> None:
    """Print the memory that each gateway holds in the end."""
    held: dict[str, int] = {}
    for (name, _), found in tracks.items():
        held[name] = max(held.get(name, 0), *(track.memory for track in found.values()))
    ours = held["fairlead"]
    rows: list[tuple[object, ...]] = [
        (name, most / MEGABYTE, most / ours) for name, most in sorted(held.items(), key=lambda item: item[1])
    ]
    show(title, ("gateway", "MB", "x ours"), rows)


def _ours(tracks: Mapping[Key, Mapping[int, Track]], wire: Wire) -> Mapping[int, Track]:
    return tracks["fairlead", "modern" if wire == "modern" else "legacy"]


def ratio_goals(tracks: Mapping[Key, Mapping[int, Track]], ratios: Mapping[Key, float]) -> dict[Key, Goal]:
    """How many times the CPU of ours the others are to take, at 16."""
    return {
        (name, wire): Goal(
            value=tracks[name, wire][16].cost.cpu / _ours(tracks, wire)[16].cost.cpu,
            at_least=least,
            unit=" x",
            label="CPU to that of ours:",
        )
        for (name, wire), least in ratios.items()
        if (name, wire) in tracks
    }


# ── the parts ──


async def stdio(effort: Effort) -> None:
    """A small call to a server over stdio: what the gateway's process spends on it."""
    contenders = (OURS, FLOOR, NAIVE, FASTMCP, FASTMCP_BEST, MCP_PROXY, MCP_HUB)
    async with AsyncExitStack() as stack:
        tracks = await tracks_of(stack, contenders, stdio_entry(), CONCURRENCIES)
        await take_turns([track for found in tracks.values() for track in found.values()], effort)
    ratios: dict[Key, float] = {
        ("fastmcp", "modern"): 15,
        ("fastmcp", "legacy"): 8,
        ("SDK, naive", "modern"): 4,
        ("SDK, naive", "legacy"): 4,
        ("mcp-proxy", "legacy"): 4,
        ("mcp-hub", "sse"): 2,
    }
    floor = tracks["ASGI floor", "modern"][16].cost.cpu
    of_ours = {
        key: Goal(
            value=tracks[key][16].cost.cpu / floor,
            at_most=FLOOR_RATIO,
            unit=" x",
            label="CPU to that of the ASGI floor at 16:",
        )
        for key in OUR_KEYS
    }
    title = "Small call, server over stdio"
    show_tracks(f"{title}: CPU of the gateway", tracks, ratio_goals(tracks, ratios) | of_ours)
    show_growth(f"{title}: CPU by concurrency", tracks)
    show_memory(f"{title}: memory of the gateway after the calls", tracks)


async def web(effort: Effort) -> None:
    """A small call to a server over HTTP: what the gateway's process spends on it."""
    with web_server() as address:
        async with AsyncExitStack() as stack:
            entry = {"url": f"{address}/json"}
            # fastmcp as its manual has it opens a client for every call: 50 ms each.
            contenders = (OURS, NAIVE, FASTMCP_BEST)
            tracks = await tracks_of(stack, contenders, entry, CONCURRENCIES)
            # The machine factor is known from calls to a server over stdio alone.
            peers = (FASTMCP, FASTMCP_BEST, MCP_PROXY, MCP_HUB)
            yardsticks = await tracks_of(stack, peers, stdio_entry(), (16,))
            every = (*tracks.values(), *yardsticks.values())
            await take_turns([track for found in every for track in found.values()], effort)
            connects = await _connects_per_1000(address, tracks["fairlead", "modern"][16])
    factor = machine_factor(cpu_at_16(yardsticks))
    ratios: dict[Key, float] = {("fastmcp, connected", "modern"): 5, ("fastmcp, connected", "legacy"): 5}
    of_ours = {
        key: Goal(
            value=max(track.cost.cpu for concurrency, track in tracks[key].items() if concurrency >= 16)
            * 1e6,
            at_most=HTTP_US,
            unit=" us",
            factor=factor.value,
            label="CPU at 16 and at 64:",
        )
        for key in OUR_KEYS
    }
    title = "Small call, server over HTTP"
    show_tracks(f"{title}: CPU of the gateway", tracks, ratio_goals(tracks, ratios) | of_ours, factor.note)
    show_growth(f"{title}: CPU by concurrency", tracks)
    # Each would have made a TLS context of its own, at some 20 ms, had it been https.
    row = ("fairlead", connects, Goal(value=connects, at_most=1))
    show(f"{title}: TCP connects per 1,000 calls", ("gateway", "connects", "goal"), [row])


async def teams(effort: Effort) -> None:
    """A small call through gateways that are made for teams, each as it is installed."""
    with web_server() as address:
        async with AsyncExitStack() as stack:
            contenders = (OURS, CONTEXTFORGE, LITELLM)
            tracks = await tracks_of(stack, contenders, {"url": f"{address}/json"}, (1, 16))
            await take_turns([track for found in tracks.values() for track in found.values()], effort)
    title = "Small call, gateways for teams, server over HTTP: CPU of the gateway"
    ratios: dict[Key, float] = {("ContextForge", "legacy"): 20, ("LiteLLM", "legacy"): 20}
    show_tracks(title, tracks, ratio_goals(tracks, ratios))


async def _connects_per_1000(address: str, track: Track) -> int:
    def connects() -> int:
        with urllib.request.urlopen(f"{address}/connects") as response:
            return int(response.read())

    await track.load(160)  # what was idle meanwhile is closed by now
    before = await anyio.to_thread.run_sync(connects)
    await track.load(992)
    return await anyio.to_thread.run_sync(connects) - before - 1  # the one that asks


async def latency(effort: Effort) -> None:
    """How much longer one call takes through the gateway than straight to its server.

    `straight` is the call to the server with nothing in between, `hop` one to an ASGI application that only
    answers, which any gateway costs at least. What a call takes through the gateway beyond both is `added`.
    """
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
    known = [track.cost.latency * 1e3 / REFERENCE_LATENCY_MS for track in proxies]
    factor = _factor(known, "mcp-proxy's time for a call, one at a time")
    rows: list[tuple[object, ...]] = []
    for kind, found in (("stdio", over_stdio), ("HTTP", over_http)):
        alone = statistics.median(direct[kind])
        for (_, wire), by_concurrency in found.items():
            through = by_concurrency[1].cost.latency
            added = (through - alone - hop) * 1e3
            goal = Goal(value=added, at_most=ADDED_MS[kind], unit=" ms", factor=factor.value, label="added")
            rows.append((f"ours, {kind} ({wire})", alone * 1e3, hop * 1e3, through * 1e3, added, goal))
    columns = ("server over", "straight ms", "hop ms", "through ms", "added ms", "goal")
    show("One call at a time, medians", columns, rows, plot="added ms", note=factor.note)


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
    name_own("mcp")
    for name in parts or PARTS:
        begin_part(PARTS[name])
        await PARTS[name](effort)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: fewer and shorter rounds")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of: {', '.join(PARTS)}")
    arguments = parser.parse_args()
    chosen = Effort(rounds=5, seconds=0.5) if arguments.quick else Effort(rounds=11, seconds=1.5)
    anyio.run(main, arguments.parts, chosen, backend_options={"use_uvloop": True})
