"""Agents that are started from the desktop: what `--install` writes needs nothing of a shell."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairlead.gateway.install import AGENTS
from fairlead.gateway.registry import attachment, living
from fairlead.policy.audit import AuditQuery, latest_records
from fairlead.store.opening import open_database
from fairlead.testing import scripted_program
from tests.cli.gateway_support import (
    SECONDS,
    DesktopAgent,
    Fairlead,
    add_scripted,
    call,
    command,
    gateway,
)
from tests.conftest import Machine

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def nothing_is_left(machine: Machine) -> Iterator[None]:
    yield
    subprocess.run(
        command("gateway", "stop", "--all"),
        env=machine.env,
        cwd=machine.project,
        timeout=SECONDS,
        capture_output=True,
        check=False,
    )
    assert living(machine.env) == []


def install(machine: Machine, fairlead: Fairlead, agent: str = "claude") -> dict[str, Any]:
    done = fairlead("gateway", "--install", agent, "--yes")
    assert done.status == 0, done.err
    return json.loads((machine.home / ".claude.json").read_text())["mcpServers"]["fairlead"]


def test_it_starts_the_gateway_and_another_agent_shares_it(machine: Machine, fairlead: Fairlead) -> None:
    record = add_scripted(machine, tools=["pid"])
    entry = install(machine, fairlead)
    assert living(machine.env) == []
    first = DesktopAgent(machine.home, entry, machine.home)
    assert first.begin() == ["s_pid"]
    (running,) = living(machine.env)
    assert running.started_by == "agent"
    second = DesktopAgent(machine.home, entry, Path("/"))
    assert second.begin() == ["s_pid"]
    assert [each.pid for each in living(machine.env)] == [running.pid]
    pids = [agent.ask(call(3, "s_pid"))["result"]["content"][0]["text"] for agent in (first, second)]
    assert pids[0] == pids[1]
    assert record.read_text().count('"started"') == 1
    assert (first.end(), second.end()) == (0, 0)


def test_agents_that_start_at_once_share_one_gateway(machine: Machine, fairlead: Fairlead) -> None:
    add_scripted(machine, tools=["pid"])
    entry = install(machine, fairlead)
    agents = [DesktopAgent(machine.home, entry, machine.home) for _ in range(3)]
    with ThreadPoolExecutor() as threads:
        assert list(threads.map(DesktopAgent.begin, agents)) == [["s_pid"]] * 3
    assert len(living(machine.env)) == 1
    assert [agent.end() for agent in agents] == [0, 0, 0]


def test_it_attaches_to_the_gateway_that_runs(machine: Machine, fairlead: Fairlead) -> None:
    add_scripted(machine, tools=["pid"])
    entry = install(machine, fairlead)
    with gateway(machine) as up:
        for folder in (machine.project, machine.home, Path("/")):
            agent = DesktopAgent(machine.home, entry, folder)
            assert agent.begin() == ["s_pid"]
            assert agent.end() == 0
        assert [running.pid for running in living(machine.env)] == [up.process.pid]


def test_the_entries_of_agents_are_listed_and_tested_as_the_agents_use_them(
    machine: Machine, fairlead: Fairlead
) -> None:
    add_scripted(machine, tools=["pid"])
    none = fairlead("gateway", "agents")
    assert none.status == 0
    assert "fairlead gateway --install AGENT" in none.err
    install(machine, fairlead)
    with gateway(machine) as up:
        tested = fairlead("gateway", "agents", "--test", "--json")
        assert tested.status == 0, tested.err
        found = {each["agent"]: each for each in json.loads(tested.out)["agents"]}
        assert found["claude"]["state"] == "installed"
        assert found["claude"]["test"].startswith("2 tools in "), "one of the server, one of the gateway"
        assert {each["state"] for name, each in found.items() if name != "claude"} == {"no file"}
        assert [running.pid for running in living(machine.env)] == [up.process.pid], "it attached to this one"


def test_an_entry_that_leads_nowhere_is_told(machine: Machine, fairlead: Fairlead) -> None:
    install(machine, fairlead)
    file = machine.home / ".claude.json"
    broken = json.loads(file.read_text())
    broken["mcpServers"]["fairlead"]["command"] = "/no/such/fairlead"
    file.write_text(json.dumps(broken))
    tested = fairlead("gateway", "agents", "--test")
    assert tested.status != 0
    assert "/no/such/fairlead" in tested.out


def test_it_attaches_to_the_gateway_that_runs_in_a_projects_folder(
    machine: Machine, fairlead: Fairlead
) -> None:
    entry = install(machine, fairlead)
    script = json.dumps({"tools": ["pid"], "record": str(machine.home / "record")})
    words = ("--", sys.executable, "-I", "-S", scripted_program.__file__, script)
    added = fairlead("add", "here", "--scope", "project", "--allow", "all", *words)
    assert added.status == 0, added.err
    with gateway(machine) as up:
        agent = DesktopAgent(machine.home, entry, Path("/"))
        assert "here_pid" in agent.begin()
        assert agent.end() == 0
        assert [running.pid for running in living(machine.env)] == [up.process.pid]


def test_a_gateway_for_agents_ends_after_the_last_one(machine: Machine) -> None:
    words = command("gateway", "--started-by", "agent", "--port", "0", "--idle-exit", "5")
    with subprocess.Popen(words, env=machine.env, cwd=machine.project) as process:
        deadline = time.monotonic() + SECONDS
        while not (found := living(machine.env)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with attachment(machine.env, found[0]), pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        assert process.wait(timeout=SECONDS) == 0
    assert living(machine.env) == []


def test_where_no_gateway_can_be_started_the_command_serves_by_itself(
    machine: Machine, fairlead: Fairlead
) -> None:
    add_scripted(machine, tools=["pid"])
    entry = install(machine, fairlead)
    # Something in the way of the log file, without which nothing is started in the background.
    log = machine.home / ".local/state/fairlead/gateway/agent-gateway.log"
    log.mkdir(parents=True)
    agent = DesktopAgent(machine.home, entry, machine.home)
    assert agent.begin() == ["s_pid"]
    assert agent.end() == 0
    assert living(machine.env) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_gets_an_absolute_command_and_nothing_to_set(
    machine: Machine, fairlead: Fairlead, agent: str
) -> None:
    done = fairlead("gateway", "--install", agent, "--bundle", "work", "--yes")
    assert done.status == 1  # no such bundle
    add_scripted(machine, tools=["pid"])
    done = fairlead("gateway", "--install", agent, "--bundle", "work", "--yes")
    assert done.status == 0, done.err
    assert "export" not in done.err
    assert "uvx" not in done.err
    assert fairlead("import", "--from", agent).status == 0
    entry = json.loads(machine.user_file.read_text())["servers"]["fairlead"]
    assert Path(entry["command"]).is_absolute()
    assert os.access(entry["command"], os.X_OK)
    assert entry["args"][-5:] == ["gateway", "--stdio", "--start", "--bundle", "work"]
    assert "PATH" in entry["env"]
    assert fairlead("gateway", "--uninstall", agent, "--yes").status == 0
    assert "nothing was changed" in fairlead("gateway", "--uninstall", agent, "--yes").err


@pytest.mark.requirement("NEED-30")
def test_installing_and_uninstalling_are_in_the_audit_log(machine: Machine, fairlead: Fairlead) -> None:
    file = str(machine.home / ".cursor/mcp.json")
    assert fairlead("gateway", "--install", "cursor").status == 1  # declined, so not recorded
    assert fairlead("gateway", "--install", "cursor", "--yes").status == 0
    assert fairlead("gateway", "--install", "cursor", "--yes").status == 0  # nothing changed, so not recorded
    assert fairlead("gateway", "--uninstall", "cursor", "--yes").status == 0
    with open_database(machine.home / ".local/state/fairlead/state.db") as database:
        records = latest_records(database, AuditQuery(), 100)
    assert [(each.kind, each.principal, each.details) for each in records] == [
        (kind, "local", {"in": "command line", "agent": "cursor", "file": file})
        for kind in ("install", "uninstall")
    ]
