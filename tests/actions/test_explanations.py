"""What tools may do is explained by one action, whether a host runs or not."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from anyio import to_thread

from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome
from tests.web.support import dashboard_of

Fairlead = Callable[..., Outcome]
BROKEN = {"name": "broken", "inputSchema": {"type": "string"}}


async def test_the_dashboard_and_the_command_line_explain_the_same_tools_the_same(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    one = ScriptedServer(tmp_path / "one", tools=["echo", "wipe", "read", BROKEN])
    two = ScriptedServer(tmp_path / "two", tools=["echo", "wipe"])
    entry = one.entry(allow_tools=["echo", "read"], approval={"default": "ask", "tools": {"read": "allow"}})
    machine.write_user(json.dumps({"servers": {"one": entry, "two": two.entry()}}))
    async with dashboard_of(machine) as board, board.visited() as client:
        await board.host.connect("one", "two")
        await client.sees("/servers/one", "broken")
        shown = (await board.panel.details("one")).tools
    outcome = await to_thread.run_sync(lambda: fairlead("explain", "one", "--json"))
    assert outcome.status == 0, outcome.err
    tools = json.loads(outcome.out)["tools"]
    assert {tool["tool"] for tool in tools} == {"broken", "echo", "read", "wipe"}
    assert [(tool["tool"], tool["name"], tool["state"], tool["verdict"]) for tool in tools] == [
        (tool.key.shown_tool, tool.name, tool.state, tool.verdict) for tool in shown
    ]
    assert [tool["because"] for tool in tools] == [asdict(tool.because) for tool in shown]


def test_a_tool_where_a_server_is_expected_is_answered_by_the_command_for_tools(
    machine: Machine, tmp_path: Path, fairlead: Fairlead
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["wipe"])
    machine.write_user(json.dumps({"servers": {"one": server.entry()}}))
    unknown = fairlead("explain", "one/wipe")  # which no one asked for its tools yet
    assert unknown.status != 0
    assert "run `fairlead explain tool one/wipe`" in unknown.err
    assert fairlead("tools", "one").status == 0
    assert "run `fairlead explain tool wipe`" in fairlead("explain", "wipe").err
    assert fairlead("explain", "tool", "one/wipe").status == 0
    assert "explain tool" not in fairlead("explain", "nothing").err
