"""Three replicas with faults drawn from a seed: `tests/exam/replicas.py`, for seconds or minutes."""

import sys

import anyio
import pytest

from tests.exam.replicas import LIMITS, ReplicaExam

BUSY_SECONDS = 8.0
"""How much later than promised something may happen beside other tests."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "seed", "only"),
    [
        (24.0, 23, ("killed", "redis paused", "without peers", "redis killed")),
        pytest.param(180.0, 24, tuple(LIMITS), marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
@pytest.mark.blocks_loop  # it waits for the processes it starts; the gateways have loops of their own
@pytest.mark.requirement("NEED-21")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
async def test_replicas_under_faults_cross_no_answer_and_execute_nothing_twice(
    seconds: float, seed: int, only: tuple[str, ...]
) -> None:
    exam = ReplicaExam(seconds, seed, only=only, busy_seconds=BUSY_SECONDS)
    with anyio.fail_after(seconds + 120):
        faults = await exam.run()

    assert faults == []
    assert {fault.kind for fault in exam.faults} == {*only}
    assert exam.callers.outcomes["answered"] > 5 * exam.seconds
    assert exam.callers.ledger.refreshes
