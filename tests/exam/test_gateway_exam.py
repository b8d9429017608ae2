"""One gateway with faults drawn from a seed: `tests/exam/gateway.py`, for seconds or minutes."""

import os
import sys

import anyio
import pytest

from fairlead.catalog.repair.protocol_versions import VERSIONS
from tests.exam.calls import Caller
from tests.exam.gateway import EXTERNAL, SERVERS, GatewayExam
from tests.exam.upstream_program import FAULTS, version_of
from tests.exam.upstreams import KINDS

LOOP_FACTOR = float(os.environ.get("FAIRLEAD_LOOP_FACTOR") or 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "seed", "faulty"),
    [
        (10.0, 24, {"killed"}),
        pytest.param(120.0, 25, {*EXTERNAL, *FAULTS}, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
@pytest.mark.blocks_loop  # it waits for the process it starts; the gateway has a loop of its own
@pytest.mark.requirement("HARD-52")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
async def test_a_gateway_under_faults_crosses_no_answer_repeats_no_call_and_leaks_nothing(
    seconds: float, seed: int, faulty: set[str]
) -> None:
    exam = GatewayExam(seconds, seed, loop_factor=LOOP_FACTOR)
    with anyio.fail_after(seconds + 120):
        faults = await exam.run()

    assert faults == []
    happened = {kind for kind, times in exam.faults.items() if times}
    assert faulty <= happened <= {*EXTERNAL, *FAULTS}
    assert exam.callers.ledger.servers == {*exam.callers.servers}
    assert exam.faults.total() > seconds
    assert exam.callers.outcomes["answered"] > 5 * seconds


def test_servers_of_the_exam_speak_every_protocol_version() -> None:
    spoken = {version_of(f"s{number}", KINDS[number % len(KINDS)].era) for number in range(SERVERS)}

    assert spoken == {*VERSIONS}


def test_a_caller_draws_every_kind_before_any_of_them_again_and_the_same_from_the_same_seed() -> None:
    caller, other = Caller("25:0:0"), Caller("25:0:0")
    drawn = [caller.draw(FAULTS) for _ in range(2 * len(FAULTS))]

    assert sorted(drawn[: len(FAULTS)]) == sorted(drawn[len(FAULTS) :]) == sorted(FAULTS)
    assert drawn == [other.draw(FAULTS) for _ in range(2 * len(FAULTS))]
