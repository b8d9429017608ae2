"""How many servers start at once: more while those that start sleep, none while they burn the processors.

Fifty Python servers launched together are all ready at the end of the last one's start; two at a time, the
first is ready at once and the last no later. Servers that mostly wait can all be launched together.
"""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

_POLL_SECONDS = 0.004
_LONGEST_WAIT_SECONDS = 10.0
_STAT = Path("/proc/stat")


def busy_processors() -> int | None:
    """How many threads want a processor now, ours apart; None where the system does not say."""
    try:
        text = _STAT.read_text(encoding="ascii")
    except OSError:
        return None
    _, found, rest = text.partition("procs_running ")
    return max(0, int(rest.split("\n", 1)[0]) - 1) if found else None


class Admission:
    """Lets starts in, a few always, more as the processors allow."""

    def __init__(
        self, processors: int | None = None, busy: Callable[[], int | None] = busy_processors
    ) -> None:
        self._processors = processors or os.cpu_count() or 1
        self._busy = busy
        self._starting = 0
        self._turn = anyio.Lock()

    @asynccontextmanager
    async def start(self) -> AsyncGenerator[None]:
        """Hold a place from the launch of a server until it is ready, or failed."""
        async with self._turn:  # one at a time looks, so that each look sees the launch before it
            await self._room()
            self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    async def _room(self) -> None:
        with anyio.move_on_after(_LONGEST_WAIT_SECONDS):
            while self._starting >= self._processors:
                busy = self._busy()
                if busy is not None and busy < self._processors:
                    return
                await anyio.sleep(_POLL_SECONDS)
