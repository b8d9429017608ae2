"""One gateway with faults drawn from a seed: `tests/exam/gateway.py`, for seconds or minutes."""

import os
import sys

import anyio
import pytest

from tests.exam.gateway import EXTERNAL, GatewayExam
from tests.exam.upstream_program import FAULTS

LOOP_FACTOR = float(os.environ.get("FAIRLEAD_LOOP_FACTOR") or 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "seed"),
    [(10.0, 24), pytest.param(120.0, 25, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
)
@pytest.mark.blocks_loop  # it waits for the process it starts; the gateway has a loop of its own
@pytest.mark.requirement("HARD-52")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
async def test_a_gateway_under_faults_crosses_no_answer_repeats_no_call_and_leaks_nothing(
    seconds: float, seed: int
) -> None:
    exam = GatewayExam(seconds, seed, loop_factor=LOOP_FACTOR)
    with anyio.fail_after(seconds + 120):
        faults = await exam.run()

    assert faults == []
    assert {*exam.faults} <= {*EXTERNAL, *FAULTS}
    assert exam.faults.total() > seconds
    assert exam.callers.outcomes["answered"] > 5 * seconds
