"""What goes wrong in the first hour is said in plain words, with what to do about it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def test_a_missing_word_is_asked_for_with_its_choices_on_one_line(fairlead: Fairlead) -> None:
    outcome = fairlead("completion")
    assert outcome.status == 2
    assert "Choose from: bash, zsh, fish." in outcome.err
    assert "\\t" not in outcome.err


@pytest.mark.parametrize("words", [("gateway", "--port", "abc"), ("audit", "--limit", "many")])
def test_a_number_is_asked_for_as_one(fairlead: Fairlead, words: tuple[str, ...]) -> None:
    outcome = fairlead(*words)
    assert outcome.status == 2
    assert f"'{words[-1]}' is not a whole number." in outcome.err


@pytest.mark.parametrize("named", [(), ("--from", "claude")])
def test_a_file_to_import_that_is_not_there_is_an_error(fairlead: Fairlead, named: tuple[str, ...]) -> None:
    outcome = fairlead("import", *named, "nosuch.json")
    assert outcome.status == 1
    assert "error: cannot read `nosuch.json`: it does not exist" in outcome.err
    assert not outcome.out


def test_an_import_of_a_server_that_no_file_has_is_an_error(
    fairlead: Fairlead, machine: Machine, tmp_path: Path
) -> None:
    file = machine.project / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"github": {"command": "github-mcp"}}}))
    outcome = fairlead("import", str(file), "--only", "githib")
    assert outcome.status == 1
    assert "no server `githib` was found" in outcome.err
    assert "did you mean `github`?" in outcome.err
    assert not machine.project_file.exists()


def test_a_server_without_resources_and_prompts_is_said_to_have_none(
    fairlead: Fairlead, machine: Machine
) -> None:
    server = ScriptedServer(machine.home / "record", tools=["echo"])
    machine.write_user(json.dumps({"servers": {"x": server.entry()}}))
    read = fairlead("read", "x", "memo://today")
    assert read.status != 0
    assert "hint: it offers no resources" in read.err
    prompt = fairlead("prompt", "x", "greet")
    assert prompt.status != 0
    assert "hint: it offers no prompts" in prompt.err


def test_a_search_without_a_hit_says_where_the_other_tools_are(fairlead: Fairlead, machine: Machine) -> None:
    offered = ScriptedServer(machine.home / "one", tools=["echo"])
    hidden = ScriptedServer(machine.home / "two", tools=["get_current_time"])
    servers = {"x": offered.entry(), "time": hidden.entry(trust="untrusted")}
    machine.write_user(json.dumps({"servers": servers}))
    outcome = fairlead("search", "current time")
    assert "nothing fits among the tools that agents may use" in outcome.err
    assert "`fairlead tools` shows what there is besides" in outcome.err


def test_the_audit_names_a_tool_as_it_is_typed(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLEAD_BUILTINS")
    machine.env.pop("FAIRLEAD_BUILTINS")
    assert fairlead("call", "repo.listDir", "--yes").status == 0
    shown = fairlead("audit").out
    assert "repo.listDir" in shown
    assert "repo.repo" not in shown


def test_a_name_of_a_file_in_place_of_arguments_is_answered_with_how_to_read_it(
    fairlead: Fairlead, machine: Machine
) -> None:
    server = ScriptedServer(machine.home / "record", tools=["echo"])
    machine.write_user(json.dumps({"servers": {"x": server.entry()}}))
    named = fairlead("call", "x.echo", "--input", "arguments.json", "--yes")
    assert named.status == 2
    assert "a file is read with `--input - < FILE`" in named.err
    broken = fairlead("call", "x.echo", "--input", '{"a": ', "--yes")
    assert broken.status == 2
    assert "FILE" not in broken.err


def test_questions_that_are_not_there_are_said_to_be_missing(fairlead: Fairlead) -> None:
    outcome = fairlead("search", "--eval", "nosuch.jsonl")
    assert outcome.status == 1
    assert "error: cannot read `nosuch.jsonl`: No such file or directory" in outcome.err
    assert "Errno" not in outcome.err
