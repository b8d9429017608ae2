from dataclasses import replace

import pytest
from anyio import to_thread

from fairlead.policy.approvals import NAMESPACE, Approvals, RememberedApproval, forget_answers
from fairlead.store.async_store import AsyncStore
from fairlead.store.protocol import ANY
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


async def test_what_is_taken_back_elsewhere_ends_here_at_once(machine: Machine) -> None:
    async with AsyncStore.open(machine.home / "s.db") as store:
        approvals = Approvals(store)
        await approvals.allow_always(CALL)
        assert await approvals.look_up(CALL)
        await store.delete(NAMESPACE, CALL.key, expect=ANY)
        assert not await approvals.look_up(CALL)


@pytest.mark.parametrize("is_used", [True, False])
async def test_a_review_elsewhere_ends_approvals_for_a_session(machine: Machine, is_used: bool) -> None:
    path = machine.home / "s.db"
    async with AsyncStore.open(path) as store:
        approvals, other = Approvals(store), replace(CALL, server_id="y")
        for call in (CALL, other):
            approvals.allow_for_session(call, await approvals.revision(call.server_id))
            assert not is_used or await approvals.look_up(call)
        await to_thread.run_sync(forget_answers, path, "x", ["t"])
        assert not await approvals.look_up(CALL)
        assert await approvals.look_up(other), "it was about another server"
        before = await approvals.revision("x")
        approvals.allow_for_session(CALL, before)
        assert await approvals.look_up(CALL), "the newer word"
        await to_thread.run_sync(forget_answers, path, "x", ["t"])
        approvals.allow_for_session(CALL, before)
        assert not await approvals.look_up(CALL), "it was asked for before the review"


async def test_without_a_store_an_answer_for_good_lasts_as_long_as_the_host() -> None:
    approvals = Approvals(None)
    await approvals.allow_always(CALL)
    assert await approvals.look_up(CALL)


@pytest.mark.parametrize("value", [b"no json", b'{"principal": 1}', b'{"of": "a newer release"}', b"[]"])
async def test_an_approval_that_cannot_be_read_allows_nothing_and_costs_no_other(
    machine: Machine, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = machine.home / "s.db"
    async with AsyncStore.open(path) as store:
        approvals, other = Approvals(store), replace(CALL, tool="other")
        await approvals.allow_always(other)
        await store.put(NAMESPACE, CALL.key, value, expect=ANY)
        assert not await approvals.look_up(CALL)
        assert [kept.tool for _, kept in await approvals.list_kept()] == ["other"]
        assert CALL.key in {getattr(record, "key", None) for record in caplog.records}
        await to_thread.run_sync(forget_answers, path, "x", ["other"])
        assert not await approvals.look_up(other)
