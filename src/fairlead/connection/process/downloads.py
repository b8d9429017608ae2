"""Downloads of package runners (`uvx`, `npx`, `docker run`), as far as their stderr tells of them.

The first start of a server may fetch hundreds of megabytes. While that can be seen, the clocks of its start
stand still, within a limit of their own.
"""

import asyncio
import math
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

MAX_DOWNLOAD_SECONDS = 900.0
"""The longest a download may delay the start of a server."""

FETCHERS = frozenset({"uvx", "uv", "npx", "npm", "pnpm", "pnpx", "bunx", "bun", "pipx", "docker", "podman"})
"""Programs that fetch a server before they run it."""

# What they write where there is no terminal; npm writes nothing at all if it is told to ask nothing (`-y`).
_UNDER_WAY = re.compile(
    r"""\s*(?:Downloading|Downloaded|Building|Built|Updating|Updated|Fetching|Collecting|Preparing|Resolving)\s\S
       |Download\s\S+:|npm\s(?:warn|WARN)\s+exec\s.*will\sbe\sinstalled|npm\shttp\sfetch
       |Unable\sto\sfind\simage\s|[\w./-]+:\sPulling\sfrom\s
       |[0-9a-f]{12}:\s(?:Pulling|Waiting|Verifying|Download|Extracting|Pull\scomplete|Already\sexists)
       |creating\svirtual\senvironment|installing\s\S+\.\.\.""",
    re.VERBOSE,
)
_DONE = re.compile(r"(?:Installed|Prepared|Audited)\s\d+\s|added\s\d+\spackages|Status:\s|Digest:\s")
_ASIDE = re.compile(r"npm\s(?:warn|WARN|notice)\b|warning:|Using\sPython|\s*$")


class DownloadWatch:
    """Reads what a server's process writes to stderr while it starts, and holds the clocks of the start.

    All but `holding` may be called in callbacks of the event loop.
    """

    def __init__(self, limit: float = MAX_DOWNLOAD_SECONDS) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called whenever `current` changes."""
        self.current: str | None = None
        """What is downloaded now, in the words of the program; None while nothing is."""
        self._limit = limit
        self._until: float | None = None
        self._clocks: list[tuple[anyio.CancelScope, float, bool]] = []

    def feed(self, text: str) -> None:
        """Take in whole lines, sanitized."""
        for line in text.split("\n"):
            if _UNDER_WAY.match(line):
                self._set(line.strip())
            elif _DONE.match(line) or not _ASIDE.match(line):
                self._set(None)

    def finish(self) -> None:
        """Note that the server itself runs."""
        self._set(None)

    def listen(self, callback: Callable[[], None]) -> None:
        """Have a function called at each change, and at once where a download was seen already."""
        self.on_change = callback
        if self.current is not None:
            callback()

    def _set(self, current: str | None) -> None:
        if current == self.current:
            return
        was_under_way, self.current = self.current is not None, current
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._limit
        if was_under_way != (current is not None):
            for scope, seconds, is_whole in self._clocks:
                scope.deadline = self._deadline(now, seconds, is_whole=is_whole)
        self.on_change()

    def _deadline(self, now: float, seconds: float, *, is_whole: bool) -> float:
        if self.current is None:
            return now + seconds
        return (self._until or now) if is_whole else math.inf

    @contextmanager
    def holding(self, scope: anyio.CancelScope, seconds: float, *, is_whole: bool) -> Generator[None]:
        """Have a clock of the start stand still, for the length of the block, while a download is seen.

        Args:
            scope: The clock.
            seconds: What it allows. It begins anew when the download is over.
            is_whole: It is the clock of the whole start, which ends at the limit of downloads too.
        """
        clock = (scope, seconds, is_whole)
        self._clocks.append(clock)
        if self.current is not None:
            scope.deadline = self._deadline(anyio.current_time(), seconds, is_whole=is_whole)
        try:
            yield
        finally:
            self._clocks.remove(clock)
