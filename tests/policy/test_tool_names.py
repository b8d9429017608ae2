"""Names of tools in lists: exact where a review writes them, whatever characters they have."""

import json
from typing import Any

import pytest

from fairlead.catalog.tools import Listing, ToolEntry, ToolKey, read_tools
from fairlead.config.paths import store_file
from fairlead.host.model.bundles import select
from fairlead.policy.decision import CallPolicy, decide_by_lists
from fairlead.policy.review import ReviewDecision, record_decision
from fairlead.policy.tool_names import escape_name, exact_name, is_glob, matches, matches_any, refuses_any
from tests.conftest import Machine

NAMES = [
    "*",
    "**",
    "?",
    "a?b",
    "[x]",
    "[!a]",
    "[",
    "]",
    "[]",
    "[[]",
    "[*]",
    "[a-z]*",
    "a[",
    "!a",
    "!*",
    " a b ",
    "",
    ".",
    "..",
    "...*",
    "*/*",
    "\\*",
    "tool\n*",
    "naïve*名",
    "\U0001f600?",
    "x" * 5000 + "*",
    "*" * 200,
    "-- --all",
    '"quoted"*',
    "${HOME}*",
]
OTHERS = [*NAMES, "a", "b", "axb", "x", "x" * 5001, "aab", "anything", "[", "a/b"]


@pytest.mark.requirement("HARD-77")
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_an_escaped_name_matches_that_tool_and_no_other(name: str) -> None:
    pattern = escape_name(name)
    assert exact_name(pattern) == name
    assert not is_glob(pattern)
    assert [other for other in dict.fromkeys(OTHERS) if matches(other, pattern)] == [name]
    assert [other for other in dict.fromkeys(OTHERS) if matches_any(other, (pattern, "zzz"))] == [name]


def test_globs_still_match_as_they_did() -> None:
    assert matches("get_issue", "get_*")
    assert matches("a1", "a[0-9]")
    assert not matches("A1", "a[0-9]")
    assert matches("a[", "a[")  # a bracket that does not end
    assert refuses_any("a[1]", ("a[1]",))  # as earlier releases wrote it
    assert not matches_any("a[1]", ("a[1]",))


@pytest.mark.requirement("HARD-77")
@pytest.mark.parametrize("name", [name for name in NAMES if name], ids=range(len(NAMES) - 1))
def test_a_review_allows_and_denies_exactly_the_tool_it_names(machine: Machine, name: str) -> None:
    path = machine.write_user(
        json.dumps({"servers": {"x": {"url": "http://127.0.0.1:9/mcp", "allow_tools": []}}})
    )
    del path
    server = machine.load().servers["x"]
    definition = json.dumps({"name": name, "inputSchema": {"type": "object"}}).encode()
    tool = ToolEntry(key=ToolKey("x", name), definition=definition)
    record_decision(store_file(machine.env), server, Listing(tools=(tool,)), ReviewDecision(allow=[tool]))
    allowed = machine.load().servers["x"]
    assert allowed.config is not None
    others = dict.fromkeys(OTHERS)
    assert [other for other in others if decide_by_lists(allowed.config, other).verdict == "allow"] == [name]
    record_decision(store_file(machine.env), allowed, Listing(tools=(tool,)), ReviewDecision(deny=[name]))
    denied = machine.load().servers["x"]
    assert denied.config is not None
    fields = [other for other in others if decide_by_lists(denied.config, other).field == "deny_tools"]
    # Spelled just like the pattern, another tool is denied as well: of two readings of a denylist, both hold.
    assert fields == [other for other in others if other in (name, escape_name(name))]


