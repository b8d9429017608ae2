"""How long a request may take: idle time that progress resets, within an absolute cap."""

import asyncio
from collections.abc import Callable


class Deadline:
    """The clock of one request.

    `touch` starts the idle time anew, `pause` stops the clock while a person is asked. A touch costs no
    timer: the one that runs looks, when it goes off, whether it came too early.
    """

    __slots__ = ("_at", "_expire", "_idle", "_loop", "_max", "_max_at", "_paused_since", "_timer")

    def __init__(self, idle_seconds: float, max_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = idle_seconds
        self._max = max_seconds
        now = self._loop.time()
        self._at = now + idle_seconds
        self._max_at = now + max_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._paused_since: float | None = None
        self._expire: Callable[[float], None]

    def start(self, expire: Callable[[float], None]) -> None:
        """Call `expire`, with the limit that was passed, when the time is up."""
        self._expire = expire
        self._timer = self._loop.call_at(min(self._at, self._max_at), self._check)

    def touch(self) -> None:
        """Begin the idle time anew."""
        self._at = self._loop.time() + self._idle

    def pause(self) -> None:
        """Stop the clock."""
        if self._paused_since is None:
            self._paused_since = self._loop.time()

    def resume(self) -> None:
        """Let the clock go on; the time since `pause` does not count."""
        if self._paused_since is not None:
            paused = self._loop.time() - self._paused_since
            self._paused_since = None
            self._at += paused
            self._max_at += paused
            if self._timer is not None:  # it may have gone off in the meantime
                self._timer.cancel()
                self._timer = self._loop.call_at(min(self._at, self._max_at), self._check)

    def stop(self) -> None:
        """Forget it: the request is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if self._paused_since is not None:
            return  # `resume` sets another timer
        now = self._loop.time()
        at = min(self._at, self._max_at)
        if now < at:
            self._timer = self._loop.call_at(at, self._check)
        else:
            self._expire(self._max if now >= self._max_at else self._idle)
