"""`fairlead explain`: what a tool may do for a principal, a group and a bundle, and why."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from fairlead.testing import ScriptedServer
from tests.cli.permission_support import (
    READ,
    Fairlead,
    write,
)
from tests.conftest import Machine


def test_explain_shows_a_rule_to_those_it_is_for(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[READ])
    rule = {"action": "deny", "principal": "group:interns", "tool": "ec*", "reason": "not for interns"}
    write(machine, {"s": server.entry()}, policy={"rules": [rule]})
    fairlead("tools", "s")
    plain = json.loads(fairlead("explain", "tool", "echo", "--json").out)["tools"][0]
    assert (plain["state"], plain["verdict"]) == ("direct", "allow")
    asked = fairlead("explain", "tool", "echo", "--as", "ada", "--group", "interns", "--json")
    intern = json.loads(asked.out)["tools"][0]
    assert (intern["state"], intern["verdict"]) == ("denied", "deny")
    assert "not for interns" in intern["approval"]["reason"]
    assert re.search(r"fairlead\.json:\d+", intern["approval"]["place"])


@pytest.mark.parametrize(
    ("named", "spelled", "verdict"),
    [
        ("ada@example.org", "ada@example.org", "deny"),
        ("ada@example.org", "oauth:https://issuer.example ada@example.org", "deny"),
        ("ada@example.org", "oauth:https://other.example ada@example.org", "deny"),
        ("oauth:https://issuer.example ada@example.org", "ada@example.org", "deny"),
        ("oauth:https://other.example ada@example.org", "ada@example.org", "allow"),
        ("bo@example.org", "ada@example.org", "allow"),
        ("ci", "ci", "deny"),
        ("token:ci", "ci", "deny"),
        ("oauth:https://issuer.example ci", "ci", "allow"),
        ("local", "local", "deny"),
    ],
)
def test_explain_finds_subjects_of_the_issuer_and_tokens_by_their_bare_name(
    machine: Machine, tmp_path: Path, fairlead: Fairlead, named: str, spelled: str, verdict: str
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[READ])
    rule = {"action": "deny", "principal": named}
    oauth = {"issuer": "https://issuer.example", "audience": "https://gateway.example/mcp"}
    write(machine, {"s": server.entry()}, policy={"rules": [rule]}, gateway={"oauth": oauth})
    assert fairlead("gateway", "token", "add", "ci").status == 0
    fairlead("tools", "s")
    outcome = fairlead("explain", "tool", "echo", "--as", spelled, "--json")
    assert json.loads(outcome.out)["tools"][0]["verdict"] == verdict
    assert ("is the principal `" in outcome.err) is (spelled in ("ada@example.org", "ci"))
    (listed,) = json.loads(fairlead("explain", "s", "--as", spelled, "--json").out)["tools"]
    assert listed["verdict"] == verdict


BUNDLES: dict[str, Any] = {
    "data": {"servers": {"s": {}}},
    "work": {"servers": {"s": {}}},
    "less": {"servers": {"s": {"deny_tools": ["echo"]}}},
}


@pytest.mark.parametrize(
    ("words", "said", "verdict"),
    [
        (["--group", "data"], "use the bundle `data`, and nothing else", "allow"),
        (["--group", "less"], "use the bundle `less`, and nothing else", "deny"),
        (["--group", "data", "--group", "less"], "use the bundles `data` and `less`", None),
        (["--group", "data", "--group", "less", "--bundle", "less"], "", "deny"),
        (["--group", "data", "--bundle", "work"], "does not let", None),
        (["--group", "nope"], "does not let", None),
        ([], "does not let", None),
        (["--group", "gone"], "there is no bundle `gone`", None),
    ],
)
def test_explain_goes_by_the_bundles_that_claims_are_mapped_to(
    machine: Machine, tmp_path: Path, fairlead: Fairlead, words: list[str], said: str, verdict: str | None
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[READ])
    mapped = {f"group:{name}": name for name in (*BUNDLES, "gone")}
    oauth = {"issuer": "https://issuer.example", "audience": "https://gateway.example/mcp", "bundles": mapped}
    write(machine, {"s": server.entry()}, gateway={"oauth": oauth}, bundles=BUNDLES)
    fairlead("tools", "s")
    for what in (["s"], ["tool", "echo"]):
        outcome = fairlead("explain", *what, "--as", "ada", *words, "--json")
        assert said in outcome.err
        assert (outcome.status == 0) is (verdict is not None), outcome.err
        if verdict is not None:
            assert json.loads(outcome.out)["tools"][0]["verdict"] == verdict
        elif hint := re.search(r"`(--bundle [^`]+)`", outcome.err):
            groups = [word for word in words if word not in ("--bundle", "work")]
            again = fairlead("explain", *what, "--as", "ada", *groups, *shlex.split(hint[1]))
            assert again.status == 0, again.err


def test_explain_goes_by_the_bundles_of_a_gateway_token(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[READ])
    write(machine, {"s": server.entry()}, bundles=BUNDLES)
    assert fairlead("gateway", "token", "add", "ci", "--bundle", "less").status == 0
    fairlead("tools", "s")
    outcome = fairlead("explain", "tool", "echo", "--as", "ci", "--json")
    assert json.loads(outcome.out)["tools"][0]["verdict"] == "deny"
    assert "lets `token:ci` use the bundle `less`" in outcome.err
