"""Live activity of a host, gathered from its events: calls under way, counts, and a signal of changes.

Signal that something changed, for the pages that are open.
"""

import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

import anyio

from fairlead.events import Event, McpToolCallBegin, McpToolCallEnd, McpToolCallProgress


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningCall:
    """A call that its server has not answered yet."""

    call_id: int
    server_id: str
    tool: str
    principal: str
    since: float
    progress: str = ""


class Activity:
    """Calls under way, and counts of outcomes. It is notified of every call, so it does little."""

    def __init__(self) -> None:
        self._started: dict[int, tuple[McpToolCallBegin, float]] = {}
        self._progressed: dict[int, McpToolCallProgress] = {}
        self.finished: Counter[tuple[str, str]] = Counter()
        """How many calls to a server ended in what: `ok`, `tool_error`, or the code of an error."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """How long the calls to a server took, all together."""

    @property
    def running(self) -> tuple[RunningCall, ...]:
        """The calls under way, the oldest first."""
        return tuple(
            RunningCall(
                call_id=call.call_id,
                server_id=call.server_id,
                tool=call.tool,
                principal=call.principal,
                since=since,
                progress=_progress(self._progressed.get(call.call_id)),
            )
            for call, since in self._started.values()
        )

    def note(self, event: Event) -> None:
        """Handle an event of the host."""
        match event:
            case McpToolCallBegin():
                self._started[event.call_id] = (event, time.time())
            case McpToolCallEnd():
                self._started.pop(event.call_id, None)
                self._progressed.pop(event.call_id, None)
                outcome = event.error or ("tool_error" if event.is_error else "ok")
                self.finished[event.server_id, outcome] += 1
                self.seconds[event.server_id] += event.seconds
            case McpToolCallProgress() if event.call_id in self._started:
                self._progressed[event.call_id] = event
            case _:
                pass


def _progress(event: McpToolCallProgress | None) -> str:
    if event is None:
        return ""
    share = f"{event.progress:g}" + (f" of {event.total:g}" if event.total else "")
    return f"{share}: {event.message}" if event.message else share


PAUSE_SECONDS: Final = 0.2
"""All events within this time are one change."""


class ChangeSignal:
    """Wakes all open pages at a change. They then read what changed."""

    def __init__(self) -> None:
        self._count = 0
        self._counted = anyio.Event()
        self._watchers = 0
        self._closed = False

    def note(self) -> None:
        """Signal a change. Without an open page this costs next to nothing: every call does it."""
        self._count += 1
        if self._watchers:
            self._counted.set()
            self._counted = anyio.Event()

    def close(self) -> None:
        """End the wait of all open pages."""
        self._closed = True
        self.note()

    async def watch(self, idle_seconds: float) -> AsyncGenerator[bool]:
        """True whenever something has changed; False after each `idle_seconds` in which nothing did."""
        seen = self._count
        self._watchers += 1
        try:
            while not self._closed:
                with anyio.move_on_after(idle_seconds):
                    while self._count == seen:
                        await self._counted.wait()
                changed = self._count != seen
                if changed and not self._closed:
                    await anyio.sleep(PAUSE_SECONDS)
                seen = self._count
                yield changed
        finally:
            self._watchers -= 1
