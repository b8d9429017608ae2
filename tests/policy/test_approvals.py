from dataclasses import replace

import pytest

from fairlead.policy.approvals import FRESH_SECONDS, NAMESPACE, Approvals, RememberedApproval
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import ANY
from fairlead.testing import FakeClock
from tests.conftest import Machine

CALL = RememberedApproval(
    principal="local", server_id="x", server_digest="d", tool="t", definition_digest="e"
)


async def test_nothing_is_allowed_before_somebody_said_so(machine: Machine) -> None:
    async with AsyncStore.open(machine.home / "s.db") as store:
        assert not await Approvals(store).look_up(CALL)


@pytest.mark.requirement("HARD-47")
@pytest.mark.parametrize("part", ["principal", "server_id", "server_digest", "tool", "definition_digest"])
async def test_an_answer_is_bound_to_every_part_of_what_was_asked(machine: Machine, part: str) -> None:
    async with AsyncStore.open(machine.home / "s.db") as store:
        approvals = Approvals(store)
        await approvals.allow_always(CALL)
        approvals.allow_for_session(replace(CALL, tool="other"))
        assert await Approvals(store).look_up(CALL)
        assert not await approvals.look_up(replace(CALL, **{part: "another"}))


async def test_what_is_taken_back_elsewhere_ends_here_soon(machine: Machine) -> None:
    clock = FakeClock()
    async with AsyncStore.open(machine.home / "s.db") as store:
        approvals = Approvals(store, clock)
        await approvals.allow_always(CALL)
        await store.delete(NAMESPACE, CALL.key, expect=ANY)
        assert await approvals.look_up(CALL)
        clock.advance(FRESH_SECONDS + 0.1)
        assert not await approvals.look_up(CALL)


async def test_without_a_store_an_answer_for_good_lasts_as_long_as_the_host() -> None:
    approvals = Approvals(None)
    await approvals.allow_always(CALL)
    assert await approvals.look_up(CALL)
