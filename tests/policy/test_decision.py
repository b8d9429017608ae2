import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.load import LoadedServer
from fairlead.policy.arguments import PathContext, read_arguments
from fairlead.policy.decision import CallPolicy, Decision
from tests.conftest import Machine

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}


def configured(machine: Machine, policy: dict[str, Any] | None = None, **fields: Any) -> LoadedServer:
    entry = {"command": "never-run", "trust": "trusted", **fields}
    machine.write_user(json.dumps({"servers": {"x-1": entry}, "policy": policy or {}}))
    return machine.load().servers["x-1"]


def entry(**annotations: bool) -> ToolEntry:
    definition = {"name": "write_file", "inputSchema": {"type": "object"}, "annotations": annotations}
    return ToolEntry(key=ToolKey("x-1", "write_file"), definition=json.dumps(definition).encode())


def decided(server: LoadedServer, arguments: dict[str, Any] | None = None, **annotations: bool) -> Decision:
    policy = CallPolicy(server)
    context = PathContext(cwd="/srv/project", homes=("/home/me",))
    readings = read_arguments(policy.argument_patterns("write_file"), arguments or {}, context)
    return policy.decide("write_file", entry=entry(**annotations), arguments=readings)


def test_a_person_is_asked_where_nothing_says_otherwise(machine: Machine) -> None:
    assert decided(configured(machine)).verdict == "ask"


@pytest.mark.requirement("NEED-26")
@pytest.mark.parametrize(
    ("rules", "mode"),
    list(
        itertools.product(
            [(), ("allow",), ("ask",), ("deny",), ("allow", "deny")], [None, "allow", "ask", "deny"]
        )
    ),
)
def test_the_strictest_of_all_that_speak_of_a_tool_wins(
    machine: Machine, rules: tuple[str, ...], mode: str | None
) -> None:
    policy = {"rules": [{"action": action, "server": "x-*", "tool": "write_*"} for action in rules]}
    server = configured(machine, policy, **({"approval": mode} if mode else {}))
    said = [*rules, *([mode] if mode else [])]
    assert decided(server).verdict == max(said or ["ask"], key=STRICTNESS.__getitem__)


@pytest.mark.requirement("NEED-26")
def test_a_decision_names_its_rule_with_file_and_line(machine: Machine) -> None:
    path = machine.write_user(
        '{"servers": {"x-1": {"command": "a", "trust": "trusted"}},\n'
        ' "policy": {"rules": [\n'
        '   {"action": "allow", "tool": "read_*"},\n'
        '   {"action": "deny", "server": "x-1", "tool": "write-file", "reason": "not here"}]}}'
    )
    decision = CallPolicy(machine.load().servers["x-1"]).decide("write-file")
    assert decision.rule is not None
    assert (decision.verdict, decision.reason, str(decision.rule.origin)) == ("deny", "not here", f"{path}:4")


def test_rules_of_all_layers_add_up_and_know_their_file(machine: Machine) -> None:
    server = {"command": "a", "trust": "trusted"}
    machine.write_user(json.dumps({"servers": {"x-1": server}, "policy": {"rules": [{"action": "allow"}]}}))
    project = machine.write_project('{"policy": {"rules": [{"action": "deny", "tool": "write_file"}]}}')
    decision = CallPolicy(machine.load().servers["x-1"]).decide("write_file")
    assert decision.verdict == "deny"
    assert decision.rule is not None
    assert str(decision.rule.origin) == f"{project}:1"


def test_a_rule_of_another_server_says_nothing(machine: Machine) -> None:
    server = configured(machine, {"approval": "allow", "rules": [{"action": "deny", "server": "y*"}]})
    assert decided(server).verdict == "allow"


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ({"write_file": "allow", "*": "deny"}, "allow"),
        ({"write_*": "allow", "*_file": "ask"}, "ask"),
        ({"read_*": "deny"}, "ask"),
        ({}, "ask"),
    ],
)
def test_a_tools_own_mode_beats_globs_and_they_the_servers(
    machine: Machine, modes: dict[str, str], expected: str
) -> None:
    assert decided(configured(machine, approval={"default": "ask", "tools": modes})).verdict == expected


