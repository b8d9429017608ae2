"""When to try again after a failure: at once, then later each time, and after many not for a while."""

import random
import time
from collections.abc import Callable

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

    def succeeded(self, lasted_seconds: float, *, served: bool = False) -> None:
        """A connection was made and ended; one that lasted, or was of use to somebody, clears the count."""
        if served or lasted_seconds >= STABLE_SECONDS:
            self.failures = 0

    def failed(self) -> None:
        """A connection could not be made, or broke soon after."""
        self.failures += 1
        if self.failures >= TRIES_BEFORE_OPEN:
            seconds = OPEN_SECONDS
        elif self.failures == 1:
            seconds = 0.0
        else:
            seconds = min(FIRST_SECONDS * 2 ** (self.failures - 2), LONGEST_SECONDS)
        self._wait_until = self._clock() + seconds * (0.5 + self._jitter() / 2)

    def reset(self) -> None:
        """Forget all failures: somebody who knows better asks for a try."""
        self.failures = 0
        self._wait_until = 0.0

    @property
    def is_open(self) -> bool:
        """Too many failures: refuse at once, until the time is over and one demand may try."""
        return self.failures >= TRIES_BEFORE_OPEN and self.wait_seconds > 0

    @property
    def wait_seconds(self) -> float:
        """How long the next try has to wait."""
        return max(0.0, self._wait_until - self._clock())
