"""A watchdog for event loops: how long one was held, less the time its process waited for a processor."""

import asyncio
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_TASKS = Path("/proc/self/task")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lateness:
    """How long the event loop was held once, and by what, where that was seen."""

    seconds: float
    stack: str = ""

    def __str__(self) -> str:
        """Describe it for a failed test."""
        return f"the event loop was held for {1000 * self.seconds:.0f} ms\n{self.stack}".rstrip()


class LoopHeld(AssertionError):
    """The event loop was held for longer than a test allows."""


class LoopWatchdog:
    """Measures how late a running event loop's timers are.

    What threads of the process spent in the run queue (`schedstat`) is not counted, be it the loop's or one
    that held the interpreter's lock meanwhile: a busy machine is no fault of the code. A thread that keeps
    the lock while it runs counts, since the loop cannot run. Where the system does not tell, all counts.
    """

    def __init__(self, limit: float, *, interval: float | None = None) -> None:
        self.limit = limit
        self.worst = Lateness(seconds=0.0)
        self._interval = interval or limit / 5
        self._seen = ""
        self._due = 0.0
        self._waits: dict[str, int] = {}
        self._thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._due = math.inf
        _observer.add(self)
        self._waits = _processor_waits()
        self._schedule()

    def stop(self) -> None:
        """Watch no more; what the loop is late with now still counts."""
        _observer.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._note(time.monotonic() - self._due)

    def reset(self) -> None:
        """Forget what was seen."""
        self.worst = Lateness(seconds=0.0)

    def require(self) -> None:
        """Raise `LoopHeld` if the loop was held for longer than the limit."""
        if self.worst.seconds > self.limit:
            raise LoopHeld(str(self.worst))

    def _schedule(self) -> None:
        self._due = time.monotonic() + self._interval
        self._timer = self._loop.call_later(self._interval, self._tick)

    def _tick(self) -> None:
        self._note(time.monotonic() - self._due)
        self._schedule()

    def _note(self, late: float) -> None:
        before, self._waits = self._waits, _processor_waits()
        if late > self.worst.seconds:
            late -= sum(ns - before.get(thread, ns) for thread, ns in self._waits.items()) / 1e9
            if late > self.worst.seconds:
                self.worst = Lateness(seconds=late, stack=self._seen)
        self._seen = ""

    def look(self) -> float:
        """Note what a late loop does, in the observer's thread. Returns the seconds until the next look."""
        if not self._seen and time.monotonic() - self._due > self.limit / 2:
            # There is no public way to see what another thread does.
            frame = sys._current_frames().get(self._thread)  # pyright: ignore[reportPrivateUsage]
            self._seen = "".join(traceback.format_stack(frame)[-8:]) if frame else ""
        return self._interval


class _Observer:
    """The one thread of a process that sees what late loops do. It ends when there was nothing to watch."""

    def __init__(self) -> None:
        self._watchdogs: set[LoopWatchdog] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def native_id(self) -> str:
        return str(self._thread.native_id) if self._thread is not None else ""

    def add(self, watchdog: LoopWatchdog) -> None:
        with self._changed:
            self._watchdogs.add(watchdog)
            self._changed.notify()
            if self._thread is None or not self._thread.is_alive():  # as in a forked child
                self._thread = threading.Thread(target=self._run, name="loop-watchdog", daemon=True)
                self._thread.start()

    def remove(self, watchdog: LoopWatchdog) -> None:
        with self._changed:
            self._watchdogs.discard(watchdog)

    def _run(self) -> None:
        with self._changed:
            while self._watchdogs or self._changed.wait(_IDLE_SECONDS):
                seconds = min((watchdog.look() for watchdog in self._watchdogs), default=_IDLE_SECONDS)
                self._changed.wait(seconds)
            self._thread = None


_IDLE_SECONDS = 1.0
_observer = _Observer()
_TRACED_FACTOR = 8
SHARED_FACTOR = float(os.environ.get("FAIRLEAD_LOOP_FACTOR") or 1)
"""Read once: tests have environments of their own."""


@contextmanager
def watch_loop(limit: float = 0.05) -> Generator[LoopWatchdog]:
    """Watch the running event loop for the length of the block, which fails if the loop was held too long.

    Under a tracer (coverage, a debugger) Python is several times slower, and the limit is as much higher.
    On a machine that others share, `FAIRLEAD_LOOP_FACTOR` makes it so many times as high.
    """
    factor = _TRACED_FACTOR if sys.gettrace() is not None else 1
    watchdog = LoopWatchdog(limit * factor * SHARED_FACTOR)
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()
    watchdog.require()


def _processor_waits() -> dict[str, int]:
    """Return, for each thread, how many nanoseconds it has waited for a processor in its life."""
    waits: dict[str, int] = {}
    try:
        threads = set(os.listdir(_TASKS))
    except OSError:
        return waits
    # What the observer waits for holds up no loop, and would be taken for an excuse of one.
    for thread in threads - {_observer.native_id}:
        try:
            waits[thread] = int((_TASKS / thread / "schedstat").read_bytes().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it has just ended, or the system does not tell
    return waits
