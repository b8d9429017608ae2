"""What a tool call costs its caller, side by side with the SDK's client and fastmcp's.

    uv run --with fastmcp==4.1.2 python -m benchmarks.calls [--quick] [--uvloop] [PART …]

CPU is that of the calling process alone. All callers are connected at once, each to a server of its own, and
take turns; the numbers are medians, and the ratios hold on a busy machine too.

`Host.call` is our library as programs use it, `connection` the layer below it, without policy, audit and
events. A result that is `raw` stays the bytes that came; a `typed` one is made the SDK's model; of `text
read` its text is decoded. With `a listener` a task reads the host's events. The TypeScript SDK's client is a
Node process of its own, which measures itself.
"""

import argparse
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import anyio

from benchmarks import callers
from benchmarks.callers import Caller, CallWithSize, Entry, stdio_entry
from benchmarks.measuring import (
    ROOT,
    Cost,
    Elsewhere,
    Goal,
    begin_part,
    cancel_free,
    in_turn,
    peak,
    reset_peak,
    show,
)
from benchmarks.peers import name_own

MEGABYTE = 1024 * 1024
SDK = "SDK Client"
TYPESCRIPT = "TypeScript SDK Client"

Extra = Goal | str
"""More in the last column of a row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How much is measured."""

    rounds: int
    calls: int
    quick: bool


async def compare(
    ways: Mapping[str, Caller], entry: Entry, *, size: int, effort: Effort, count: int
) -> dict[str, Cost]:
    """The cost of a call in each of these ways."""
    async with AsyncExitStack() as stack:
        calls = {
            name: partial(await stack.enter_async_context(caller(entry)), size)
            for name, caller in ways.items()
        }
        elsewhere: dict[str, Elsewhere] = {}
        if callers.has_typescript():
            there = await stack.enter_async_context(callers.typescript(entry))
            elsewhere[TYPESCRIPT] = partial(there, size=size)
        return await in_turn(calls, rounds=effort.rounds, count=count, concurrency=16, elsewhere=elsewhere)


def show_costs(
    title: str,
    costs: Mapping[str, Cost],
    goals: Mapping[str, float],
    extra: Mapping[str, Extra] | None = None,
) -> None:
    """Print what a call costs, and how many times cheaper than the SDK's that is."""
    base = costs[SDK].cpu
    rows: list[tuple[object, ...]] = []
    for name, cost in costs.items():
        ratio = base / cost.cpu
        goal = (
            Goal(value=ratio, at_least=goals[name], unit=" x", label="cheaper than the SDK's:")
            if name in goals
            else None
        )
        rows.append((name, cost.cpu * 1e6, f"{1 / cost.wall:,.0f}", ratio, (goal, (extra or {}).get(name))))
    show(title, ("caller", "CPU us/call", "calls/s", "x cheaper", "goal"), rows)


# ── the parts ──


async def small(effort: Effort) -> None:
    """A small call over stdio."""
    ways: dict[str, Caller] = {
        "connection, raw": callers.connection_raw,
        "connection, typed": callers.connection_typed,
        "Host.call": callers.host_raw,
        "Host.call, a listener": callers.host_heard,
        "Host.call, text read": callers.host_text,
        "Host.call, typed": callers.host_typed,
        **callers.others(),
    }
    costs = await compare(ways, stdio_entry(), size=5, effort=effort, count=effort.calls)
    show_costs("Small call over stdio, 16 at once", costs, {"connection, raw": 10, "Host.call": 5})


async def web(effort: Effort) -> None:
    """A small call over HTTP, answered with JSON and with events."""
    ways: dict[str, Caller] = {
        "connection, raw": callers.connection_raw,
        "Host.call": callers.host_raw,
        "Host.call, typed": callers.host_typed,
        **callers.others(),
    }
    count = effort.calls // 5
    with web_server() as address:
        for kind, goals in (("json", {"connection, raw": 5.0, "Host.call": 5.0}), ("events", {})):
            entry = {"url": f"{address}/{kind}"}
            connects: dict[str, Extra] = {}
            for name, caller in ways.items():
                made = await _connects_per_100(address, caller, entry)
                label = "TCP connects per 100 calls:"
                connects[name] = Goal(value=made, at_most=1, label=label)
                if name in callers.others():
                    connects[name] = f"{label} {made}"
            costs = await compare(ways, entry, size=5, effort=effort, count=count)
            show_costs(f"Small call over HTTP, answered with {kind}, 16 at once", costs, goals, connects)


async def _connects_per_100(address: str, caller: Caller, entry: Entry) -> int:
    """How many connections are made for 100 calls, once the client has made its first calls."""

    def connects() -> int:
        with urllib.request.urlopen(f"{address}/connects") as response:
            return int(response.read())

    async with caller(entry) as call:
        for _ in range(5):
            await call(5)
        before = await anyio.to_thread.run_sync(connects)
        for _ in range(100):
            await call(5)
        return await anyio.to_thread.run_sync(connects) - before - 1  # the one that asks


