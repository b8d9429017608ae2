"""One spelling of a tool's name, `server.tool`, wherever a user types one; the others mean the same."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from fairlead.catalog.tools import ToolKey
from fairlead.policy.tool_names import command_line_name, means_key, owners_of
from fairlead.testing import ScriptedServer
from tests.cli.test_startup import modules_after
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]
Configure = Callable[..., None]


@pytest.fixture
def configure(machine: Machine, fairlead: Fairlead) -> Configure:
    """Servers with these tools, trusted and asked what they offer."""

    def write(**tools: list[str]) -> None:
        entries = {
            name.replace("__", "-"): {
                **ScriptedServer(machine.home / name, tools=[*of], any_tool=True).entry(),
                "trust": "trusted",
            }
            for name, of in tools.items()
        }
        machine.write_user(
            json.dumps({"servers": entries, "bundles": {"work": {"servers": {next(iter(entries)): {}}}}})
        )
        assert fairlead("tools", "--refresh").status == 0

    return write


def called(outcome: Outcome) -> bool:
    assert outcome.status in (0, 1), outcome.err
    return outcome.status == 0


@pytest.mark.parametrize(
    "words",
    [
        ("clock.get_time",),
        ("clock/get_time",),
        ("clock:get_time",),
        ("clock__get_time",),
        ("clock_get_time",),
        ("get_time",),
        ("clock", "get_time"),
        ("clock", "clock.get_time"),
        ("public",),
    ],
    ids=" ".join,
)
def test_every_spelling_calls_the_same_tool(
    fairlead: Fairlead, configure: Configure, words: tuple[str, ...]
) -> None:
    configure(clock=["get_time", "set_time"], other=["read"])
    if words == ("public",):
        words = (json.loads(fairlead("explain", "tool", "clock.get_time", "--json").out)["tools"][0]["name"],)
    outcome = fairlead("call", *words, "--yes")
    assert outcome.status == 0, outcome.err
    audit = [json.loads(line) for line in fairlead("audit", "--json").out.splitlines()]
    assert {(one["server"], one["tool"]) for one in audit if one.get("tool")} == {("clock", "get_time")}


def test_what_tools_and_search_print_can_be_pasted(fairlead: Fairlead, configure: Configure) -> None:
    configure(clock=["get_time"], dotted=["a.b", "dotted.c", "u\u200bv"])
    printed = [line.split()[0] for line in fairlead("tools").out.splitlines()[1:]]
    assert printed == ["clock.get_time", "dotted.a.b", "dotted.c", "dotted.u\\u200bv"]
    for name in printed:
        assert fairlead("call", name, "--yes").status == 0, name
        assert fairlead("explain", "tool", name).out.startswith(f"{name}: ".replace("\\\\", "\\"))
    found = json.loads(fairlead("search", "get time", "--json").out)["tools"]
    assert found[0]["qualified"] == "clock.get_time"
    assert "clock.get_time" in fairlead("search", "get", "time").out


def test_a_name_that_means_several_tools_is_refused_with_their_names(
    fairlead: Fairlead, configure: Configure
) -> None:
    configure(one=["find"], two=["find"])
    outcome = fairlead("call", "find", "--yes", "--json")
    assert outcome.status == 1
    assert "`one.find` or `two.find`" in json.loads(outcome.out)["error"]["message"]
    assert fairlead("call", "two.find", "--yes").status == 0


def test_another_servers_tool_cannot_take_over_a_spelling(fairlead: Fairlead, configure: Configure) -> None:
    configure(notes=["read"], evil=["notes.read", "notes/read", "notes__read"])
    for words in (("call", "notes.read", "--yes"), ("call", "notes", "read", "--yes")):
        assert fairlead(*words).status == 0
    audit = [json.loads(line) for line in fairlead("audit", "--json").out.splitlines()]
    assert {one["server"] for one in audit if one.get("tool")} == {"notes"}
    for name in ("notes/read", "notes__read"):
        refused = fairlead("call", name, "--yes")
        assert refused.status == 1
        assert "`notes.read`" in refused.err
    assert fairlead("review", "evil", "--allow", "notes.read").status == 1
    assert fairlead("review", "evil", "--allow", "notes__read").status == 1
    assert fairlead("review", "evil", "--allow", "evil.notes.read").status == 0


def test_a_server_whose_tools_are_named_after_it_is_not_named_twice(
    fairlead: Fairlead, configure: Configure
) -> None:
    configure(repo=["repo.read", "list"], odd=["x", "odd.x"])
    assert fairlead("call", "repo.read", "--yes").status == 0
    assert fairlead("call", "repo.list", "--yes").status == 0
    refused = fairlead("call", "odd.x", "--yes")
    assert "`odd` has a tool `x` and a tool `odd.x`" in refused.err
    assert fairlead("call", "odd", "odd.x", "--yes").status == 0


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (("clok.get_time",), "did you mean `clock.get_time`?"),
        (("clock.get_tme",), "did you mean `clock.get_time`?"),
        (("gettime",), "did you mean `clock.get_time`?"),
        (("clok", "get_time"), "did you mean `clock`?"),
        (("clock",), "fairlead tools clock"),
    ],
    ids=" ".join,
)
def test_a_mistyped_tool_is_answered_with_the_one_meant(
    fairlead: Fairlead, configure: Configure, typed: tuple[str, ...], hint: str
) -> None:
    configure(clock=["get_time", "set_alarm"])
    outcome = fairlead("call", *typed, "--yes")
    assert outcome.status == 1
    assert hint in outcome.err


@pytest.mark.parametrize(
    "words", [("clock.get_time",), ("clock", "get_time"), ("get_time",)], ids=lambda words: " ".join(words)
)
def test_arguments_are_typed_after_the_name(
    fairlead: Fairlead, configure: Configure, words: tuple[str, ...]
) -> None:
    configure(clock=["get_time"])
    outcome = fairlead("call", *words, "zone=Europe/Berlin", "hours:=3", "--arg", "day=monday", "--yes")
    assert called(outcome)
    for given in ("Europe/Berlin", "3", "monday"):
        assert given in outcome.out


def test_a_word_that_is_no_argument_is_named_before_a_server_starts(
    fairlead: Fairlead, configure: Configure
) -> None:
    configure(clock=["get_time"])
    outcome = fairlead("call", "clock.get_time", "Europe/Berlin", "--yes")
    assert outcome.status == 2
    assert "`Europe/Berlin` is not NAME=VALUE" in outcome.err


def test_review_takes_server_dot_tool_and_globs_after_it(fairlead: Fairlead, configure: Configure) -> None:
    configure(clock=["get_time", "set_time", "get_zone"])
    assert fairlead("review", "clock", "--allow", "clock.get_*", "--deny", "clock__set_time").status == 0
    answers = {tool["name"]: tool["answer"] for tool in json.loads(fairlead("tools", "--json").out)["tools"]}
    assert answers == {"get_time": "allow", "get_zone": "allow", "set_time": "deny"}


def test_tools_and_audit_take_the_name_of_one_tool(fairlead: Fairlead, configure: Configure) -> None:
    configure(clock=["get_time", "set_time"])
    shown = json.loads(fairlead("tools", "clock.get_time", "--json").out)["tools"]
    assert [tool["qualified"] for tool in shown] == ["clock.get_time"]
    assert "did you mean `clock.get_time`?" in fairlead("tools", "clock.get_tme").err
    for name in ("get_time", "set_time"):
        assert fairlead("call", f"clock.{name}", "--yes").status == 0
    for name in ("clock.get_time", "clock/get_time", "get_time"):
        records = [json.loads(line) for line in fairlead("audit", "--tool", name, "--json").out.splitlines()]
        assert {record["tool"] for record in records} == {"get_time"}, name


def test_readings_of_a_name() -> None:
    servers = ("a", "a__b", "c")
    assert owners_of("a.x.y", servers) == [("a", "x.y")]
    assert owners_of("a__b__c", servers) == [("a", "b__c"), ("a__b", "c")]
    assert owners_of("a__b.c", servers) == [("a__b", "c")]
    assert owners_of("z.x", servers) == owners_of("a.", servers) == owners_of("x", servers) == []
    assert means_key("c_do_it", ToolKey("c", "do it"))
    assert not means_key("a.x", ToolKey("c", "x"))
    assert command_line_name(ToolKey("c", "a.x")) == "c.a.x"


def completed(machine: Machine, *words: str) -> list[str]:
    """What a shell offers for the last word."""
    env = {
        **os.environ,
        "_FAIRLEAD_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("fairlead", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from fairlead.cli.main import main; main()"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=machine.project,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_the_shell_completes_from_what_is_known_and_starts_no_server(
    fairlead: Fairlead, configure: Configure, machine: Machine
) -> None:
    configure(clock=["get_time", "set_time"], other=["read"])
    assert fairlead("gateway", "token", "add", "laptop").status == 0
    record = machine.home / "clock"
    before = record.read_text() if record.exists() else ""
    assert completed(machine, "call", "clock.") == ["clock.get_time", "clock.set_time"]
    assert completed(machine, "call", "o") == ["other.read"]
    assert completed(machine, "call", "clock", "set") == ["set_time"]
    assert completed(machine, "explain", "tool", "clock.g") == ["clock.get_time"]
    assert completed(machine, "review", "clock", "--allow", "clock.get_time,clock.s") == [
        "clock.get_time,clock.set_time"
    ]
    assert completed(machine, "tools", "cl") == ["clock", "clock.get_time", "clock.set_time"]
    assert completed(machine, "tools", "clock.g") == ["clock.get_time"]
    assert completed(machine, "bundle", "add", "b", "") == ["clock", "other"]
    assert completed(machine, "bundle", "add", "b", "clock", "clock.s") == ["clock.set_time"]
    assert completed(machine, "bundle", "add", "b", "clock", "--without", "clock.s") == ["clock.set_time"]
    assert completed(machine, "audit", "--tool", "clock.g") == ["clock.get_time"]
    assert completed(machine, "rm", "cl") == ["clock"]
    assert completed(machine, "tools", "--bundle", "w") == ["work"]
    assert completed(machine, "gateway", "token", "remove", "l") == ["laptop"]
    assert "vscode" in completed(machine, "export", "--to", "")
    assert "cursor" in completed(machine, "import", "--from", "c")
    assert completed(machine, "completion", "z") == ["zsh"]
    assert (record.read_text() if record.exists() else "") == before


def test_completion_says_nothing_where_the_configuration_is_broken(machine: Machine) -> None:
    machine.write_project("{ nonsense")
    assert completed(machine, "call", "x") == []
    assert completed(machine, "get", "x") == []


def test_commands_are_completed_without_loading_them(machine: Machine) -> None:
    assert {"tools", "test"} <= set(completed(machine, "t"))
    assert "--config" in completed(machine, "--c")
    script = """
import os, sys
os.environ |= {"_FAIRLEAD_COMPLETE": "bash_complete", "COMP_WORDS": "fairlead ", "COMP_CWORD": "1"}
from fairlead.cli.main import cli
try:
    cli.main(prog_name="fairlead", args=[])
finally:
    heavy = ("pydantic", "fairlead.cli.commands.")
    print("loaded", *[name for name in sys.modules if name.startswith(heavy)])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert "plain,tools" in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded"


def test_commands_that_complete_nothing_do_not_load_the_completers(machine: Machine) -> None:
    assert "sqlite3" not in modules_after("list")
