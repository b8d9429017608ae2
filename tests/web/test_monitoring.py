"""What programs ask: status, health and metrics."""

import json
import re
from pathlib import Path

import anyio

from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.web.support import TOKEN, dashboard

BEARER = {"Authorization": f"Bearer {TOKEN}"}
SAMPLE = re.compile(r'(fairlead_[a-z_]+)(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [0-9.e+-]+')


async def test_the_status_is_what_the_command_line_prints_live(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    broken = {"command": "no-such-program"}
    servers = {"x": server.entry(), "broken": broken, "off": server.entry(enabled=False)}
    async with dashboard(machine, servers) as board, board.visited(logged_in=False) as client:
        await board.host.connect("x", "broken")
        status = json.loads((await client.get("/api/status", **BEARER)).text)
        known = {each["id"]: each for each in status["servers"]}
        assert [*known] == ["x", "broken", "off"]
        assert {name: each["state"] for name, each in known.items()} == {
            "x": "ready",
            "broken": "error",
            "off": "disabled",
        }
        first = known["x"]
        assert (first["transport"], first["source"], first["enabled"]) == ("stdio", "user", True)
        assert (first["tools"], first["protocol"], first["last_error"]) == (1, "2025-11-25", None)
        assert first["last_connected_at"] > 1_700_000_000
        assert "no-such-program" in known["broken"]["last_error"]


async def test_it_is_ready_when_what_is_required_is(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    servers = {"x": server.entry(required=True)}
    async with dashboard(machine, servers) as board, board.visited(logged_in=False) as client:
        assert (await client.get("/healthz")).text == "ok\n"
        assert (await client.get("/readyz")).status == 200
        await board.host.close("x")
        page = await client.get("/readyz")
        assert (page.status, page.text) == (503, "not ready\n")
        assert (await client.get("/healthz")).status == 200


async def test_metrics_are_in_the_format_of_prometheus(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo", "refuse"])
    servers = {"x": server.entry(approval="allow")}
    async with dashboard(machine, servers) as board, board.visited(logged_in=False) as client:
        for _ in range(3):
            await board.host.call("x", "echo")
        await anyio.wait_all_tasks_blocked()
        page = await client.get("/metrics", **BEARER)
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = page.text.splitlines()
        assert all(line.startswith("# ") or SAMPLE.fullmatch(line) for line in lines)
        assert 'fairlead_calls_total{server="x",outcome="ok"} 3' in lines
        assert 'fairlead_servers{state="ready"} 1' in lines
        assert 'fairlead_server_tools{server="x"} 2' in lines
        assert "fairlead_approvals_pending 0" in lines