@contextmanager
def web_server() -> Generator[str]:
    """The fast HTTP server; gives its address."""
    argv = [sys.executable, "-m", "benchmarks.servers.web"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def large(effort: Effort) -> None:
    """A result of 100 KB over stdio."""
    ways: dict[str, Caller] = {
        "connection, raw": callers.connection_raw,
        "connection, typed": callers.connection_typed,
        "Host.call": callers.host_raw,
        "Host.call, text read": callers.host_text,
        "Host.call, typed": callers.host_typed,
        **callers.others(),
    }
    costs = await compare(ways, stdio_entry(), size=100_000, effort=effort, count=effort.calls // 10)
    goals = {name: 2.0 for name in ways if name not in callers.others()}
    show_costs("A result of 100 KB over stdio, 16 at once", costs, goals)


async def huge(effort: Effort) -> None:
    """Results of 16 and 64 MB: is the time linear, and how much memory does it take?

    The slope is how many times longer a byte of the larger one takes.
    """
    ways: dict[str, Caller] = {
        "connection, raw": callers.connection_raw,
        "Host.call": callers.host_raw,
        "Host.call, typed": callers.host_typed,
        **({} if effort.quick else callers.others()),
    }
    rows: list[tuple[object, ...]] = []
    for name, caller in ways.items():
        async with caller(stdio_entry()) as call:
            await call(5)
            small_seconds = [await cancel_free(partial(call, 16 * MEGABYTE), 120) for _ in range(3)]
            held = reset_peak()
            seconds = [await cancel_free(partial(call, 64 * MEGABYTE), 120) for _ in range(3)]
            used = (peak() - held) / (64 * MEGABYTE)
        slope = statistics.median(seconds) / statistics.median(small_seconds) / 4
        goals: object = f"memory {used:.2g} x of 64 MB; slope {slope:.2g}"
        if caller in (callers.connection_raw, callers.host_raw):
            goals = (
                Goal(value=used, at_most=2.5, unit=" x of 64 MB", label="memory"),
                Goal(value=slope, at_most=1.3, label="slope"),
            )
        times = (statistics.median(small_seconds) * 1000, statistics.median(seconds) * 1000)
        rows.append((name, *times, goals))
    show(
        "Results of 16 and 64 MB over stdio",
        ("caller", "16 MB ms", "64 MB ms", "goal"),
        rows,
        plot="64 MB ms",
    )


async def sizes(effort: Effort) -> None:
    """What a call costs its caller as its result grows, from 100 bytes to 1 MB."""
    ways: dict[str, Caller] = {
        "Host.call": callers.host_raw,
        "Host.call, typed": callers.host_typed,
        **callers.others(),
    }
    rows: list[tuple[object, ...]] = []
    names: list[str] = []
    for size in (100, 1_000, 10_000, 100_000, MEGABYTE):
        count = max(32, min(effort.calls, effort.calls * 2_000 // size) // 16 * 16)
        costs = await compare(ways, stdio_entry(), size=size, effort=effort, count=count)
        names = [*costs]
        rows.append((size, *(cost.cpu * 1e6 for cost in costs.values())))
    columns = ("bytes", *names)
    show("CPU of a call over stdio by the size of its result", columns, rows, plot=names, unit="CPU us/call")


async def neighbour(effort: Effort) -> None:
    """How long calls to a server take while 16 MB results stream from another (busy), and without (quiet).

    Of a hundred calls 50 take no longer than the p50, and 99 no longer than the p99.
    """
    ways: dict[str, Caller] = {
        "connection, raw": callers.connection_raw,
        "Host.call": callers.host_raw,
        "SDK Client": callers.sdk,
    }
    rows: list[tuple[object, ...]] = []
    busy: list[float] = []
    for name, caller in ways.items():
        async with caller(stdio_entry()) as call, caller(stdio_entry()) as stream:
            quiet = await _latencies(call, 1.0 if effort.quick else 3.0)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_repeat, partial(stream, 16 * MEGABYTE))
                busy = await _latencies(call, 2.0 if effort.quick else 8.0)
                tasks.cancel_scope.cancel()
        p99 = _percentile(busy, 99) * 1000
        is_ours = caller is not callers.sdk
        goal = Goal(value=p99, at_most=5, unit=" ms", label="busy p99") if is_ours else None
        rows.append((name, _percentile(quiet, 99) * 1000, _percentile(busy, 50) * 1000, p99, goal))
    columns = ("caller", "quiet p99 ms", "busy p50 ms", "busy p99 ms", "goal")
    show("A neighbour of 16 MB results over stdio", columns, rows, plot="busy p99 ms")


async def _repeat(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        await call()


async def _latencies(call: CallWithSize, seconds: float) -> list[float]:
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        found.append(await cancel_free(partial(call, 5), 60))
        await anyio.sleep(0.001)
    return found


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1] if len(values) > 1 else values[0]


PARTS = {
    "small": small,
    "web": web,
    "large": large,
    "huge": huge,
    "sizes": sizes,
    "neighbour": neighbour,
}


async def main(parts: list[str], effort: Effort) -> None:
    """Measure these parts, all where none is named."""
    name_own("mcp")
    for name in parts or PARTS:
        begin_part(PARTS[name])
        await PARTS[name](effort)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: fewer calls and rounds")
    parser.add_argument("--uvloop", action="store_true", help="on uvloop instead of asyncio's own loop")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of: {', '.join(PARTS)}")
    arguments = parser.parse_args()
    chosen = Effort(rounds=3, calls=1_600, quick=True)
    if not arguments.quick:
        chosen = Effort(rounds=9, calls=4_800, quick=False)
    options = {"use_uvloop": arguments.uvloop}
    anyio.run(main, arguments.parts, chosen, backend_options=options)
