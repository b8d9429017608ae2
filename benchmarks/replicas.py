"""What a shared store costs, and what it costs to come to another replica than the one that has the session.

    uv run python -m benchmarks.replicas [--quick] [--uvloop]

A small call of a host with its state in Redis is measured against one with SQLite. Both hosts run in this
process, by turns, with the audit on; a `redis-server` of the benchmark's own writes every change to disk at
once. CPU is that of this process with all its threads: what seals records and sends them counts, what Redis
does with them is not ours.

Then two gateways, processes of their own with one Redis, and a session that one of them has: a call that
comes to the owner against one that the other has to forward, one at a time and by turns.
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
from benchmarks.load import Line, Target, open_client
from benchmarks.measuring import ROOT, Cost, Goal, in_turn, machine, show
from benchmarks.processes import cpu_of
from fairlead.config.store_location import KEY_VARIABLE
from fairlead.host.host import Host
from fairlead.store.cluster_key import new_cluster_key

GOAL_PERCENT = 10.0
FORWARDED_MS = 0.3
"""How much longer than a call at its owner a forwarded one may take."""
PATIENCE_SECONDS = 60.0


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
        costs: dict[str, Cost] = await in_turn(opened, rounds=rounds, count=count, concurrency=16)
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


if __name__ == "__main__":
    main()
