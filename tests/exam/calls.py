"""Calls of the chaos exams: who makes them, what became of each, and how often each was executed."""

import itertools
import json
import os
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import anyio
import msgspec
from benchmarks.load import (
    Answer,
    Client,
    LegacyClient,
    Line,
    Target,
    Unanswered,
    UnexpectedAnswer,
    open_client,
)
from benchmarks.measuring import show

from tests.exam.upstream_program import FAULTED, REFRESHED
from tests.exam.upstreams import TOOL, Upstreams

ANSWER_SECONDS = 60.0
"""After that a call counts as one that never ends."""
LONG_SECONDS = 0.5
"""Calls that took longer are kept, to be compared with the faults."""

Outcome = Literal[
    "answered", "error", "unknown", "not_sent", "refused", "session", "ended", "lost", "crossed"
]
"""What became of a call: its answer; an error of the server or the gateway; an error with a `delivery`; an
HTTP status that refuses it; a session that is gone; the end of its connection; nothing; another's answer."""
NOT_EXECUTED: tuple[Outcome, ...] = ("not_sent", "refused", "session")

_ANSWER = re.compile(r"\w+:\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call that took long, or did not end with its answer."""

    key: int
    server: str
    began: float
    ended: float
    outcome: Outcome
    reason: str = ""


class _Data(msgspec.Struct):
    delivery: str | None = msgspec.field(name="fairlead/delivery", default=None)


class _Result(msgspec.Struct):
    content: list[dict[str, str]] = []
    isError: bool = False  # noqa: N815 - as the protocol spells it
    meta: _Data = msgspec.field(name="_meta", default_factory=_Data)


class _Error(msgspec.Struct):
    message: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


class _Message(msgspec.Struct):
    result: _Result | None = None
    error: _Error | None = None


@dataclass(slots=True)
class Ledger:
    """What was executed, read from the servers' record as it grows."""

    path: Path
    one_process: frozenset[str]
    """Servers that must never run in two processes at a time."""
    counts: bytearray = field(default_factory=bytearray)
    twice: list[int] = field(default_factory=list[int])
    overlaps: list[str] = field(default_factory=list[str])
    """Where a process executed something after another of the same server had taken over."""
    refreshes: list[float] = field(default_factory=list[float])
    faults: Counter[str] = field(default_factory=Counter[str])
    """Faults that servers did have, not only were asked for."""
    servers: set[str] = field(default_factory=set[str])
    """Those that executed anything."""
    executed: int = 0
    processes: dict[str, list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict[str, list[tuple[int, float]]](list)
    )
    """The processes of each of those servers, and when each executed something first."""
    _at: int = 0

    def read(self) -> None:
        """Read what was added."""
        with self.path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode().splitlines():
            key, server, pid, at = line.split(" ")
            if key == REFRESHED:
                self.refreshes.append(float(at))
            elif key == FAULTED:
                self.faults[server] += 1
            else:
                self._note(int(key), server, int(pid), float(at))

    def _note(self, key: int, server: str, pid: int, at: float) -> None:
        self.executed += 1
        self.servers.add(server)
        if key >= len(self.counts):
            self.counts.extend(bytes(key + 100_000 - len(self.counts)))
        self.counts[key] = min(self.counts[key] + 1, 255)
        if self.counts[key] == 2:
            self.twice.append(key)
        if server in self.one_process:
            seen = self.processes[server]
            if seen and pid != seen[-1][0] and any(pid == before for before, _ in seen):
                self.overlaps.append(f"{server}: {pid} after {seen[-1][0]}")
            elif not seen or seen[-1][0] != pid:
                seen.append((pid, at))

    def count(self, key: int) -> int:
        """How often a call was executed."""
        return self.counts[key] if key < len(self.counts) else 0


class Caller:
    """Who makes calls on one connection of a client, one session after the other, with chances of its own.

    With those of the others, what it draws would depend on which of them runs first.
    """

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self._waiting: list[str] = []

    def draw(self, kinds: Sequence[str]) -> str:
        """Return one of these: each of them once, before any of them again."""
        if not self._waiting:
            self._waiting = self.chance.sample(kinds, len(kinds))
        return self._waiting.pop()


class Callers:
    """Clients of both eras that make calls all the time, one at a time on each of their connections.

    Args:
        upstreams: The servers.
        seed: What all chance comes from.
        draw_fault: Returns more arguments of a caller's call: what is to go wrong with it.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        seed: int,
        draw_fault: Callable[[Caller], dict[str, object]],
    ) -> None:
        one_process = frozenset(name for name, kind in upstreams.kinds.items() if kind.has_one_process)
        self.ledger = Ledger(upstreams.record, one_process)
        self.outcomes: Counter[Outcome] = Counter()
        self.errors: Counter[str] = Counter()
        """Calls that did not end with their answer, by what was said."""
        self.kept: list[Call] = []
        self.drawn: dict[int, str] = {}
        """What was to go wrong with calls, by their keys."""
        self.sessions = 0
        self.servers = [*upstreams.kinds]
        self._seed = seed
        self._draw_fault = draw_fault
        self._keys = itertools.count()

    @property
    def calls(self) -> int:
        return self.outcomes.total()

    async def be_client(
        self,
        number: int,
        target: Target,
        connections: int,
        is_over: Callable[[], bool],
        session_seconds: tuple[float, float],
    ) -> None:
        """Be one client after the other until it is over, each for a while. `number` tells clients apart."""
        chance = random.Random(f"{self._seed}:{number}")
        callers = [Caller(f"{self._seed}:{number}:{place}") for place in range(connections)]
        while not is_over():
            until = time.monotonic() + chance.uniform(*session_seconds)
            # Where the gateway takes no new sessions for now, it is asked again.
            with suppress(UnexpectedAnswer, Unanswered, OSError, TimeoutError):
                async with open_client(target, connections) as client:
                    self.sessions += 1
                    gone = anyio.Event()
                    async with anyio.create_task_group() as tasks:
                        for caller, line in zip(callers, client.lines, strict=True):
                            tasks.start_soon(self._make_calls, caller, client, line, until, gone, is_over)
                    if isinstance(client, LegacyClient) and not gone.is_set():
                        await _end_session(client)
                    continue
            await anyio.sleep(0.2)

    async def _make_calls(
        self,
        caller: Caller,
        client: Client,
        line: Line,
        until: float,
        gone: anyio.Event,
        is_over: Callable[[], bool],
    ) -> None:
        """Make calls until a time, or until the session is gone or all is over."""
        while time.monotonic() < until and not gone.is_set() and not is_over():
            server, more = caller.chance.choice(self.servers), self._draw_fault(caller)
            outcome = await self.make_call(client, line, server, more)
            if outcome == "session":
                gone.set()
            elif outcome in ("refused", "ended", "not_sent"):
                await anyio.sleep(0.1)  # as any client that tries again

    async def make_call(
        self, client: Client, line: Line, server: str, more: Mapping[str, object] = MappingProxyType({})
    ) -> Outcome:
        """Make one call, with these arguments besides its key, and take note of what became of it."""
        key = next(self._keys)
        if "fault" in more:
            self.drawn[key] = str(more["fault"])
        arguments = json.dumps({"key": key, **more}).encode()
        tool = f"{server}_{TOOL}"
        params = b'{"name":"%b","arguments":%b}' % (tool.encode(), arguments)
        began = time.monotonic()
        outcome, reason = "lost", "no answer in time"
        try:
            with anyio.fail_after(ANSWER_SECONDS):
                answer = await client.ask(line, "tools/call", params, tool)
        except TimeoutError:
            line.close()
        except (Unanswered, OSError) as exc:
            outcome, reason = "ended", str(exc)
        else:
            outcome, reason = judge(answer, f"{server}:{key}")
        ended = time.monotonic()
        self.outcomes[outcome] += 1
        if outcome != "answered":
            self.errors[f"{outcome}: {_kind(reason)}"] += 1
        if outcome != "answered" or ended - began > LONG_SECONDS:
            call = Call(
                key=key, server=server, began=began, ended=ended, outcome=outcome, reason=reason[:200]
            )
            self.kept.append(call)
        return outcome

    def _describe(self, key: int) -> str:
        """What is known of a call: its fault, its end where that was not quick, and when it was executed."""
        lines = [line for line in self.ledger.path.read_text().splitlines() if line.startswith(f"{key} ")]
        kept = next((call for call in self.kept if call.key == key), None)
        return f"call {key}, {self.drawn.get(key, 'no fault')}, {kept}, executed as {lines}"

    def faults(self) -> list[str]:
        """What must not be, once all calls and executions have ended."""
        ledger = self.ledger
        ledger.read()
        found = [f"executed twice: {self._describe(key)}" for key in ledger.twice[:5]]
        found += [f"two processes at a time: {each}" for each in ledger.overlaps[:5]]
        unhappy = {call.key: call for call in self.kept if call.outcome != "answered"}
        for call in unhappy.values():
            if call.outcome in ("lost", "crossed"):
                found.append(f"{call.outcome}: {call}")
            elif call.outcome in NOT_EXECUTED and ledger.count(call.key):
                found.append(f"executed, though it is said not to be: {call}")
        answered = self.calls - len(unhappy)
        executed = sum(1 for key in range(self.calls) if key not in unhappy and ledger.count(key) == 1)
        if executed != answered:
            found.append(f"{answered} calls answered, {executed} of them executed once")
        return found


async def _end_session(client: LegacyClient) -> None:
    """End a session, for some time again and again: one that is not ended the gateway has to keep."""
    with anyio.move_on_after(5):
        while True:
            with suppress(Unanswered, OSError):
                await client.end()
                return
            await anyio.sleep(0.1)


def judge(answer: Answer, expected: str) -> tuple[Outcome, str]:
    """What an answer is to a call that must be answered with a text."""
    if answer.status == 404:
        return "session", "404"
    if answer.status != 200:
        said = answer.body[:100].decode(errors="replace")
        return ("unknown" if answer.status == 502 else "refused"), f"{answer.status} {said}"
    try:
        message = msgspec.json.decode(answer.message, type=_Message)
    except msgspec.DecodeError:
        return "crossed", f"no message: {answer.body[:200]!r}"
    if message.error is not None:
        return _failure(message.error.data.delivery), message.error.message
    result = message.result
    if result is None:
        return "crossed", "no result"
    texts = [block.get("text", "") for block in result.content]
    if result.isError:
        return _failure(result.meta.delivery), texts[0] if texts else ""
    # A server that was started anew says so in a block of its own.
    if texts[:1] == [expected] and not any(_ANSWER.fullmatch(text) for text in texts[1:]):
        return "answered", ""
    return "crossed", f"{expected} was answered with {texts}"


def _failure(delivery: str | None) -> Outcome:
    match delivery:
        case "unknown" | "not_sent":
            return delivery
        case _:
            return "error"


def _kind(text: str) -> str:
    """What an error says, without what differs from one to the next."""
    first = text.splitlines()[0] if text else ""
    first = re.sub(r"[0-9a-f]{16}", "ID", first)
    return re.sub(r"\d+", "N", first)[:110]


def outcome_rows(callers: Callers) -> list[tuple[object, ...]]:
    """The rows of a table about what became of calls."""
    total = max(1, callers.calls)
    return [(name, times, f"{times / total:.2%}") for name, times in callers.outcomes.most_common()]


def show_verdict(seed: int, faults: Sequence[str]) -> int:
    """Print what must not be, and return the exit status."""
    title = f"Seed {seed}, load {os.getloadavg()[0]:.1f}: {len(faults)} faults"
    show(title, ("", ""), [(fault, "") for fault in faults[:30]])
    return 1 if faults else 0


def targets(url: str, token: str | None) -> Sequence[Target]:
    """A gateway as clients of both eras reach it."""
    return [Target(url=url, wire=wire, token=token) for wire in ("modern", "legacy")]
