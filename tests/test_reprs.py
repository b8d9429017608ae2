"""`repr`s of all that is public: readable, bounded, without secrets and invisible characters."""

import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.pretty import pretty_repr

import fairlead
from fairlead import (
    ApprovalRequest,
    Callbacks,
    FairleadError,
    Host,
    Listing,
    McpServer,
    Problem,
    ServerLogged,
    Subscriber,
    ToolDefinition,
    ToolEntry,
    ToolKey,
    ToolModel,
    ToolResult,
)
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import hosting

LONG = "long\x1b[2J\u200b " * 100_000
LIMIT = 5000
SECRET = "sk-proj-0123456789abcdefghijklmnop"


def tool(name: str = "now", description: str = "Tells the time.") -> ToolEntry:
    definition = json.dumps({"name": name, "inputSchema": {"type": "object"}, "outputSchema": {}}).encode()
    return ToolEntry(key=ToolKey("time", name), definition=definition, description=description)


def test_a_listed_tool_has_its_name_server_and_schemas() -> None:
    entry = tool()
    assert (entry.name, entry.server_id) == ("now", "time")
    assert (entry.input_schema, entry.output_schema) == ({"type": "object"}, {})
    assert repr(entry) == "ToolEntry(time.now: 'Tells the time.')"


def test_what_servers_say_is_bounded_and_visible() -> None:
    shown: list[Any] = [
        tool("x" * 100_000, LONG),
        Listing(tools=tuple(tool(str(number), LONG) for number in range(10_000))),
        ToolResult(
            "time", json.dumps({"content": [{"type": "text", "text": LONG[:4000]}]}).encode(), tool="now"
        ),
        ToolResult("time", json.dumps({"content": [{"type": "text", "text": LONG}]}).encode(), tool="now"),
        ToolResult("time", b"no json", tool="now"),
        ServerLogged(server_id="time", level="info", message=LONG),
        FairleadError(LONG, hint=LONG),
        fairlead.ConfigInvalid(*[Problem(message=LONG)] * 100),
        fairlead.RunFinished(text=LONG, outcome="finished", steps=1, usage=fairlead.Usage()),
        fairlead.McpStartupComplete(failed={str(number): LONG for number in range(1000)}),
        ApprovalRequest(server_id="x", tool="t", arguments={"password": SECRET, LONG: 1}, reason=LONG),
        fairlead.FormAnswer(action="accept", content={"password": SECRET}),
        Subscriber(),
        Callbacks(),
    ]
    for value in shown:
        for said in (repr(value), str(value) if not isinstance(value, Exception) else "", pretty_repr(value)):
            assert len(said) < LIMIT, said[:200]
            assert "\x1b" not in said
            assert "\u200b" not in said
            assert SECRET not in said
            assert " object at 0x" not in said


def test_results_say_where_they_come_from_and_what_they_are() -> None:
    def result(body: dict[str, Any]) -> str:
        return repr(ToolResult("time", json.dumps(body).encode(), tool="now"))

    assert result({"content": [{"type": "text", "text": "noon"}]}) == "ToolResult(time.now: 'noon')"
    assert result({"content": [{"type": "text", "text": "no"}], "isError": True}) == (
        "ToolResult(time.now failed: 'no')"
    )
    assert result({"content": [{"type": "image"}]}) == "ToolResult(time.now: 1 blocks of image)"
    assert result({"content": []}) == "ToolResult(time.now: empty)"
    assert repr(ToolResult.from_error_text("no")) == "ToolResult(fairlead failed: 'no')"


def test_configurations_hide_secrets(machine: Machine) -> None:
    entry = {
        "url": f"https://user:{SECRET}@x.example/mcp?token={SECRET}",
        "headers": {"Authorization": f"Bearer {SECRET}"},
    }
    started = {"command": "x", "args": ["--api-key", SECRET], "env": {"API_KEY": SECRET}}
    many = {f"s{number}": {"command": "x"} for number in range(1000)}
    model = {"provider": "openai", "name": "m", "api_key": SECRET}
    loaded = machine.load(overrides={"servers": {"web": entry, "local": started, **many}, "model": model})
    assert repr(loaded).startswith("LoadedConfig(servers: ")
    assert repr(loaded.server("web")) == "LoadedServer(web: http, override, enabled)"
    values = [loaded, loaded.config, loaded.config.model]
    values += [
        each for name in ("web", "local") for each in (loaded.server(name), loaded.server(name).config)
    ]
    for value in values:
        for said in (repr(value), str(value), pretty_repr(value, max_length=20)):
            assert SECRET not in said
            assert len(said) < 20_000


async def test_live_objects_tell_their_state(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        assert repr(host) == "<Host: open; servers: 1 idle>"
        await host.call("a", "echo")
        assert repr(host) == "<Host: open; servers: 1 ready>"
        await host.tools.ready()
        assert repr(host.tools) == "<Toolset of all servers: 1 known tool>"
        assert "echo" in repr(await host.tools.for_openai())
        assert repr(host.status()[0]).startswith("ServerStatus(server_id='a', transport='stdio'")
        assert repr(host.events()) == "<EventStream of <Subscriber: open, 0 events waiting>>"
    assert repr(host).startswith("<Host: closed")
    assert "await Host.open()" in repr(Host.open())


class Empty(ToolModel):
    pass


def test_a_server_of_ones_own_names_its_tools() -> None:
    async def handle(_context: Any, _given: Empty) -> Empty:
        return Empty()

    server = McpServer("mine")
    assert repr(server) == "<McpServer mine: no tools>"
    server.register(ToolDefinition(name="go", description="Goes.", input=Empty, output=Empty, handler=handle))
    assert repr(server) == "<McpServer mine: go>"


@pytest.mark.parametrize("name", fairlead.__all__)
def test_every_public_class_has_a_repr_and_a_docstring_of_its_own(name: str) -> None:
    value = getattr(fairlead, name)
    if inspect.isclass(value) and not getattr(value, "_is_protocol", False):
        plain = value.__repr__ is object.__repr__
        assert not plain or dataclasses.is_dataclass(value) or issubclass(value, msgspec.Struct)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value)
