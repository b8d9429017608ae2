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
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from benchmarks import callers
from benchmarks.callers import TOOL, open_host, stdio_entry
from benchmarks.measuring import ROOT, Goal, in_turn, machine, peak, reset_peak, resident, show
from fairlead.host.host import Host

MEGABYTE = 1024 * 1024
TOOLS = 10_000
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
    """Read a list of 10,000 tools, each time in a new process."""
    ways: dict[str, Callable[[int], Awaitable[Ingested]]] = {"Host": ingest_ours, "SDK Client": ingest_sdk}
    if callers.fastmcp_module() is not None:
        ways["fastmcp Client"] = ingest_fastmcp
    found: dict[str, list[Ingested]] = {name: [] for name in ways}
    context = multiprocessing.get_context("spawn")
    for _ in range(rounds):
        for name, way in ways.items():
            with context.Pool(1) as pool:
                found[name].append(pool.apply(_run, (way,)))
    rows: list[tuple[object, ...]] = []
    for name, results in found.items():
        cpu, held, most = (statistics.median(values) for values in zip(*results, strict=True))
        goals = None
        if name == "Host":
            in_time = Goal(value=cpu * 1000, at_most=100, unit=" ms")
            goals = f"{in_time}; {Goal(value=held / MEGABYTE, at_most=30, unit=' MB')}"
        rows.append((name, cpu * 1000, held / MEGABYTE, most / MEGABYTE, goals))
    columns = ("client", "CPU ms", "MB held", "MB at the peak", "goal")
    show(f"Connect and read a list of {TOOLS:,} tools", columns, rows)


def _run(way: Callable[[int], Awaitable[Ingested]]) -> Ingested:
    return anyio.run(way, TOOLS)


# ── calling one of them ──


def call(rounds: int) -> None:
    """Call a tool of a server that has 10, and one of a server that has 10,000."""
    anyio.run(_call, rounds)


async def _call(rounds: int) -> None:
    async with AsyncExitStack() as stack:
        calls: dict[str, Callable[[], Awaitable[object]]] = {}
        for tools in (10, TOOLS):
            host = await stack.enter_async_context(open_host({"bench": stdio_entry(tools)}))
            await host.connect("bench")
            calls[f"{tools:,} tools"] = partial(host.call, "bench", TOOL, {"size": 5})
        costs = await in_turn(calls, rounds=rounds * 5, count=1_600, concurrency=16)
    few, many = costs.values()
    goal = Goal(value=many.cpu / few.cpu, at_most=1.1, unit=" x")
    rows: list[tuple[object, ...]] = [(name, cost.cpu * 1e6, None) for name, cost in costs.items()]
    rows[-1] = (*rows[-1][:-1], goal)
    show("Host.call among few and many tools", ("catalog", "CPU us/call", "goal"), rows)


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
    """Start a host whose 50 servers have been seen before, and have all their tools."""
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
        Goal(value=wall * 1000, at_most=50, unit=" ms"),
        Goal(value=children, at_most=0, unit=" processes"),
    )
    row = (f"{SERVERS} servers, {tools:,.0f} tools", wall * 1000, cpu * 1000, "; ".join(map(str, goals)))
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
    for part in arguments.parts or PARTS:
        PARTS[part](1 if arguments.quick else 5)
