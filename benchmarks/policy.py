"""What safety costs: a call through the whole host against the bare connection, side by side.

    uv run python -m benchmarks.policy [--quick] [--uvloop]

A host fits the arguments, decides, records, makes the result safe and keeps it within its budget; a
connection only calls. CPU is that of this process with all its threads, so what writes the audit to disk
counts too. The audit is also measured alone, from the proposal to the disk, and so is its rotation.
"""

import argparse
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from benchmarks import callers
from benchmarks.callers import ALLOWED, MAX_MESSAGE_BYTES, TOOL, Caller, CallWithSize, Entry, stdio_entry
from benchmarks.measuring import Cost, Goal, in_turn, machine, show
from fairlead.config.models import AuditSettings
from fairlead.config.principal import LOCAL
from fairlead.host.host import Host
from fairlead.policy.audit import LOG, AuditLog
from fairlead.store.async_store import AsyncStore
from fairlead.store.opening import open_database

BARE = "connection"
UNRECORDED = "Host.call, no audit"
WHOLE = "Host.call"

SMALL_GOAL_US = 15.0
LARGE_GOAL_US = 300.0


@asynccontextmanager
async def _unrecorded(entry: Entry) -> AsyncGenerator[CallWithSize]:
    """`Host.call` of a host that keeps no audit."""
    server: Entry = {
        "allow_tools": ALLOWED,
        "approval": "allow",
        "max_message_bytes": MAX_MESSAGE_BYTES,
        **entry,
    }
    document: dict[str, Any] = {
        "servers": {"bench": server},
        "policy": {"approval": "allow"},
        "audit": {"enabled": False},
    }
    with machine() as env:
        async with Host.open(overrides=document, env=env, cwd=env["HOME"]) as host:
            yield lambda size: host.call("bench", TOOL, {"size": size})


WAYS: Mapping[str, Caller] = {
    BARE: callers.connection_raw,
    UNRECORDED: _unrecorded,
    WHOLE: callers.host_raw,
}


async def calls(*, size: int, rounds: int, count: int, goal: float) -> None:
    """What a call costs in each way, for a result of that size."""
    async with AsyncExitStack() as stack:
        opened = {
            name: partial(await stack.enter_async_context(caller(stdio_entry())), size)
            for name, caller in WAYS.items()
        }
        costs: dict[str, Cost] = await in_turn(opened, rounds=rounds, count=count, concurrency=16)
    rows: list[tuple[object, ...]] = []
    for name, cost in costs.items():
        added = (cost.cpu - costs[BARE].cpu) * 1e6
        shown = Goal(value=added, at_most=goal, unit=" us", label="added") if name == WHOLE else None
        rows.append((name, cost.cpu * 1e6, added, shown))
    show(
        f"A result of {size:,} bytes over stdio, 16 at once", ("caller", "CPU us/call", "added", "goal"), rows
    )


async def audit_alone(*, rounds: int, count: int) -> None:
    """What the audit itself costs: all of a call's steps, and the writing of its record."""
    arguments = {"path": "src/main.py", "lines": [1, 2, 3], "recursive": True}
    found: list[float] = []
    with machine() as env:
        path = Path(env["HOME"]) / "state" / "store.db"
        async with AsyncStore.open(path) as store:
            audit = await AuditLog.open(store, AuditSettings())
            for _ in range(rounds):
                started = time.process_time()
                for _ in range(count):
                    call = audit.begin_call(principal=LOCAL, server="bench", tool=TOOL, arguments=arguments)
                    call.record_decision("allow", "it is in allow_tools")
                    call.record_sent()
                    call.record_result("ok", "done", size=100)
                await store.flush()
                found.append((time.process_time() - started) / count)
            assert not audit.lost, "more calls than may wait for the disk: measure fewer at once"
        rows: list[tuple[object, ...]] = [("a call, to the disk", f"{min(found) * 1e6:.1f} us")]
        rows += _rotation(path)
    show("The audit alone", ("what", "CPU, the best round"), rows)


def _rotation(path: Path) -> list[tuple[object, ...]]:
    kept = 100_000
    with open_database(path) as database:
        database.append_all([(LOG, time.time(), bytes(400))] * (kept + 10_000))
        rows: list[tuple[object, ...]] = []
        for what in ("with 10,000 to drop", "with none to drop"):
            started = time.process_time()
            database.prune_log(LOG, older_than_seconds=86_400, keep=kept)
            rows.append((f"rotation of {kept:,}, {what}", f"{(time.process_time() - started) * 1e3:.0f} ms"))
    return rows


async def main(*, quick: bool) -> None:
    """Measure it all."""
    rounds = 5 if quick else 15
    await calls(size=5, rounds=rounds, count=1_600 if quick else 4_800, goal=SMALL_GOAL_US)
    await calls(size=100_000, rounds=rounds, count=160 if quick else 480, goal=LARGE_GOAL_US)
    await audit_alone(rounds=rounds, count=2_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: fewer calls and rounds")
    parser.add_argument("--uvloop", action="store_true", help="on uvloop instead of asyncio's own loop")
    chosen = parser.parse_args()
    anyio.run(partial(main, quick=chosen.quick), backend_options={"use_uvloop": chosen.uvloop})
