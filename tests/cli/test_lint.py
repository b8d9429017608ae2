"""`fairlead lint`: which tools a model provider would refuse, and what is rewritten for it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing import ScriptedServer
from tests.conformance.suite import ROOT
from tests.conftest import Machine, Outcome
from tests.fixtures import canned_stdio

Fairlead = Callable[..., Outcome]

PLAIN = {"name": "plain", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
FORMATTED = {
    "name": "formatted",
    "inputSchema": {"type": "object", "properties": {"when": {"type": "string", "format": "uri"}}},
}
CHOICE = {
    "name": "choice",
    "inputSchema": {
        "type": "object",
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    },
}
REMOTE = {"name": "remote", "inputSchema": {"$ref": "https://example.org/schema.json"}}


@pytest.fixture
def configure(machine: Machine, tmp_path: Path) -> Callable[..., ScriptedServer]:
    def write(*tools: dict[str, Any], **fields: Any) -> ScriptedServer:
        server = ScriptedServer(tmp_path / "record", tools=[*tools])
        machine.write_user(json.dumps({"servers": {"s": server.entry(**fields)}}))
        return server

    return write


def findings(outcome: Outcome) -> list[dict[str, Any]]:
    return json.loads(outcome.out)["findings"]


def test_tools_that_every_provider_takes_are_clean(
    fairlead: Fairlead, configure: Callable[..., ScriptedServer]
) -> None:
    server = configure(PLAIN, trust="untrusted")  # whether agents may use it is another question
    outcome = fairlead("lint")
    assert (outcome.status, outcome.out) == (0, "")
    assert "1 tools: 0 refused, 0 rewritten, 1 taken as they are" in outcome.err
    assert fairlead("lint", "s").status == 0
    assert server.starts == 1


def test_what_is_rewritten_is_listed_with_where_and_how(
    fairlead: Fairlead, configure: Callable[..., ScriptedServer]
) -> None:
    configure(PLAIN, FORMATTED, CHOICE)
    outcome = fairlead("lint", "--json")
    assert outcome.status == 0
    rows = findings(outcome)
    assert {row["verdict"] for row in rows} == {"rewritten"}
    assert {row["tool"] for row in rows} == {"formatted", "choice"}
    formatted = [row for row in rows if row["tool"] == "formatted"]
    assert {row["provider"] for row in formatted} == {"gemini"}
    assert formatted[0]["where"] == "properties.when.format"
    shown = fairlead("lint").out
    assert "properties.when.format" in shown
    assert "openai, anthropic" in shown  # what several need is one line
    assert "plain" not in shown
    only = findings(fairlead("lint", "--for", "openai-strict", "--json"))
    assert {row["provider"] for row in only} == {"openai-strict"}


def test_a_refused_tool_ends_with_a_status_of_its_own(
    fairlead: Fairlead, configure: Callable[..., ScriptedServer]
) -> None:
    configure(PLAIN, REMOTE)
    outcome = fairlead("lint")
    assert outcome.status == 1
    assert "refused" in outcome.out
    assert "https://example.org/schema.json" in outcome.out
    (row,) = findings(fairlead("lint", "--json"))
    assert (row["tool"], row["verdict"], row["provider"]) == ("remote", "refused", None)


def test_a_schema_that_takes_no_object_is_replaced_by_one_that_takes_any(
    fairlead: Fairlead, configure: Callable[..., ScriptedServer]
) -> None:
    configure({"name": "odd", "inputSchema": {"type": "string", "default": "object"}})
    outcome = fairlead("lint", "--json")
    assert outcome.status == 0
    rows = findings(outcome)
    assert {row["verdict"] for row in rows} <= {"repaired", "rewritten"}
    assert any(row["how"].endswith("any arguments are accepted") for row in rows)


def test_arguments_that_a_provider_knows_by_another_name_are_listed(
    fairlead: Fairlead, configure: Callable[..., ScriptedServer]
) -> None:
    named = {"type": "object", "properties": {"a name": {"type": "string"}}}
    configure({"name": "named", "inputSchema": named})
    assert "`a name` is called `" in fairlead("lint", "--for", "anthropic").out


def test_names_that_look_alike_are_pointed_out(
    fairlead: Fairlead, configure: Callable[..., ScriptedServer]
) -> None:
    configure(PLAIN, PLAIN | {"name": "pl\u0430in"})  # with a Cyrillic letter
    (row,) = findings(fairlead("lint", "--json"))
    assert row["verdict"] == "looks_alike"
    assert "s/plain" in row["how"]


def test_more_tools_than_a_request_takes_are_pointed_out(
    fairlead: Fairlead, configure: Callable[..., ScriptedServer]
) -> None:
    configure(*(PLAIN | {"name": f"plain_{number}"} for number in range(129)))
    assert "OpenAI takes 128 tools" in fairlead("lint").err
    assert "OpenAI" not in fairlead("lint", "--for", "gemini").err


def test_a_provider_nobody_knows_is_a_usage_error(fairlead: Fairlead) -> None:
    outcome = fairlead("lint", "--for", "openai,nobody")
    assert outcome.status == 2
    assert "nobody" in outcome.err
    assert "gemini" in outcome.err


def test_a_server_that_cannot_be_asked_is_named(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_user('{"servers": {"gone": {"command": "/nowhere/at-all"}}}')
    outcome = fairlead("lint")
    assert outcome.status == 4
    assert "/nowhere/at-all" in outcome.err


@pytest.mark.requirement("HARD-85")
def test_malformed_definitions_are_named_with_what_was_done_about_them(
    fairlead: Fairlead, machine: Machine
) -> None:
    entry = {"command": sys.executable, "args": ["-m", "tests.fixtures.definitions_stdio"], "cwd": str(ROOT)}
    machine.write_user(json.dumps({"servers": {"s": {**entry, "trust": "trusted"}}}))
    rows = findings(fairlead("lint", "--json"))
    repaired = {(row["kind"], row["tool"]): row["how"] for row in rows if row["verdict"] == "repaired"}
    assert {kind for kind, _ in repaired} == {"tool", "resource", "template", "prompt"}
    assert repaired["tool", "t14"] == "title is null; left out"
    refused = {(row["kind"], row["tool"]) for row in rows if row["verdict"] == "refused"}
    assert {kind for kind, _ in refused} == {"tool", "resource", "template", "prompt"}
    assert repaired["tool", "t66"].endswith("any arguments are accepted")
    assert "repaired, " in fairlead("lint").err
    status = fairlead("status")
    assert "malformed tools repaired: `t14` (title is null; left out)" in status.err
    assert "malformed prompts left out" in status.err


@pytest.mark.requirement("HARD-86")
def test_a_list_that_fails_is_named_beside_the_tools_that_came(fairlead: Fairlead, machine: Machine) -> None:
    capabilities: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
    answers: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "s", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "query", "inputSchema": {"type": "object"}}]},
        "resources/list": {"error": {"code": -32603, "message": "the database is down"}},
        "prompts/list": {"prompts": []},
    }
    entry = {"command": sys.executable, "args": [canned_stdio.__file__, json.dumps(answers)]}
    machine.write_user(json.dumps({"servers": {"s": {**entry, "trust": "trusted"}}}))
    outcome = fairlead("lint")
    assert outcome.status == 0
    assert "the database is down" in outcome.err
    status = fairlead("status")
    assert "the database is down" in status.err + status.out
    [row] = json.loads(fairlead("status", "--json").out)["servers"]
    assert any("the database is down" in note for note in row["notes"])
