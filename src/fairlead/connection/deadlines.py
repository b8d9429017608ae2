"""Deadlines of requests, and backoff with a circuit breaker for connections.

Progress resets the idle timeout of a request, never the absolute one.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class DeadlineClock:
    """One timer for all the deadlines of a connection, because a timer for each is most of what a call costs.

    It goes off at the earliest of them and looks which are over; those that ended or moved meanwhile cost
    nothing.
    """

    __slots__ = ("_holds", "_loop", "_running", "_timer", "_wakes_at")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf
        self._holds = 0

    @contextmanager
    def hold(self) -> Generator[None]:
        """Stop the time of all deadlines, and of those that come, for the length of the block."""
        self._holds += 1
        for deadline in self._running:
            deadline.pause()
        try:
            yield
        finally:
            self._holds -= 1
            if self._holds == 0:
                for deadline in [*self._running]:
                    deadline.resume()

    def now(self) -> float:
        """The current time."""
        return self._loop.time()

    def add(self, deadline: "Deadline") -> None:
        """Watch over a deadline."""
        if self._holds:
            deadline.pause()
        self._running.add(deadline)
        # A later deadline needs no timer of its own: `_wake` looks at all of them.
        if deadline.at < self._wakes_at:
            self._wake_at(deadline.at)

    def remove(self, deadline: "Deadline") -> None:
        """Forget a deadline."""
        self._running.discard(deadline)

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = at
        self._timer = self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._timer, self._wakes_at = None, math.inf
        now = self._loop.time()
        for deadline in [*self._running]:
            if deadline.at <= now:
                self._running.discard(deadline)
                deadline.expire(now)
        next_at = min((deadline.at for deadline in self._running), default=math.inf)
        if next_at < math.inf:
            self._wake_at(next_at)


class Deadline:
    """The deadline of one request: progress resets the idle timeout, a request for input pauses it."""

    __slots__ = ("_clock", "_expire", "_idle", "_idle_at", "_max", "_max_at", "_paused_since")

    def __init__(self, idle_seconds: float, max_seconds: float) -> None:
        self._idle = idle_seconds
        self._max = max_seconds
        self._idle_at = self._max_at = math.inf
        self._paused_since: float | None = None
        self._clock: DeadlineClock | None = None
        self._expire: Callable[[float], None]

    @property
    def at(self) -> float:
        """The time at which it expires, unless progress moves it."""
        return math.inf if self._paused_since is not None else min(self._idle_at, self._max_at)

    def start(self, clock: DeadlineClock, expire: Callable[[float], None]) -> None:
        """Start the timer. `expire` is called with the limit that was exceeded."""
        now = clock.now()
        self._idle_at, self._max_at = now + self._idle, now + self._max
        self._clock = clock
        self._expire = expire
        clock.add(self)

    def touch(self) -> None:
        """Reset the idle timeout."""
        if self._clock is not None:
            self._idle_at = self._clock.now() + self._idle

    def pause(self) -> None:
        """Stop the time."""
        if self._clock is not None and self._paused_since is None:
            self._paused_since = self._clock.now()

    def resume(self) -> None:
        """Resume the timer; the time since `pause` does not count."""
        if self._clock is not None and self._paused_since is not None:
            paused = self._clock.now() - self._paused_since
            self._paused_since = None
            # Both limits move: the time for which the user was prompted is not the server's.
            self._idle_at += paused
            self._max_at += paused
            self._clock.add(self)

    def stop(self) -> None:
        """Forget it: the request is over."""
        if self._clock is not None:
            self._clock.remove(self)
            self._clock = None

    def expire(self, now: float) -> None:
        """Call `expire` with the limit that was exceeded."""
        self._expire(self._max if now >= self._max_at else self._idle)


FIRST_SECONDS = 0.25
LONGEST_SECONDS = 10.0
TRIES_BEFORE_OPEN = 5
OPEN_SECONDS = 30.0
STABLE_SECONDS = 30.0
"""How long a connection must have lasted for its loss to count as the first."""


class Backoff:
    """Counts failures in a row. The first retry is free: most servers that died just need a restart."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self.failures = 0
        self._wait_until = 0.0

    def note_success(self, lasted_seconds: float, *, served: bool = False) -> None:
        """Count the end of a connection. One that lasted, or answered a call, resets the count."""
        # Not every success: a server that crashes after each handshake would be restarted without a pause.
        if served or lasted_seconds >= STABLE_SECONDS:
            self.failures = 0

    def note_failure(self) -> None:
        """Count a failure: a connection could not be made, or broke soon after."""
        self.failures += 1
        if self.failures >= TRIES_BEFORE_OPEN:
            seconds = OPEN_SECONDS
        elif self.failures == 1:
            seconds = 0.0
        else:
            seconds = min(FIRST_SECONDS * 2 ** (self.failures - 2), LONGEST_SECONDS)
        # Jitter: all who lost the same server would otherwise come back at once.
        self._wait_until = self._clock() + seconds * (0.5 + self._jitter() / 2)

    def reset(self) -> None:
        """Forget all failures: the user requested another attempt."""
        self.failures = 0
        self._wait_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the circuit breaker is open: all is refused until its time is over, then one may try."""
        return self.failures >= TRIES_BEFORE_OPEN and self.wait_seconds > 0

    @property
    def wait_seconds(self) -> float:
        """Seconds to wait before the next try."""
        return max(0.0, self._wait_until - self._clock())
