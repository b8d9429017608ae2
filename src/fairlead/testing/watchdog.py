"""Event loop watchdog: how long a loop was blocked, without the time its process waited for a processor."""

import asyncio
import gc
import math
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType

_TASKS = "/proc/self/task"
_SHOWN_FRAMES = 10
_IDLE = frozenset({"threading", "selectors", "queue", "socketserver", "concurrent.futures.thread"})
"""Modules in which a thread waits rather than works."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lateness:
    """Time for which the event loop was blocked once, and the stack that blocked it, where that was seen."""

    seconds: float
    waited: float = 0.0
    """How long threads waited for a processor meanwhile: `seconds` is without it."""
    collected: float = 0.0
    """How long Python's garbage collector ran meanwhile, which is part of `seconds`."""
    stack: str = ""

    def __str__(self) -> str:
        """Describe it for a failed test."""
        garbage = (
            f", {1000 * self.collected:.0f} ms of the time for garbage collection" if self.collected else ""
        )
        waited = f" (not counted: {1000 * self.waited:.0f} ms for a processor)" if self.waited else ""
        text = f"the event loop was held for {1000 * self.seconds:.0f} ms{garbage}{waited}"
        return f"{text}\n{self.stack}".rstrip()


class LoopHeld(AssertionError):
    """The event loop was blocked for longer than a test allows."""


class LoopWatchdog:
    """Measures how late a running event loop's timers are.

    What threads of the process spent in the run queue (`schedstat`) is not counted, be it the loop's or one
    that held the interpreter's lock meanwhile: a busy machine is no fault of the code. A thread that keeps
    the lock while it runs counts, since the loop cannot run. Where the system does not tell, all counts.

    Threads wait in the run queue for each other, too: one that wants the lock is woken every few
    milliseconds, only to find it taken. So the processor time that the process used counts as well,
    as far as the loop was not in the run queue itself.

    In the loop there is nothing but the timer. The observer's thread looks at all else: every system call
    gives up the interpreter's lock, and while another thread computes it takes 5 ms to get it back.
    """

    def __init__(self, limit: float, *, interval: float | None = None) -> None:
        self.limit = limit
        self.worst = Lateness(seconds=0.0)
        self._interval = interval or limit / 5
        self._due = math.inf
        self._used = 0.0
        """The time of processors that the process had used when the timer was set."""
        self._late: deque[tuple[float, float, float]] = deque()
        """When timers were due, when they ran instead, and the time of processors used meanwhile."""
        self._waits: Mapping[str, int] = {}
        """As of the last time that the loop was seen on time."""
        self._seen: list[str] = []
        self._collections: deque[tuple[float, float]] = deque(maxlen=100)
        self._collecting = 0.0
        self._loop_thread = 0
        self._loop_task = ""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._loop_task = str(threading.get_native_id())
        self._waits = _processor_waits()
        gc.callbacks.append(self._note_collection)
        _observer.add(self)
        self._schedule()

    def stop(self) -> None:
        """Watch no more; what the loop is late with now still counts."""
        _observer.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._note()
            self._due = math.inf
        gc.callbacks.remove(self._note_collection)
        self.look()

    @property
    def is_of_this_thread(self) -> bool:
        """Whether the loop that it watches runs in the calling thread."""
        return self._loop_thread == threading.get_ident()

    def reset(self) -> None:
        """Forget what was seen."""
        self._late.clear()
        self.worst = Lateness(seconds=0.0)

    @contextmanager
    def pause(self) -> Generator[None]:
        """Do not count what the loop does in this block, which must not wait for anything."""
        assert self._timer is not None, "it was started"
        self._timer.cancel()
        self._note()
        self._due = math.inf
        try:
            yield
        finally:
            self._schedule()

    def require(self) -> None:
        """Raise `LoopHeld` if the loop was held for longer than the limit."""
        if self.worst.seconds > self.limit:
            raise LoopHeld(str(self.worst))

    def _schedule(self) -> None:
        self._used = time.process_time()
        self._due = time.monotonic() + self._interval
        self._timer = self._loop.call_later(self._interval, self._tick)

    def _tick(self) -> None:
        self._note()
        self._schedule()

    def _note(self) -> None:
        now = time.monotonic()
        if now - self._due > self.limit / 2:
            self._late.append((self._due, now, time.process_time() - self._used))

    def _note_collection(self, phase: str, _info: object) -> None:
        now = time.monotonic()
        if phase == "start":
            self._collecting = now
        else:
            self._collections.append((self._collecting, now - self._collecting))

    def look(self) -> float:
        """Measure how late the loop is, and record its stack. Returns the seconds until the next look."""
        is_late = time.monotonic() - self._due > self.limit / 2
        if is_late:
            self._note_stacks()
        waits = _processor_waits()
        while self._late:
            self._judge(*self._late.popleft(), waits)
        if not is_late:
            self._waits = waits
            self._seen.clear()
        return self._interval

    def _judge(self, due: float, ran: float, used: float, waits: Mapping[str, int]) -> None:
        waited = {task: (ns - self._waits.get(task, 0)) / 1e9 for task, ns in waits.items()}
        by_processor = min(ran - due - waited.get(self._loop_task, 0.0), used)
        late = max(ran - due - sum(waited.values()), by_processor)
        if late > self.worst.seconds:
            # A copy, made in one step: the collector may run, and add to it, in any thread and at any line.
            collections = list(self._collections)
            collected = sum(took for began, took in collections if began <= ran and began + took >= due)
            stacks = [*self._seen[:1], *self._seen[1:][-1:]]  # when it was noticed, and the latest
            self.worst = Lateness(
                seconds=late, waited=ran - due - late, collected=collected, stack="\n".join(stacks)
            )

    def _note_stacks(self) -> None:
        # There is no public way to see what other threads do.
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        self._seen.append("\n".join(self._stacks(frames)))

    def _stacks(self, frames: Mapping[int, FrameType]) -> Iterable[str]:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in frames.items():
            is_loop = ident == self._loop_thread
            is_idle = frame.f_globals.get("__name__") in _IDLE
            if is_loop or (ident != threading.get_ident() and not is_idle):
                stack = "".join(traceback.format_stack(frame)[-_SHOWN_FRAMES:])
                yield f"{'the loop' if is_loop else f'the thread {names.get(ident)!r}'}:\n{stack}"


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

    def watchdogs_of_this_thread(self) -> list[LoopWatchdog]:
        with self._changed:
            return [watchdog for watchdog in self._watchdogs if watchdog.is_of_this_thread]

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
TRACED_FACTOR = 8
_GARBAGE_SECONDS = 0.2
"""A collection in a test run takes about this long, and so would setting its garbage aside for every test."""
SHARED_FACTOR = float(os.environ.get("FAIRLEAD_LOOP_FACTOR") or 1)
"""Read once: tests have environments of their own."""


