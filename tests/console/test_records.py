"""What the console can look back on: answers about calls, what was called, and what it costs."""

import pytest

from fairlead.errors import ArgumentsInvalid, CallDenied
from fairlead.host.operator import ApprovalAnswer
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.console.support import Shown, session_with
from tests.loop.model_server import says, serving


def server(machine: Machine) -> ScriptedServer:
    return ScriptedServer(machine.home / "x.record", tools=["echo"])


async def call(console: Shown, answer: ApprovalAnswer) -> None:
    """Have an agent call a tool, and a person answer the question about it, if there is one."""
    console.typed.answers = [answer]
    await console.session.host.call("x", "echo", {"a": 1})


# Approvals.


@pytest.mark.requirement("NEED-26")
async def test_what_was_answered_and_what_holds_is_shown_and_can_be_taken_back(machine: Machine) -> None:
    x = server(machine)
    async with session_with(machine, {"x": x.entry(approval="ask")}) as console:
        assert await console.does("/approve") == "no approvals beyond single calls"
        await call(console, "once")
        with pytest.raises(CallDenied):
            await call(console, "no")
        shown = await console.does("/approve")
        assert "allowed once" in shown
        assert "not allowed" in shown
        assert "no approvals beyond single calls" in shown

        lasting: list[tuple[ApprovalAnswer, str]] = [("session", "this session"), ("always", "since 20")]
        for answer, shown_as in lasting:
            await call(console, answer)
            await call(console, "no")  # which nobody is asked
            shown = await console.does("/approve")
            assert "x.echo" in shown
            assert shown_as in shown
            assert "/approve revoke N" in shown
            assert await console.does("/approve revoke 1") == "`x.echo` needs approval again"
            with pytest.raises(CallDenied):
                await call(console, "no")
    assert x.calls("echo") == 5


async def test_what_was_allowed_for_good_in_another_run_can_be_taken_back(machine: Machine) -> None:
    entry = server(machine).entry(approval="ask")
    async with session_with(machine, {"x": entry}) as console:
        await call(console, "always")
    async with session_with(machine, {"x": entry}) as console:
        shown = await console.does("/approve")
        assert "x.echo" in shown
        assert "in this session" not in shown
        await console.does("/approve revoke 1")
    async with session_with(machine, {"x": entry}) as console:
        with pytest.raises(CallDenied):
            await call(console, "no")


@pytest.mark.parametrize(
    "typed", ["/approve revoke 1", "/approve revoke", "/approve revoke x", "/approve it"]
)
async def test_what_is_not_there_cannot_be_taken_back(machine: Machine, typed: str) -> None:
    async with session_with(machine, {}) as console:
        with pytest.raises(ArgumentsInvalid) as caught:
            await console.does(typed)
        assert caught.value.hint
        assert console.completes("/approve r") == ["/approve revoke "]


# The audit.


async def test_the_last_calls_are_shown_with_who_let_them(machine: Machine) -> None:
    async with session_with(machine, {"x": server(machine).entry(approval="ask")}) as console:
        assert await console.does("/audit") == "nothing was recorded yet"
        with pytest.raises(CallDenied):
            await call(console, "no")
        for _ in range(3):
            await call(console, "once")
        shown = await console.does("/audit")
        assert shown.count("local") == 4
        assert "call_denied" in shown
        assert (await console.does("/audit 2")).count("local") == 2
        for wrong in ("0", "-1", "some", "1001"):
            with pytest.raises(ArgumentsInvalid):
                await console.does(f"/audit {wrong}")


# Costs.


@pytest.mark.requirement("NEED-3")
async def test_tokens_are_shown_by_server_and_by_way_and_for_the_conversation(machine: Machine) -> None:
    with serving(says("openai", "ok")) as api:
        servers = {"x": server(machine).entry()}
        async with session_with(machine, servers, model=api.model("openai")) as console:
            await console.session.host.connect("x")
            shown = await console.does("/cost")
            for word in ("x ", "direct", "meta", "search", "as configured"):
                assert word in shown
            assert "this conversation" not in shown
            await console.does("hello")
            shown = await console.does("/cost")
            assert "this conversation: 100 tokens in, 40 of them cached, 10 out" in shown


async def test_nothing_costs_little(machine: Machine) -> None:
    async with session_with(machine, {}) as console:
        assert "0 of 0 tools direct" in await console.does("/cost")
