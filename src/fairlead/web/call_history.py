"""Calls of the last day, read from the audit log, and their counts and latencies."""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from fairlead.policy.audit import LOG
from fairlead.store.protocol import Database, LogRecord

DAY_SECONDS: Final = 86_400.0
MOST_CALLS: Final = 50_000
"""Of more calls than this, the oldest are not counted."""
BUCKETS: Final = 60
_PAGE: Final = 5_000
_RECENT: Final = 2_000

Fate = Literal["ok", "failed", "refused"]
"""How a call ended: with a result, with an error, or before it was sent."""


class FinishedCall(msgspec.Struct, frozen=True, gc=False):
    """A call that is over: those fields of its audit record that are counted."""

    at: float
    kind: str = "call"
    call: str = ""
    stage: str = ""
    server: str = ""
    tool: str = ""
    principal: str = ""
    outcome: str = ""
    seconds: float | None = None

    @property
    def fate(self) -> Fate:
        """The outcome in one word."""
        if self.stage == "refused":
            return "refused"
        return "ok" if self.outcome in ("ok", "begun") else "failed"


_decode = msgspec.json.Decoder(FinishedCall).decode


class CallHistory:
    """Calls of the last day. Each read continues where the last one ended, so it costs only what is new."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        self._calls: deque[FinishedCall] = deque(maxlen=most)
        self._most = most
        self._sequence: int | None = None
        self._recent: OrderedDict[str, None] = OrderedDict()

    @property
    def calls(self) -> Sequence[FinishedCall]:
        """All calls, the oldest first: a copy, as a thread may read more meanwhile."""
        return tuple(self._calls)

    @property
    def is_full(self) -> bool:
        """Whether there were more calls than are kept."""
        return len(self._calls) == self._most

    def read(self, database: Database, now: float) -> None:
        """Read the new records of the audit log, and drop those older than a day."""
        if self._sequence is None:
            self._sequence = 0
            for record in reversed(self._last_day(database, now)):
                self._take(record)
        while records := database.read_log(LOG, after=self._sequence, limit=_PAGE):
            for record in records:
                self._take(record)
        while self._calls and self._calls[0].at < now - DAY_SECONDS:
            self._calls.popleft()

    def _last_day(self, database: Database, now: float) -> list[LogRecord]:
        """The records of the last day, the newest first."""
        found: list[LogRecord] = []
        before: int | None = None
        while len(found) < 2 * self._most:  # a long call has two records
            page = database.last_records(LOG, before=before, limit=_PAGE)
            found += [record for record in page if record.time >= now - DAY_SECONDS]
            if len(page) < _PAGE or page[-1].time < now - DAY_SECONDS:
                break
            before = page[-1].sequence
        return found

    def _take(self, record: LogRecord) -> None:
        self._sequence = record.sequence
        try:
            call = _decode(record.value)
        except (msgspec.DecodeError, RecursionError):
            return  # of a newer version
        if call.kind != "call" or call.stage not in ("refused", "returned") or call.call in self._recent:
            return
        # The last record of a call may be written twice, at about the same time.
        self._recent[call.call] = None
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        self._calls.append(call)


@dataclass(slots=True)
class CallCount:
    """Number of calls by outcome, and their latencies."""

    ok: int = 0
    failed: int = 0
    refused: int = 0
    seconds: list[float] = field(default_factory=list[float])

    @property
    def total(self) -> int:
        """Number of calls."""
        return self.ok + self.failed + self.refused

    def add(self, call: FinishedCall) -> None:
        """Count a call."""
        match call.fate:
            case "ok":
                self.ok += 1
            case "failed":
                self.failed += 1
            case "refused":
                self.refused += 1
        if call.seconds is not None:
            self.seconds.append(call.seconds)

    def percentile(self, percent: float) -> float | None:
        """Latency that this percentage of the calls did not exceed; None where none was sent."""
        if not self.seconds:
            return None
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSummary:
    """Counts of the calls in a period of time."""

    since: float
    bucket_seconds: float
    buckets: Sequence[CallCount]
    """By time, the oldest first."""
    all: CallCount
    by_server: dict[str, CallCount]
    """Those with the most failures first."""
    by_principal: dict[str, CallCount]


@dataclass(frozen=True, kw_only=True, slots=True)
class CallFilter:
    """Filter of calls; an empty field fits all. An outcome is that of a record, or a `Fate`."""

    server: str = ""
    principal: str = ""
    outcome: str = ""

    def fits(self, call: FinishedCall) -> bool:
        """Whether a call matches."""
        return (
            self.server in ("", call.server)
            and self.principal in ("", call.principal)
            and self.outcome in ("", call.outcome, call.fate)
        )


def summarize(
    calls: Iterable[FinishedCall], *, now: float, seconds: float, buckets: int = BUCKETS
) -> CallSummary:
    """Count the calls of the last `seconds`."""
    since, width = now - seconds, seconds / buckets
    by_time = [CallCount() for _ in range(buckets)]
    every = CallCount()
    by_server: dict[str, CallCount] = {}
    by_principal: dict[str, CallCount] = {}
    for call in calls:
        if since <= call.at <= now:
            by_time[min(int((call.at - since) / width), buckets - 1)].add(call)
            every.add(call)
            by_server.setdefault(call.server, CallCount()).add(call)
            by_principal.setdefault(call.principal, CallCount()).add(call)
    return CallSummary(
        since=since,
        bucket_seconds=width,
        buckets=by_time,
        all=every,
        by_server=_worst_first(by_server),
        by_principal=_worst_first(by_principal),
    )


def _worst_first(counts: dict[str, CallCount]) -> dict[str, CallCount]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1].failed, -item[1].total, item[0])))
