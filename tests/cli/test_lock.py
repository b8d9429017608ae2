"""`fairlead lock`: written, checked, and held to."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing import scripted_program
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

ECHO: dict[str, Any] = {"name": "echo", "description": "Say it again.", "inputSchema": {"type": "object"}}
DELETE: dict[str, Any] = {"name": "delete", "inputSchema": {"type": "object"}}


def entry(script: Path) -> dict[str, Any]:
    begin = f"import runpy, sys; sys.argv[1:] = [open({str(script)!r}).read()]"
    run = f"runpy.run_path({scripted_program.__file__!r}, run_name='__main__')"
    return {"command": sys.executable, "args": ["-c", f"{begin}; {run}", "pkg==1.2.3"], "allow_tools": ["*"]}


def says(script: Path, *tools: dict[str, Any], **rest: object) -> None:
    script.write_text(json.dumps({"record": str(script.with_name("record")), "tools": tools, **rest}))


@pytest.fixture
def scripts(fairlead: Fairlead, machine: Machine) -> dict[str, Path]:
    """Two servers of a project that the user approved, and one of the user's own."""
    scripts = {name: machine.home / f"{name}.json" for name in ("a", "b", "own")}
    for script in scripts.values():
        says(script, ECHO)
    machine.write_project(json.dumps({"servers": {name: entry(scripts[name]) for name in ("a", "b")}}))
    machine.write_user(json.dumps({"servers": {"own": entry(scripts["own"])}}))
    assert fairlead("approve", "--all", "--yes").status == 0
    return scripts


@pytest.mark.requirement("HARD-40")
def test_a_lock_has_the_servers_of_the_project_and_what_they_are(
    fairlead: Fairlead, machine: Machine, scripts: dict[str, Path]
) -> None:
    assert fairlead("lock").status == 0
    lock = json.loads((machine.project / "fairlead.lock").read_text())
    assert set(lock["servers"]) == {"a", "b"}
    locked = lock["servers"]["a"]
    assert (locked["protocol"], locked["server"], locked["package"]) == (
        "2025-11-25",
        "scripted 1",
        "pkg 1.2.3",
    )
    assert set(locked["tools"]["echo"]["fields"]) == {"name", "description", "inputSchema"}
    outcome = fairlead("lock", "--check")
    assert outcome.status == 0
    assert outcome.out == ""
    before = (machine.project / "fairlead.lock").read_text()
    written = json.loads(fairlead("lock", "--json").out)
    assert written["servers"] == {"a": 1, "b": 1}
    assert (machine.project / "fairlead.lock").read_text() == before


@pytest.mark.requirement("HARD-40")
def test_drift_is_told_by_server_tool_and_field(
    fairlead: Fairlead, machine: Machine, scripts: dict[str, Path]
) -> None:
    fairlead("lock")
    says(scripts["a"], {**ECHO, "description": "Other."}, DELETE, instructions="Be kind.")
    says(scripts["b"])
    outcome = fairlead("lock", "--check")
    assert outcome.status == 6
    lines = outcome.out.splitlines()
    assert lines[0].startswith("a: instructions was nothing, is ")
    assert lines[1:] == ["a.delete: added", "a.echo: changed (description)", "b.echo: removed"]
    drift = json.loads(fairlead("lock", "--check", "--json").out)["drift"]
    assert {"server_id": "b", "what": "removed", "tool": "echo"}.items() <= drift[-1].items()
    assert fairlead("lock", "--check", "--only", "b").out == "b.echo: removed\n"


@pytest.mark.requirement("HARD-40")
def test_what_is_not_as_locked_is_not_offered(fairlead: Fairlead, scripts: dict[str, Path]) -> None:
    fairlead("lock")
    says(scripts["a"], {**ECHO, "description": "Other."}, DELETE)
    fairlead("tools", "a", "--refresh")
    tools = json.loads(fairlead("tools", "a", "--json").out)["tools"]
    assert {tool["name"]: tool["quarantined"] for tool in tools} == {
        "echo": "its definition has changed since it was first used",
        "delete": "it is new and has not been reviewed",
    }
    fairlead("review", "a", "--approve-all")
    tools = json.loads(fairlead("tools", "a", "--json").out)["tools"]
    assert {tool["name"]: tool["quarantined"] for tool in tools} == {
        "echo": "it differs from fairlead.lock",
        "delete": "it is not in fairlead.lock",
    }
    fairlead("lock", "--only", "a")
    tools = json.loads(fairlead("tools", "a", "--json").out)["tools"]
    assert [tool["quarantined"] for tool in tools] == [None, None]


def test_a_server_that_fails_is_named_and_nothing_is_written(
    fairlead: Fairlead, machine: Machine, scripts: dict[str, Path]
) -> None:
    fairlead("lock")
    before = (machine.project / "fairlead.lock").read_text()
    says(scripts["a"], ECHO, DELETE)
    says(scripts["b"], ECHO, exit=3)
    outcome = fairlead("lock")
    assert outcome.status == 4
    assert "server `b`" in outcome.err
    assert (machine.project / "fairlead.lock").read_text() == before
    assert fairlead("lock", "--only", "a").status == 0
    lock = json.loads((machine.project / "fairlead.lock").read_text())
    assert {name: set(server["tools"]) for name, server in lock["servers"].items()} == {
        "a": {"echo", "delete"},
        "b": {"echo"},
    }


def test_a_lock_can_be_written_elsewhere(
    fairlead: Fairlead, machine: Machine, scripts: dict[str, Path]
) -> None:
    elsewhere = machine.home / "other.lock"
    assert fairlead("lock", "--file", str(elsewhere)).status == 0
    assert set(json.loads(elsewhere.read_text())["servers"]) == {"a", "b"}
    assert not (machine.project / "fairlead.lock").exists()
    missing = fairlead("lock", "--check")
    assert missing.status == 1
    assert "fairlead lock" in missing.err


def test_servers_of_several_files_need_a_place(fairlead: Fairlead, scripts: dict[str, Path]) -> None:
    outcome = fairlead("lock", "--only", "a", "--only", "own")
    assert outcome.status == 1
    assert "--file" in outcome.err


def test_nothing_to_lock_is_an_error(fairlead: Fairlead) -> None:
    assert fairlead("lock").status == 1


def test_without_a_project_the_users_own_servers_are_locked(
    fairlead: Fairlead, machine: Machine, scripts: dict[str, Path]
) -> None:
    machine.project_file.unlink()
    assert fairlead("lock").status == 0
    lock = json.loads(machine.user_file.with_name("fairlead.lock").read_text())
    assert set(lock["servers"]) == {"own"}


@pytest.mark.parametrize("options", [(), ("--check",), ("--only", "a")])
def test_a_lock_of_a_newer_release_is_left_as_it_is(
    fairlead: Fairlead, machine: Machine, scripts: dict[str, Path], options: tuple[str, ...]
) -> None:
    assert scripts
    path = machine.project / "fairlead.lock"
    path.write_text('{"version": 99, "servers": {}}')
    outcome = fairlead("lock", *options)
    assert outcome.status != 0
    assert "was written by a newer Fairlead" in outcome.err
    assert "update Fairlead" in outcome.err
    assert path.read_text() == '{"version": 99, "servers": {}}'
