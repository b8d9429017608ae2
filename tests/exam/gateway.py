"""Chaos exam of one gateway: `python -m tests.exam.gateway [--seconds 600] [--seed 1] [--only FAULT]`.

Twenty servers of all transports and eras, and clients of both eras. Faults drawn from the seed: servers that
hang, send garbage, are slow, answer 404, 401 or 500, break off in the middle or send storms of notifications,
which calls ask them for; processes killed and paused, a full disk, a clock that jumps, no descriptors left.
No answer may cross, no call may be executed twice, each must end, the event loop must not be held, and in the
end the gateway must have no more descriptors, processes and memory than before.
"""

import argparse
import json
import os
import random
import resource
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
from benchmarks.load import Target, open_client
from benchmarks.measuring import ROOT, show
from benchmarks.processes import descendants, processes_marked, resident_of
from benchmarks.soak import growth_of, has_grown

from tests.exam.calls import Caller, Callers, outcome_rows, show_verdict, targets
from tests.exam.upstream_program import FAULTS
from tests.exam.upstreams import KINDS, upstreams
from tests.exam.watched_gateway import LIMIT_SECONDS, OFFSET
from tests.gateway.gateway_process import GatewayProcess

SERVERS = 20
CLIENTS = 3
"""Of each era."""
CONNECTIONS = 4
SESSION_SECONDS = (2.0, 10.0)
REQUEST_SECONDS = 2.0
"""After which the gateway gives up a call that hangs."""
CALL_SECONDS = 20.0
"""How long any call may take: one that waits for a server which is started anew takes longest."""
FAULTY_SHARE = 0.08
SETTLE_SECONDS = 20.0
SPARE_DESCRIPTORS = 16
"""More than before: connections to servers that are kept for the next call."""
WARM_SECONDS = 60.0
"""A shorter run says nothing about memory."""
EXTERNAL = ("killed", "paused", "disk full", "clock", "descriptors")


