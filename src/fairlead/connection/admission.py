"""How many servers start at once: more while those that start sleep, none while they burn the processors.

Fifty Python servers launched together are all ready at the end of the last one's start; two at a time, the
first is ready at once and the last no later. Servers that mostly wait can all be launched together. What
others on this machine burn is no reason to wait: it would not be over sooner for that.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

_POLL_SECONDS = 0.01
_LONGEST_POLL_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 10.0
_PROCESSORS = os.cpu_count() or 1
_LOAD = "/proc/loadavg"
_MAX_FILE_BYTES = 65536


def busy_processors() -> int | None:
    """How many processors our processes want now, all at most; None where the system does not say."""
    try:
        running = int(_read(_LOAD).split()[3].partition(b"/")[0]) - 1  # this thread is one of them
        # Looking at our own takes longer, and there are no more of them than of all.
        return running if running < _PROCESSORS else _count_running(_our_children())
    except (OSError, ValueError):
        return None


def _our_children() -> list[bytes]:
    pids: list[bytes] = []
    for thread in os.listdir("/proc/self/task"):
        pids += _read(f"/proc/self/task/{thread}/children").split()
    return pids


def _count_running(pids: list[bytes]) -> int:
    """Look at processes and what they started, the latest first: one that starts is the likeliest to run."""
    running = 0
    while pids and running < _PROCESSORS:
        pid = os.fsdecode(pids.pop())
        try:
            running += _read(f"/proc/{pid}/stat").rpartition(b") ")[2].startswith(b"R")
            pids += _read(f"/proc/{pid}/task/{pid}/children").split()
        except OSError:
            continue  # it is gone
    return running


def _read(path: str) -> bytes:
    """Read a small file of the system's. There may be many, and a file object would take twice as long."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _MAX_FILE_BYTES)
    finally:
        os.close(file)


class Admission:
    """Lets starts in, in the order they come: a few always, more as the processors allow."""

    def __init__(
        self, processors: int = _PROCESSORS, busy: Callable[[], int | None] = busy_processors
    ) -> None:
        self._processors = processors
        self._busy = busy
        self._starting = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._first_since = 0.0
        self._pause = _POLL_SECONDS
        self._next_look: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def start(self) -> AsyncGenerator[None]:
        """Hold a place from the launch of a server until it is ready, or failed."""
        if self._waiting or self._starting >= self._processors:
            await self._wait()
        else:
            self._starting += 1
        try:
            yield
        finally:
            self._leave()

    async def _wait(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._watch_anew()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave()  # it was let in a moment before
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def _leave(self) -> None:
        self._starting -= 1
        self._let_in(self._processors - self._starting)

    def _let_in(self, count: int) -> None:
        while count > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._starting += 1
                count -= 1
        self._watch_anew()

    def _watch_anew(self) -> None:
        """Look soon whether there is room for the first in line."""
        self._first_since = asyncio.get_running_loop().time()
        self._look_in(_POLL_SECONDS)

    def _look_in(self, seconds: float) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if self._waiting:
            self._pause = seconds
            self._next_look = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        waited = asyncio.get_running_loop().time() - self._first_since
        room = self._room() or (1 if waited >= _LONGEST_WAIT_SECONDS else 0)
        if room:
            self._let_in(room)
        else:
            # Those that were let in last show by now whether they burn. While they do, looking often would
            # only burn more.
            self._look_in(min(self._pause * 2, _LONGEST_POLL_SECONDS))

    def _room(self) -> int:
        """How many more may start: as many again while all sleep, so that few looks let in many."""
        busy = self._busy()
        if busy is None:
            return 0
        return self._starting if busy == 0 else max(0, self._processors - busy)
