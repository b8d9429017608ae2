"""Both eras of the protocol: found by a probe, remembered, and clear words where there is none in common."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION

from fairlead.connection import session
from fairlead.errors import ConnectFailed
from fairlead.host.host import Host
from fairlead.host.snapshots import VERSION_SECONDS
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.fixtures import canned_stdio
from tests.host.support import hosting

MODERN: dict[str, Any] = {"version": "2026-07-28", "probe": "answer"}


async def connect(host: Host) -> None:
    assert await host.connect("x") == {}
    assert (await host.call("x", "echo")).text == "{}"


@pytest.mark.requirement("NEED-10")
@pytest.mark.parametrize("probe", [-32601, -32602, -32600, -32000, 0])
async def test_a_server_that_refuses_the_probe_is_handshaken(
    machine: Machine, tmp_path: Path, probe: int
) -> None:
    server = ScriptedServer(tmp_path / "record", probe=probe)
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
        assert host.status()[0].version == "2025-11-25"
    assert server.starts == 1


@pytest.mark.requirement("NEED-10")
async def test_a_server_that_dies_on_the_probe_is_started_again_and_handshaken(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", probe="exit")
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
        assert host.status()[0].version == "2025-11-25"
    assert server.starts == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process has read")
async def test_a_server_that_dies_before_it_reads_the_probe_is_not_started_again(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", exit=3)
    async with hosting(machine, x=server.entry()) as host:
        failures = await host.connect("x")
        assert "exited with code 3" in str(failures["x"])
    assert server.starts == 1


@pytest.mark.requirement("NEED-10")
async def test_a_server_that_ignores_the_probe_is_handshaken_on_the_same_connection(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_PROBE_SECONDS", 0.2)
    server = ScriptedServer(tmp_path / "record", probe="silence")
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
        assert host.status()[0].version == "2025-11-25"
    assert server.starts == 1


@pytest.mark.requirement("NEED-10")
async def test_a_server_that_chokes_on_the_probe_is_started_again_and_handshaken(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_PROBE_SECONDS", 0.2)
    server = ScriptedServer(tmp_path / "record", probe="choke")
    async with hosting(machine, x=server.entry(startup_timeout_ms=4000)) as host:
        await connect(host)
        assert host.status()[0].version == "2025-11-25"
    assert server.starts == 2


@pytest.mark.requirement("NEED-10")
async def test_a_modern_server_is_spoken_to_the_modern_way(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", **MODERN)
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
        assert host.status()[0].version == "2026-07-28"
    assert "initialize" not in server.notes("received")


@pytest.mark.requirement("NEED-10")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_version_of_the_handshake_is_spoken(
    machine: Machine, tmp_path: Path, version: str
) -> None:
    server = ScriptedServer(tmp_path / "record", version=version)
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
        assert host.status()[0].version == version


@pytest.mark.requirement("NEED-10")
async def test_the_era_is_remembered_so_that_the_next_start_sends_no_probe(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
        await host.close("x")
        await connect(host)
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
    assert server.starts == 3
    assert server.notes("received").count("server/discover") == 1


@pytest.mark.requirement("NEED-10")
async def test_a_server_that_became_modern_is_found_out(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", modern_after=1)
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
        await host.close("x")
        await connect(host)
        assert host.status()[0].version == "2026-07-28"


async def test_a_remembered_era_is_tried_anew_after_a_while(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
    monkeypatch.setattr("fairlead.host.snapshots.VERSION_SECONDS", -VERSION_SECONDS)
    async with hosting(machine, x=server.entry()) as host:
        await connect(host)
    assert server.notes("received").count("server/discover") == 2


async def test_a_server_with_a_version_nobody_knows_is_a_clear_error(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", version="1999-12-31")
    async with hosting(machine, x=server.entry()) as host:
        failure = (await host.connect("x"))["x"]
        assert isinstance(failure, ConnectFailed)
        assert "no protocol version known here" in str(failure)
        assert "1999-12-31" in str(failure)


async def test_a_modern_server_with_a_later_version_alone_is_a_clear_error(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", probe="unsupported", version="2099-01-01")
    async with hosting(machine, x=server.entry()) as host:
        failure = (await host.connect("x"))["x"]
        assert isinstance(failure, ConnectFailed)
        assert "speaks only 2099-01-01" in str(failure)


@pytest.mark.parametrize("other", [7, None, {}, ["2026-07-28"], True])
async def test_a_bad_item_among_the_supported_versions_is_ignored(machine: Machine, other: object) -> None:
    offer: dict[str, Any] = {
        "supportedVersions": [other, "2026-07-28"],
        "resultType": "complete",
        "capabilities": {},
    }
    answers = json.dumps({"server/discover": offer})
    entry = {"command": sys.executable, "args": ["-I", "-S", canned_stdio.__file__, answers]}
    async with hosting(machine, x=entry) as host:
        assert await host.connect("x") == {}
        assert host.status()[0].version == "2026-07-28"


@pytest.mark.parametrize("data", [{"supported": [7, "2026-07-28"]}, {"supported": ["2026-07-28"]}])
def test_a_refusal_names_versions_whatever_else_is_in_it(data: object) -> None:
    refusal = MCPError(UNSUPPORTED_PROTOCOL_VERSION, "no", data)
    assert session.read_supported_versions(refusal) == ["2026-07-28"]
    assert (
        session.read_supported_versions(MCPError(UNSUPPORTED_PROTOCOL_VERSION, "no", {"supported": [7]}))
        is None
    )


async def test_an_answer_to_the_handshake_that_is_none_is_a_clear_error(machine: Machine) -> None:
    answers = json.dumps({"initialize": {"capabilities": {}}})
    entry = {"command": sys.executable, "args": ["-I", "-S", canned_stdio.__file__, answers]}
    async with hosting(machine, x=entry) as host:
        failure = (await host.connect("x"))["x"]
        assert isinstance(failure, ConnectFailed)
        assert "not valid MCP: `protocolVersion`" in str(failure)


async def test_capabilities_that_are_no_object_do_not_cost_the_tools(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", capabilities="all of them")
    async with hosting(machine, x=server.entry()) as host:
        assert not await host.connect("x")
        assert (await host.call("x", "echo")).text == "{}"


async def test_a_modern_servers_changes_are_heard_of(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", **MODERN)
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        await connect(host)
        await server_listens(server)
        await host.call("x", "change_tools", {"tools": ["new"]})
        while [tool.key.tool for tool in await host.tools_of("x")] != ["new"]:
            await anext(events)


async def server_listens(server: ScriptedServer) -> None:
    """Wait until somebody has subscribed to what the server has to say."""
    with anyio.fail_after(10):
        while "subscriptions/listen" not in server.notes("received"):  # noqa: ASYNC110 - it is in another process
            await anyio.sleep(0.01)
