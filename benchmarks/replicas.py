"""What a shared store costs, and what it costs to come to another replica than the one that has the session.

    uv run python -m benchmarks.replicas [--quick] [--uvloop]

A small call of a host with its state in Redis is measured against one with SQLite. Both hosts run in this
process, by turns, with the audit on; a `redis-server` of the benchmark's own writes every change to disk at
once. CPU is that of this process with all its threads: what seals records and sends them counts, what Redis
does with them is not ours.

Then two gateways, processes of their own with one Redis, and a session that one of them has: a call that
comes to the owner against one that the other has to forward, one at a time and by turns.

Then a gateway of one process against one of two workers, 16 calls at once and by turns: CPU of all processes
of each, without its server. And the memory of a gateway against its idle sessions; a token may have 100, so
that what 1,000 take is worked out from the slope.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from tests.redis_server import RedisServer, redis_server

from benchmarks.callers import ALLOWED, MAX_MESSAGE_BYTES, TOOL, CallWithSize, stdio_entry
from benchmarks.contenders import fairlead
from benchmarks.load import Client, Line, Target, make_calls, open_client
from benchmarks.measuring import ROOT, Cost, Goal, in_turn, machine, show
from benchmarks.processes import cpu_of, descendants, resident_of
from fairlead.config.store_location import KEY_VARIABLE
from fairlead.host.host import Host
from fairlead.store.cluster_key import new_cluster_key

GOAL_PERCENT = 10.0
SETTLE_SECONDS = 0.3
"""How long after the last call its records are written, at most."""
FORWARDED_MS = 0.3
"""How much longer than a call at its owner a forwarded one may take."""
PATIENCE_SECONDS = 60.0
WORKERS_RATIO = 1.15
SESSIONS_OF_TOKEN = 100
MEGABYTE = 1024 * 1024


@asynccontextmanager
async def _host(store: str | None) -> AsyncGenerator[CallWithSize]:
    """`Host.call` of a host with its state in that Redis, or in a file."""
    server: dict[str, Any] = {
        "allow_tools": ALLOWED,
        "approval": "allow",
        "max_message_bytes": MAX_MESSAGE_BYTES,
        **stdio_entry(),
    }
    document: dict[str, Any] = {"servers": {"bench": server}, "policy": {"approval": "allow"}}
    if store is not None:
        document["store"] = store
    with machine() as env:
        env = {**env, KEY_VARIABLE: new_cluster_key()}
        async with Host.open(overrides=document, env=env, cwd=env["HOME"]) as host:
            yield lambda size: host.call("bench", TOOL, {"size": size})


@contextmanager
def _redis() -> Generator[RedisServer]:
    with TemporaryDirectory() as folder, redis_server(Path(folder)) as server:
        yield server


async def small_calls(redis: RedisServer, *, rounds: int, count: int) -> None:
    """What a small call costs with each store."""
    async with AsyncExitStack() as stack:
        opened = {
            name: partial(await stack.enter_async_context(_host(store)), 100)
            for name, store in (("SQLite", None), ("Redis", redis.url))
        }
        # A round's records are written after it, and would else be counted in the other one's.
        costs: dict[str, Cost] = await in_turn(
            opened, rounds=rounds, count=count, concurrency=16, settle=SETTLE_SECONDS
        )
    added = (costs["Redis"].cpu / costs["SQLite"].cpu - 1) * 100
    rows: list[tuple[object, ...]] = [
        ("SQLite", costs["SQLite"].cpu * 1e6, None),
        ("Redis", costs["Redis"].cpu * 1e6, Goal(value=added, at_most=GOAL_PERCENT, unit=" %")),
    ]
    show("A small call over stdio, 16 at once", ("store", "CPU us/call", "more than SQLite"), rows)


@contextmanager
def _gateway(env: dict[str, str]) -> Generator[tuple[Target, int]]:
    """A gateway in a process of its own, and the id of that."""
    command = [sys.executable, "-m", "fairlead", "gateway", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, cwd=env["HOME"], text=True) as process:
        limit = threading.Timer(PATIENCE_SECONDS, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            text = ""
            while not text.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, "the gateway did not start"
                text += line
            limit.cancel()
            said = json.loads(text)
            yield Target(url=said["url"], wire="legacy", token=said["token"]), process.pid
        finally:
            limit.cancel()
            process.terminate()


@contextmanager
def _gateways(redis: RedisServer) -> Generator[list[tuple[Target, int]]]:
    """Two gateways of one user, so that they have one token."""
    server = {"allow_tools": ALLOWED, "approval": "allow", **stdio_entry()}
    with machine() as env:
        env |= {KEY_VARIABLE: new_cluster_key(), "PYTHONPATH": str(ROOT), "FAIRLEAD_BUILTINS": "off"}
        file = Path(env["HOME"]) / ".config" / "fairlead" / "fairlead.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"servers": {"bench": server}, "store": redis.url}))
        with _gateway(env) as owner, _gateway(env) as other:
            yield [owner, other]


async def forwarded_calls(redis: RedisServer, *, rounds: int, count: int) -> None:
    """What a call costs at the owner of its session, and at another replica."""
    redis.run("FLUSHALL")
    latencies: dict[str, list[float]] = {"owner": [], "other": []}
    params = b'{"name":"bench_%b","arguments":{"size":100}}' % TOOL.encode()
    cpu = dict.fromkeys(latencies, 0.0)
    with _gateways(redis) as [(owner, owner_pid), (other, other_pid)]:
        async with open_client(owner, 1) as client:
            lines = {"owner": client.lines[0], "other": Line(other.address)}
            await client.request(lines["owner"], "tools/list")
            for name in [*lines] * (rounds + 1):
                before = cpu_of(owner_pid) + cpu_of(other_pid)
                for _ in range(count):
                    began = time.perf_counter()
                    answer = await client.request(lines[name], "tools/call", params)
                    latencies[name].append(time.perf_counter() - began)
                    assert b'"isError":true' not in answer, answer[:200]
                cpu[name] += cpu_of(owner_pid) + cpu_of(other_pid) - before
            lines["other"].close()
    ms = {name: statistics.median(found[count:]) * 1e3 for name, found in latencies.items()}
    goal = Goal(value=ms["other"] - ms["owner"], at_most=FORWARDED_MS, unit=" ms")
    us = {name: spent / len(latencies[name]) * 1e6 for name, spent in cpu.items()}
    rows: list[tuple[object, ...]] = [
        ("the owner", us["owner"], ms["owner"], None),
        ("another", us["other"], ms["other"], goal),
    ]
    columns = ("at", "CPU us/call of both", "ms, median", "more than at the owner")
    show("A small call in a session, one at a time", columns, rows)


def _cpu_of_gateway(pid: int) -> float:
    """CPU seconds of a gateway with its workers, without servers and what starts them."""
    workers = [child for child, command in descendants(pid).items() if " gateway " in command]
    return sum(map(cpu_of, (pid, *workers)))


async def calls_of_workers(*, rounds: int, count: int) -> None:
    """What a call costs with one process, and with two workers."""
    entry = {"bench": {"allow_tools": ALLOWED, "approval": "allow", **stdio_entry()}}
    async with AsyncExitStack() as stack:
        clients: dict[int, tuple[int, Client, str]] = {}
        for workers in (1, 2):
            running = stack.enter_context(fairlead(entry, options=("--workers", str(workers))))
            client = await stack.enter_async_context(open_client(running.target("modern"), 16))
            clients[workers] = running.pid, client, await client.tool_like(TOOL)
        costs: dict[int, list[float]] = {workers: [] for workers in clients}
        walls: dict[int, list[float]] = {workers: [] for workers in clients}
        for turn in range(rounds + 1):
            for workers, (pid, client, tool) in clients.items():
                before = _cpu_of_gateway(pid)
                load = await make_calls(client, tool, b'{"size":5}', expect=b'"xxxxx"', count=count)
                if turn:  # the first warms up
                    costs[workers].append((_cpu_of_gateway(pid) - before) / len(load.latencies))
                    walls[workers].append(load.wall / len(load.latencies))
    cpu = {workers: statistics.median(found) for workers, found in costs.items()}
    goals = {1: None, 2: Goal(value=cpu[2] / cpu[1], at_most=WORKERS_RATIO, unit=" x")}
    rows: list[tuple[object, ...]] = [
        (workers, spent * 1e6, f"{1 / statistics.median(walls[workers]):,.0f}", goals[workers])
        for workers, spent in cpu.items()
    ]
    columns = ("workers", "CPU us/call", "calls/s", "CPU to that of one")
    show("A small call over stdio, 16 at once, with workers", columns, rows)


async def idle_sessions(*, steps: int) -> None:
    """How much memory sessions take that do nothing."""
    entry = {"bench": {"allow_tools": ALLOWED, "approval": "allow", **stdio_entry()}}
    async with AsyncExitStack() as stack:
        running = stack.enter_context(fairlead(entry))
        first = await stack.enter_async_context(open_client(running.target("legacy"), 1))
        await first.request(first.lines[0], "tools/list")
        begun = resident_of(running.pid)
        found = {1: begun}
        for sessions in range(2, SESSIONS_OF_TOKEN + 1):
            client = await stack.enter_async_context(open_client(running.target("legacy"), 1))
            await client.request(client.lines[0], "tools/list")
            if sessions % (SESSIONS_OF_TOKEN // steps) == 0:
                found[sessions] = resident_of(running.pid)
    last = max(found)
    of_1000 = (found[last] - begun) / (last - 1) * 1000 / MEGABYTE
    rows: list[tuple[object, ...]] = [
        (sessions, held / MEGABYTE, f"{of_1000:.0f} MB for 1,000 more" if sessions == last else None)
        for sessions, held in found.items()
    ]
    show("Memory of a gateway with idle sessions", ("sessions", "MB", "slope"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer calls, to see that it works")
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    rounds, count = (3, 200) if options.quick else (10, 2000)
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with _redis() as redis:
        anyio.run(
            partial(small_calls, redis, rounds=rounds, count=count),
            backend_options={"use_uvloop": options.uvloop},
        )
        anyio.run(
            partial(forwarded_calls, redis, rounds=rounds, count=count // 4),
            backend_options={"use_uvloop": options.uvloop},
        )
    anyio.run(partial(calls_of_workers, rounds=rounds, count=count), backend_options={"use_uvloop": True})
    anyio.run(partial(idle_sessions, steps=4), backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main()