class GatewayExam:
    """One run.

    Args:
        seconds: How long there are calls.
        seed: What all chance comes from.
        only: The faults from outside to draw from; all if empty.
        loop_factor: How many times as long as elsewhere the event loop may be held.
    """

    def __init__(
        self, seconds: float, seed: int, *, only: Sequence[str] = (), loop_factor: float = 1.0
    ) -> None:
        self.seconds = seconds
        self.faults: Counter[str] = Counter()
        self.troubles: list[str] = []
        self.memory: list[tuple[float, int]] = []
        self.descriptors = (0, 0)
        """Of the gateway, before and after."""
        self.processes = (0, 0)
        self.held = 0.0
        """For how many seconds the loop was held at worst."""
        self.callers: Callers
        self._seed = seed
        self._chance = random.Random(seed)
        self._mark = secrets.token_hex(8)
        self._loop_factor = loop_factor
        self._kinds = [*(only or EXTERNAL)]
        self._gateway: GatewayProcess
        self._clock: Path
        self._actions: dict[str, Callable[[], Awaitable[bool]]] = {
            "killed": self._kill,
            "paused": self._pause,
            "disk full": partial(self._limit, resource.RLIMIT_FSIZE, "disk full"),
            "clock": self._jump,
            "descriptors": partial(self._limit, resource.RLIMIT_NOFILE, "descriptors"),
        }

    async def run(self) -> list[str]:
        """Run it all, to the end. Returns what must not be."""
        with TemporaryDirectory(prefix="exam") as name:
            folder = Path(name)
            chosen = [KINDS[number % len(KINDS)] for number in range(SERVERS)]
            with upstreams(folder, self._mark, chosen) as served:
                self.callers = Callers(served, self._seed, self._draw_fault)
                file = folder / ".config" / "fairlead" / "fairlead.json"
                file.parent.mkdir(parents=True)
                limits = {"request_timeout_ms": int(REQUEST_SECONDS * 1000), "startup_timeout_ms": 10_000}
                document = {
                    "servers": served.entries(**limits),
                    "gateway": {"requests_per_minute": None},
                }
                file.write_text(json.dumps(document))
                async with self._running(folder):
                    token = str(self._gateway.said["token"])
                    where = targets(f"{self._gateway.url}/mcp", token)
                    await self._warm_up(where)
                    self.descriptors = self._descriptors(), 0
                    self.processes = self._processes(), 0
                    await self._under_load(where)
                    await self._settle()
                self.troubles += self.callers.faults()
                self.faults.update(self.callers.ledger.faults)
            self._read_watchdog(folder / "watchdog")
            await self._note_left_behind()
        return self._judge()

    @asynccontextmanager
    async def _running(self, folder: Path) -> AsyncGenerator[None]:
        self._clock = folder / "clock"
        self._clock.write_bytes(OFFSET.pack(0.0))
        env = {"HOME": str(folder), "USERPROFILE": str(folder), "PATH": os.environ["PATH"]}
        env |= {"FAIRLEAD_BUILTINS": "off", "FAIRLEAD_VAULT": "file", "PYTHONPATH": str(ROOT)}
        env |= {"EXAM_CLOCK": str(self._clock), "EXAM_WATCHDOG": str(folder / "watchdog")}
        program = [sys.executable, "-m", "tests.exam.watched_gateway"]
        self._gateway = GatewayProcess(env, "--mode", "direct", program=program)
        try:
            await anyio.to_thread.run_sync(self._gateway.start)
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._gateway.close)

    async def _warm_up(self, where: Sequence[Target]) -> None:
        """Call every server once as each client does, so that what stays is there from the beginning."""
        for target in where:
            async with open_client(target, 1) as client:
                for server in self.callers.servers:
                    await self.callers.make_call(client, client.lines[0], server)

    def _draw_fault(self, caller: Caller) -> dict[str, object]:
        if caller.chance.random() > FAULTY_SHARE:
            return {}
        fault = caller.draw(FAULTS)
        seconds = {"seconds": round(caller.chance.uniform(0.1, 1.5), 2)} if fault == "slow" else {}
        return {"fault": fault, **seconds}

    # The load, and the faults from outside.

    async def _under_load(self, where: Sequence[Target]) -> None:
        began = time.monotonic()
        end = began + self.seconds

        def is_over() -> bool:
            return time.monotonic() >= end

        async with anyio.create_task_group() as tasks:
            for number, target in enumerate([*where] * CLIENTS):
                tasks.start_soon(
                    self.callers.be_client, number, target, CONNECTIONS, is_over, SESSION_SECONDS
                )
            tasks.start_soon(self._watch, began, end)
            waiting = self._chance.sample(self._kinds, len(self._kinds))
            while not is_over():
                if not waiting:  # each of them once, before any of them again; processes die more often
                    waiting = self._chance.sample([*self._kinds, *self._kinds[:1] * 3], len(self._kinds) + 3)
                kind = waiting.pop()
                self.faults[kind] += await self._actions[kind]()
                await anyio.sleep(self._chance.uniform(0.2, 1.0))

    async def _watch(self, began: float, end: float) -> None:
        """Look all the time at what must never be."""
        while time.monotonic() < end:
            self.memory.append((time.monotonic() - began, resident_of(self._gateway.pid)))
            self.callers.ledger.read()
            await anyio.sleep(min(1.0, self.seconds / 60))

    def _servers(self) -> list[int]:
        return [pid for pid, words in descendants(self._gateway.pid).items() if self._mark in words]

    # Each returns whether it could be done: there may be no process just then.

    async def _kill(self) -> bool:
        servers = self._servers()
        if servers:
            os.kill(self._chance.choice(servers), signal.SIGKILL)
        return bool(servers)

    async def _pause(self) -> bool:
        """Have a server's process run no further for a while."""
        servers = self._servers()
        if servers:
            pid = self._chance.choice(servers)
            os.kill(pid, signal.SIGSTOP)
            await anyio.sleep(self._chance.uniform(1.0, 3.0))
            if pid in self._servers():
                os.kill(pid, signal.SIGCONT)
        return bool(servers)

    async def _limit(self, which: int, kind: str) -> bool:
        """Leave the gateway nothing of something for a while: no file that grows, or no new descriptor."""
        pid = self._gateway.pid
        soft, hard = resource.prlimit(pid, which)
        resource.prlimit(pid, which, (0 if kind == "disk full" else self._descriptors(), hard))
        await anyio.sleep(self._chance.uniform(0.5, 2.0))
        resource.prlimit(pid, which, (soft, hard))
        return True

    async def _jump(self) -> bool:
        """Have the time of day be wrong, by seconds or years, and right again."""
        offset = self._chance.choice([-1, 1]) * 10 ** self._chance.uniform(0, 8)
        with self._clock.open("r+b") as file:
            file.write(OFFSET.pack(offset))
        await anyio.sleep(self._chance.uniform(0.5, 2.0))
        with self._clock.open("r+b") as file:
            file.write(OFFSET.pack(0.0))
        return True

    # The verdict.

    def _descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._gateway.pid}/fd"))

    def _processes(self) -> int:
        return len(self._servers())

    async def _settle(self) -> None:
        """Wait until nothing of the calls is left, but not for long."""
        with anyio.move_on_after(SETTLE_SECONDS):
            while (  # noqa: ASYNC110 - only the kernel knows
                self._descriptors() > self.descriptors[0] + SPARE_DESCRIPTORS
                or self._processes() > self.processes[0]
            ):
                await anyio.sleep(0.2)
        self.descriptors = self.descriptors[0], self._descriptors()
        self.processes = self.processes[0], self._processes()

    def _read_watchdog(self, path: Path) -> None:
        seconds, _, said = path.read_text().partition("\n")
        self.held = float(seconds)
        if self.held > LIMIT_SECONDS * self._loop_factor:
            self.troubles.append(said)

    async def _note_left_behind(self) -> None:
        with anyio.move_on_after(15):
            while processes_marked(self._mark):  # noqa: ASYNC110 - only the kernel knows
                await anyio.sleep(0.2)
        self.troubles += [f"left behind: {words}" for words in processes_marked(self._mark).values()]

    def worst(self) -> float:
        """The longest time that a call took."""
        return max((call.ended - call.began for call in self.callers.kept), default=0.0)

    def _judge(self) -> list[str]:
        found = [*self.troubles]
        if self.descriptors[1] > self.descriptors[0] + SPARE_DESCRIPTORS:
            found.append(f"{self.descriptors[0]} descriptors became {self.descriptors[1]}")
        if self.processes[1] > self.processes[0]:
            found.append(f"{self.processes[0]} processes became {self.processes[1]}")
        if self.worst() > CALL_SECONDS:
            found.append(f"a call took {self.worst():.1f} s")
        first, last = growth_of(self.memory, self.seconds)
        if self.seconds >= WARM_SECONDS and has_grown(first, last):
            found.append(f"memory grew from {first / 2**20:.1f} to {last / 2**20:.1f} MB")
        return found


