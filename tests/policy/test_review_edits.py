"""What a review writes: one edit of one entry, after which the configuration alone decides."""

import json
from typing import Any

import pytest

from fairlead.catalog.tools import Listing, ToolEntry, ToolKey
from fairlead.config.paths import store_file
from fairlead.errors import ConfigError
from fairlead.policy.decision import CallPolicy
from fairlead.policy.review import ReviewDecision, record_decision
from tests.conftest import Machine

URL = "http://127.0.0.1:9/mcp"
NAMES = ("a", "b", "*", "a b", "[x]", "q?", "d,e", "-f", "all", "ünï", 'quo"te')


def tool(name: str) -> ToolEntry:
    definition = json.dumps({"name": name, "inputSchema": {"type": "object"}}).encode()
    return ToolEntry(key=ToolKey("x", name), definition=definition)


def review(machine: Machine, **answers: list[str]) -> None:
    listing = Listing(tools=tuple(tool(name) for name in NAMES))
    decision = ReviewDecision(
        allow=[tool(name) for name in answers.get("allow", [])],
        ask=[tool(name) for name in answers.get("ask", [])],
        deny=answers.get("deny", []),
    )
    record_decision(store_file(machine.env), machine.load().servers["x"], listing, decision)


def verdicts(machine: Machine) -> dict[str, str]:
    policy = CallPolicy(machine.load().servers["x"])
    return {name: policy.decide(name).verdict for name in NAMES}


def entry(machine: Machine) -> dict[str, Any]:
    return machine.load().servers["x"].entry


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
@pytest.mark.parametrize("name", NAMES)
def test_each_answer_holds_for_exactly_that_tool_and_can_be_changed(
    machine: Machine, trust: str, name: str
) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"url": URL, "trust": trust}}}))
    others = "ask" if trust == "trusted" else "deny"
    for answer in ("allow", "deny", "ask", "allow", "deny", "deny", "allow"):
        review(machine, **{answer: [name]})
        expected = {**dict.fromkeys(NAMES, others), name: answer}
        found = verdicts(machine)
        if answer == "deny":  # a name that is spelled like the pattern of another is denied with it
            expected = {other: found[other] if other != name else "deny" for other in NAMES}
            assert all(found[other] in (others, "deny") for other in NAMES)
        assert found == expected, answer


@pytest.mark.parametrize(
    "fields",
    [
        {},
        *(
            {"approval": said}
            for said in (
                None,
                "ask",
                "auto",
                "deny",
                "allow",
                {"default": "deny"},
                {"tools": {"*": "deny"}},
                {"default": "ask", "tools": {"b": "deny", "[[]x]": "allow"}},
            )
        ),
    ],
)
def test_an_approval_that_is_there_stays_in_effect_for_all_other_tools(
    machine: Machine, fields: dict[str, Any]
) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"url": URL, "allow_tools": list(NAMES[:2]), **fields}}}))
    before = verdicts(machine)
    review(machine, allow=["a"])
    assert verdicts(machine) == {**before, "a": "allow"}
    review(machine, ask=["a"])
    assert verdicts(machine) == {**before, "a": "ask"}


def test_comments_and_formatting_stay(machine: Machine) -> None:
    text = """{
  // my servers
  "servers": {
    "x": {
      "url": "http://127.0.0.1:9/mcp", // over there
      "allow_tools": [
        "a", // the good one
        "b"
      ],
      "approval": "ask"
    }
  }
}
"""
    path = machine.write_user(text)
    review(machine, allow=["a"], deny=["b"])
    written = path.read_text()
    for comment in ("// my servers", "// over there", "// the good one"):
        assert comment in written
    assert entry(machine)["approval"] == {"default": "ask", "tools": {"a": "allow"}}
    assert entry(machine)["allow_tools"] == ["a"]
    assert entry(machine)["deny_tools"] == ["b"]


def test_the_last_name_of_an_allowlist_stays_so_that_no_other_tool_is_offered(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"url": URL, "trust": "trusted", "allow_tools": ["a"]}}}))
    review(machine, deny=["a"])
    assert set(verdicts(machine).values()) == {"deny"}


def test_a_layer_above_is_edited_and_keeps_what_the_one_below_says(machine: Machine) -> None:
    below = {"url": URL, "allow_tools": ["a", "b"], "approval": {"tools": {"b": "allow"}}}
    machine.write_user(json.dumps({"servers": {"x": below}}))
    machine.write_project(json.dumps({"servers": {"x": {"approval": {"tools": {"a": "ask"}}}}}))
    review(machine, allow=["a"])
    assert json.loads(machine.user_file.read_text())["servers"]["x"] == below
    assert verdicts(machine)["a"] == "allow"
    assert verdicts(machine)["b"] == "allow"


@pytest.mark.parametrize("pattern", ["*", "a*", "[ab]"])
def test_what_a_glob_denies_cannot_be_allowed_by_a_review(machine: Machine, pattern: str) -> None:
    machine.write_user(json.dumps({"servers": {"x": {"url": URL, "deny_tools": [pattern]}}}, indent=1))
    before = machine.user_file.read_text()
    with pytest.raises(ConfigError, match="stays denied") as caught:
        review(machine, allow=["a"])
    assert "fairlead.json:" in str(caught.value)
    assert machine.user_file.read_text() == before