@pytest.mark.requirement("HARD-77")
def test_rules_and_modes_name_escaped_tools_exactly(machine: Machine) -> None:
    entry = {"url": "http://127.0.0.1:9/mcp", "trust": "trusted"}
    rules = [{"server": "x", "tool": "[*]", "action": "allow"}]
    machine.write_user(json.dumps({"servers": {"x": entry}, "policy": {"rules": rules}}))
    policy = CallPolicy(machine.load().servers["x"])
    assert policy.decide("*").verdict == "allow"
    assert policy.decide("a").verdict == "ask"
    assert policy.decide("[*]").verdict == "ask"
    modes = {"default": "ask", "tools": {"[*]": "allow", "b*": "deny"}}
    machine.write_user(json.dumps({"servers": {"x": {**entry, "approval": modes}}}))
    policy = CallPolicy(machine.load().servers["x"])
    assert [policy.decide(tool).verdict for tool in ("*", "a", "[*]", "bc")] == [
        "allow",
        "ask",
        "ask",
        "deny",
    ]


SPELLINGS = {  # of a tool by what denies it, and of no tool
    ("github", "create"): ("create", "github.create", "github/create", "github__create", "github.cr*"),
    ("edit", "edit.delete"): ("delete", "del*", "edit.delete", "edit/delete", "edit:delete", "edit.del*"),
}


@pytest.mark.parametrize("way", ["deny_tools", "approval", "rule", "bundle"])
@pytest.mark.parametrize("key", SPELLINGS, ids="/".join)
def test_a_denial_holds_in_each_spelling_of_a_tool_and_is_about_no_other(
    machine: Machine, key: tuple[str, str], way: str
) -> None:
    server_id, tool = key
    for spelling in (*SPELLINGS[key], "git*", "hub.create", "ed*", "elete", f"{server_id}s.{tool}"):
        means_it = spelling in SPELLINGS[key]
        if not means_it and matches(tool, spelling):
            continue
        entry: dict[str, Any] = {"url": "http://127.0.0.1:9/mcp", "trust": "trusted", "approval": "allow"}
        document: dict[str, Any] = {"servers": {server_id: entry}}
        if way == "deny_tools":
            entry["deny_tools"] = [spelling]
        elif way == "approval":
            entry["approval"] = {"default": "allow", "tools": {spelling: "deny"}}
        elif way == "rule":
            document["policy"] = {"rules": [{"action": "deny", "tool": spelling}]}
        else:
            document["bundles"] = {"b": {"servers": {server_id: {"deny_tools": [spelling]}}}}
        machine.write_user(json.dumps(document))
        loaded = machine.load()
        policy = CallPolicy(loaded.servers[server_id])
        bundle_filter = select(loaded, "b").bundle_filter(server_id) if way == "bundle" else None
        verdicts = [policy.decide(name, bundle_filter).verdict for name in (tool, "other")]
        assert verdicts == ["deny" if means_it else "allow", "allow"], spelling


def test_what_allows_goes_by_a_tools_own_name(machine: Machine) -> None:
    entry = {"url": "http://127.0.0.1:9/mcp", "allow_tools": ["*"]}
    rules = [{"action": "allow", "tool": "x.create"}]
    machine.write_user(json.dumps({"servers": {"x": entry}, "policy": {"rules": rules}}))
    policy = CallPolicy(machine.load().servers["x"])
    assert [policy.decide(tool).verdict for tool in ("x.create", "create")] == ["allow", "ask"]


def test_a_tool_without_a_name_is_rejected() -> None:
    tools, rejected = read_tools("x", iter([b'{"name":""}', b'{"name":" "}']))
    assert [entry.key.tool for entry in tools] == [" "]
    assert [(tool.name, tool.reason) for tool in rejected] == [("#1", "it has no name")]


def test_an_allowlist_is_still_a_list_of_names_and_globs(machine: Machine) -> None:
    entry = {"url": "http://127.0.0.1:9/mcp", "allow_tools": ["get_*", "one"]}
    machine.write_user(json.dumps({"servers": {"x": entry}}))
    config = machine.load().servers["x"].config
    assert config is not None
    assert [decide_by_lists(config, tool).verdict for tool in ("get_a", "one", "two")] == [
        "allow",
        "allow",
        "deny",
    ]
