"""What a shared store costs: a small call of a host with its state in Redis against one with SQLite.

    uv run python -m benchmarks.replicas [--quick] [--uvloop]

Both hosts run in this process, by turns, with the audit on; a `redis-server` of the benchmark's own writes
every change to disk at once. CPU is that of this process with all its threads: what seals records and sends
them counts, what Redis does with them is not ours.
"""

import argparse
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from tests.redis_server import RedisServer, redis_server

from benchmarks.callers import ALLOWED, MAX_MESSAGE_BYTES, TOOL, CallWithSize, stdio_entry
from benchmarks.measuring import Cost, Goal, in_turn, machine, show
from fairlead.config.store_location import KEY_VARIABLE
from fairlead.host.host import Host
from fairlead.store.cluster_key import new_cluster_key

GOAL_PERCENT = 10.0


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


if __name__ == "__main__":
    main()
