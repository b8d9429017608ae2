"""Where an action cannot be recorded, whoever did it reads that, at every surface."""

import json
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from fairlead.actions.config_edits import record_edit, settle
from fairlead.actions.context import ActionContext
from fairlead.config.edit_scope import EditTarget
from fairlead.config.paths import store_file
from fairlead.testing import ScriptedServer
from tests.cli.gateway_support import INITIALIZE, INITIALIZED, SECONDS, call, gateway, talk
from tests.conftest import Machine, Outcome
from tests.console.support import session_on

Fairlead = Callable[..., Outcome]
UNWRITTEN = "this is not in the audit log"


def configure(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    machine.write_user(json.dumps({"servers": {"x": server.entry(approval="ask")}}))


def refuse_records(machine: Machine, kind: str) -> None:
    """Have the store of the machine refuse all records of a kind, as a full disk does."""
    with sqlite3.connect(store_file(machine.env)) as database:
        database.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON record"
            f" WHEN instr(CAST(NEW.value AS TEXT), '\"{kind}\"') BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    database.close()


async def test_the_console_says_that_a_restart_is_not_recorded(machine: Machine, tmp_path: Path) -> None:
    configure(machine, tmp_path)
    async with session_on(machine) as console:
        refuse_records(machine, "restart")
        assert UNWRITTEN in await console.does("/mcp restart x")


def test_the_command_line_says_that_a_restart_at_the_gateway_is_not_recorded(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    configure(machine, tmp_path)
    with gateway(machine):
        refuse_records(machine, "restart")
        outcome = fairlead("gateway", "restart", "x")
    assert outcome.status == 0, outcome.err
    assert UNWRITTEN in outcome.err


def test_an_answer_that_a_gateway_cannot_record_is_told_of_at_each_surface(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    configure(machine, tmp_path)

    def answer_in_the_console(call_id: str) -> str:
        async def main() -> str:
            async with session_on(machine) as console:
                return await console.does(f"/approve {call_id} once")

        return anyio.run(main)

    def answer_by_the_command_line(call_id: str) -> str:
        return fairlead("approvals", "answer", call_id, "once").err

    with gateway(machine), ThreadPoolExecutor() as threads:
        refuse_records(machine, "answer approval")
        for answer in (answer_by_the_command_line, answer_in_the_console):
            asked = threads.submit(talk, machine, [INITIALIZE, INITIALIZED, call(3, "x_echo")])
            deadline = time.monotonic() + SECONDS
            while not (waiting := json.loads(fairlead("approvals", "--json").out)["pending"]):
                assert time.monotonic() < deadline
            assert UNWRITTEN in answer(waiting[0]["id"])
            assert "result" in asked.result(timeout=SECONDS)[-1]


@pytest.mark.parametrize("text", ['{"servers": {}}', '{"servers": {"x": '])
def test_an_edit_after_which_the_configuration_does_not_load_says_that_it_is_not_recorded(
    machine: Machine, text: str
) -> None:
    machine.write_user(text)
    context = ActionContext(surface="dashboard", env=machine.env, reload=machine.load)
    edit = settle(context, EditTarget(scope="user", path=machine.user_file), [])
    record_edit(context, edit, "edit", "x")
    lost = [notice.message for notice in edit.notices]
    does_not_load = f"{UNWRITTEN}, since the configuration does not load"
    assert lost == ([] if edit.loaded is not None else [does_not_load])
    assert (edit.loaded is None) == (text != '{"servers": {}}')
