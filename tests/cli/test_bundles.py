"""`fairlead bundle`: selections of servers and tools are made and removed without an editor."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def two_servers(machine: Machine) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("get_file", "delete")]
    known = ScriptedServer(machine.home / "record", tools=tools).entry(trust="trusted")
    text = json.dumps({"servers": {"known": known, "other": {"command": "x"}}}, indent=2)
    machine.write_user(text.replace("{", "{\n  // mine", 1))


def bundles(fairlead: Fairlead) -> dict[str, Any]:
    listed = fairlead("bundle", "list", "--json")
    assert listed.status == 0
    return json.loads(listed.out)["bundles"]


def test_a_bundle_is_made_of_servers_and_tools_and_the_rest_of_the_file_stays(
    fairlead: Fairlead, machine: Machine
) -> None:
    words = ("known.get_*", "known/delete", "other", "--without", "other.write", "--mode", "direct")
    made = fairlead("bundle", "add", "work", *words, "--description", "For work.")
    assert made.status == 0, made.err
    assert "the gateway serves it at /mcp/work" in made.err
    assert "// mine" in machine.user_file.read_text()
    assert bundles(fairlead) == {
        "work": {
            "mode": "direct",
            "description": "For work.",
            "servers": {
                "known": {"allow_tools": ["get_*", "delete"]},
                "other": {"deny_tools": ["write"]},
            },
        }
    }
    shown = fairlead("bundle", "list").out
    assert "known.get_*, known.delete, other, without other.write" in shown
    records = fairlead("audit", "--json").out
    assert "add bundle" in records


def test_a_bundle_that_is_there_stays_unless_it_is_to_be_replaced(fairlead: Fairlead) -> None:
    assert fairlead("bundle", "add", "work", "known").status == 0
    again = fairlead("bundle", "add", "work", "other")
    assert again.status == 1
    assert "overwrite it: add `--replace`" in again.err
    assert fairlead("bundle", "add", "work", "other", "--replace").status == 0
    assert bundles(fairlead)["work"]["servers"] == {"other": {}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("work", "knwn.get_file"), "there is no server `knwn`"),
        (("work", "knwn"), "did you mean `known`?"),
        (("no name", "known"), "an id is 1 to 64 letters"),
        (("work", "known", "--without", "other.write"), "`other` cannot be left out"),
        (("work", "known", "--without", "known"), "`known` cannot be left out"),
    ],
)
def test_what_cannot_be_a_bundle_is_refused_and_nothing_is_written(
    fairlead: Fairlead, machine: Machine, words: tuple[str, ...], said: str
) -> None:
    before = machine.user_file.read_bytes()
    refused = fairlead("bundle", "add", *words)
    assert refused.status == 1
    assert said in refused.err
    assert machine.user_file.read_bytes() == before


def test_a_tool_that_the_server_is_known_not_to_have_is_told(fairlead: Fairlead) -> None:
    assert fairlead("test", "known").status == 0
    made = fairlead("bundle", "add", "work", "known.get_fil", "other.anything", "known.del*")
    assert made.status == 0
    assert "`known` has no tool `get_fil` that is known" in made.err
    assert "did you mean `get_file`?" in made.err
    assert "anything" not in made.err
    assert "del*" not in made.err


def test_removing_a_bundle_names_the_tokens_that_open_nothing_then(fairlead: Fairlead) -> None:
    for name in ("work", "home"):
        assert fairlead("bundle", "add", name, "known").status == 0
    assert fairlead("gateway", "token", "add", "anna", "--bundle", "work").status == 0
    assert fairlead("gateway", "token", "add", "ben", "--bundle", "work", "--bundle", "home").status == 0
    removed = fairlead("bundle", "remove", "work")
    assert removed.status == 0
    assert "the token `anna` is for this bundle alone" in removed.err
    assert "ben" not in removed.err
    assert [*bundles(fairlead)] == ["home"]
    missing = fairlead("bundle", "remove", "hme")
    assert missing.status == 1
    assert "did you mean `home`?" in missing.err


def test_without_bundles_it_is_said_how_to_make_one(fairlead: Fairlead) -> None:
    assert "`fairlead bundle add NAME SERVER`" in fairlead("bundle", "list").err
    refused = fairlead("gateway", "token", "add", "anna", "--bundle", "work")
    assert "`fairlead bundle add` makes one" in refused.err


def test_a_bundle_is_removed_from_the_file_that_defines_it(fairlead: Fairlead, machine: Machine) -> None:
    machine.project_file.write_text('{"servers": {}}')
    assert fairlead("bundle", "add", "work", "known", "--scope", "user").status == 0
    elsewhere = fairlead("bundle", "remove", "work", "--scope", "project")
    assert elsewhere.status == 1
    assert "is removed there if no scope is named" in elsewhere.err
    assert "did you mean" not in elsewhere.err
    removed = fairlead("bundle", "remove", "work")
    assert removed.status == 0, removed.err
    assert bundles(fairlead) == {}
    assert '"work"' not in machine.user_file.read_text()
    again = fairlead("bundle", "remove", "work")
    assert again.status == 1
    assert "there is no bundle `work`" in again.err