def show_exam(exam: GatewayExam) -> None:
    """Print what happened."""
    callers = exam.callers
    title = f"One gateway: {callers.calls:,} calls in {exam.seconds:.0f} s"
    show(title, ("outcome", "calls", ""), outcome_rows(callers))
    show("Faults", ("fault", "times"), [(kind, times) for kind, times in exam.faults.most_common()])
    first, last = growth_of(exam.memory, exam.seconds)
    ledger = callers.ledger
    rows: list[tuple[object, ...]] = [
        ("answers of another call", callers.outcomes["crossed"], ""),
        ("executed twice", len(ledger.twice), f"of {ledger.executed:,} executions"),
        ("calls without an end", callers.outcomes["lost"], f"the longest took {exam.worst():.1f} s"),
        ("loop held, ms", exam.held * 1000, ""),
        ("descriptors", exam.descriptors[0], f"then {exam.descriptors[1]}"),
        ("processes", exam.processes[0], f"then {exam.processes[1]}"),
        ("memory, MB", first / 2**20, f"then {last / 2**20:.1f}"),
        ("sessions", callers.sessions, ""),
    ]
    show("Invariants", ("", "", ""), rows)
    show("Errors", ("what", "times"), [(what, times) for what, times in callers.errors.most_common(25)])


async def main(seconds: float, seed: int, only: Sequence[str], loop_factor: float) -> int:
    """Run it, and say what happened."""
    exam = GatewayExam(seconds, seed, only=only, loop_factor=loop_factor)
    faults = await exam.run()
    show_exam(exam)
    return show_verdict(seed, faults)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=EXTERNAL, default=[], help="these faults alone")
    parser.add_argument(
        "--loop-factor", type=float, default=1.0, help="how many times as long it may be held"
    )
    given = parser.parse_args()
    work = partial(main, given.seconds, given.seed, given.only, given.loop_factor)
    sys.exit(anyio.run(work, backend_options={"use_uvloop": True}))
