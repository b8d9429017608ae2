"""Limit of concurrent server starts, by the CPU load that starting servers cause.

Fifty Python servers launched together are all ready only at the end; two at a time, the first is ready soon
and the last no later. Servers that mostly wait can start together. Load of other programs does not count.
"""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio

_POLL_SECONDS = 0.01
_LONGEST_POLL_SECONDS = 0.2
_LONGEST_WAIT_SECONDS = 10.0
_PROCESSORS = os.cpu_count() or 1
_LOAD = "/proc/loadavg"
_MAX_FILE_BYTES = 65536
_NEWEST = 3
"""For each server that starts, how many of the newest are looked at: some are ready before older ones."""


def busy_processors(starting: int) -> int | None:
    """Number of processors that our processes occupy now; None where the system does not say.

    Args:
        starting: How many servers start now. They are looked for among the newest processes.
    """
    try:
        running = int(_read(_LOAD).split()[3].partition(b"/")[0]) - 1  # this thread is one of them
        # Looking at our own takes longer, and there are no more of them than of all.
        return running if running < _PROCESSORS else _count_running(_our_children(), _NEWEST * starting)
    except (OSError, ValueError):
        return None


def _our_children() -> list[bytes]:
    pids: list[bytes] = []
    for thread in os.listdir("/proc/self/task"):
        pids += _read(f"/proc/self/task/{thread}/children").split()
    return pids


def _count_running(pids: list[bytes], newest: int) -> int:
    """Look at processes and the newest of what each started, the latest first.

    One that starts is the likeliest to run. With hundreds of servers that are ready long since, looking at
    all of them would take more of a start's time than anything else.
    """
    running = 0
    while pids and running < _PROCESSORS:
        pid = os.fsdecode(pids.pop())
        try:
            running += _read(f"/proc/{pid}/stat").rpartition(b") ")[2].startswith(b"R")
            pids += _read(f"/proc/{pid}/task/{pid}/children").split()[-newest:]  # in the order they were born
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


class StartLimit:
    """Admits starts: a few always, more as the CPU load allows."""

    def __init__(
        self, processors: int = _PROCESSORS, busy: Callable[[int], int | None] = busy_processors
    ) -> None:
        self._processors = processors
        self._busy = busy
        self._starting = 0
        self._room = 0
        self._turn = anyio.Lock()
        self._freed = anyio.Event()

    @asynccontextmanager
    async def start(self) -> AsyncGenerator[None]:
        """Occupy a slot for the length of the block: from a server's launch until it is ready or failed."""
        async with self._turn:  # one at a time looks, so that each look sees the launch before it
            await self._find_room()
            self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1
            self._freed.set()

    async def _find_room(self) -> None:
        if self._starting < self._processors:
            self._room = 0
            return
        pause = _POLL_SECONDS
        with anyio.move_on_after(_LONGEST_WAIT_SECONDS):
            while self._starting >= self._processors and not self._room:
                # Those that were let in last need a moment to show whether they burn. While they do, looking
                # often would only burn more.
                self._freed = anyio.Event()
                with anyio.move_on_after(pause):
                    await self._freed.wait()
                    continue
                self._room = self._look()
                pause = min(pause * 2, _LONGEST_POLL_SECONDS)
        self._room = max(0, self._room - 1)

    def _look(self) -> int:
        """Number of further starts: as many again while all sleep, so that few looks admit many."""
        busy = self._busy(self._starting)
        if busy is None:
            return 0
        return self._starting if busy == 0 else max(0, self._processors - busy)
