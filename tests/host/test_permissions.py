"""The library decides by the table of permissions, called directly or by a model, with and without a user."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.catalog.tools import ToolKey
from fairlead.errors import CallDenied, FairleadError
from fairlead.host.host import Host
from fairlead.host.operator import Callbacks
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome
from tests.policy.permission_cells import CELLS, Cell, Table, require_alike

SECONDS = 60.0


@pytest.fixture
def table(machine: Machine, fairlead: Callable[..., Outcome]) -> Table:
    table = Table(machine)
    table.prepare(fairlead)
    table.forget_calls()
    return table


async def call_all(table: Table, machine: Machine, call: Any, answer: Any = None) -> dict[Cell, str]:
    """Make a call for each cell; what came of it. `answer` is what the user says who is asked, if any."""

    async def approve(_question: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return answer

    operator = Callbacks(on_approve=approve) if answer else Callbacks()
    outcomes: dict[Cell, str] = {}
    with anyio.fail_after(SECONDS):
        async with Host.open(table.load(), env=machine.env, operator=operator) as host:
            await host.tools.list()
            for cell in CELLS:
                try:
                    result = await call(host, cell)
                    assert not result.is_error
                    outcomes[cell] = "called"
                except FairleadError as exc:
                    outcomes[cell] = f"{exc}; {exc.hint}"
    return outcomes


async def directly(host: Host, cell: Cell) -> Any:
    return await host.call(cell.server, cell.tool)


async def as_user(host: Host, cell: Cell) -> Any:
    return await host.call(cell.server, cell.tool, confirmed=True)


async def as_model(host: Host, cell: Cell) -> Any:
    return await host.tools.call(f"{cell.server}.{cell.tool}", {})


async def as_model_by_public_name(host: Host, cell: Cell) -> Any:
    names = {tool.key: tool.name for tool in await host.tools.list()}
    offered = names.get(ToolKey(cell.server, cell.tool), f"mcp_{cell.server}_{cell.tool}_1f0c2a9d")
    return await host.tools.call(offered, {})


async def by_meta_tool(host: Host, cell: Cell) -> Any:
    wanted: dict[str, Any] = {"name": f"{cell.server}.{cell.tool}", "arguments": {}}
    result = await host.tools.answer("mcp_call_tool", wanted)
    if result.is_error:
        raise FairleadError(result.text)
    return result


CALLS = (directly, as_model, as_model_by_public_name, by_meta_tool)


@pytest.mark.parametrize("call", CALLS)
async def test_without_a_user_what_must_be_asked_is_refused_with_the_command_that_settles_it(
    table: Table, machine: Machine, call: Any
) -> None:
    outcomes = await call_all(table, machine, call)
    require_alike(table, outcomes, called=lambda cell: cell.verdict == "allow")


@pytest.mark.parametrize("call", CALLS[:2])
async def test_a_user_is_asked_about_what_asks_and_about_nothing_else(
    table: Table, machine: Machine, call: Any
) -> None:
    outcomes = await call_all(table, machine, call, "once")
    require_alike(table, outcomes, called=lambda cell: cell.verdict in ("allow", "ask"))


async def test_a_user_who_says_no_is_not_asked_about_what_is_allowed(table: Table, machine: Machine) -> None:
    outcomes = await call_all(table, machine, directly, "no")
    for cell, said in outcomes.items():
        match cell.verdict:
            case "allow":
                assert said == "called", cell
            case "ask":
                assert "the user denied it" in said, said
            case _:
                cell.require_message(said)


async def test_the_users_own_word_makes_calls_that_are_asked_about_or_in_no_list(
    table: Table, machine: Machine
) -> None:
    outcomes = await call_all(table, machine, as_user)
    require_alike(table, outcomes, called=lambda cell: cell.verdict == "allow" or cell.is_users_to_overrule)


async def test_models_are_offered_what_is_not_denied_and_not_held_back(
    table: Table, machine: Machine
) -> None:
    with anyio.fail_after(SECONDS):
        async with Host.open(table.load(), env=machine.env) as host:
            await host.connect("t", "u")
            offered = {tool.key for tool in await host.tools.list()}
    expected = {ToolKey(cell.server, cell.tool) for cell in CELLS if cell.verdict in ("allow", "ask")}
    assert offered == expected


@pytest.mark.parametrize("named", ["allow_tools", "deny_tools"])
async def test_the_hint_of_a_call_that_a_bundle_denies_names_the_line_to_change(
    machine: Machine, tmp_path: Path, named: str
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo", "other"])
    lists = {"allow_tools": ["other"]} if named == "allow_tools" else {"deny_tools": ["echo"]}
    document = {
        "servers": {"x": server.entry(trust="trusted", approval="allow")},
        "bundles": {"b": {"servers": {"x": lists}}},
    }
    machine.write_user(json.dumps(document, indent=1))
    with anyio.fail_after(SECONDS):
        async with Host.open(machine.load(), env=machine.env) as host:
            with pytest.raises(CallDenied) as refused:
                await host.toolset("b").call("x.echo", {})
            hint = refused.value.hint or ""
            place = re.match(rf"change `bundles\.b\.servers\.x\.{named}` in (.+):(\d+), or call it", hint)
            assert place, hint
            # Follow it: take the line out, with what is in it.
            assert Path(place[1]) == machine.user_file
            lines = machine.user_file.read_text().splitlines()
            start = int(place[2]) - 1
            assert f'"{named}"' in lines[start]
            end = next(number for number in range(start, len(lines)) if "]" in lines[number])
            machine.user_file.write_text("\n".join([*lines[:start], *lines[end + 1 :]]))
            await host.reload(machine.load())
            assert not (await host.toolset("b").call("x.echo", {})).is_error
