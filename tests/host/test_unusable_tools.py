"""A tool that is rejected is reached by no surface; one with a bad schema is, by all.

The same of quarantined tools: `test_quarantine.py` here, `test_live_quarantine.py` of the gateway.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.errors import FairleadError
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

    @property
    def calls(self) -> int:
        return ScriptedServer(self.record).calls("echo")


@pytest.fixture(params=[REMOTE, LARGE, HIDDEN], ids=["remote reference", "size", "hidden name"])
def unusable(request: pytest.FixtureRequest, tmp_path: Path) -> Unusable:
    server = ScriptedServer(tmp_path / "record", tools=[request.param, "received"])
    return Unusable(entry=server.entry(approval="allow", trust="trusted"), record=tmp_path / "record")


@pytest.mark.requirement("HARD-77")
async def test_the_library_calls_it_by_no_name(machine: Machine, unusable: Unusable) -> None:
    """Seed 003, 7.2 and 8: a schema is untrusted input, and a tool that may not be used is not called."""
    async with hosting(machine, x=unusable.entry) as host:
        await host.connect("x")
        for confirmed in (False, True):
            with pytest.raises(FairleadError):
                await host.call("x", "echo", {"what": "a"}, confirmed=confirmed)
            with pytest.raises(FairleadError):
                await host.tasks.begin("x", "echo", {"what": "a"}, confirmed=confirmed)
        for name in ("x.echo", "x_echo", "echo", "x/echo"):
            assert (await host.tools.answer(name, {"what": "a"})).is_error
            assert (await host.tools.answer("mcp_call_tool", {"name": name, "arguments": {}})).is_error
        assert not [tool for tool in (await host.tools.for_openai()).definitions if "echo" in tool["name"]]
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
        assert fairlead("call", "x.echo", "--yes", "what=a").status != 0
        assert fairlead("call", "x", "echo", "--yes").status != 0
        assert fairlead("run", "say it", "--yes").status in (0, 2)
        fairlead("run", "say it")
    assert unusable.calls == 0


@pytest.mark.requirement("HARD-77")
async def test_the_console_does_not_reach_it(machine: Machine, unusable: Unusable) -> None:
    async with session_with(machine, {"x": unusable.entry}) as console:
        for line in ("/call x echo what=a", "/call x.echo what=a"):
            with pytest.raises(FairleadError):
                await console.does(line)
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
        if sent.status == 303:  # to the page with the outcome
            await client.get(sent.headers["location"].removeprefix(client.base))
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