@pytest.mark.requirement("HARD-47")
@pytest.mark.parametrize(
    ("trust", "annotations", "expected"),
    [
        ("trusted", {"readOnlyHint": True}, "allow"),
        ("trusted", {"destructiveHint": False}, "ask"),
        ("trusted", {"readOnlyHint": True, "destructiveHint": True}, "ask"),
        ("trusted", {"readOnlyHint": True, "destructiveHint": False}, "allow"),
        ("trusted", {"destructiveHint": True}, "ask"),
        ("trusted", {}, "ask"),
        ("untrusted", {"readOnlyHint": True}, "ask"),
        ("untrusted", {"destructiveHint": False, "readOnlyHint": True}, "ask"),
    ],
)
def test_auto_believes_the_annotations_of_trusted_servers_only(
    machine: Machine, trust: str, annotations: dict[str, bool], expected: str
) -> None:
    server = configured(machine, trust=trust, allow_tools=["*"], approval="auto")
    assert decided(server, {}, **annotations).verdict == expected


def test_annotations_that_cannot_be_read_relax_nothing(machine: Machine) -> None:
    odd = ToolEntry(key=ToolKey("x-1", "write_file"), definition=b'{"annotations": {"readOnlyHint": "yes"}}')
    policy = CallPolicy(configured(machine, approval="auto"))
    assert policy.decide("write_file", entry=odd).verdict == "ask"


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/../etc/passwd", "//etc/passwd", "/tmp/../etc/passwd"])
def test_a_rule_can_deny_by_arguments(machine: Machine, path: str) -> None:
    rule = {"action": "deny", "tool": "write_file", "arguments": {"path": "/etc/**"}}
    server = configured(machine, {"rules": [rule]}, approval="allow")
    assert decided(server, {"path": path}).verdict == "deny"
    assert decided(server, {"path": "/tmp/x"}).verdict == "allow"
    assert CallPolicy(server).decide("write_file").verdict == "allow"  # it is not hidden for that


def test_a_rule_that_asks_about_arguments_asks_every_time(machine: Machine) -> None:
    rule = {"action": "ask", "arguments": {"path": "/etc/**"}}
    server = configured(machine, {"rules": [rule]}, approval="allow")
    decision = decided(server, {"path": "/etc/x"})
    assert (decision.verdict, decision.every_time) == ("ask", True)


def test_an_allowance_for_arguments_answers_only_what_nobody_decided(machine: Machine) -> None:
    policy = {"rules": [{"action": "allow", "arguments": {"path": "/tmp/**"}}]}
    assert decided(configured(machine, policy), {"path": "/tmp/x"}).verdict == "allow"
    assert decided(configured(machine, policy), {"path": "/tmp/../etc/x"}).verdict == "ask"
    assert decided(configured(machine, policy, approval="ask"), {"path": "/tmp/x"}).verdict == "ask"
    assert decided(configured(machine, policy, deny_tools=["*"]), {"path": "/tmp/x"}).verdict == "deny"


def test_a_list_beats_every_rule(machine: Machine) -> None:
    server = configured(machine, {"approval": "allow", "rules": [{"action": "allow"}]}, allow_tools=["read"])
    assert (decided(server).verdict, decided(server).field) == ("deny", "allow_tools")


@given(names=st.lists(st.text(min_size=1, max_size=20), max_size=30))
def test_names_nobody_listed_are_no_way_in(names: list[str]) -> None:
    server = _untrusted()
    policy = CallPolicy(server)
    assert all(policy.decide(name).verdict == "deny" for name in names if name != "known")


def _untrusted() -> LoadedServer:
    from fairlead.config.load import load_config

    overrides = {
        "servers": {"x": {"command": "a", "allow_tools": ["known"]}},
        "policy": {"approval": "allow"},
    }
    return load_config(overrides=overrides, env={"HOME": "/nonexistent"}, cwd="/").servers["x"]


@pytest.mark.requirement("HARD-76")
def test_a_rule_that_may_apply_asks_about_each_call(machine: Machine) -> None:
    rule = {"action": "deny", "tool": "write_file", "arguments": {"path": "/etc/**"}}
    server = configured(machine, {"rules": [rule]}, approval="allow")
    doubtful = decided(server, {"path": "$WHERE/passwd"})
    assert (doubtful.verdict, doubtful.every_time) == ("ask", True)
    assert "may apply" in doubtful.reason
    assert decided(server, {"path": "/etc/passwd"}).verdict == "deny"
    assert decided(server, {"path": "notes.txt"}).verdict == "allow"
