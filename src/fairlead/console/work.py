"""What is under way in the console: lines that a person typed and that are not done, and calls of tools."""

import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import anyio

from fairlead.events import CallFinished, CallProgressed, CallStarted, Event


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """One thing that is under way, as people see it."""

    label: str
    since: float
    progress: float | None = None
    total: float | None = None
    message: str | None = None

    @property
    def seconds(self) -> float:
        """How long it has been so far."""
        return time.monotonic() - self.since


class Work:
    """Everything under way. `changed` is called whenever that is something else."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lines: dict[anyio.CancelScope, Running] = {}
        self._calls: dict[int, Running] = {}
        self._idle = anyio.Event()

    @property
    def is_busy(self) -> bool:
        """Is a line not done yet?"""
        return bool(self._lines)

    @property
    def shown(self) -> list[Running]:
        """What a person sees of it: the calls, or what is on its way to one."""
        return [*self._calls.values()] or [*self._lines.values()]

    async def do(self, label: str, what: Callable[[], Awaitable[None]]) -> bool:
        """Do something that `cancel` ends. False where it was ended."""
        with self._doing(label) as scope:
            await what()
        return not scope.cancelled_caught

    def cancel(self) -> None:
        """End what is under way. Servers are told."""
        for scope in [*self._lines]:
            scope.cancel()

    async def done(self) -> None:
        """Return when nothing is under way any more."""
        while self._lines:
            self._idle = anyio.Event()
            await self._idle.wait()

    def note(self, event: Event) -> None:
        """Follow a host's calls."""
        match event:
            case CallStarted():
                label = f"{event.server_id}/{event.tool}"
                self._calls[event.call_id] = Running(label=label, since=time.monotonic())
            case CallProgressed() if event.call_id in self._calls:
                self._calls[event.call_id] = replace(
                    self._calls[event.call_id],
                    progress=event.progress,
                    total=event.total,
                    message=event.message,
                )
            case CallFinished():
                self._calls.pop(event.call_id, None)
            case _:
                pass
        self._changed()

    @contextmanager
    def _doing(self, label: str) -> Generator[anyio.CancelScope]:
        with anyio.CancelScope() as scope:
            self._lines[scope] = Running(label=label, since=time.monotonic())
            self._changed()
            try:
                yield scope
            finally:
                del self._lines[scope]
                self._idle.set()
                self._changed()
