"""The administrator's policy, as people meet it on the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.cli.commands.serve_ import choose_servers
from fairlead.config import admin_policy
from tests.conftest import Machine, Outcome, write

Fairlead = Callable[..., Outcome]


@pytest.fixture
def policy(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system on which only `true` may run, and nothing is trusted."""
    path = write(
        machine.home.parent / "etc" / "policy.json",
        '// ours\n{\n  "servers": {"allow": [{"command": "true"}]},\n  "trust": "untrusted"\n}\n',
    )
    monkeypatch.setattr(admin_policy, "SYSTEM_FILE", path)
    machine.write_user(
        json.dumps({"servers": {"good": {"command": "true", "trust": "trusted"}, "bad": {"command": "cat"}}})
    )
    return path


@pytest.mark.requirement("NEED-30")
def test_list_shows_who_is_refused_and_by_which_line(fairlead: Fairlead, policy: Path) -> None:
    outcome = fairlead("list")
    assert outcome.status == 1
    rows = {line.split()[0]: line for line in outcome.out.splitlines()}
    assert "refused" in rows["bad"]
    assert "refused" not in rows["good"]
    assert "administrator's policy does not allow it: its command is not on the list" in outcome.err
    assert f"{policy}:3:" in outcome.err
    listed = {server["id"]: server for server in json.loads(fairlead("list", "--json").out)["servers"]}
    assert (listed["bad"]["refused"], listed["bad"]["usable"]) == (True, False)
    assert (listed["good"]["refused"], listed["good"]["usable"]) == (False, True)


def test_get_and_explain_name_the_policy(fairlead: Fairlead, policy: Path) -> None:
    outcome = fairlead("get", "bad")
    assert outcome.status == 1
    assert f"{policy}:3:" in outcome.err
    assert json.loads(fairlead("get", "bad", "--json").out)["refused"] is True
    assert f"{policy}:3:" in fairlead("explain", "server", "bad").err
    explained = fairlead("explain", "server", "good").out
    trust = next(line for line in explained.splitlines() if line.startswith("trust"))
    assert f"admin: {policy}:4" in trust


@pytest.mark.parametrize("command", [("test", "bad"), ("call", "bad", "x"), ("tools", "bad")])
def test_a_refused_server_can_be_used_by_no_command(
    command: tuple[str, ...], fairlead: Fairlead, policy: Path
) -> None:
    outcome = fairlead(*command)
    assert "administrator's policy does not allow it" in outcome.err + outcome.out
    assert outcome.status != 0 or command[0] == "tools"


def test_a_server_that_is_refused_can_still_be_added_and_says_so(fairlead: Fairlead, policy: Path) -> None:
    outcome = fairlead("add", "worse", "--", "ls")
    assert "administrator's policy does not allow it" in outcome.err


@pytest.mark.parametrize("names", [(), ("repo",)])
def test_built_in_servers_that_are_refused_are_not_served(
    names: tuple[str, ...], fairlead: Fairlead, policy: Path
) -> None:
    outcome = fairlead("serve", *names, "--stdio")
    assert outcome.status == 1
    assert "the built-in `repo` is not on the list" in outcome.err


def test_serving_leaves_out_what_is_refused_and_was_not_asked_for(fairlead: Fairlead, policy: Path) -> None:
    policy.write_text('{"servers": {"deny": [{"builtin": "docs"}]}}')
    assert choose_servers(()) == ("repo",)
    assert choose_servers(("repo",)) == ("repo",)
