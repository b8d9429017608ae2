"""The console in a real terminal: servers seen live, tools called, questions answered, and nothing left."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.config.paths import store_file
from fairlead.console.prompt import FILE_NAME
from fairlead.testing import ScriptedServer
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine, Outcome
from tests.console.support import configure
from tests.console.tmux_support import SECONDS, tmux_console
from tests.host.asking import HANDSHAKE, AskingServer, form
from tests.real.processes import until

READY = "1 ready"


async def test_without_servers_and_a_model_the_console_says_what_to_do(machine: Machine) -> None:
    async with tmux_console(machine) as screen:
        await screen.type("/mcp\n")
        shown = await screen.shows("no MCP servers configured")
        assert "fairlead add" in shown
        await screen.shows("no servers")
        await screen.type("/mpc\n")
        await screen.shows("did you mean `/mcp`?")
        await screen.type("hello\n")
        await screen.shows("no model is configured")
        await screen.shows("--model openai/NAME")


@pytest.mark.requirement("NEED-20")
async def test_servers_are_seen_live_while_a_call_runs_and_ctrl_c_ends_the_call_only(
    machine: Machine,
) -> None:
    server = configure(machine, tools=["wait", "echo"])
    async with tmux_console(machine) as screen:
        await screen.shows(READY)
        arguments = json.dumps({"reports": {"total": 4, "message": "half way"}})
        await screen.type(f"/call x wait {arguments}\n")
        await screen.shows(re.compile(r"x/wait  \[█{5}░{15}\] 25%"))
        await screen.shows(re.compile(r"25%  half way  \d+ s"))
        await screen.type("/mcp\n")
        await screen.shows(re.compile(r"x +stdio +user +yes +ready +2"))
        await screen.type("a draft")
        await screen.key("C-c")
        await screen.shows("cancelled: /call")
        await until(lambda: "notifications/cancelled" in server.notes("received"), SECONDS)
        await screen.shows("> a draft")
        await screen.key("C-c")
        await screen.shows_not("> a draft")
        await screen.key("C-c")
        await screen.shows("Ctrl-D leaves")
        await screen.type("/call x echo\n")
        await screen.shows("{}")
        await screen.type("/quit\n")
        assert await screen.ends() == 0
    assert server.starts == 1


@pytest.mark.requirement("NEED-33")
async def test_a_form_takes_the_place_of_the_prompt_and_the_draft_comes_back(machine: Machine) -> None:
    configure(machine, asking=True)
    question = json.dumps({"questions": {"q": form()}}).replace(" ", "")
    async with tmux_console(machine) as screen:
        await screen.shows(READY)
        await screen.type(f"/call x ask {question}\nyes\x20and a dra")
        await screen.shows("Answer? [yes/no]:")
        assert "> yes and a dra" not in screen.text()
        await screen.type("ft?\n")
        await screen.shows("please type one of yes, no")
        await screen.type("yes\n")
        await screen.shows("name (required)")
        await screen.type("Ada\n")
        await screen.shows("city")
        await screen.type("\n")
        await screen.shows("This goes to `x`:")
        await screen.type("yes\n")
        await screen.shows('"name": "Ada"')
        await screen.shows("> yes and a dra")


@pytest.mark.requirement("NEED-33")
async def test_ctrl_c_at_a_question_leaves_it_unanswered(machine: Machine) -> None:
    server = configure(machine, asking=True)
    assert isinstance(server, AskingServer)
    question = json.dumps({"questions": {"q": form()}}).replace(" ", "")
    async with tmux_console(machine) as screen:
        await screen.type(f"/call x ask {question}\n")
        await screen.shows("Answer? [yes/no]:")
        await screen.key("C-c")
        await screen.shows('"action": "cancel"')
        await screen.type("/call x echo\n")
        await screen.shows("{}")


async def test_a_question_that_nobody_waits_for_any_more_gives_the_prompt_back(machine: Machine) -> None:
    server = configure(machine, asking=True, version=HANDSHAKE)
    question = json.dumps({"questions": {"q": form()}})
    async with tmux_console(machine) as screen:
        await screen.type(f"/call x ask {question}\n")
        await screen.shows("Answer? [yes/no]:")
        await screen.type("ye")
        os.kill(server.notes("started")[-1], signal.SIGKILL)
        await screen.shows("this answer is not needed any more")
        await screen.type("/mcp\n")
        await screen.shows(re.compile(r"x +stdio +user +yes"))
        await screen.type(f"/call x ask {question}\n")
        await screen.shows(re.compile(r"(?s)Answer\?.*Answer\?"))
        os.kill(int(screen.tmux("display-message", "-p", "#{pane_pid}")), signal.SIGINT)
        await screen.shows("left unanswered")
        await screen.type("/call x echo\n")
        await screen.shows("{}")


@pytest.mark.requirement("NEED-18")
async def test_a_file_that_changes_is_followed_and_one_that_does_not_load_is_not(machine: Machine) -> None:
    server = configure(machine)
    async with tmux_console(machine) as screen:
        await screen.shows(READY)
        machine.write_user(json.dumps({"servers": {"x": server.entry(), "y": server.entry()}}))
        await screen.shows("the configuration changed, and is in effect")
        await screen.shows("2 ready")
        machine.write_user("{")
        await screen.shows("does not load")
        await screen.type("/mcp\n")
        await screen.shows(re.compile(r"y +stdio +user +yes +ready +1"))


async def test_lines_are_kept_in_a_private_file_and_arguments_are_not(machine: Machine) -> None:
    configure(machine)
    async with tmux_console(machine) as screen:
        await screen.shows(READY)
        await screen.type("/call x echo password=hunter2\n")
        await screen.shows('{"password": "hunter2"}')
        await screen.type("/tools\n")
        await screen.shows("1 tool")
        await screen.key("Up", "Up")
        await screen.shows(re.compile(r"> /call x echo password=hunter2$", re.MULTILINE))
    path = machine.home / ".local" / "state" / "fairlead" / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == '"/tools"\n'
    async with tmux_console(machine) as screen:
        await screen.shows(READY)
        await screen.key("Up")
        await screen.shows("> /tools")


async def test_tab_completes_verbs_servers_tools_arguments_and_values(machine: Machine) -> None:
    schema = {"type": "object", "properties": {"style": {"enum": ["formal", "casual"]}}}
    configure(machine, tools=[{"name": "echo", "inputSchema": schema}])
    async with tmux_console(machine) as screen:
        await screen.shows(READY)
        steps = {
            "/cal": "> /call",
            "": "> /call x",
            "ec": "> /call x echo",
            "st": "> /call x echo style=",
            "fo": "> /call x echo style=formal",
        }
        for typed, completed in steps.items():
            await screen.type(typed)
            await screen.key("Tab")
            await screen.shows(re.compile(f"^{completed}$", re.MULTILINE))
        await screen.key("Enter")
        await screen.shows('{"style": "formal"}')


@pytest.mark.requirement("NEED-1")
async def test_whoever_ends_the_console_ends_its_calls_and_servers(machine: Machine) -> None:
    server = configure(machine, tools=["wait"])
    async with tmux_console(machine) as screen:
        await screen.type("/call x wait\n")  # perhaps before there is a host to do it
        await screen.shows(re.compile(r"x/wait  1  \d+ s"))
        os.kill(int(screen.tmux("display-message", "-p", "#{pane_pid}")), signal.SIGTERM)
        assert await screen.ends() == 0
    assert "notifications/cancelled" in server.notes("received")


@pytest.mark.requirement("NEED-24", "HARD-1")
async def test_a_projects_server_does_not_start_before_it_is_approved(machine: Machine) -> None:
    server = ScriptedServer(machine.home / "record")
    machine.write_project(json.dumps({"servers": {"x": server.entry()}}))
    async with tmux_console(machine) as screen:
        await screen.shows("you have not approved this entry")
        await screen.type("/mcp\n")
        await screen.shows("`x` waits for your approval")
        await screen.type("/mcp review x\n")
        await screen.shows("Let `x` start? [yes/NO]:")
        assert server.starts == 0
        await screen.type("yes\n")
        await screen.shows("1 ready")


@pytest.mark.parametrize("arguments", [("--bundle", "none"), ("--model", "openai/m")])
async def test_what_is_wanted_and_not_there_ends_the_console(
    machine: Machine, arguments: tuple[str, ...]
) -> None:
    async with tmux_console(machine, *arguments) as screen:
        assert await screen.ends() == 1
        assert "error: " in screen.text()
        assert "hint: " in screen.text()


async def test_a_broken_configuration_ends_the_console_with_what_is_wrong(machine: Machine) -> None:
    machine.write_user("{")
    async with tmux_console(machine) as screen:
        assert await screen.ends() == 1
        assert "the configuration has a problem" in screen.text()


def test_without_a_terminal_the_console_says_what_else_there_is(fairlead: Callable[..., Outcome]) -> None:
    outcome = fairlead("console")
    assert outcome.status == 2
    assert "needs a terminal" in outcome.err
    assert "fairlead run" in outcome.err
    assert not outcome.out


async def test_a_store_that_cannot_be_read_is_one_plain_line(machine: Machine) -> None:
    configure(machine)
    store = store_file(machine.env)
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_bytes(b"this is no database" * 100)
    async with tmux_console(machine) as screen:
        await screen.shows(READY)
        await screen.type("/mcp\n")
        shown = await screen.shows(re.compile(r"x +stdio +user +yes +ready"))
    assert "Traceback" not in shown
    assert 'File "' not in shown
    assert "warning: " in shown


def test_without_its_extra_the_console_says_what_to_install() -> None:
    script = "import sys; sys.modules['prompt_toolkit'] = None; from fairlead.cli.main import main; main()"
    command = [sys.executable, "-c", script, "console"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "needs the package `prompt-toolkit`" in done.stderr
    assert "fairlead[console]" in done.stderr


def test_a_dumb_terminal_gets_no_control_sequences(machine: Machine, tmp_path: Path) -> None:
    entry = ScriptedServer(tmp_path / "record", tools=["received"]).entry()
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    env = machine.env | {"TERM": "dumb", "LC_ALL": "C"}
    with at_terminal("console", env=env, cwd=machine.project) as person:
        person.sees("> ")
        person.types("/call x.received")
        person.sees('"tools/call"]')
        person.types("/quit")
        assert person.waits() == 0
    assert "\x1b" not in person.seen
