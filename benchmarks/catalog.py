"""What large catalogs cost: reading 10,000 tools, calling one of them, and having them all at the next start.

    uv run --with fastmcp python -m benchmarks.catalog [--quick] [PART …]

CPU and memory are those of the process that asks, each measured in a process of its own where memory counts.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from benchmarks import callers
from benchmarks.callers import TOOL, open_host, stdio_entry
from benchmarks.measuring import (
    ROOT,
    Goal,
    begin_part,
    in_turn,
    leave_out,
    machine,
    peak,
    reset_peak,
    resident,
    show,
)
from benchmarks.peers import name_own
from fairlead.host.host import Host

MEGABYTE = 1024 * 1024
TOOLS = 10_000
GROWING = (1_000, 3_000, TOOLS)
SERVERS = 50

Ingested = tuple[float, float, float]
"""CPU seconds, bytes held afterwards, bytes held at the peak."""


# ── reading a long list ──


async def ingest_ours(tools: int) -> Ingested:
    """Connect to a server through a host, and read what it offers."""
    async with open_host({"warm": stdio_entry(1), "bench": stdio_entry(tools)}) as host:
        await host.connect("warm")
        held, started = reset_peak(), time.process_time()
        failures = await host.connect("bench")
        cpu, most = time.process_time() - started, peak()
        assert not failures
        assert len(await host.tools_of("bench")) == tools
        return cpu, resident() - held, most - held


async def ingest_sdk(tools: int) -> Ingested:
    """The same with the SDK's client."""
    async with Client(callers.sdk_parameters(stdio_entry(1))) as client:
        await client.list_tools()
    held, started = reset_peak(), time.process_time()
    async with Client(callers.sdk_parameters(stdio_entry(tools))) as client:
        page = await client.list_tools()
        found = [*page.tools]
        while page.next_cursor is not None:
            page = await client.list_tools(cursor=page.next_cursor)
            found += page.tools
        cpu, most = time.process_time() - started, peak()
        assert len(found) == tools
        return cpu, resident() - held, most - held


async def ingest_fastmcp(tools: int) -> Ingested:
    """The same with fastmcp's, which follows the pages itself."""
    module: Any = callers.fastmcp_module()
    async with callers.fastmcp_client(module, stdio_entry(1)) as client:
        await client.list_tools()
    held, started = reset_peak(), time.process_time()
    async with callers.fastmcp_client(module, stdio_entry(tools)) as client:
        found = await client.list_tools()
        cpu, most = time.process_time() - started, peak()
        assert len(found) == tools
        return cpu, resident() - held, most - held


def ingest(rounds: int) -> None:
    """Connect to a server and read its list of tools, 1,000 to 10,000 of them, each time in a new process."""
    ways: dict[str, Callable[[int], Awaitable[Ingested]]] = {"Host": ingest_ours, "SDK Client": ingest_sdk}
    if callers.fastmcp_module() is not None:
        ways["fastmcp Client"] = ingest_fastmcp
    else:
        leave_out("fastmcp Client", "`uv run --with fastmcp==4.1.2 python -m benchmarks.catalog` has it")
    found = {tools: _ingest(ways, tools, rounds) for tools in GROWING}
    rows: list[tuple[object, ...]] = []
    for name, (cpu, held, most) in found[TOOLS].items():
        goals: object = None
        if name == "Host":
            goals = (
                Goal(value=cpu * 1000, at_most=100, unit=" ms", label="CPU"),
                Goal(value=held / MEGABYTE, at_most=30, unit=" MB", label="held"),
            )
        rows.append((name, cpu * 1000, held / MEGABYTE, most / MEGABYTE, goals))
    columns = ("client", "CPU ms", "MB held", "MB at the peak", "goal")
    show(f"Connect and read a list of {TOOLS:,} tools", columns, rows)
    for title, pick, unit in (("CPU, ms", 0, 1e-3), ("memory held, MB", 1, MEGABYTE)):
        grown: list[tuple[object, ...]] = [
            (tools, *(each[pick] / unit for each in results.values())) for tools, results in found.items()
        ]
        show(f"Connect and read a list: {title}", ("tools", *ways), grown, plot=(*ways,), unit=title)


