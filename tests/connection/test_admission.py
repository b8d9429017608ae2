"""How many servers start at once."""

from collections.abc import Callable
from contextlib import AsyncExitStack

import anyio
import pytest
from anyio.lowlevel import checkpoint

from fairlead.connection import admission
from fairlead.connection.admission import Admission, busy_processors

SECONDS = 10


class Starts:
    """Servers that start when they are let in, and stay until they are told that they are ready."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.entered = 0
        self.ready = anyio.Event()

    async def start(self) -> None:
        async with self._admission.start():
            self.entered += 1
            await self.ready.wait()

    async def settle(self) -> None:
        """Let everybody come as far as they can."""
        for _ in range(50):
            await checkpoint()


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_POLL_SECONDS", 0)


async def entered(processors: int, busy: Callable[[], int | None], count: int) -> int:
    """How many of so many starts are let in before the first is ready."""
    starts, before = Starts(Admission(processors, busy)), 0
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(starts.start)
            await starts.settle()
            before = starts.entered
            starts.ready.set()
    assert starts.entered == count, "all come in, in the end"
    return before


async def test_servers_that_sleep_start_all_at_once() -> None:
    assert await entered(2, lambda: 0, 20) == 20


async def test_servers_that_burn_the_processors_start_as_many_as_there_are_processors() -> None:
    assert await entered(2, lambda: 2, 20) == 2


async def test_a_few_always_start_however_busy_the_machine_is() -> None:
    assert await entered(3, lambda: 100, 3) == 3


async def test_where_the_system_does_not_say_the_processors_are_taken_for_busy() -> None:
    assert await entered(2, lambda: None, 20) == 2


async def test_a_place_is_free_again_when_a_start_is_over_or_failed() -> None:
    admission = Admission(1, lambda: 9)
    with anyio.fail_after(SECONDS):
        for _ in range(3):
            with pytest.raises(ValueError, match="failed"):
                async with admission.start():
                    raise ValueError("failed")
        async with admission.start():
            pass


async def test_a_start_that_is_cancelled_while_it_waits_takes_no_place() -> None:
    admission = Admission(1, lambda: 9)
    with anyio.fail_after(SECONDS):
        async with AsyncExitStack() as first:
            await first.enter_async_context(admission.start())
            with anyio.move_on_after(0) as scope:
                async with admission.start():
                    pytest.fail("there was no room")
            assert scope.cancelled_caught
        async with admission.start():
            pass


async def test_starts_are_let_in_in_the_order_they_came() -> None:
    admission = Admission(1, lambda: 9)
    entered: list[int] = []

    async def start(number: int) -> None:
        async with admission.start():
            entered.append(number)
            await checkpoint()

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(start, number)
    assert entered == [*range(10)]


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_LONGEST_WAIT_SECONDS", 0.05)
    with anyio.fail_after(SECONDS):
        gate = Admission(1, lambda: 9)
        async with gate.start(), gate.start():
            pass


def test_the_busy_processors_are_read_from_the_system() -> None:
    busy = busy_processors()
    assert busy is None or busy >= 0


def test_a_system_that_does_not_say_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_LOAD", "/nowhere/at/all")
    assert busy_processors() is None
