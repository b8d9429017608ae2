"""The watchdog that the other tests rely on."""

import gc
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from fairlead.testing.watchdog import LoopHeld, LoopWatchdog, watch_loop

pytestmark = [pytest.mark.blocks_loop, pytest.mark.slow]


@pytest.fixture(autouse=True)
def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.testing.watchdog.SHARED_FACTOR", 1.0)
    monkeypatch.setattr("fairlead.testing.watchdog.TRACED_FACTOR", 1.0)


def use_processor(seconds: float) -> None:
    """Work for so much time of a processor, however busy the machine is."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


@pytest.mark.requirement("HARD-66")
async def test_a_loop_that_is_not_held_passes() -> None:
    with watch_loop(0.05):
        for _ in range(20):
            use_processor(0.005)
            await anyio.sleep(0.005)


@pytest.mark.requirement("HARD-66")
async def test_work_on_the_loop_is_noticed_and_shown() -> None:
    with pytest.raises(AssertionError, match="the event loop was held for") as caught, watch_loop(0.05):
        use_processor(0.3)
    assert "use_processor" in str(caught.value)


@pytest.mark.requirement("HARD-66")
async def test_a_paused_watchdog_leaves_out_what_is_done_meanwhile_and_nothing_before_or_after() -> None:
    with watch_loop(0.05) as watchdog:
        with watchdog.pause():
            use_processor(0.3)
        await anyio.sleep(0.02)
    for before, after in ((0.3, 0.0), (0.0, 0.3)):
        watchdog = LoopWatchdog(0.05)
        watchdog.start()
        use_processor(before)
        with watchdog.pause():
            use_processor(0.1)
        use_processor(after)
        watchdog.stop()
        with pytest.raises(LoopHeld):
            watchdog.require()


@pytest.mark.requirement("HARD-66")
async def test_what_a_watchdog_itself_does_at_its_start_is_not_held_against_the_loop() -> None:
    kept: list[list[object]] = []
    with watch_loop(0.05) as outer:
        with outer.pause():
            kept += [[] for _ in range(1_000_000)]  # so that a collection takes long
        for _ in range(3):
            with watch_loop(0.05):
                await anyio.sleep(0.02)
    assert len(kept) == 1_000_000


@pytest.mark.requirement("HARD-66")
async def test_a_call_that_blocks_is_noticed() -> None:
    with pytest.raises(AssertionError, match="the event loop was held for"), watch_loop(0.05):
        time.sleep(0.2)  # noqa: ASYNC251 - blocking is what is tested


@contextmanager
def ahead_of_others() -> Generator[None]:
    """Run this thread, and those that it starts, before other processes, where the system allows that."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except PermissionError:
        yield
        return
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


@pytest.mark.requirement("HARD-66")
async def test_a_thread_that_keeps_the_interpreter_is_noticed() -> None:
    noticed = 0
    with ahead_of_others():  # what threads wait for a processor is subtracted, which may hide a short one
        for millions in (6, 12, 24, 24, 24):
            bomb = b"[" + b"1," * (millions * 1_000_000) + b"1]"
            try:
                with watch_loop(0.05):
                    await anyio.to_thread.run_sync(msgspec.json.decode, bomb)
            except LoopHeld:
                noticed += 1
                break
    assert noticed


@pytest.mark.requirement("HARD-66")
async def test_watchdogs_of_one_process_share_a_thread_and_each_sees_what_its_limit_is_for() -> None:
    def watching() -> int:
        return len([thread for thread in threading.enumerate() if thread.name == "loop-watchdog"])

    with watch_loop(5.0) as outer:
        with pytest.raises(LoopHeld, match="use_processor"), watch_loop(0.05), watch_loop(2.0):
            use_processor(0.3)
        assert watching() == 1
    assert outer.worst.seconds < 5.0


@pytest.mark.requirement("HARD-66")
async def test_every_asynchronous_test_is_watched(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    test = tmp_path / "test_held.py"
    test.write_text("import time\n\nasync def test_held() -> None:\n    time.sleep(1.5)\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(request.config.inipath), str(test)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    env = {**inherited, "FAIRLEAD_LOOP_FACTOR": "1", "PYTHONPATH": str(request.config.rootpath)}
    with anyio.fail_after(60):
        done = await anyio.run_process(command, check=False, cwd=tmp_path, env=env)
    assert b"LoopHeld: the event loop was held for" in done.stdout, done.stdout


@pytest.mark.requirement("HARD-66")
async def test_a_thread_that_shares_the_interpreter_holds_the_loop_up_no_longer_than_a_switch_takes() -> None:
    with watch_loop(0.05):
        await anyio.to_thread.run_sync(use_processor, 0.5)


@pytest.mark.requirement("HARD-66")
async def test_the_thread_that_keeps_the_interpreter_is_shown_beside_the_loop() -> None:
    made: list[bytes] = []

    def keep_interpreter() -> None:
        size = 200_000_000
        while not watchdog.worst.stack and size < 2_000_000_000:  # it may go unnoticed, or unseen, at first
            made.append(b" " * size)
            made.clear()
            size += size // 4

    with pytest.raises(LoopHeld) as caught, anyio.fail_after(30), watch_loop(0.02) as watchdog:
        await anyio.to_thread.run_sync(keep_interpreter)
    assert "keep_interpreter" in str(caught.value)


@pytest.mark.requirement("HARD-66")
async def test_garbage_collection_is_named_and_what_was_there_before_is_none_of_it() -> None:
    there = [[number] for number in range(1_000_000)]
    with watch_loop(0.05):
        gc.collect()
    assert there
    watchdog = LoopWatchdog(0.01)
    watchdog.start()
    gc.collect()
    watchdog.stop()
    assert "for garbage collection" in str(watchdog.worst)
