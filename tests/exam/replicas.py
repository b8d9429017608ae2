"""Chaos exam of replicas: `python -m tests.exam.replicas [--seconds 600] [--calls 1000000] [--only FAULT]`.

Three gateways with one Redis, behind a balancer that sends each request to the next one, twelve servers of
all kinds and clients of both eras, while faults drawn from the seed happen one after the other. No answer may
cross, no call may be executed twice, each must be answered or its connection end, and soon enough. It goes on
until each kind of fault was there, and until there were as many calls as wanted.
"""

import argparse
import itertools
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.to_thread
from benchmarks.measuring import show
from benchmarks.processes import descendants, processes_marked

from fairlead.auth.store_vault import StoreVault
from fairlead.auth.tokens import Login, OAuthClient, Token
from fairlead.config.store_location import KEY_VARIABLE
from fairlead.store.async_store import AsyncStore
from tests.cli.gateway_support import command
from tests.exam.calls import Caller, Callers, Outcome, outcome_rows, show_verdict, targets
from tests.exam.cut_proxy import CutProxy
from tests.exam.upstream_program import TOKEN_SECONDS
from tests.exam.upstreams import ALL_KINDS, Upstreams, upstreams
from tests.gateway.balancer import Balancer
from tests.gateway.gateway_process import GatewayProcess
from tests.redis_server import KEY, RedisServer, redis_server

