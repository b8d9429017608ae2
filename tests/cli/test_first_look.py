"""From `fairlead add` to a tool that agents can use, and the answers that hold for good."""

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlead.testing import ScriptedServer
from tests.cli.pty_support import Person, at_terminal
from tests.cli.test_hosting import Fairlead
from tests.conftest import Machine

ECHO = {"name": "echo", "description": "Say it again.", "inputSchema": {"type": "object"}}


@pytest.fixture
def server(tmp_path: Path) -> ScriptedServer:
    return ScriptedServer(tmp_path / "record", tools=[ECHO, "pid"])


@contextmanager
def adding(machine: Machine, server: ScriptedServer, *options: str) -> Generator[Person]:
    with at_terminal(
        "add", "s", *options, "--", *server.argv, env=machine.env, cwd=machine.project
    ) as person:
        yield person


def entry(machine: Machine) -> dict[str, object]:
    document = json.loads(machine.project_file.read_text())
    return document["servers"]["s"]


def test_a_server_that_is_added_can_be_used_at_once(
    machine: Machine, server: ScriptedServer, fairlead: Fairlead
) -> None:
    with adding(machine, server) as person:
        shown = person.sees("What may these 2 tools do?")
        assert "Say it again." in shown
        person.types("allow")
        assert person.waits() == 0
    assert entry(machine)["allow_tools"] == ["echo", "pid"]
    assert entry(machine)["approval"] == {"tools": {"echo": "allow", "pid": "allow"}}
    assert fairlead("call", "s", "echo").status == 0, "no second gate behind the answer"
    tools = json.loads(fairlead("tools", "s", "--json").out)["tools"]
    assert [tool["allowed"] for tool in tools] == [True, True]


def test_some_of_its_tools_are_looked_at_one_by_one(machine: Machine, server: ScriptedServer) -> None:
    with adding(machine, server) as person:
        person.sees("each (one by one), later")
        person.types("some")
        person.sees("`echo`: allow")
        person.types("allow")
        person.sees("`pid`: allow")
        person.types("skip")
        assert person.waits() == 0
    assert entry(machine)["allow_tools"] == ["echo"]


def test_later_means_later(machine: Machine, server: ScriptedServer) -> None:
    with adding(machine, server) as person:
        person.sees("each (one by one), later")
        person.types("")
        person.sees("fairlead review s")
        assert person.waits() == 0
    assert "allow_tools" not in entry(machine)


def test_a_server_that_does_not_start_is_added_all_the_same_and_says_why(machine: Machine) -> None:
    server = ScriptedServer(machine.home / "record", exit=3, stderr="no such database")
    with adding(machine, server) as person:
        shown = person.sees("no such database")
        assert "cannot be used yet" in shown
        assert person.waits() == 0
    assert entry(machine)["command"] == sys.executable


def test_who_does_not_want_to_connect_need_not(machine: Machine, server: ScriptedServer) -> None:
    with adding(machine, server, "--later") as person:
        person.sees("fairlead review s")
        assert person.waits() == 0
    assert server.starts == 0


def test_an_answer_for_good_is_shown_and_can_be_taken_back(
    machine: Machine, server: ScriptedServer, fairlead: Fairlead
) -> None:
    machine.write_user(json.dumps({"servers": {"s": server.entry()}}))
    assert fairlead("call", "s", "echo").status == 3
    assert fairlead("call", "s", "echo", "--yes", "--always").status == 0
    assert fairlead("call", "s", "echo").status == 0  # nobody is there, and it is allowed
    (kept,) = json.loads(fairlead("approvals", "--json").out)["approvals"]
    assert (kept["server"], kept["tool"], kept["principal"]) == ("s", "echo", "local")
    assert "echo" in fairlead("approvals").out

    assert fairlead("approvals", "forget", "s", "other").status == 1
    assert "`s.echo` needs approval again" in fairlead("approvals", "forget", "s", "echo").err
    assert "no answer is remembered" in fairlead("approvals").err
    for spelling in ("s.echo", "s/echo", "s__echo"):
        assert fairlead("call", "s", "echo", "--yes", "--always").status == 0
        assert fairlead("approvals", "forget", "s.other").status == 1
        assert "`s.echo` needs approval again" in fairlead("approvals", "forget", spelling).err
    assert fairlead("call", "s", "echo").status == 3


def test_a_denied_tool_is_named_with_its_rule(
    machine: Machine, server: ScriptedServer, fairlead: Fairlead
) -> None:
    rule = {"action": "deny", "tool": "echo", "arguments": {"path": "/etc/**"}, "reason": "hands off"}
    document = {"servers": {"s": server.entry(approval="allow")}, "policy": {"rules": [rule]}}
    file = machine.write_user(json.dumps(document, indent=1))
    refused = fairlead("call", "s", "echo", "--arg", "path=/etc/../etc/x", "--yes")
    assert refused.status == 3
    assert "hands off" in refused.err
    assert f"{file.name}:" in refused.err
    assert fairlead("call", "s", "echo", "--arg", "path=/tmp/x", "--yes").status == 0
