"""What verbs show and do, on real hosts with real servers, without a terminal."""

import json
import re
import sys
from typing import Any

import pytest

from fairlead.errors import (
    ArgumentsInvalid,
    ConfigError,
    ConfigUnwritable,
    ConnectFailed,
    FairleadError,
    UnknownServer,
    UnknownTool,
)
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.console.support import configure, session_on

GREET: dict[str, Any] = {
    "name": "echo",
    "description": "Greets somebody \u202e",
    "inputSchema": {
        "type": "object",
        "properties": {
            "who": {"type": "string", "description": "whom \x1b[1mto greet"},
            "times": {"type": "integer"},
            "style": {"type": "string", "enum": ["formal", "casual"]},
        },
        "required": ["who", "times"],
    },
}


def plain(shown: str) -> str:
    """What is shown, without the colors of tables."""
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


# `/mcp`.


@pytest.mark.requirement("NEED-8")
async def test_all_servers_are_shown_with_what_is_wrong(machine: Machine) -> None:
    sound = ScriptedServer(machine.home / "record")
    entries = {"a": sound.entry(), "b": {"command": "/nowhere/at-all"}, "c": sound.entry(enabled=False)}
    machine.write_user(json.dumps({"servers": entries}))
    async with session_on(machine) as console:
        await console.session.host.connect("a", "b")
        drawn = await console.does("/mcp")
        assert "\x1b[32mready\x1b[0m" in drawn
        assert "\x1b[31merror\x1b[0m" in drawn
        shown = plain(drawn)
        assert re.search(r"a +stdio +user +yes +ready +1", shown)
        assert re.search(r"b +stdio +user +yes +error +\?", shown)
        assert re.search(r"c +stdio +user +no +disabled +\?", shown)
        assert "`b`: " in shown


async def test_without_servers_that_is_said_in_the_words_of_seed_003(machine: Machine) -> None:
    async with session_on(machine) as console:
        shown = await console.does("/mcp")
    assert "no MCP servers configured" in shown


@pytest.mark.requirement("NEED-8", "HARD-20")
async def test_one_server_is_shown_with_its_last_error_and_what_it_said(machine: Machine) -> None:
    configure(machine, stderr="a \x1b[31mred word", tools=["crash"])
    async with session_on(machine) as console:
        host = console.session.host
        with pytest.raises(FairleadError):
            await host.call("x", "crash", confirmed=True)
        shown = await console.does("/mcp x")
        assert re.search(r"last_connected_at +20\d\d-", shown)
        assert re.search(r"last_error +\S", shown)
        assert "Traceback: the sky fell" in shown
        assert "\x1b" not in shown
        with pytest.raises(UnknownServer):
            await console.does("/mcp y")


async def test_the_files_are_read_again_on_demand(machine: Machine) -> None:
    server = configure(machine)
    async with session_on(machine) as console:
        machine.write_user(json.dumps({"servers": {"x": server.entry(), "y": server.entry()}}))
        assert "2 servers" in await console.does("/mcp reload")
        assert re.search(r"^y +stdio", await console.does("/mcp"), re.MULTILINE)
        machine.write_user('{"servers": {"z": {"command": "c", "nonsense": 1}}}')
        assert "nonsense" in await console.does("/mcp reload")
        machine.write_user("{")
        with pytest.raises(ConfigError):
            await console.does("/mcp reload")
        assert "z" in console.session.loaded.servers


async def test_a_server_is_restarted(machine: Machine) -> None:
    server = configure(machine)
    async with session_on(machine) as console:
        await console.session.host.connect("x")
        assert "`x` is ready: 1 tool" in await console.does("/mcp restart x")
        assert server.starts == 2
        with pytest.raises(ArgumentsInvalid, match="which server"):
            await console.does("/mcp restart")


async def test_a_server_is_switched_off_and_on_in_its_file_and_at_once(machine: Machine) -> None:
    server = configure(machine)
    async with session_on(machine) as console:
        assert "`x` is disabled" in await console.does("/mcp disable x")
        assert json.loads(machine.user_file.read_text())["servers"]["x"]["enabled"] is False
        assert re.search(r"x +stdio +user +no +disabled", plain(await console.does("/mcp")))
        with pytest.raises(ConnectFailed, match="is disabled"):
            await console.does("/mcp restart x")
        assert "`x` is ready" in await console.does("/mcp enable x")
        assert server.starts == 1


