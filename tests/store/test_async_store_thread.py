"""The thread behind a store: in order, on time, and not to be brought down."""

from pathlib import Path

import anyio
import pytest

from fairlead.store.async_store import Worker
from fairlead.store.protocol import Database

PATIENCE = 30.0


def fail(_: Database) -> None:
    raise ZeroDivisionError


async def test_whatever_the_work_raises_reaches_the_caller_alone(path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        async with Worker.open(path) as worker:
            with pytest.raises(ZeroDivisionError):
                await worker.run(fail)
            assert await worker.run(lambda _: "still here") == "still here"


async def test_a_chore_runs_again_for_as_long_as_it_wants_to(path: Path) -> None:
    runs: list[str] = []
    ended = anyio.Event()

    async with Worker.open(path) as worker:

        def chore(_: Database) -> float | None:
            runs.append("again")
            if len(runs) < 3:
                return 0.001
            worker.tell(ended.set)
            return None

        worker.schedule(0, chore)
        with anyio.fail_after(PATIENCE):
            await ended.wait()
    assert len(runs) == 3


async def test_chores_run_in_the_order_they_are_due_and_a_failing_one_stops_no_other(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[str] = []
    ended = anyio.Event()
    async with Worker.open(path) as worker:
        worker.schedule(0.8, lambda _: worker.tell(ended.set))
        worker.schedule(0.6, lambda _: runs.append("late"))
        worker.schedule(0.2, fail)
        worker.schedule(0.4, lambda _: runs.append("early"))
        with anyio.fail_after(PATIENCE):
            await ended.wait()
    assert runs == ["early", "late"]
    assert "a chore of the store failed" in caplog.text


async def test_chores_that_are_not_due_do_not_hold_up_the_end(path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        async with Worker.open(path) as worker:
            worker.schedule(3600, lambda _: None)
            await worker.run(lambda _: None)
