"""What `fairlead gateway` prints when it starts: eight lines at most, each with what mends it."""

import json
import sys
from typing import Any

import pytest

from fairlead.gateway.registry import gateway_folder
from fairlead.testing import ScriptedServer
from tests.cli.gateway_support import Fairlead, gateway
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine

SLOW = {"command": sys.executable, "args": ["-c", "import time; time.sleep(600)"], "trust": "trusted"}
CRASHING = {"command": sys.executable, "args": ["-c", "raise SystemExit('no')"], "trust": "trusted"}


def lines_at_terminal(machine: Machine, *words: str) -> list[str]:
    with at_terminal("gateway", "--port", "0", *words, cwd=machine.project, env=machine.env) as person:
        person.sees("Ctrl-C stops")
        person.presses_ctrl_c()
        assert person.waits() == 0
        shown = person.seen.partition("Ctrl-C stops")[0] + "Ctrl-C stops"
    return [line for line in shown.splitlines() if line.strip()]


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


@pytest.mark.requirement("HARD-10")
def test_it_is_four_lines_where_all_is_well_and_shows_no_token(machine: Machine, fairlead: Fairlead) -> None:
    server = ScriptedServer(machine.home / "record", tools=[tool("echo"), tool("add")])
    machine.write_user(json.dumps({"servers": {"s": server.entry(trust="trusted", approval="allow")}}))
    assert fairlead("test", "s").status == 0
    lines = lines_at_terminal(machine)
    assert [line.split()[0] for line in lines] == ["url", "dashboard", "ready", "agents"]
    assert "/login?code=" in lines[1]
    assert lines[2] == "ready      1 server, 2 tools"
    token = (gateway_folder(machine.env) / "token").read_text().strip()
    assert token not in "".join(lines)


def test_a_newcomer_without_servers_is_told_how_to_get_one(machine: Machine) -> None:
    lines = lines_at_terminal(machine)
    assert "`fairlead add`" in lines[2]
    assert "`fairlead import`" in lines[2]


def test_everything_that_is_not_ready_has_its_command_within_eight_lines(
    machine: Machine, fairlead: Fairlead
) -> None:
    good = ScriptedServer(machine.home / "good", tools=[tool("echo")]).entry(
        trust="trusted", approval="allow"
    )
    fresh = ScriptedServer(machine.home / "fresh", tools=[tool("a"), tool("b")]).entry()
    fresh = {name: value for name, value in fresh.items() if name in ("command", "args")}
    servers = {"good": good, "fresh": fresh, "crash": CRASHING, "slow": SLOW, "typo": {"comand": "x"}}
    machine.write_user(json.dumps({"servers": servers}))
    machine.write_project(json.dumps({"servers": {"theirs": SLOW | {"trust": "untrusted"}}}))
    for name in ("good", "fresh", "crash"):
        fairlead("test", name)
    lines = lines_at_terminal(machine)
    assert len(lines) <= 8
    shown = {line.split()[0]: line for line in lines}
    assert shown["ready"] == "ready      1 of 6 servers, 1 tool; slow connects at the first use"
    assert shown["approve"].endswith("theirs may not start yet: `fairlead approve theirs`")
    assert "crash" in shown["broken"]
    assert "typo" in shown["broken"]
    assert shown["broken"].endswith("`fairlead doctor`")
    assert shown["review"].endswith("`fairlead review fresh`")
    with gateway(machine) as up:
        said = up.said
    assert said["ready"] == ["good"]
    assert said["not_connected_yet"] == ["slow"]
    assert said["not_approved"] == ["theirs"]
    assert said["broken"] == ["crash", "typo"]
    assert said["needs_a_login"] == []
    assert said["not_reviewed"] == ["fresh"]
    assert said["commands"] == ["fairlead approve theirs", "fairlead doctor", "fairlead review fresh"]


def test_meta_tools_are_named_with_the_option_that_offers_all(machine: Machine, fairlead: Fairlead) -> None:
    server = ScriptedServer(machine.home / "record", tools=[tool("echo")])
    machine.write_user(json.dumps({"servers": {"s": server.entry(trust="trusted", approval="allow")}}))
    assert fairlead("test", "s").status == 0
    ready = lines_at_terminal(machine, "--mode", "meta")[2]
    assert ready == "ready      1 server, 1 tool behind meta-tools (`--mode direct` offers them all)"
    assert "meta" not in lines_at_terminal(machine, "--mode", "direct")[2]


def test_many_servers_are_counted_rather_than_named(machine: Machine) -> None:
    machine.write_user(json.dumps({"servers": {f"s{number:02}": SLOW for number in range(40)}}))
    lines = lines_at_terminal(machine)
    assert lines[2] == "ready      0 of 40 servers; s00, s01, s02 and 37 more connect at the first use"


def test_snippets_of_a_gateway_that_runs_are_printed_without_another(
    machine: Machine, fairlead: Fairlead
) -> None:
    with gateway(machine) as up:
        shown = fairlead("gateway", "--snippets", "cursor")
        assert shown.status == 0
        entry = json.loads(shown.out)["mcpServers"]["fairlead"]
        assert entry == {"url": up.url, "headers": {"Authorization": f"Bearer {up.token}"}}
        everything = fairlead("gateway", "--snippets")
        assert everything.out.count(up.url) == 6
    assert fairlead("gateway", "--snippets", "nope").status == 2


def test_a_second_gateway_is_told_of_the_first(machine: Machine) -> None:
    with gateway(machine) as up:
        lines = lines_at_terminal(machine)
        told = f"also       {up.url}, process {up.process.pid}: `fairlead gateway stop` ends that one"
        assert told in lines
    assert not any(line.startswith("also") for line in lines_at_terminal(machine))
