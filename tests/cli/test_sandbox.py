"""Sandboxes on the command line: asking for one, and being told about one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def added(machine: Machine) -> dict[str, Any]:
    return json.loads(machine.project_file.read_text())["servers"]["x"]


@pytest.mark.parametrize(
    ("options", "sandbox"),
    [
        (["--sandbox"], {"kind": "bwrap"}),
        (["--sandbox-network"], {"kind": "bwrap", "network": True}),
        (
            ["--sandbox", "--sandbox-read", "a", "--sandbox-write", "b", "--sandbox-write", "~/c"],
            {"kind": "bwrap", "read": ["a"], "write": ["b", "~/c"]},
        ),
    ],
)
def test_add_can_ask_for_a_sandbox(
    options: list[str], sandbox: dict[str, Any], fairlead: Fairlead, machine: Machine
) -> None:
    assert fairlead("add", "x", *options, "--", "server").status == 0
    assert added(machine)["sandbox"] == sandbox


def test_add_without_a_word_about_it_writes_no_sandbox(fairlead: Fairlead, machine: Machine) -> None:
    assert fairlead("add", "x", "--", "server").status == 0
    assert "sandbox" not in added(machine)


def test_a_url_cannot_be_sandboxed(fairlead: Fairlead, machine: Machine) -> None:
    outcome = fairlead("add", "x", "--sandbox", "--url", "https://example.com/mcp")
    assert outcome.status == 1
    assert "and this one is http" in outcome.err
    assert not machine.project_file.exists()


@pytest.mark.requirement("HARD-4")
@pytest.mark.parametrize(
    ("sandbox", "told"),
    [
        ({}, ["not sandboxed: it has your rights"]),
        ({"sandbox": None}, ["not sandboxed: it has your rights"]),
        ({"sandbox": {}}, ["It is sandboxed", "has no network"]),
        (
            {"sandbox": {"network": True, "read": ["~/books"], "write": ["out"]}},
            ["can use the network", "may read ~/books", "may write out"],
        ),
    ],
)
def test_who_is_asked_for_consent_is_told_what_rights_that_gives(
    sandbox: dict[str, Any], told: list[str], fairlead: Fairlead, machine: Machine
) -> None:
    machine.write_project(json.dumps({"servers": {"x": {"command": "server", **sandbox}}}))
    outcome = fairlead("approve")
    assert outcome.status == 3
    for words in told:
        assert words in outcome.out


@pytest.mark.requirement("HARD-73")
def test_what_a_program_brings_into_its_sandbox_is_told_by_add_and_approve(
    fairlead: Fairlead, machine: Machine
) -> None:
    (vault := machine.home / "vault").mkdir()
    for path, text in ((vault / "tool", "#!/bin/sh\n"), (machine.project / "run", f"#!{vault}/tool\n")):
        path.write_text(text)
        path.chmod(0o755)
    told = f"may read {vault}/tool"
    outcome = fairlead("add", "x", "--sandbox", "--scope", "user", "--", str(machine.project / "run"))
    assert told in outcome.err
    machine.write_project(json.dumps({"servers": {"y": {"command": "./run", "sandbox": {}}}}))
    assert told in fairlead("approve", "y", "--yes").out
