"""The clock of one request, on an event loop whose time the test moves."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from fairlead.connection.deadlines import Deadline, DeadlineClock


class FakeLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands still until `advance` moves it, timer by timer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.timers: list[tuple[float, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.timers.append((when, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.timers = [timer for timer in self.timers if timer[1] is not handle]

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]._run()
        self.now = end


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeLoop]:
    loop = FakeLoop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    yield loop
    loop.close()


class Expiry:
    """When a deadline expired, and of which limit."""

    def __init__(
        self, loop: FakeLoop, idle: float, maximum: float, clock: DeadlineClock | None = None
    ) -> None:
        self._loop = loop
        self.at: float | None = None
        self.limit: float | None = None
        self._began = loop.now
        self.deadline = Deadline(idle, maximum)
        self.deadline.start(clock or DeadlineClock(), self._expired)

    def _expired(self, limit: float) -> None:
        assert self.at is None, "it expires once"
        self.at, self.limit = self._loop.now - self._began, limit


def test_it_expires_after_its_idle_time(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 100)
    loop.advance(9.9)
    assert expiry.at is None
    loop.advance(50)
    assert (expiry.at, expiry.limit) == (10, 10)


def test_a_touch_begins_the_idle_time_anew(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 100)
    for _ in range(5):
        loop.advance(9)
        expiry.deadline.touch()
    assert expiry.at is None
    loop.advance(100)
    assert (expiry.at, expiry.limit) == (55, 10)


def test_no_touch_moves_the_absolute_cap_and_its_limit_is_the_one_named(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 33)
    for _ in range(20):
        loop.advance(5)
        expiry.deadline.touch()
    assert (expiry.at, expiry.limit) == (33, 33)


def test_a_cap_below_the_idle_time_counts(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 3)
    loop.advance(20)
    assert (expiry.at, expiry.limit) == (3, 3)


def test_the_time_of_a_pause_does_not_count(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 100)
    loop.advance(4)
    expiry.deadline.pause()
    expiry.deadline.pause()
    loop.advance(1000)
    assert expiry.at is None
    expiry.deadline.resume()
    expiry.deadline.resume()
    loop.advance(5.9)
    assert expiry.at is None
    loop.advance(10)
    assert expiry.at == pytest.approx(1010)


def test_a_pause_moves_the_absolute_cap_too(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 12)
    expiry.deadline.pause()
    loop.advance(500)
    expiry.deadline.resume()
    for _ in range(4):
        loop.advance(4)
        expiry.deadline.touch()
    assert (expiry.at, expiry.limit) == (512, 12)


def test_a_resumed_clock_does_not_wait_for_the_timer_of_the_pause(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 100)
    loop.advance(9)
    expiry.deadline.pause()
    loop.advance(2)
    expiry.deadline.resume()
    loop.advance(1.5)
    assert expiry.at == pytest.approx(12)


def test_a_touch_costs_no_timer(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 100)
    for _ in range(1000):
        expiry.deadline.touch()
    assert len(loop.timers) == 1


def test_a_stopped_clock_never_expires(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 100)
    loop.advance(5)
    expiry.deadline.stop()
    expiry.deadline.stop()
    loop.advance(1000)
    assert expiry.at is None
    assert loop.timers == []


def test_a_stopped_clock_that_is_resumed_stays_stopped(loop: FakeLoop) -> None:
    expiry = Expiry(loop, 10, 100)
    expiry.deadline.pause()
    expiry.deadline.stop()
    expiry.deadline.resume()
    loop.advance(1000)
    assert expiry.at is None


def test_a_clock_that_was_never_started_can_be_stopped(loop: FakeLoop) -> None:
    Deadline(1, 2).stop()


def test_many_deadlines_share_one_timer_and_each_expires_in_its_own_time(loop: FakeLoop) -> None:
    clock = DeadlineClock()
    expiries = [Expiry(loop, idle, 100, clock) for idle in (30, 10, 20)]
    assert len(loop.timers) == 1
    expiries[2].deadline.touch()
    loop.advance(15)
    expiries[2].deadline.touch()
    loop.advance(100)
    assert [expiry.at for expiry in expiries] == [30, 10, 35]


def test_a_clock_whose_deadlines_are_all_over_goes_off_once_more_at_most(loop: FakeLoop) -> None:
    clock = DeadlineClock()
    for _ in range(100):
        Expiry(loop, 10, 100, clock).deadline.stop()
    assert len(loop.timers) == 1
    loop.advance(20)
    assert loop.timers == []
    expiry = Expiry(loop, 10, 100, clock)
    loop.advance(20)
    assert expiry.at == 10