async def test_a_server_is_switched_in_the_entry_that_decides(machine: Machine) -> None:
    configure(machine)
    overlay = '{"servers": {"x": {"deny_tools": ["t"]}}}'
    machine.write_project(overlay)
    async with session_on(machine) as console:
        assert "`x` is disabled, in " in await console.does("/mcp disable x")
        assert json.loads(machine.user_file.read_text())["servers"]["x"]["enabled"] is False
        assert machine.project_file.read_text() == overlay


async def test_a_server_that_no_file_describes_is_not_switched(machine: Machine) -> None:
    machine.env["FAIRLEAD_CONFIG_JSON"] = json.dumps({"servers": {"x": {"command": "c"}}})
    async with session_on(machine) as console:
        with pytest.raises(ConfigUnwritable):
            await console.does("/mcp disable x")


async def test_a_local_program_has_no_login(machine: Machine) -> None:
    configure(machine)
    async with session_on(machine) as console:
        with pytest.raises(ConfigError, match="has no login"):
            await console.does("/mcp login x")
        with pytest.raises(FairleadError, match="no login is under way"):
            await console.does("/mcp login x http://127.0.0.1/?code=1")


@pytest.mark.requirement("NEED-24", "HARD-4")
async def test_a_projects_server_is_let_start_and_its_tools_are_looked_at(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ScriptedServer(machine.home / "record", tools=["echo", "crash", "wait"])
    entry = server.entry()
    del entry["trust"]
    machine.write_project(json.dumps({"servers": {"x": entry}}))
    async with session_on(machine, "no", "yes", "allow", "deny", "rest") as console:
        await console.does("/mcp review x")
        assert server.starts == 0
        await console.does("/mcp review x")
        shown = capsys.readouterr()
        assert sys.executable in shown.out
        assert "crash: unreviewed" in shown.out or "crash: new" in shown.out
        written = json.loads(machine.project_file.read_text())["servers"]["x"]
        assert sorted(written["allow_tools"] + written["deny_tools"]) == ["crash", "echo", "wait"]
        assert len(written["deny_tools"]) == 1
        offered = {tool.key.tool for tool in await console.session.host.tools.list()}
        assert offered == set(written["allow_tools"])
    assert console.prompts[0].startswith("Let `x` start?")


async def test_a_review_that_is_left_changes_nothing(machine: Machine) -> None:
    server = ScriptedServer(machine.home / "record")
    entry = {**server.entry(), "trust": "untrusted"}
    before = machine.write_user(json.dumps({"servers": {"x": entry}})).read_text()
    async with session_on(machine, "quit") as console:
        assert "nothing was changed" in await console.does("/mcp review x")
    assert machine.user_file.read_text() == before


# `/tools` and `/call`.


async def test_tools_are_listed_found_and_told_apart_by_who_may_use_them(machine: Machine) -> None:
    server = ScriptedServer(machine.home / "record", tools=[GREET, "wait"])
    guarded = {**server.entry(), "trust": "untrusted", "allow_tools": ["nothing"]}
    machine.write_user(json.dumps({"servers": {"x": server.entry(), "y": guarded}}))
    async with session_on(machine) as console:
        shown = await console.does("/tools")
        assert re.search(r"x +echo +yes +Greets somebody", shown)
        assert re.search(r"y +wait +no", shown)
        assert "4 tools" in shown
        assert "/mcp review" in shown
        found = await console.does("/tools greet")
        assert re.search(r"x +echo +yes", found)
        assert re.search(r"y +echo +no", found)
        assert "wait" not in found
        assert "2 tools" in await console.does("/tools y")
        assert "no tool fits" in await console.does("/tools submarine")


async def test_a_call_reads_its_arguments_as_the_schema_wants_them(machine: Machine) -> None:
    configure(machine, tools=[GREET])
    async with session_on(machine) as console:
        shown = await console.does("/call x echo who='Ada L' times=2")
        assert json.loads(shown) == {"who": "Ada L", "times": 2}
        shown = await console.does('/call x echo {"who": "1", "times": 1}')
        assert json.loads(shown) == {"who": "1", "times": 1}
        assert console.prompts == []


async def test_a_call_asks_for_what_is_missing_one_by_one(machine: Machine) -> None:
    configure(machine, tools=[GREET])
    async with session_on(machine, "Ada", "3", "Bob") as console:
        shown = await console.does("/call x echo")
        assert console.prompts == ["who: ", "times: "]
        assert "  | whom to greet" in shown
        assert json.loads(shown.splitlines()[-1]) == {"who": "Ada", "times": 3}
        assert "{" not in await console.does("/call x echo")  # the person left at the second question


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("/call", ArgumentsInvalid, "which tool of which server"),
        ("/call x", ArgumentsInvalid, "which tool of which server"),
        ("/call x ehco", UnknownTool, "no tool `ehco`"),
        ("/call y echo", UnknownServer, "y"),
        ("/call x echo who", ArgumentsInvalid, "not NAME=VALUE"),
        ("/call x echo {", ArgumentsInvalid, "not JSON"),
        ("/call x echo who='", ArgumentsInvalid, "quote"),
        ("/calls", ArgumentsInvalid, "no command `/calls`"),
    ],
)
async def test_what_cannot_be_called_is_said(
    machine: Machine, line: str, error: type[FairleadError], words: str
) -> None:
    configure(machine, tools=[GREET])
    async with session_on(machine) as console:
        with pytest.raises(error, match=re.escape(words)) as caught:
            await console.does(line)
        assert caught.value.hint