def _ingest(
    ways: Mapping[str, Callable[[int], Awaitable[Ingested]]], tools: int, rounds: int
) -> dict[str, Ingested]:
    """The medians of rounds in which all ways take turns."""
    found: dict[str, list[Ingested]] = {name: [] for name in ways}
    context = multiprocessing.get_context("spawn")
    for _ in range(rounds):
        for name, way in ways.items():
            with context.Pool(1) as pool:
                found[name].append(pool.apply(_run, (way, tools)))
    medians: dict[str, Ingested] = {}
    for name, results in found.items():
        cpu, held, most = (statistics.median(values) for values in zip(*results, strict=True))
        medians[name] = cpu, held, most
    return medians


def _run(way: Callable[[int], Awaitable[Ingested]], tools: int) -> Ingested:
    return anyio.run(way, tools)


# ── calling one of them ──


def call(rounds: int) -> None:
    """Call a tool of a server that has 10 tools, and of ones that have 1,000 to 10,000."""
    anyio.run(_call, rounds)


async def _call(rounds: int) -> None:
    async with AsyncExitStack() as stack:
        calls: dict[str, Callable[[], Awaitable[object]]] = {}
        for tools in (10, *GROWING):
            host = await stack.enter_async_context(open_host({"bench": stdio_entry(tools)}))
            await host.connect("bench")
            calls[str(tools)] = partial(host.call, "bench", TOOL, {"size": 5})
        costs = await in_turn(calls, rounds=rounds * 5, count=1_600, concurrency=16)
    few = costs["10"].cpu
    rows: list[tuple[object, ...]] = []
    for tools, cost in costs.items():
        is_most = int(tools) == TOOLS
        goal = (
            Goal(value=cost.cpu / few, at_most=1.1, unit=" x", label="to that among 10:") if is_most else None
        )
        rows.append((int(tools), cost.cpu * 1e6, goal))
    show("Host.call among few and many tools", ("tools", "CPU us/call", "goal"), rows)


# ── having them at the next start ──

_PROBE = """
import anyio, os, sys, time
from fairlead.host.host import Host

async def main():
    started, cpu = time.perf_counter(), time.process_time()
    async with Host.open(env=os.environ, cwd=os.environ["HOME"]) as host:
        tools = [await host.tools_of(status.server_id) for status in host.status()]
        took = time.perf_counter() - started, time.process_time() - cpu
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            print(sum(map(len, tools)), *took, len(children.read().split()))

anyio.run(main)
"""


def snapshot(rounds: int) -> None:
    """Start a host whose 50 servers have been seen before: how soon are all their tools there?"""
    with machine() as env:
        servers = {f"server_{number}": stdio_entry(20) for number in range(SERVERS)}
        file = Path(env["HOME"], ".config/fairlead/fairlead.json")
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"servers": servers}))
        anyio.run(_fill, {**env, "FAIRLEAD_BUILTINS": "off"})
        environment = {**os.environ, **env, "FAIRLEAD_BUILTINS": "off"}
        found: list[list[float]] = []
        for _ in range(rounds * 3):
            argv = [sys.executable, "-c", _PROBE]
            done = subprocess.run(argv, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
            found.append([float(word) for word in done.stdout.split()])
    tools, wall, cpu, children = (statistics.median(values) for values in zip(*found, strict=True))
    assert tools == SERVERS * 20
    goals = (
        Goal(value=wall * 1000, at_most=50, unit=" ms", label="all tools in"),
        Goal(value=children, at_most=0, unit=" processes", label="started"),
    )
    row = (f"{SERVERS} servers, {tools:,.0f} tools", wall * 1000, cpu * 1000, goals)
    show("A host with snapshots, from `Host.open` to all tools", ("what", "ms", "CPU ms", "goal"), [row])


async def _fill(env: dict[str, str]) -> None:
    async with Host.open(env=env, cwd=env["HOME"]) as host:
        assert not await host.connect_all()


PARTS = {"ingest": ingest, "call": call, "snapshot": snapshot}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: fewer rounds")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of: {', '.join(PARTS)}")
    arguments = parser.parse_args()
    name_own("mcp")
    for part in arguments.parts or PARTS:
        begin_part(PARTS[part])
        PARTS[part](1 if arguments.quick else 5)
