"""Names of tools with characters that do not show are spelled out wherever a user decides about them."""

import json
from pathlib import Path

import pytest

from fairlead.testing import ScriptedServer
from tests.cli.permission_support import PLAIN, Fairlead, write
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine

HIDDEN = "e\u200bcho"
SHOWN = "e⟨U+200B⟩cho"


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path / "record", tools=[{**PLAIN, "name": HIDDEN}])


def test_every_table_and_the_file_show_what_is_hidden(
    machine: Machine, fairlead: Fairlead, server: ScriptedServer
) -> None:
    with at_terminal(
        "add", "s", "--scope", "user", "--", *server.argv, env=machine.env, cwd=machine.project
    ) as (person):
        person.sees(SHOWN)
        person.sees("What may this tool do?")
        person.types("later")
        assert person.waits() == 0
    write(machine, {"s": {"command": server.argv[0], "args": list(server.argv[1:])}})
    assert SHOWN in fairlead("review", "--all").out
    allowed = fairlead("review", "s", "--allow", "all")
    assert allowed.status == 0, allowed.err
    assert SHOWN in fairlead("explain", "s").out
    text = machine.user_file.read_text()
    assert "\u200b" not in text
    assert "\\u200b" in text
    assert json.loads(text)["servers"]["s"]["allow_tools"] == [HIDDEN]


def test_a_name_that_no_tool_has_is_told_with_what_was_added_and_what_goes_on(
    machine: Machine, fairlead: Fairlead, server: ScriptedServer
) -> None:
    refused = fairlead("add", "s", "--scope", "user", "--allow", "nosuch", "--", *server.argv)
    assert refused.status == 1
    assert "there is no tool `nosuch`" in refused.err
    assert r"its tools are 'e\u200bcho'" in refused.err
    assert (
        "`s` was added, and none of its tools is allowed yet: `fairlead review s --allow NAMES`"
        in refused.err
    )


def test_none_denies_all_tools_and_nothing_asks_again(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[PLAIN, "other"])
    added = fairlead("add", "s", "--scope", "user", "--allow", "none", "--", *server.argv)
    assert added.status == 0, added.err
    assert "denied 2 tools of `s`" in added.err
    assert fairlead("review", "s").status == 0
    assert "nothing to decide" in fairlead("review", "--all").err
    status = json.loads(fairlead("status", "--json").out)["servers"]
    assert [each["notes"] for each in status if each["id"] == "s"] == [[]]
    assert fairlead("call", "s", "echo", "--yes").status == 3


def test_ctrl_c_keeps_the_answers_about_servers_that_are_done(machine: Machine, tmp_path: Path) -> None:
    servers = {name: ScriptedServer(tmp_path / name, tools=[PLAIN]) for name in ("a", "b")}
    entries = {name: {"command": one.argv[0], "args": list(one.argv[1:])} for name, one in servers.items()}
    write(machine, entries)
    with at_terminal("review", "--all", env=machine.env, cwd=machine.project) as person:
        person.sees("Record these answers?")
        person.types("each")
        person.sees("`echo`: allow (y)")
        person.types("y")
        person.sees("allowed 1 tool of `a`")
        person.sees("`echo`: allow (y)")
        person.presses_ctrl_c()
        person.sees("nothing was recorded about `b`: `fairlead review b` asks again")
        assert person.waits() != 0
    written = json.loads(machine.user_file.read_text())["servers"]
    assert written["a"]["allow_tools"] == ["echo"]
    assert "allow_tools" not in written["b"]
