"""A tool that is rejected is reached by no surface; one with a bad schema is, by all.

The same of quarantined tools: `test_quarantine.py` here, `test_live_quarantine.py` of the gateway.
"""

import html
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.errors import UnknownTool
from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome
from tests.console.support import session_with
from tests.gateway.support import Raw, serving
from tests.host.support import hosting
from tests.loop.model_server import KEY, says
from tests.loop.model_server import serving as serving_model
from tests.web.support import dashboard

Fairlead = Callable[..., Outcome]

PERMISSIVE = {"type": "object", "additionalProperties": True}
NO_TYPE = {"name": "pid", "inputSchema": {"type": "objekt", "properties": {"a": {"type": "string"}}}}
NO_OBJECT = {"name": "echo", "inputSchema": {"type": "array", "items": {"type": "string"}}}
DEEP = {"name": "meta", "inputSchema": {"type": "object", "default": json.loads("[" * 150 + "]" * 150)}}
REMOTE = {"name": "echo", "inputSchema": {"type": "object", "$ref": "https://example.com/schema"}}
LARGE = {"name": "echo", "inputSchema": {"type": "object", "enum": [*range(20_001)]}}
HIDDEN: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object", "properties": {"a\u200bb": {}}}}


@dataclass(frozen=True, kw_only=True)
class Unusable:
    """A trusted server whose tool `echo` may not be called, though every call is allowed."""

    entry: dict[str, Any]
    record: Path
    reason: str
    """Why, in words that every surface shows."""

    @property
    def calls(self) -> int:
        return ScriptedServer(self.record).calls("echo")


REASONS = [
    (REMOTE, "its schema refers to 'https://example.com/schema', which is outside of it"),
    (LARGE, "its schema cannot be used: there is too much to check"),
    (HIDDEN, "a name in it has hidden characters"),
]


@pytest.fixture(params=REASONS, ids=["remote reference", "size", "hidden name"])
def unusable(request: pytest.FixtureRequest, tmp_path: Path) -> Unusable:
    tool, reason = request.param
    server = ScriptedServer(tmp_path / "record", tools=[tool, "received"])
    entry = server.entry(approval="allow", trust="trusted")
    return Unusable(entry=entry, record=tmp_path / "record", reason=reason)


@pytest.mark.requirement("HARD-77")
async def test_the_library_calls_it_by_no_name(machine: Machine, unusable: Unusable) -> None:
    """Seed 003, 7.2 and 8: a schema is untrusted input, and a tool that may not be used is not called."""
    async with hosting(machine, x=unusable.entry) as host:
        await host.connect("x")
        assert not (await host.call("x", "received")).is_error, "the server's other tool is called"
        for confirmed in (False, True):
            with pytest.raises(UnknownTool) as called:
                await host.call("x", "echo", {"what": "a"}, confirmed=confirmed)
            with pytest.raises(UnknownTool) as begun:
                await host.tasks.begin("x", "echo", {"what": "a"}, confirmed=confirmed)
            assert unusable.reason in str(called.value)
            assert unusable.reason in str(begun.value)
        for name in ("x.echo", "x_echo", "echo", "x/echo"):
            assert (await host.tools.answer(name, {"what": "a"})).is_error
            assert (await host.tools.answer("mcp_call_tool", {"name": name, "arguments": {}})).is_error
        offered = [tool["name"] for tool in (await host.tools.for_openai()).definitions]
        assert [name for name in offered if "received" in name]
        assert not [name for name in offered if "echo" in name]
    assert unusable.calls == 0


