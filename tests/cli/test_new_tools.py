"""A reviewed server that gains a tool: one notice with the command, the same on every surface."""

import json
from pathlib import Path

import anyio
import pytest

from fairlead.actions.readiness import read_readiness
from fairlead.host.host import Host
from tests.cli.permission_support import PLAIN, SECONDS, Fairlead, call_over_gateway, follow, write
from tests.cli.test_run import configure
from tests.conftest import Machine
from tests.host.test_quarantine import ChangingServer
from tests.loop.model_server import says, serving
from tests.web.support import dashboard_of

NEW = {**PLAIN, "name": "pid"}
NOTICE = "it has 1 tool that was not reviewed, which agents do not get until it is: run `fairlead review s`"


@pytest.fixture
def server(machine: Machine, fairlead: Fairlead, tmp_path: Path) -> ChangingServer:
    """A server of which all tools were reviewed, and which has one more now."""
    server = ChangingServer(tmp_path, PLAIN)
    entry = {name: value for name, value in server.entry().items() if name in ("command", "args")}
    write(machine, {"s": entry})
    assert fairlead("review", "s", "--allow", "all").status == 0
    assert notes(fairlead) == []
    server.say(PLAIN, NEW)
    assert fairlead("tools", "s", "--refresh").status == 0
    return server


def notes(fairlead: Fairlead) -> list[str]:
    (status,) = (
        each for each in json.loads(fairlead("status", "--json").out)["servers"] if each["id"] == "s"
    )
    return status["notes"]


def test_status_and_the_start_of_a_gateway_name_the_review_once(
    machine: Machine, fairlead: Fairlead, server: ChangingServer
) -> None:
    assert notes(fairlead) == [NOTICE]
    (obstacle,) = read_readiness(machine.load()).obstacles
    assert (obstacle.kind, obstacle.servers, obstacle.command) == (
        "not reviewed",
        ("s",),
        "fairlead review s",
    )
    assert follow(fairlead, f"{NOTICE[:-1]} --allow pid`").status == 0
    assert notes(fairlead) == []
    assert anyio.run(call_over_gateway, machine, "s_pid") == "called"


def test_a_denied_tool_was_reviewed(fairlead: Fairlead, server: ChangingServer) -> None:
    assert fairlead("review", "s", "--deny", "pid").status == 0
    assert notes(fairlead) == []


def test_a_run_says_what_the_model_does_not_get(
    machine: Machine, fairlead: Fairlead, server: ChangingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "k")
    with serving(says("openai", "ok")) as api:
        configure(machine, api, {"s": machine.load().servers["s"].entry}, policy={})
        outcome = fairlead("run", "do")
    assert outcome.status == 0
    assert outcome.err.count(f"`s`: {NOTICE}") == 1


async def test_a_host_and_the_dashboard_say_it_when_a_running_server_gains_a_tool(
    machine: Machine, server: ChangingServer
) -> None:
    with anyio.fail_after(SECONDS):
        async with Host.open(machine.load(), env=machine.env) as host:
            await host.connect("s")
            assert [status.notes for status in host.status() if status.server_id == "s"] == [(NOTICE,)]
        async with dashboard_of(machine) as board, board.visited() as client:
            await board.host.connect("s")
            page = (await client.get("/")).text
    assert "needs a review" in page
    assert "It has 1 tool that was not reviewed" in page


def test_an_allowlist_written_by_hand_decides_about_the_tools_it_leaves_out(
    machine: Machine, fairlead: Fairlead, tmp_path: Path
) -> None:
    entry = ChangingServer(tmp_path, PLAIN, NEW).entry(allow_tools=["echo"])
    write(machine, {"s": entry})
    assert fairlead("tools", "s", "--refresh").status == 0
    assert notes(fairlead) == []
