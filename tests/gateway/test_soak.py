"""A gateway under load while its servers are killed: `benchmarks/soak.py`, for seconds or a minute."""

import sys

import anyio
import pytest
from benchmarks.soak import Soak


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [15.0, pytest.param(60.0, marks=pytest.mark.long)])
@pytest.mark.blocks_loop  # it waits for the processes it starts; the gateway has a loop of its own
@pytest.mark.requirement("HARD-52")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes and their memory in /proc")
async def test_under_load_with_servers_killed_at_random_no_reply_is_crossed_and_no_call_is_lost(
    seconds: float,
) -> None:
    with anyio.fail_after(seconds + 90):
        report = await Soak(seconds, seed=52).run()

    assert report.faults == []
    assert report.answered > 15 * seconds
    assert report.kills > seconds / 6
