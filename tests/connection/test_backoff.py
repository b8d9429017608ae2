"""When to try again, by a clock of the test's own."""

import pytest

from fairlead.connection.deadlines import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    OPEN_SECONDS,
    STABLE_SECONDS,
    TRIES_BEFORE_OPEN,
    Backoff,
)
from fairlead.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def backoff(clock: FakeClock) -> Backoff:
    return Backoff(clock, jitter=lambda: 1.0)


def fail(backoff: Backoff, times: int) -> None:
    for _ in range(times):
        backoff.note_failure()


def test_nothing_has_to_wait_at_first(backoff: Backoff) -> None:
    assert (backoff.wait_seconds, backoff.is_open) == (0, False)


def test_the_first_retry_is_free(backoff: Backoff) -> None:
    backoff.note_failure()
    assert (backoff.wait_seconds, backoff.is_open) == (0, False)


def test_each_wait_is_longer_than_the_last(backoff: Backoff) -> None:
    waits: list[float] = []
    for _ in range(TRIES_BEFORE_OPEN):
        backoff.note_failure()
        waits.append(backoff.wait_seconds)
    assert waits[:3] == [0, FIRST_SECONDS, 2 * FIRST_SECONDS]
    assert waits == sorted(waits)
    assert max(waits[:-1]) <= LONGEST_SECONDS
    assert waits[-1] == OPEN_SECONDS


def test_a_wait_passes(backoff: Backoff, clock: FakeClock) -> None:
    fail(backoff, 2)
    clock.now += FIRST_SECONDS / 2
    assert backoff.wait_seconds == FIRST_SECONDS / 2
    clock.now += FIRST_SECONDS
    assert backoff.wait_seconds == 0


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_chance_shortens_a_wait_by_half_at_most(clock: FakeClock, jitter: float, share: float) -> None:
    backoff = Backoff(clock, jitter=lambda: jitter)
    fail(backoff, 2)
    assert backoff.wait_seconds == pytest.approx(FIRST_SECONDS * share)


def test_many_failures_open_it_and_time_half_opens_it(backoff: Backoff, clock: FakeClock) -> None:
    fail(backoff, TRIES_BEFORE_OPEN - 1)
    assert not backoff.is_open
    backoff.note_failure()
    assert backoff.is_open
    clock.now += OPEN_SECONDS
    assert not backoff.is_open
    assert backoff.wait_seconds == 0


def test_a_failure_while_half_open_opens_it_again(backoff: Backoff, clock: FakeClock) -> None:
    fail(backoff, TRIES_BEFORE_OPEN)
    clock.now += OPEN_SECONDS
    backoff.note_failure()
    assert backoff.is_open


def test_a_connection_that_lasted_clears_the_count(backoff: Backoff) -> None:
    fail(backoff, TRIES_BEFORE_OPEN - 1)
    backoff.note_success(STABLE_SECONDS)
    backoff.note_failure()
    assert (backoff.failures, backoff.wait_seconds) == (1, 0)


def test_a_connection_that_broke_soon_does_not(backoff: Backoff) -> None:
    fail(backoff, TRIES_BEFORE_OPEN - 1)
    backoff.note_success(STABLE_SECONDS / 2)
    backoff.note_failure()
    assert backoff.is_open


def test_a_connection_that_was_of_use_clears_the_count_however_short(backoff: Backoff) -> None:
    fail(backoff, TRIES_BEFORE_OPEN - 1)
    backoff.note_success(0.1, served=True)
    backoff.note_failure()
    assert (backoff.failures, backoff.wait_seconds) == (1, 0)


def test_a_reset_forgets_everything(backoff: Backoff) -> None:
    fail(backoff, TRIES_BEFORE_OPEN)
    backoff.reset()
    assert (backoff.failures, backoff.wait_seconds, backoff.is_open) == (0, 0, False)