@contextmanager
def watch_loop(limit: float = 0.05) -> Generator[LoopWatchdog]:
    """Watch the running event loop for the length of the block.

    Under a tracer (coverage, a debugger) Python is several times slower, and the limit is as much higher.
    On a machine that others share, `FAIRLEAD_LOOP_FACTOR` makes it so many times as high.

    Args:
        limit: How many seconds the loop may be blocked at once.

    Yields:
        The watchdog.

    Raises:
        LoopHeld: The loop was blocked for longer; the message shows by what.
    """
    factor = TRACED_FACTOR if sys.gettrace() is not None else 1
    watchdog = LoopWatchdog(limit * factor * SHARED_FACTOR)
    with _garbage_set_aside() if limit < _GARBAGE_SECONDS else nullcontext():
        watchdog.start()
        try:
            yield watchdog
        finally:
            watchdog.stop()
    watchdog.require()


@contextmanager
def _garbage_set_aside() -> Generator[None]:
    """Let garbage collections leave out what is there already.

    One takes 100 ns for each object in the process, and a test run has half a million of its own. What it
    takes to set them aside is no fault of the code that another watchdog of the same loop watches.
    """
    with ExitStack() as stack:
        for watchdog in _observer.watchdogs_of_this_thread():
            stack.enter_context(watchdog.pause())
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


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
            file = os.open(f"{_TASKS}/{thread}/schedstat", os.O_RDONLY)
            try:
                waits[thread] = int(os.read(file, 256).split()[1])
            finally:
                os.close(file)
        except (OSError, IndexError, ValueError):
            continue  # it has just ended, or the system does not tell
    return waits
