"""A gateway under load for a while, its servers killed at random: is every reply the one to its request?

    uv run python -m benchmarks.soak [--minutes 10] [--seed 1]

64 calls are always under way, from clients of both eras, to servers of both eras. Sessions end and others
begin. Every call must be answered with what it alone said, or with an error; memory must stay as it is, and
when the gateway ends no process may be left.
"""

import argparse
import math
import os
import random
import secrets
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import msgspec

from benchmarks.callers import Entry
from benchmarks.contenders import Running, fairlead
from benchmarks.load import Client, LegacyClient, Line, Unanswered, Wire, open_client
from benchmarks.measuring import ROOT, show
from benchmarks.processes import descendants, processes_marked, resident_of

SERVERS = 6
CLIENTS: tuple[Wire, ...] = ("modern", "legacy") * 4
CALLS_AT_ONCE = 8
"""By one client."""
ANSWER_SECONDS = 60.0
SESSION_SECONDS = (4.0, 12.0)
KILL_SECONDS = (0.5, 3.0)
GROWTH_SHARE, GROWTH_BYTES = 1.1, 8 * 1024 * 1024
"""How much memory may grow by, where it is the same: what comes and goes with the load of a moment."""

_MODULE = "benchmarks.servers.echo"


@dataclass(kw_only=True, slots=True)
class Report:
    """What happened."""

    seconds: float = 0.0
    answered: int = 0
    """Calls whose reply says what they said."""
    errors: Counter[str] = field(default_factory=Counter[str])
    """Calls that were answered with an error, by what it says."""
    crossed: list[str] = field(default_factory=list[str])
    """Replies that were another's."""
    lost: list[str] = field(default_factory=list[str])
    """Calls that nobody answered."""
    kills: int = 0
    sessions: int = 0
    memory: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """When, and how many bytes the gateway held."""
    left_behind: list[str] = field(default_factory=list[str])

    @property
    def growth(self) -> tuple[int, int]:
        """What the gateway held once it had warmed up, and at the end: medians of a fifth of the time."""
        return growth_of(self.memory, self.seconds)

    @property
    def faults(self) -> list[str]:
        """What must not be."""
        first, last = self.growth
        found = [f"a reply was another's: {one}" for one in self.crossed[:5]]
        found += [f"nobody answered: {one}" for one in self.lost[:5]]
        found += [f"left behind: {one}" for one in self.left_behind]
        if has_grown(first, last):
            found.append(f"memory grew from {first / 2**20:.1f} to {last / 2**20:.1f} MB")
        if not self.answered or not self.kills:
            found.append(f"{self.answered} calls, {self.kills} servers killed: that proves nothing")
        return found


