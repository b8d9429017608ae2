"""Answering and forgetting approvals are one action each: every surface does and records the same."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from fairlead.actions.approvals import answers_for_good
from fairlead.config.paths import store_file
from fairlead.errors import CallDenied
from fairlead.policy.audit import AuditQuery, latest_records
from fairlead.store.opening import open_database
from fairlead.testing import ScriptedServer
from tests.cli.gateway_support import INITIALIZE, INITIALIZED, SECONDS, call, gateway, talk
from tests.conftest import Machine, Outcome
from tests.console.support import session_on
from tests.web.support import Dashboard, dashboard_of

Fairlead = Callable[..., Outcome]
Recorded = tuple[str, str, dict[str, Any]]


def configure(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    machine.write_user(json.dumps({"servers": {"x": server.entry(approval="ask")}}))


def recorded(machine: Machine, kind: str) -> list[Recorded]:
    """Who did it, of which server, and the details; the oldest first."""
    with open_database(store_file(machine.env)) as database:
        records = [each for each in latest_records(database, AuditQuery(), 100) if each.kind == kind]
    return [(each.principal, each.server, dict(each.details or {})) for each in records]


SETTLED = "run `fairlead review x --allow echo` to allow it"


def answered(surface: str, answer: str, **more: str) -> dict[str, str]:
    return {"in": surface, "tool": "echo", "answer": answer, **more}


@pytest.mark.requirement("NEED-30")
def test_who_answered_a_call_at_a_gateway_is_recorded(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    configure(machine, tmp_path)

    def answer_in_the_console(call_id: str) -> None:
        async def main() -> None:
            async with session_on(machine) as console:
                assert f"to settle it for good: {SETTLED}" in await console.does("/approve")
                await console.does(f"/approve {call_id} once")

        anyio.run(main)

    def answer_by_the_command_line(call_id: str) -> None:
        assert fairlead("approvals", "answer", call_id, "once").status == 0

    with gateway(machine), ThreadPoolExecutor() as threads:
        for answer in (answer_by_the_command_line, answer_in_the_console):
            asked = threads.submit(talk, machine, [INITIALIZE, INITIALIZED, call(3, "x_echo")])
            deadline = time.monotonic() + SECONDS
            while not (waiting := json.loads(fairlead("approvals", "--json").out)["pending"]):
                assert time.monotonic() < deadline
            assert waiting[0]["hint"] == SETTLED
            assert f"to settle it for good: {SETTLED}" in fairlead("approvals").out
            answer(waiting[0]["id"])
            assert "result" in asked.result(timeout=SECONDS)[-1]
        assert fairlead("approvals", "answer", "gone", "once").status == 1  # which is recorded nowhere
    assert recorded(machine, "answer approval") == [
        ("local", "x", answered("command line", "once")),
        ("local", "x", answered("console", "once")),
    ]


async def answer_in_the_dashboard(board: Dashboard, token: str | None, answer: str) -> None:
    async with board.visited(logged_in=token is None) as client, anyio.create_task_group() as tasks:
        if token is not None:
            assert (await client.log_in(token)).status == 303

        async def ask() -> None:
            try:
                await board.host.call("x", "echo", {})
            except CallDenied:
                assert answer == "no"

        tasks.start_soon(ask)
        await client.sees("/approvals", "echo")
        (waiting,) = board.queue.pending()
        assert (await client.send("/approvals", "/approvals", id=waiting.id, answer=answer)).status == 303
        again = await client.send("/approvals", "/approvals", id=waiting.id, answer=answer)
        assert again.status == 409  # and is not recorded


@pytest.mark.requirement("NEED-30")
async def test_who_answered_a_call_in_the_dashboard_is_recorded(machine: Machine, tmp_path: Path) -> None:
    configure(machine, tmp_path)
    async with dashboard_of(machine) as board:
        await answer_in_the_dashboard(board, None, "once")
        bob = board.tokens.add("bob", scopes=("decide", "admin"), principal="bob")
        await answer_in_the_dashboard(board, bob, "no")
    assert recorded(machine, "answer approval") == [
        ("local", "x", answered("dashboard", "once")),
        ("token:bob", "x", answered("dashboard", "no", **{"for": "local"})),
    ]


@pytest.mark.requirement("NEED-30")
async def test_every_surface_forgets_an_approval_the_same(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    configure(machine, tmp_path)

    async def allow_always() -> None:
        outcome = await to_thread.run_sync(lambda: fairlead("call", "x", "echo", "--yes", "--always"))
        assert outcome.status == 0, outcome.err
        assert answers_for_good(machine.load())

    await allow_always()
    assert (await to_thread.run_sync(lambda: fairlead("approvals", "forget", "x"))).status == 0
    assert answers_for_good(machine.load()) == []
    assert (await to_thread.run_sync(lambda: fairlead("approvals", "forget", "x"))).status == 1
    await allow_always()
    async with session_on(machine, "no") as console:
        assert "since" in await console.does("/approve")
        assert await console.does("/approve revoke 1") == "`x.echo` needs approval again"
        with pytest.raises(CallDenied):
            await console.session.host.call("x", "echo", {})
    assert answers_for_good(machine.load()) == []
    assert recorded(machine, "forget approval") == [
        ("local", "x", {"in": "command line", "tool": "echo"}),
        ("local", "x", {"in": "console", "tool": "echo"}),
    ]
