"""A gateway under load while its servers are killed: `benchmarks/soak.py`, for a minute."""

import sys

import anyio
import pytest
from benchmarks.soak import Soak

SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.blocks_loop  # it waits for the processes it starts; the gateway has a loop of its own
@pytest.mark.requirement("HARD-52")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes and their memory in /proc")
async def test_under_load_with_servers_killed_at_random_no_reply_is_crossed_and_no_call_is_lost() -> None:
    with anyio.fail_after(SECONDS + 90):
        report = await Soak(SECONDS, seed=52).run()

    assert report.faults == []
    assert report.answered > 1_000
    assert report.kills > 10