REPLICAS = 3
CLIENTS = 3
"""Of each era."""
CONNECTIONS = 4
SESSION_SECONDS = (5.0, 30.0)
READY_SECONDS = 60.0
BROKEN: tuple[Outcome, ...] = ("unknown", "ended")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long what a fault hits may take, in seconds."""

    broken: float | None
    """Until a call that was under way ends without its answer; None where none may."""
    any: float = 7.0
    """Until any call ends that was made before all was well again."""
    moved: float = 7.0
    """Until a server that the replica owned runs elsewhere."""


LIMITS = {
    "killed": Limits(broken=1.0),
    "paused": Limits(broken=7.0),
    "without store": Limits(broken=7.0),
    "without peers": Limits(broken=7.0),
    "alone": Limits(broken=7.0),
    "redis killed": Limits(broken=7.0),
    "redis paused": Limits(broken=7.0),
    "restarted": Limits(broken=None, moved=2.0),
}


@dataclass(kw_only=True)
class Fault:
    """Something that was done to the replicas, or their store."""

    kind: str
    at: float
    asked: float = 0.0
    """When a replica was asked to stop; `at` is when it had."""
    replica: int | None = None
    over: float = 0.0
    """When all was well again."""
    owned: dict[str, int] = field(default_factory=dict[str, int])
    """The servers that a replica owned just before, with their processes."""


@dataclass(kw_only=True)
class Replica:
    """A gateway, and the ways from it to Redis and from its peers to it."""

    process: GatewayProcess
    to_store: CutProxy
    from_peers: CutProxy


class ReplicaExam:
    """One run.

    Args:
        seconds: How long there are calls, at least.
        seed: What all chance comes from.
        only: The faults to draw from; all if empty. Each of them happens.
        calls: How many calls there are, at least.
        busy_seconds: How much later than promised things may happen, on a busy machine.
    """

    def __init__(
        self,
        seconds: float,
        seed: int,
        *,
        only: Sequence[str] = (),
        calls: int = 0,
        busy_seconds: float = 0.0,
    ) -> None:
        self.faults: list[Fault] = []
        self.troubles: list[str] = []
        self.seconds = seconds
        """How long there are calls; once it is over, how long there were."""
        self.callers: Callers
        self._least_calls = calls
        self._seed = seed
        self._chance = random.Random(seed)
        self._mark = secrets.token_hex(8)
        self._busy_seconds = busy_seconds
        self._kinds = [*(only or LIMITS)]
        self._replicas: list[Replica] = []
        self._redis: RedisServer
        self._balancer: Balancer
        self._upstreams: Upstreams
        self._actions: dict[str, Callable[[], Awaitable[None]]] = {
            "killed": self._kill,
            "paused": self._pause,
            "without store": partial(self._cut, "without store"),
            "without peers": partial(self._cut, "without peers"),
            "alone": partial(self._cut, "alone"),
            "redis killed": self._kill_redis,
            "redis paused": self._pause_redis,
            "restarted": self._restart_all,
        }

    async def run(self) -> list[str]:
        """Run it all, to the end. Returns what must not be."""
        with TemporaryDirectory(prefix="exam") as name:
            folder = Path(name)
            (folder / "redis").mkdir()
            with (
                redis_server(folder / "redis", "--appendfsync", "everysec") as self._redis,
                upstreams(folder, self._mark, ALL_KINDS) as self._upstreams,
            ):
                self.callers = Callers(self._upstreams, self._seed, self._draw_delay)
                async with self._running(folder) as token:
                    await self._under_load(token)
                self.troubles += self.callers.faults()
            await self._note_left_behind()
        return self._judge()

    def _draw_delay(self, caller: Caller) -> dict[str, object]:
        """Some calls take a while, so that there are always some under way."""
        is_slow = caller.chance.random() < 0.1
        return {"seconds": round(caller.chance.uniform(0.05, 1.5), 2)} if is_slow else {}

    # The replicas.

    @asynccontextmanager
    async def _running(self, folder: Path) -> AsyncGenerator[str]:
        """Run everything; the token that clients have."""
        async with AsyncExitStack() as stack:
            machines: list[dict[str, str]] = []
            for number in range(REPLICAS):
                to_store = CutProxy(self._redis.port)
                await stack.enter_async_context(to_store.serving())
                env = self._environment(folder / f"home-{number}", to_store.port)
                process = GatewayProcess(env, "--mode", "direct")
                from_peers = CutProxy(process.port)
                await stack.enter_async_context(from_peers.serving())
                env["PEER_PORT"] = str(from_peers.port)
                process.environ["PEER_PORT"] = str(from_peers.port)
                self._replicas.append(Replica(process=process, to_store=to_store, from_peers=from_peers))
                machines.append(env)
            self._balancer = Balancer([each.process.port for each in self._replicas])
            await stack.enter_async_context(self._balancer.serving())
            document = self._document(self._balancer.port)
            for env in machines:
                file = Path(env["HOME"]) / ".config" / "fairlead" / "fairlead.json"
                file.parent.mkdir(parents=True)
                file.write_text(json.dumps(document))
            await self._plant_login()
            token = await anyio.to_thread.run_sync(_add_token, machines[0])
            for each in self._replicas:
                stack.push_async_callback(self._close, each)
            async with anyio.create_task_group() as tasks:
                for each in self._replicas:
                    tasks.start_soon(anyio.to_thread.run_sync, each.process.start)
            await self._wait_until_ready()
            yield token

    async def _close(self, replica: Replica) -> None:
        with anyio.CancelScope(shield=True):
            replica.to_store.mend()
            replica.from_peers.mend()
            await anyio.to_thread.run_sync(replica.process.close)

    def _environment(self, home: Path, store_port: int) -> dict[str, str]:
        home.mkdir()
        env = {"HOME": str(home), "USERPROFILE": str(home), "PATH": os.environ["PATH"], KEY_VARIABLE: KEY}
        env |= {"FAIRLEAD_BUILTINS": "off", "FAIRLEAD_VAULT": "file"}
        return env | {"STORE_PORT": str(store_port)}

    def _document(self, port: int) -> dict[str, Any]:
        return {
            "store": "redis://127.0.0.1:${STORE_PORT}/0",
            "servers": self._upstreams.entries(request_timeout_ms=20_000),
            "gateway": {
                "names": [f"127.0.0.1:{port}"],
                "replica_address": "http://127.0.0.1:${PEER_PORT}",
                "requests_per_minute": 6_000_000,
            },
        }

    async def _plant_login(self) -> None:
        """Store a login whose token has expired, at the server that wants one."""
        issuer = f"http://127.0.0.1:{self._upstreams.web_port}"
        async with AsyncStore.open(self._redis.location) as store:
            for name, kind in self._upstreams.kinds.items():
                if kind.kind == "guarded":
                    token = Token(access_token="expired", refresh_token="refresh", expires_at=1000)
                    login = Login(
                        principal="local",
                        account="",
                        issuer=issuer,
                        resource=self._upstreams.url(name),
                        token_endpoint=f"{issuer}/token",
                        client=OAuthClient(client_id="exam"),
                        token=token,
                    )
                    await StoreVault(store).put(login)

    async def _wait_until_ready(self) -> None:
        with anyio.move_on_after(READY_SECONDS):
            while not all(each.is_up and each.is_ready for each in self._balancer.backends):  # noqa: ASYNC110
                await anyio.sleep(0.05)
            return
        states = [(each.is_up, each.is_ready) for each in self._balancer.backends]
        self.troubles.append(f"not ready again after {READY_SECONDS:.0f} s: {states}")

    # The load, and the faults.

    async def _under_load(self, token: str) -> None:
        began = time.monotonic()

        def is_over() -> bool:
            if time.monotonic() - began < self.seconds or self.callers.calls < self._least_calls:
                return False
            return {fault.kind for fault in self.faults if fault.over} == {*self._kinds}

        async with anyio.create_task_group() as tasks:
            where = targets(f"{self._balancer.url}/mcp", token)
            for number, target in enumerate([*where] * CLIENTS):
                tasks.start_soon(
                    self.callers.be_client, number, target, CONNECTIONS, is_over, SESSION_SECONDS
                )
            tasks.start_soon(self._read_record, is_over)
            await anyio.sleep(min(4.0, self.seconds / 8))
            waiting: list[str] = []
            while not is_over():
                if not waiting:  # each of them once, before any of them again
                    waiting = self._chance.sample(self._kinds, len(self._kinds))
                await self._actions[waiting.pop()]()
                await anyio.sleep(self._chance.uniform(1.0, 3.0))
        self.seconds = time.monotonic() - began

    async def _read_record(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await anyio.sleep(0.5)
            self.callers.ledger.read()

    @asynccontextmanager
    async def _fault(self, kind: str, replica: int | None = None) -> AsyncGenerator[Fault]:
        fault = Fault(kind=kind, at=time.monotonic(), replica=replica)
        if replica is not None:
            fault.owned = self._owned_by(replica)
        self.faults.append(fault)
        try:
            yield fault
        finally:
            await self._wait_until_ready()
            fault.over = time.monotonic()

    def _owned_by(self, number: int) -> dict[str, int]:
        """The servers that a replica owns, as far as their processes tell."""
        found: dict[str, int] = {}
        for pid, words in descendants(self._replicas[number].process.pid).items():
            for name, kind in self._upstreams.kinds.items():
                if kind.has_one_process and f" stdio {name} " in words:
                    found[name] = pid
        return found

    async def _kill(self) -> None:
        number = self._chance.randrange(REPLICAS)
        replica = self._replicas[number]
        process = replica.process
        async with self._fault("killed", number) as fault:
            fault.at = time.monotonic()
            process.kill()
            replica.from_peers.refuse()
            await anyio.sleep(self._chance.uniform(1.0, 8.0))
            await self._start(replica)

    async def _start(self, replica: Replica) -> None:
        await replica.from_peers.accept()
        await anyio.to_thread.run_sync(replica.process.start)

    async def _pause(self) -> None:
        number = self._chance.randrange(REPLICAS)
        process = self._replicas[number].process
        async with self._fault("paused", number) as fault:
            fault.at = time.monotonic()
            process.pause()
            await anyio.sleep(10)
            process.resume()

    async def _cut(self, kind: str) -> None:
        number = self._chance.randrange(REPLICAS)
        replica = self._replicas[number]
        proxies = {
            "without store": [replica.to_store],
            "without peers": [replica.from_peers],
            "alone": [replica.to_store, replica.from_peers],
        }[kind]
        async with self._fault(kind, number):
            for proxy in proxies:
                proxy.cut()
            await anyio.sleep(self._chance.uniform(2.0, 12.0))
            for proxy in proxies:
                proxy.mend()

    async def _kill_redis(self) -> None:
        async with self._fault("redis killed"):
            await anyio.to_thread.run_sync(self._redis.kill)
            await anyio.sleep(self._chance.uniform(0.5, 8.0))
            await anyio.to_thread.run_sync(self._redis.start)

    async def _pause_redis(self) -> None:
        async with self._fault("redis paused"):
            self._redis.pause()
            await anyio.sleep(5)
            self._redis.resume()

    async def _restart_all(self) -> None:
        for number, replica in enumerate(self._replicas):
            async with self._fault("restarted", number) as fault:
                fault.asked = fault.at
                replica.process.terminate()
                await anyio.to_thread.run_sync(replica.process.wait)
                fault.at = time.monotonic()
                replica.from_peers.refuse()
                await self._start(replica)

    # The verdict.

    async def _note_left_behind(self) -> None:
        with anyio.move_on_after(15):
            while processes_marked(self._mark):  # noqa: ASYNC110 - only the kernel knows
                await anyio.sleep(0.2)
        self.troubles += [f"left behind: {words}" for words in processes_marked(self._mark).values()]

    def worst(self, kind: str, outcomes: Sequence[Outcome] | None = None) -> float:
        """The longest time from a fault, or from the call if that came later, until a call ended.

        Args:
            kind: The fault.
            outcomes: What became of the calls that count; with some given, only those under way count.
        """
        worst = 0.0
        for fault in self.faults:
            if fault.kind != kind:
                continue
            for call in self.callers.kept:
                if not fault.at < call.ended or not call.began < fault.over:
                    continue
                if outcomes is None:
                    worst = max(worst, call.ended - max(call.began, fault.at))
                elif call.began < fault.at and call.outcome in outcomes:
                    worst = max(worst, call.ended - fault.at)
        return worst

    def fault_at(self, began: float, ended: float) -> str:
        """The faults that a call met, with when they came and were over, counted from its beginning."""
        return ", ".join(
            f"{fault.kind} at {fault.at - began:+.1f} s, over at {fault.over - began:+.1f} s"
            for fault in self.faults
            if fault.at < ended and began < fault.over
        )

    def moves(self, kind: str) -> list[float]:
        """How long servers took to run elsewhere after a fault at their owner."""
        found: list[float] = []
        for fault in self.faults:
            if fault.kind != kind:
                continue
            for server, pid in fault.owned.items():
                taken = [
                    at
                    for other, at in self.callers.ledger.processes[server]
                    if other != pid and (fault.asked or fault.at) < at
                ]
                # One that keeps its owner through a short partition moves later, for another reason.
                if taken and (taken[0] < fault.over or kind in ("killed", "restarted")):
                    found.append(max(0.0, taken[0] - fault.at))
        return found

    def early_refreshes(self) -> int:
        """How many tokens were refreshed though the one before was good, and no fault explains it."""
        times = self.callers.ledger.refreshes
        return sum(
            later - earlier < TOKEN_SECONDS / 2
            and not any(fault.at - 1 < later and earlier < fault.over + 1 for fault in self.faults)
            for earlier, later in itertools.pairwise(times)
        )

    def lost_in_restarts(self) -> list[str]:
        """Calls that were not answered though replicas did nothing but stop and start."""
        return [
            f"lost in a rolling restart: {call}"
            for call in self.callers.kept
            if call.outcome in BROKEN
            for fault in self.faults
            if fault.kind == "restarted" and fault.asked < call.ended < fault.over
        ]

    def _judge(self) -> list[str]:
        found = [*self.troubles]
        for kind, limits in LIMITS.items():
            for what, seconds, limit in (
                ("a call under way ended after", self.worst(kind, BROKEN), limits.broken),
                ("a call ended after", self.worst(kind), limits.any),
                ("a server ran elsewhere after", max(self.moves(kind), default=0.0), limits.moved),
            ):
                if limit is not None and seconds > limit + self._busy_seconds:
                    found.append(f"{kind}: {what} {seconds:.1f} s")
        if early := self.early_refreshes():
            found.append(f"{early} tokens were refreshed too early")
        return found + self.lost_in_restarts()[:5]


def _add_token(env: dict[str, str]) -> str:
    done = subprocess.run(
        command("gateway", "token", "add", "exam", "--json"),
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
        env=env,
        cwd=env["HOME"],
    )
    return json.loads(done.stdout)["token"]


def show_exam(exam: ReplicaExam) -> None:
    """Print what happened."""
    callers = exam.callers
    show(
        f"Replicas: {callers.calls:,} calls in {exam.seconds:.0f} s",
        ("outcome", "calls", ""),
        outcome_rows(callers),
    )
    rows: list[tuple[object, ...]] = []
    for kind in LIMITS:
        times = sum(fault.kind == kind for fault in exam.faults)
        if times:
            moves = exam.moves(kind)
            moved = max(moves) if moves else None
            rows.append((kind, times, exam.worst(kind, BROKEN), exam.worst(kind), len(moves), moved, ""))
    columns = ("fault", "times", "broken calls s", "any call s", "servers moved", "worst s", "")
    show("Faults, with the worst times", columns, rows)
    ledger = callers.ledger
    rows = [
        ("answers of another call", callers.outcomes["crossed"], ""),
        ("executed twice", len(ledger.twice), f"of {ledger.executed:,} executions"),
        ("in two processes at a time", len(ledger.overlaps), ""),
        ("calls without an end", callers.outcomes["lost"], ""),
        ("token refreshes", len(ledger.refreshes), f"{exam.early_refreshes()} of them too early"),
        ("lost in rolling restarts", len(exam.lost_in_restarts()), ""),
        ("sessions", callers.sessions, ""),
    ]
    show("Invariants", ("", "", ""), rows)
    longest = sorted(callers.kept, key=lambda call: call.began - call.ended)[:6]
    calls: list[tuple[object, ...]] = [
        (call.server, call.ended - call.began, call.outcome, exam.fault_at(call.began, call.ended))
        for call in longest
    ]
    show("Longest calls", ("server", "s", "outcome", "during"), calls)
    show("Errors", ("what", "times"), [(what, times) for what, times in callers.errors.most_common(25)])


async def main(seconds: float, seed: int, only: Sequence[str], calls: int, busy_seconds: float) -> int:
    """Run it, and say what happened."""
    exam = ReplicaExam(seconds, seed, only=only, calls=calls, busy_seconds=busy_seconds)
    faults = await exam.run()
    show_exam(exam)
    return show_verdict(seed, faults)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--calls", type=int, default=0, help="go on until there were so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=[*LIMITS], default=[], help="these faults alone")
    parser.add_argument("--busy-seconds", type=float, default=1.0, help="what a busy machine may add")
    given = parser.parse_args()
    work = partial(main, given.seconds, given.seed, given.only, given.calls, given.busy_seconds)
    sys.exit(anyio.run(work, backend_options={"use_uvloop": True}))
