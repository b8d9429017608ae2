"""Exporting into a file is in the audit log, and writes nothing where no server is left to write."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.config.paths import store_file
from fairlead.policy.audit import AuditQuery, latest_records
from fairlead.store.opening import open_database
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]
FORMATS = ("claude", "cursor", "vscode", "codex", "opencode", "gemini")


def exports(machine: Machine) -> list[tuple[str, dict[str, Any]]]:
    with open_database(store_file(machine.env)) as database:
        records = latest_records(database, AuditQuery(), 100)
    return [(each.principal, dict(each.details or {})) for each in records if each.kind == "export"]


@pytest.mark.requirement("NEED-30")
@pytest.mark.parametrize("agent", FORMATS)
def test_an_export_into_a_file_is_recorded(machine: Machine, fairlead: Fairlead, agent: str) -> None:
    entry = {"command": "run", "trust": "trusted"}
    machine.write_user(json.dumps({"servers": {"a": entry, "b": {**entry, "sandbox": {}}}}))
    assert fairlead("export", "--to", agent, "--lose", "approval").status == 0  # which writes no file
    output = machine.home / "there"
    for words in ((), ("--gateway",)):
        outcome = fairlead("export", "--to", agent, "--lose", "approval", *words, "-o", str(output))
        assert outcome.status == 0, outcome.err
    common = {"in": "command line", "agent": agent, "file": str(output)}
    assert exports(machine) == [
        ("local", {**common, "servers": ["a"]}),
        ("local", {**common, "servers": ["fairlead"]}),
    ]


@pytest.mark.parametrize("agent", FORMATS)
def test_an_export_without_servers_writes_no_file_and_says_why(
    machine: Machine, fairlead: Fairlead, agent: str
) -> None:
    entry: dict[str, Any] = {"command": "run", "trust": "trusted", "sandbox": {}}
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    output = machine.home / "there"
    outcome = fairlead("export", "--to", agent, "-o", str(output))
    assert outcome.status == 1
    assert "no server can be exported to" in outcome.err
    assert "--lose sandbox" in outcome.err
    assert "hint: write one entry, of a gateway that keeps every restriction: add `--gateway`" in outcome.err
    assert not output.exists()
    assert exports(machine) == []


def test_an_export_of_no_configured_server_says_so(machine: Machine, fairlead: Fairlead) -> None:
    machine.write_user('{"servers": {}}')
    outcome = fairlead("export", "--to", "claude", "-o", str(machine.home / "there"))
    assert outcome.status == 1
    assert "none is configured" in outcome.err
    assert not (machine.home / "there").exists()
