"""Word that something changed, for whoever watches a page."""

from collections.abc import AsyncGenerator
from typing import Final

import anyio

PAUSE_SECONDS: Final = 0.2
"""Whatever happens within this time is one change."""


class Changes:
    """Tells all who watch. What changed they see when they look."""

    def __init__(self) -> None:
        self._count = 0
        self._counted = anyio.Event()
        self._watchers = 0
        self._closed = False

    def note(self) -> None:
        """Something changed. That nobody watches costs next to nothing: this is said of every call."""
        self._count += 1
        if self._watchers:
            self._counted.set()
            self._counted = anyio.Event()

    def close(self) -> None:
        """Let all who watch go."""
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
