"""A clock for tests."""


class FakeClock:
    """A clock that stands still until it is moved. Call it for the time, as `time.monotonic` is called."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
