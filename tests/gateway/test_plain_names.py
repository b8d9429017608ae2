"""A bundle of one server can leave its tools their names."""

from pathlib import Path
from typing import Any

import anyio

from fairlead.catalog.naming import name_tools
from fairlead.catalog.tools import ToolKey
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine


def test_a_name_that_is_legal_and_free_is_kept() -> None:
    keys = [ToolKey("x", tool) for tool in ("read_file", "mcp_own", "dotted.name", "n" * 80)]
    plain, reserved, dotted, long = (name_tools(keys, "plain").names[key] for key in keys)
    assert plain == "read_file"
    assert reserved.startswith("mcp_own_")
    assert dotted == "dotted_name"
    assert len(long) == 64


async def test_tools_of_such_a_bundle_are_called_by_their_own_names(machine: Machine, tmp_path: Path) -> None:
    tool = {"name": "echo", "inputSchema": {"type": "object"}}
    server = ScriptedServer(tmp_path / "record", tools=[tool])
    document: dict[str, Any] = {
        "servers": {"x": server.entry()},
        "bundles": {"own": {"servers": {"x": {}}, "names": "plain"}},
        "policy": {"approval": "allow"},
    }
    with anyio.fail_after(30):
        async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
            tools = host.toolset("own")
            assert [entry.name for entry in await tools.list()] == ["echo"]
            assert not (await tools.call("echo", {"text": "hi"})).is_error
            assert [entry.name for entry in await host.tools.list()] != ["echo"]


def test_several_servers_cannot_share_plain_names(machine: Machine) -> None:
    servers = {"x": {"command": "x"}, "y": {"command": "y"}}
    bundle: dict[str, Any] = {"servers": {"x": {}, "y": {}}, "names": "plain"}
    loaded = machine.load(overrides={"servers": servers, "bundles": {"both": bundle}})
    assert "both" not in loaded.config.bundles
    (problem,) = loaded.problems
    assert "cannot all keep their names" in str(problem)