def growth_of(memory: Sequence[tuple[float, int]], seconds: float) -> tuple[int, int]:
    """What a process held once it had warmed up, and at the end of so many seconds: medians of a fifth."""
    held = [held for at, held in memory if at >= seconds * 0.4]
    fifth = max(1, len(held) // 3)
    return int(statistics.median(held[:fifth])), int(statistics.median(held[-fifth:]))


def has_grown(first: int, last: int) -> bool:
    """Whether memory is more than what comes and goes with the load of a moment."""
    return last > first * GROWTH_SHARE + GROWTH_BYTES


class _Result(msgspec.Struct):
    content: list[dict[str, str]] = []
    isError: bool = False  # noqa: N815 - as the protocol spells it


class _Error(msgspec.Struct):
    message: str = ""


class _Message(msgspec.Struct):
    result: _Result | None = None
    error: _Error | None = None


class Soak:
    """One run."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.report = Report()
        self._seconds = seconds
        self._chance = random.Random(seed)
        self._mark = secrets.token_hex(8)
        self._tools: list[str] = []

    async def run(self) -> Report:
        """Run it all, to the end."""
        servers = {
            f"echo{number}": self._entry("modern" if number % 2 else "legacy") for number in range(SERVERS)
        }
        with fairlead(servers) as running:
            self._tools = await self._names(running)
            await self._under_load(running)
        with anyio.move_on_after(10):
            while processes_marked(self._mark):  # noqa: ASYNC110 - only the kernel knows
                await anyio.sleep(0.1)
        self.report.left_behind = [f"{pid}: {words}" for pid, words in processes_marked(self._mark).items()]
        return self.report

    def _entry(self, era: str) -> Entry:
        args = ["-m", _MODULE, era, self._mark]
        return {
            "command": sys.executable,
            "args": args,
            "cwd": str(ROOT),
            "allow_tools": ["echo"],
            "approval": "allow",
        }

    async def _names(self, running: Running) -> list[str]:
        async with open_client(running.target("modern"), 1) as client:
            listed = msgspec.json.decode(await client.request(client.lines[0], "tools/list"))
            return [tool["name"] for tool in listed["result"]["tools"] if tool["name"].endswith("echo")]

    async def _under_load(self, running: Running) -> None:
        began = time.monotonic()
        end = began + self._seconds
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._kill, running.pid, end)
            tasks.start_soon(self._watch, running.pid, began, end)
            for wire in CLIENTS:
                tasks.start_soon(self._be_client, running, wire, end)
        self.report.seconds = time.monotonic() - began

    # Clients.

    async def _be_client(self, running: Running, wire: Wire, end: float) -> None:
        while time.monotonic() < end:
            until = min(end, time.monotonic() + self._chance.uniform(*SESSION_SECONDS))
            async with open_client(running.target(wire), CALLS_AT_ONCE) as client:
                self.report.sessions += 1
                async with anyio.create_task_group() as tasks:
                    for line in client.lines:
                        tasks.start_soon(self._make_calls, client, line, until)
                if isinstance(client, LegacyClient):
                    await client.end()

    async def _make_calls(self, client: Client, line: Line, until: float) -> None:
        while time.monotonic() < until:
            tool, token = self._chance.choice(self._tools), secrets.token_hex(12)
            try:
                with anyio.fail_after(ANSWER_SECONDS):
                    message = await client.call(line, tool, b'{"token":"%b"}' % token.encode())
            except (TimeoutError, Unanswered, OSError) as exc:
                self.report.lost.append(f"{tool}: {exc!r}")
            else:
                self._judge(token, message)

    def _judge(self, token: str, message: bytes) -> None:
        said = msgspec.json.decode(message, type=_Message)
        if said.error is not None:
            self.report.errors[_kind(said.error.message)] += 1
        elif said.result is None:
            self.report.lost.append(message[:200].decode())
        elif said.result.isError:
            self.report.errors[_kind(said.result.content[0]["text"])] += 1
        elif [block.get("text") for block in said.result.content] == [token]:
            self.report.answered += 1
        else:
            self.report.crossed.append(message[:200].decode())

    # What happens to the gateway meanwhile.

    async def _kill(self, gateway: int, end: float) -> None:
        """Kill one of the servers from time to time: `kill -9`, whatever it is at."""
        while time.monotonic() < end:
            await anyio.sleep(self._chance.uniform(*KILL_SECONDS))
            servers = [pid for pid, words in descendants(gateway).items() if self._mark in words]
            if servers:
                os.kill(self._chance.choice(servers), signal.SIGKILL)
                self.report.kills += 1

    async def _watch(self, gateway: int, began: float, end: float) -> None:
        while time.monotonic() < end:
            self.report.memory.append((time.monotonic() - began, resident_of(gateway)))
            await anyio.sleep(min(1.0, self._seconds / 60))


def _kind(text: str) -> str:
    """What an error says, without what differs from one to the next."""
    first = text.splitlines()[0] if text else ""
    return "".join("N" if character.isdigit() else character for character in first)[:100]


def show_report(report: Report) -> None:
    """Print what happened."""
    first, last = report.growth
    calls = report.answered + report.errors.total()
    minutes = (report.memory[-1][0] - report.seconds * 0.4) / 60
    slope = (last - first) / 2**20 / max(minutes, math.ulp(1.0))
    rows: list[tuple[object, ...]] = [
        ("seconds", report.seconds, ""),
        ("calls answered", f"{report.answered:,}", f"{calls / report.seconds:,.0f} calls/s"),
        (
            "calls answered with an error",
            f"{report.errors.total():,}",
            f"{report.errors.total() / calls:.2%}",
        ),
        ("replies that were another's", len(report.crossed), ""),
        ("calls nobody answered", len(report.lost), ""),
        ("servers killed", report.kills, ""),
        ("clients, one after the other", report.sessions, ""),
        ("memory", f"{first / 2**20:.1f} MB", f"then {last / 2**20:.1f} MB: {slope:+.2f} MB/minute"),
        ("processes left behind", len(report.left_behind), ""),
    ]
    show("Soak of the gateway, 64 calls at once", ("", "", ""), rows)
    show("Errors", ("what", "times"), [(what, times) for what, times in report.errors.most_common(12)])


async def main(minutes: float, seed: int, out: Callable[[Report], None] = show_report) -> int:
    """Run it, and say what happened."""
    report = await Soak(minutes * 60, seed).run()
    out(report)
    for fault in report.faults:
        print(f"FAULT: {fault}")
    return 1 if report.faults else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(anyio.run(main, arguments.minutes, arguments.seed, backend_options={"use_uvloop": True}))
