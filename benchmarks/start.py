"""What it takes to start many servers at once.

    uv run python -m benchmarks.start [--quick] [PART …]

Servers that sleep can all start together; servers that compute cannot be ready sooner than the processors
allow, but the first can be ready early. Beside that, what the host itself spends on each server. Every host
runs in a process of its own.
"""

import argparse
import gc
import multiprocessing
import os
import resource
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from benchmarks.callers import Entry, open_host, sdk_parameters
from benchmarks.measuring import ROOT, Goal, begin_part, resident, show
from benchmarks.peers import name_own
from benchmarks.processes import descendants

PROCESSORS = len(os.sched_getaffinity(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """How a start of several servers went: when the first and the last were ready, and what it took."""

    first: float
    last: float
    own_cpu: float
    own_memory: int
    children_cpu: float
    others_cpu: float
    """What everybody else on this machine used in the meantime, in seconds of a processor."""


def slow_entry(how: str, seconds: float) -> Entry:
    """A server that takes so long to start, because it sleeps or because it computes."""
    folder = ROOT / "benchmarks/servers"
    if how == "sleep":
        return {"command": "sh", "args": [str(folder / "sleepy.sh"), str(seconds)]}
    return {"command": sys.executable, "args": ["-I", "-S", str(folder / "busy.py"), str(seconds)]}


async def start_ours(count: int, how: str, seconds: float) -> Start:
    """Start servers with a host."""
    entries = {f"server_{number}": slow_entry(how, seconds) for number in range(count)}
    ready: list[float] = []

    async def connect(server_id: str) -> None:
        assert not await host.connect(server_id)
        ready.append(time.perf_counter())

    async def connect_all() -> None:
        async with anyio.create_task_group() as tasks:
            for server_id in entries:
                tasks.start_soon(connect, server_id)

    async with open_host({"warm": slow_entry("sleep", 0), **entries}) as host:
        await host.connect("warm")
        return await _observe(connect_all, ready)


async def start_sdk(count: int, how: str, seconds: float) -> Start:
    """Start servers with one SDK client each, all at once."""
    ready: list[float] = []
    starts: list[Start] = []
    all_ready, done = anyio.Event(), anyio.Event()

    async def one() -> None:
        async with Client(sdk_parameters(slow_entry(how, seconds))) as client:
            await client.list_tools()
            ready.append(time.perf_counter())
            if len(ready) == count:
                all_ready.set()
            await done.wait()

    async def connect_all() -> None:
        for _ in range(count):
            tasks.start_soon(one)
        await all_ready.wait()

    async with Client(sdk_parameters(slow_entry("sleep", 0))) as client:
        await client.list_tools()
    async with anyio.create_task_group() as tasks:
        starts.append(await _observe(connect_all, ready))
        done.set()
    return starts[0]


async def _observe(run: Callable[[], Awaitable[None]], ready: list[float]) -> Start:
    gc.collect()
    gc.freeze()  # a look at everything that was ever imported would be charged to whoever is measured then
    held, own, busy = resident(), time.process_time(), _all_cpu()
    started, children = time.perf_counter(), _children_cpu()
    await run()
    own_cpu, children_cpu = time.process_time() - own, _children_cpu() - children
    others = _all_cpu() - busy - own_cpu - children_cpu
    return Start(
        first=min(ready) - started,
        last=max(ready) - started,
        own_cpu=own_cpu,
        own_memory=resident() - held,
        children_cpu=children_cpu,
        others_cpu=max(0.0, others),
    )


def _all_cpu() -> float:
    """Seconds of processor that everybody on this machine has used."""
    user, nice, system, _, _, interrupts, soft, *_ = map(
        int, Path("/proc/stat").read_text().split(None, 9)[1:9]
    )
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _children_cpu() -> float:
    """Seconds of processor that our descendants have used: those that run and those that are gone."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    ticks = 0
    for pid in descendants(os.getpid()):  # our servers are not our children, but those of the guardian
        with suppress(FileNotFoundError):  # it has just ended, and its parent counts it
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return gone.ru_utime + gone.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def apart(way: Callable[..., Awaitable[Any]], *arguments: object) -> Any:  # noqa: ANN401 - what `way` returns
    """Run it in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_run, (way, *arguments))


def _run(way: Callable[..., Awaitable[Any]], *arguments: object) -> Any:  # noqa: ANN401 - as above
    return anyio.run(way, *arguments)


def median(starts: list[Start]) -> Start:
    """The start whose last server was ready in the middle of all."""
    return sorted(starts, key=lambda start: start.last)[len(starts) // 2]


# ── the parts ──


def sleeping(*, quick: bool) -> None:
    """50 servers that sleep for a second while they start, and one: they can all wait at once."""
    count = 20 if quick else 50
    one = median([apart(start_ours, 1, "sleep", 1.0) for _ in range(1 if quick else 3)])
    many = median([apart(start_ours, count, "sleep", 1.0) for _ in range(1 if quick else 3)])
    sdk = apart(start_sdk, count, "sleep", 1.0)
    rows: list[tuple[object, ...]] = [
        ("Host, one", one.last, one.others_cpu / one.last, None),
        (
            f"Host, {count}",
            many.last,
            many.others_cpu / many.last,
            Goal(value=many.last / one.last, at_most=1.25, unit=" x", label="all ready, to one alone:"),
        ),
        (f"SDK Client, {count}", sdk.last, sdk.others_cpu / sdk.last, f"{sdk.last / one.last:.3g} x"),
    ]
    columns = ("servers that sleep 1 s", "all ready s", "processors used by others", "goal")
    show("Start of servers that wait", columns, rows)


def burning(*, quick: bool) -> None:
    """50 servers that compute while they start, and one.

    They cannot be ready sooner than their CPU divided by the cores there are. `used by others` is what
    other programs of the machine took meanwhile, in processors.
    """
    count, seconds = (12, 0.3) if quick else (50, 0.5)
    one = median([apart(start_ours, 1, "burn", seconds) for _ in range(3)])
    rows: list[tuple[object, ...]] = [("Host, one", one.first, one.last, None, None, None)]
    for name, way in (("Host", start_ours), ("SDK Client, all at once", start_sdk)):
        many: Start = apart(way, count, "burn", seconds)
        bound = many.children_cpu / PROCESSORS
        others = many.others_cpu / many.last
        goals: object = None
        if way is start_ours:
            # What others take is not there for anybody to use.
            fair = many.children_cpu / max(0.1, PROCESSORS - others)
            goals = (
                Goal(value=many.last / bound, at_most=1.15, unit=" x of CPU / cores", label="all"),
                f"{many.last / fair:.3g} x of what others left",
                Goal(value=many.first / one.first, at_most=1.5, unit=" x of one alone", label="first"),
            )
        rows.append((f"{name}, {count}", many.first, many.last, bound, others, goals))
    columns = ("servers", "first s", "all s", "CPU / cores s", "used by others", "goal")
    title = f"Start of servers that compute for {seconds} s, on {PROCESSORS} processors"
    show(title, columns, rows, plot=("first s", "all s"), unit="seconds until ready")


def own(*, quick: bool) -> None:
    """What the host itself spends on a server. On a busy machine that is more: its code is never warm."""
    count, rounds = (20, 1) if quick else (50, 5)
    ways = {"Host": start_ours, "SDK Client": start_sdk}
    starts: dict[str, list[Start]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            starts[name].append(apart(way, count, "sleep", 0.0))
    rows: list[tuple[object, ...]] = []
    for name, found in starts.items():
        cpu = statistics.median(start.own_cpu for start in found) / count * 1000
        memory = statistics.median(start.own_memory for start in found) / count / 1024
        goals = (
            Goal(value=cpu, at_most=2, unit=" ms", label="CPU"),
            Goal(value=memory, at_most=150, unit=" KB", label="memory"),
        )
        rows.append((name, cpu, memory, goals if name == "Host" else None))
    show(f"Own cost of each of {count} stdio servers", ("who", "CPU ms", "KB", "goal"), rows)


def growth(*, quick: bool) -> None:
    """More and more servers that need no time to start: until all are ready, and the host's own CPU."""
    ways = {"Host": start_ours, "SDK Client": start_sdk}
    took: list[tuple[object, ...]] = []
    spent: list[tuple[object, ...]] = []
    for count in (1, 10, 50):
        starts = {
            name: [apart(way, count, "sleep", 0.0) for _ in range(1 if quick else 5)]
            for name, way in ways.items()
        }
        took.append((count, *(statistics.median(each.last for each in found) for found in starts.values())))
        cpu = (statistics.median(each.own_cpu for each in found) * 1e3 for found in starts.values())
        spent.append((count, *cpu))
    columns = ("servers", *ways)
    show("Start of 1, 10 and 50 servers, until all are ready, s", columns, took, plot=(*ways,), unit="s")
    title = "Start of 1, 10 and 50 servers, the host's own CPU, ms"
    show(title, columns, spent, plot=(*ways,), unit="CPU ms")


def tls(*, quick: bool) -> None:
    """How many TLS contexts many HTTP servers take."""
    count = 20 if quick else 50
    rows: list[tuple[object, ...]] = []
    for name, way in (("Host", tls_ours), ("SDK Client", tls_sdk)):
        contexts, cpu = apart(way, count)
        goal = Goal(value=contexts, at_most=1, label="TLS contexts:") if way is tls_ours else None
        rows.append((name, f"{contexts:.0f}", cpu / count * 1000, goal))
    show(f"{count} servers at https URLs", ("who", "TLS contexts", "CPU ms per server", "goal"), rows)


async def tls_ours(count: int) -> tuple[float, float]:
    """Contexts made by a host that tries servers nobody serves, and the CPU that took."""
    with unserved_port() as port:
        entries = {
            f"server_{number}": {"url": f"https://127.0.0.1:{port}/{number}"} for number in range(count)
        }
        async with open_host(entries) as host:
            before, started = _contexts(), time.process_time()
            failures = await host.connect(*entries)
            assert len(failures) == count
            return _contexts() - before, time.process_time() - started


async def tls_sdk(count: int) -> tuple[float, float]:
    """The same for as many SDK clients."""
    most = 0

    async def one(number: int) -> None:
        nonlocal most
        try:
            async with Client(f"https://127.0.0.1:{port}/{number}"):
                pass
        except Exception:  # noqa: BLE001 - nobody serves there, which is the point
            most = max(most, _contexts())

    with unserved_port() as port:
        before, started = _contexts(), time.process_time()
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(one, number)
        return most - before, time.process_time() - started


@contextmanager
def unserved_port() -> Generator[int]:
    """A port of this machine where nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def _contexts() -> int:
    return sum(isinstance(thing, ssl.SSLContext) for thing in gc.get_objects())


PARTS = {"sleeping": sleeping, "burning": burning, "own": own, "growth": growth, "tls": tls}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: fewer servers and rounds")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of: {', '.join(PARTS)}")
    arguments = parser.parse_args()
    name_own("mcp")
    for part in arguments.parts or PARTS:
        begin_part(PARTS[part])
        PARTS[part](quick=arguments.quick)