async def test_results_are_shown_and_a_failure_is_told(machine: Machine) -> None:
    configure(machine, tools=["fail", "refuse"])
    async with session_on(machine) as console:
        shown = await console.does("/call x fail")
        assert "it failed" in shown
        assert "the tool returned an error" in shown
        with pytest.raises(FairleadError):
            await console.does("/call x refuse")


# Completion, help.


async def test_completion_knows_verbs_servers_tools_arguments_and_values(machine: Machine) -> None:
    configure(machine, tools=[GREET, "wait"])
    async with session_on(machine) as console:
        assert console.completes("/mc") == ["/mcp "]
        assert console.completes("/mcp re") == ["/mcp reload", "/mcp restart ", "/mcp review "]
        assert console.completes("/mcp restart ") == ["/mcp restart x"]
        assert console.completes("/mcp reload ") == []
        assert console.completes("/call ") == ["/call x "]
        assert console.completes("/call x ") == []  # nobody knows yet
        await console.session.host.connect("x")
        assert console.completes("/call x e") == ["/call x echo "]
        assert console.completes("/call x echo ") == [
            f"/call x echo {name}=" for name in ("who", "times", "style")
        ]
        assert console.completes("/call x echo who=A st") == ["/call x echo who=A style="]
        assert console.completes("/call x echo style=f") == ["/call x echo style=formal"]
        assert console.completes("/call x nothing a") == []
        assert console.completes("/tools ") == ["/tools x"]
        assert console.completes("/quit now") == []
        assert console.completes("/nothing at") == []
        assert console.completes("hello") == []


async def test_help_is_a_table_of_every_verb(machine: Machine) -> None:
    async with session_on(machine) as console:
        shown = await console.does("/help")
        for verb in console.session.verbs.values():
            assert verb.usage.split()[0] in shown
        assert "no model is configured" in shown


async def test_a_review_can_put_names_in_the_place_of_globs(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ScriptedServer(machine.home / "record", tools=["echo", "wait"])
    entry = {**server.entry(), "trust": "untrusted", "allow_tools": ["e*"]}
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    async with session_on(machine, "skip", "allow", "yes") as console:
        assert "allow_tools has `e*`" in await console.does("/mcp review x")
        written = json.loads(machine.user_file.read_text())["servers"]["x"]
        assert written["allow_tools"] == ["echo"]
    async with session_on(machine, "skip") as console:
        await console.does("/mcp review x")
        assert "echo: reviewed, and as it was" in capsys.readouterr().err


async def test_what_another_layer_says_counts_more_and_that_is_told(machine: Machine) -> None:
    configure(machine)
    machine.env["FAIRLEAD_CONFIG_JSON"] = json.dumps({"servers": {"x": {"enabled": True}}})
    async with session_on(machine) as console:
        with pytest.raises(ConfigError):
            await console.does("/mcp disable x")


@pytest.mark.requirement("NEED-9", "NEED-11")
async def test_servers_that_cannot_be_had_are_named_beside_the_tools_of_others(machine: Machine) -> None:
    server = ScriptedServer(machine.home / "record")
    machine.write_user(json.dumps({"servers": {"x": server.entry(), "y": {"command": "/nowhere/at-all"}}}))
    async with session_on(machine) as console:
        shown = await console.does("/tools")
        assert "1 tool" in shown
        assert "without `y`: " in shown


async def test_lines_for_the_model_are_words_and_the_rest_are_verbs(machine: Machine) -> None:
    settings = {"provider": "openai", "name": "m", "base_url": "http://127.0.0.1:9/v1"}
    configure(machine, more={"model": settings})
    async with session_on(machine) as console:
        assert "goes to openai/m" in await console.does("/help")
        console.session.conversation.history.append({"role": "user", "content": "hi"})
        await console.does("/clear")
        assert console.session.conversation.history == []
        await console.does("/quit")
