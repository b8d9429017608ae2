"""How many servers start at once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from fairlead.connection import start_limit
from fairlead.connection.start_limit import StartLimit, busy_processors

SECONDS = 10


class Starts:
    """Servers that start when they are let in, and stay until they are told that they are ready."""

    def __init__(self, admission: StartLimit) -> None:
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
    monkeypatch.setattr(start_limit, "_POLL_SECONDS", 0)


async def entered(processors: int, busy: Callable[[int], int | None], count: int) -> int:
    """How many of so many starts are let in before the first is ready."""
    starts, before = Starts(StartLimit(processors, busy)), 0
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
    assert await entered(2, lambda _starting: 0, 20) == 20


async def test_servers_that_burn_the_processors_start_as_many_as_there_are_processors() -> None:
    assert await entered(2, lambda _starting: 2, 20) == 2


async def test_a_few_always_start_however_busy_the_machine_is() -> None:
    assert await entered(3, lambda _starting: 100, 3) == 3


async def test_where_the_system_does_not_say_the_processors_are_taken_for_busy() -> None:
    assert await entered(2, lambda _starting: None, 20) == 2


async def test_a_place_is_free_again_when_a_start_is_over_or_failed() -> None:
    admission = StartLimit(1, lambda _starting: 9)
    with anyio.fail_after(SECONDS):
        for _ in range(3):
            with pytest.raises(ValueError, match="failed"):
                async with admission.start():
                    raise ValueError("failed")
        async with admission.start():
            pass


async def test_a_start_that_is_cancelled_while_it_waits_takes_no_place() -> None:
    admission = StartLimit(1, lambda _starting: 9)
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
    admission = StartLimit(1, lambda _starting: 9)
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
    monkeypatch.setattr(start_limit, "_LONGEST_WAIT_SECONDS", 0.05)
    with anyio.fail_after(SECONDS):
        gate = StartLimit(1, lambda _starting: 9)
        async with gate.start(), gate.start():
            pass


def test_the_busy_processors_are_read_from_the_system() -> None:
    busy = busy_processors(1)
    assert busy is None or busy >= 0


@pytest.fixture
def family() -> Generator[None]:
    """A process below ours with forty that sleep, and the newest of them, which computes."""
    script = "for n in $(seq 40); do sleep 20 & done; while :; do :; done & echo; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        try:
            shell.stdout.readline()
            yield
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's children")
@pytest.mark.usefixtures("family")
def test_a_look_finds_what_computes_among_the_newest_and_reads_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_file = os.open

    def count(path: str, flags: int) -> int:
        opened.append(path)
        return open_file(path, flags)

    (tmp_path / "busy").write_text("9 9 9 1000/2000 1\n")  # so that our own are looked at
    monkeypatch.setattr(start_limit, "_LOAD", str(tmp_path / "busy"))
    monkeypatch.setattr(start_limit, "_PROCESSORS", 100)
    deadline = time.monotonic() + SECONDS
    while busy_processors(1) == 0:  # the newest has not begun to compute, or waits for a processor
        assert time.monotonic() < deadline
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", count)
        assert busy_processors(100) is not None
        all_files = len(opened)
        opened.clear()
        assert busy_processors(2) is not None
    assert all_files > 80
    assert len(opened) < all_files - 60


def test_a_system_that_does_not_say_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_limit, "_LOAD", "/nowhere/at/all")
    assert busy_processors(1) is None