@pytest.mark.requirement("HARD-77")
def test_the_command_line_and_the_model_loop_do_not_reach_it(
    fairlead: Fairlead, machine: Machine, unusable: Unusable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    machine.env["MY_KEY"] = KEY
    called: list[tuple[str, str, dict[str, Any]]] = [
        ("c1", "x.echo", {"what": "a"}),
        ("c2", "x_echo", {}),
        ("c3", "mcp_call_tool", {"name": "x.echo"}),
    ]
    with serving_model(says("openai", "", called), says("openai", "done")) as api:
        model = {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1", "api_key": "${MY_KEY}"}
        machine.write_user(json.dumps({"servers": {"x": unusable.entry}, "model": model}))
        assert fairlead("call", "x.received", "--yes").status == 0, "the server's other tool is called"
        for words in (("x.echo", "--yes", "what=a"), ("x", "echo", "--yes")):
            refused = fairlead("call", *words)
            assert refused.status == 1
            assert unusable.reason in refused.err
        ran = fairlead("run", "say it")
        assert (ran.status, ran.out) == (0, "done\n"), ran.err
    answers = [message for message in api.bodies[1]["messages"] if message["role"] == "tool"]
    assert [answer["tool_call_id"] for answer in answers] == ["c1", "c2", "c3"]
    assert all("echo" in answer["content"] for answer in answers)
    assert unusable.calls == 0


def test_the_command_line_says_why_a_tool_is_left_out(
    fairlead: Fairlead, machine: Machine, unusable: Unusable
) -> None:
    machine.write_user(json.dumps({"servers": {"x": unusable.entry}}))
    for words in (("tools",), ("tools", "x"), ("tools", "x.echo")):
        shown = fairlead(*words)
        [row] = [line for line in shown.out.splitlines() if line.startswith("x.echo")]
        assert row.split() == ["x.echo", "refused"]
        assert unusable.reason in shown.err
        assert "x.echo is refused: " in shown.err
    assert "x.received is" not in shown.err
    listed = {tool["name"]: tool for tool in json.loads(fairlead("tools", "x", "--json").out)["tools"]}
    assert unusable.reason in listed["echo"]["rejected"]
    assert listed["echo"]["quarantined"] is None
    assert listed["received"]["rejected"] is None
    explained = fairlead("explain", "tool", "x.echo").out
    assert explained.startswith("x.echo: rejected")
    assert unusable.reason in explained
    assert "calls    are refused" in explained
    assert "without asking" not in explained


@pytest.mark.requirement("HARD-77")
async def test_the_console_does_not_reach_it(machine: Machine, unusable: Unusable) -> None:
    async with session_with(machine, {"x": unusable.entry}) as console:
        assert "error" not in await console.does("/call x.received")
        for line in ("/call x echo what=a", "/call x.echo what=a"):
            with pytest.raises(UnknownTool) as caught:
                await console.does(line)
            assert unusable.reason in str(caught.value)
    assert unusable.calls == 0


@pytest.mark.requirement("HARD-77")
@pytest.mark.parametrize("era", ["modern", "older"])
async def test_the_gateway_does_not_reach_it(tmp_path: Path, unusable: Unusable, era: str) -> None:
    async with serving(tmp_path / "gateway", x=unusable.entry) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        ask = client.modern
        if era == "older":
            await client.begin()
            ask = client.older
        names = {tool["name"] for tool in (await ask("tools/list"))["result"]["tools"]}
        assert "x_received" in names
        assert "x_echo" not in names
        wanted: list[tuple[str, dict[str, Any]]] = [
            ("x_echo", {"what": "a"}),
            ("x.echo", {"what": "a"}),
            ("mcp_call_tool", {"name": "x_echo", "arguments": {}}),
            ("mcp_call_tool", {"name": "x.echo", "arguments": {}}),
            ("mcp_call_tool", {"server": "x", "tool": "echo"}),
        ]
        for name, arguments in wanted:
            answer = await ask("tools/call", name=name, arguments=arguments)
            assert "error" in answer or answer["result"].get("isError"), (name, answer)
    assert unusable.calls == 0


@pytest.mark.requirement("HARD-77")
async def test_the_dashboard_does_not_reach_it(machine: Machine, unusable: Unusable) -> None:
    async with dashboard(machine, {"x": unusable.entry}) as board, board.visited() as client:
        await board.host.connect("x")
        fields = {"server": "x", "name": "echo", "what": "a"}
        sent = await client.send("/tool?server=x&name=received", "/tool", **fields)
        assert sent.status in (200, 303, 400, 404)
        page = sent
        if sent.status == 303:  # to the page with the outcome
            page = await client.get(sent.headers["location"].removeprefix(client.base))
        assert html.escape(unusable.reason) in page.text
    assert unusable.calls == 0


@pytest.mark.requirement("NEED-7")
async def test_a_schema_that_cannot_be_repaired_leaves_a_tool_that_takes_any_arguments(
    machine: Machine, tmp_path: Path
) -> None:
    """Seed 003, 7.2: invalid or undefined falls back to an object with any properties."""
    server = ScriptedServer(tmp_path / "record", tools=[NO_OBJECT, NO_TYPE, DEEP])
    async with hosting(machine, x=server.entry(approval="allow")) as host:
        await host.connect("x")
        for tool in ("echo", "pid", "meta"):
            assert not (await host.call("x", tool, {"any": [1]})).is_error
        offered = (await host.tools.for_anthropic()).definitions
        assert [tool["input_schema"] for tool in offered if "_x_" in tool["name"]] == [PERMISSIVE] * 3
    async with serving(tmp_path / "gateway", x=server.entry()) as served, aiohttp.ClientSession() as http:
        tools = (await Raw(http, f"{served.url}/mcp").modern("tools/list"))["result"]["tools"]
        assert [tool["inputSchema"] for tool in tools if tool["name"] in ("x_echo", "x_pid", "x_meta")] == [
            PERMISSIVE
        ] * 3
