"""Tokens of a gateway: named ones, those of installed agents, and what installing leaves behind."""

import json
import time
import urllib.request
from pathlib import Path

import pytest

from fairlead.gateway.access.tokens import Tokens, token_file
from fairlead.gateway.registry import (
    agent_token_file,
)
from tests.cli.gateway_support import (
    SECONDS,
    Fairlead,
    add_scripted,
    gateway,
)
from tests.conftest import Machine


def test_named_tokens_are_shown_once_listed_without_it_and_taken_back(
    machine: Machine, fairlead: Fairlead
) -> None:
    add_scripted(machine)
    made = fairlead("gateway", "token", "add", "ci", "--bundle", "work")
    assert made.status == 0
    token = made.out.strip()
    watcher = json.loads(fairlead("gateway", "token", "add", "prom", "--scope", "status", "--json").out)[
        "token"
    ]
    listed = fairlead("gateway", "token", "list")
    assert token not in listed.out
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [
        ["ci", "work", "mcp"],
        ["prom", "all", "status"],
    ]
    with gateway(machine) as up:
        assert up.get("/metrics", token=watcher)[0] == 200
        assert up.get("/metrics", token=token)[0] == 403
        assert up.get("/mcp", token=token, Accept="text/event-stream")[0] == 403
        assert up.get("/mcp/work", token=token, Accept="text/event-stream")[0] not in (401, 403)
        assert fairlead("gateway", "token", "remove", "prom").status == 0
        deadline = time.monotonic() + SECONDS
        while up.get("/metrics", token=watcher)[0] != 401:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert fairlead("gateway", "token", "remove", "prom").status == 1
    assert [
        token["name"] for token in json.loads(fairlead("gateway", "token", "list", "--json").out)["tokens"]
    ] == ["ci"]


def test_every_installed_agent_has_a_token_of_its_own(machine: Machine, fairlead: Fairlead) -> None:
    for agent in ("claude", "cursor"):
        assert fairlead("gateway", "--install", agent, "--http", "--yes").status == 0
    shown = [
        fairlead("gateway", "token", "show", *agent).out.strip() for agent in ([], ["claude"], ["cursor"])
    ]
    assert len(set(shown)) == 3
    tokens = Tokens(None, token_file(machine.env))
    owners = [tokens.owner(token) for token in shown[1:]]
    assert [(owner.principal, owner.label) for owner in owners if owner is not None] == [
        ("local", "agent-claude"),
        ("local", "agent-cursor"),
    ]
    assert fairlead("gateway", "token", "show", "claude").out.strip() == shown[1]
    assert fairlead("gateway", "--uninstall", "claude", "--yes").status == 0
    assert tokens.owner(shown[1]) is None
    assert tokens.owner(shown[2]) is not None


def test_every_installed_agent_takes_its_token_from_a_variable_of_its_own(
    machine: Machine, fairlead: Fairlead
) -> None:
    files = {
        "claude": ".claude.json",
        "codex": ".codex/config.toml",
        "cursor": ".cursor/mcp.json",
        "gemini": ".gemini/settings.json",
    }
    for agent, file in files.items():
        outcome = fairlead("gateway", "--install", agent, "--http", "--yes")
        variable = f"FAIRLEAD_TOKEN_{agent.upper()}"
        assert f'export {variable}="$(fairlead gateway token show {agent})"' in outcome.err
        assert variable in (machine.home / file).read_text()
    for agent, file in files.items():
        assert fairlead("gateway", "--uninstall", agent, "--yes").status == 0
        assert not (machine.home / file).exists()


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"mcpServers": []}', b'{"mcpServers": {"a": }}', "{}".encode("utf-16"), b"\xff", None],
)
def test_an_installation_that_fails_or_is_declined_leaves_no_token(
    machine: Machine, fairlead: Fairlead, content: bytes | None
) -> None:
    if content is not None:
        (machine.home / ".claude.json").write_bytes(content)
    # Without `--yes`, and without a terminal, the sound file is declined.
    words = ["gateway", "--install", "claude", "--http", *(["--yes"] if content is not None else [])]
    outcome = fairlead(*words)
    assert outcome.status == 1
    assert token_file(machine.env).read() == []
    assert not agent_token_file(machine.env, "claude").exists()


def test_a_failed_installation_keeps_the_token_of_an_earlier_one(
    machine: Machine, fairlead: Fairlead
) -> None:
    assert fairlead("gateway", "--install", "claude", "--http", "--yes").status == 0
    token = agent_token_file(machine.env, "claude").read_text()
    (machine.home / ".claude.json").write_text("{")
    assert fairlead("gateway", "--install", "claude", "--http", "--yes").status == 1
    assert agent_token_file(machine.env, "claude").read_text() == token
    assert [kept.name for kept in token_file(machine.env).read()] == ["agent-claude"]


def test_installing_shows_the_change_and_waits_for_a_yes(machine: Machine, fairlead: Fairlead) -> None:
    outcome = fairlead("gateway", "--install", "claude", "--http")
    assert outcome.status == 1
    assert '+    "fairlead": {' in outcome.err
    assert "nothing was changed" in outcome.err
    path = machine.home / ".claude.json"
    assert not path.exists()
    outcome = fairlead("gateway", "--install", "claude", "--http", "--yes")
    assert outcome.status == 0
    assert 'export FAIRLEAD_TOKEN_CLAUDE="$(fairlead gateway token show claude)"' in outcome.err
    entry = json.loads(path.read_text())["mcpServers"]["fairlead"]
    assert entry["url"] == "http://127.0.0.1:8130/mcp"
    assert fairlead("gateway", "token", "show").out.strip() not in path.read_text()
    assert "nothing was changed" in fairlead("gateway", "--install", "claude", "--http", "--yes").err
    assert fairlead("gateway", "--uninstall", "claude", "--yes").status == 0
    assert not path.exists()


def test_what_is_installed_is_the_gateway_that_runs_or_a_command(
    machine: Machine, fairlead: Fairlead
) -> None:
    assert (
        "the port of a gateway that takes any is not known"
        in fairlead("gateway", "--port", "0", "--install", "cursor", "--http", "--yes").err
    )
    with gateway(machine) as up:
        assert fairlead("gateway", "--install", "cursor", "--http", "--yes").status == 0
        path = machine.home / ".cursor" / "mcp.json"
        assert json.loads(path.read_text())["mcpServers"]["fairlead"]["url"] == up.url
    assert fairlead("gateway", "--install", "cursor", "--yes").status == 0
    entry = json.loads(path.read_text())["mcpServers"]["fairlead"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["gateway", "--stdio", "--start"]
    assert entry["env"]["PATH"]
    assert not any(key in entry for key in ("url", "headers"))


@pytest.mark.requirement("HARD-81")
def test_a_removed_admin_token_leaves_the_dashboard_too(machine: Machine, fairlead: Fairlead) -> None:
    with gateway(machine) as up:
        made = json.loads(fairlead("gateway", "token", "add", "adm", "--scope", "admin", "--json").out)
        base = up.url.partition("/mcp")[0]
        headers = {"Authorization": f"Bearer {made['token']}", "Content-Type": "application/json"}
        asked = urllib.request.Request(f"{base}/api/dashboard-links", b"{}", headers)
        with urllib.request.urlopen(asked, timeout=SECONDS) as response:
            code = json.load(response)["links"][-1].partition("?")[2]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(f"{base}/login?{code}", timeout=SECONDS) as inside:
            place = inside.url
            assert "/~" in place
        assert fairlead("gateway", "token", "remove", "adm").status == 0
        with browser.open(place, timeout=SECONDS) as outside:
            assert outside.url == f"{base}/login"
