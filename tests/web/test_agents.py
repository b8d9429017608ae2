"""Agents are connected in the dashboard: the entry is shown, written with a backup, and taken out again."""

import json
import re
from pathlib import Path

import pytest

from tests.conftest import Machine
from tests.web.support import dashboard

SERVERS = {"x": {"command": "true"}}


@pytest.mark.requirement("HARD-54")
async def test_an_agent_is_connected_after_its_entry_was_shown_and_gets_its_bytes_back(
    machine: Machine,
) -> None:
    file = Path(machine.env["HOME"]) / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    before = '{ "mcpServers": {"other": {"command": "x", "env": {"KEY": "sk-other-servers-secret"}}} }'
    file.write_text(before)
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        page = await client.get("/agents")
        assert "not connected" in page.text
        assert str(file) in page.text.replace("<wbr>", "")
        asked = await client.send("/agents", "/agents", do="install", agent="cursor")
        assert asked.status == 200
        assert "--stdio" in asked.text
        assert file.read_text() == before, "it was only asked about"
        shown = {"do": "write", "agent": "cursor", "kind": "install", "digest": asked.hidden("digest")}
        assert (await client.send("/agents", "/agents", **shown)).status == 303
        entry = json.loads(file.read_text())["mcpServers"]["fairlead"]
        assert Path(entry["command"]).is_absolute()
        said = (await client.get("/agents")).text
        assert "Connected Cursor" in said
        assert "Disconnect" in said
        again = await client.send("/agents", "/agents", **shown)
        assert again.status == 409, "what is written is what was shown"
        asked = await client.send("/agents", "/agents", do="uninstall", agent="cursor")
        gone = {**shown, "kind": "uninstall", "digest": asked.hidden("digest")}
        assert (await client.send("/agents", "/agents", **gone)).status == 303
        assert file.read_text() == before
        audit = (await client.get("/audit")).text
        assert "install" in audit


async def test_entries_to_paste_hold_no_token_and_a_file_that_cannot_be_read_is_named(
    machine: Machine,
) -> None:
    file = Path(machine.env["HOME"]) / ".cursor" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text("{ no json")
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        page = await client.get("/agents")
        for title in ("Claude", "Codex", "Cursor", "Gemini"):
            assert title in page.text
        assert "Bearer fl_" not in page.text
        assert "No agent is connected." in page.text
        assert re.search(r'class="trouble">[^<]*mcp.json', page.text)
        assert (await client.send("/agents", "/agents", do="install", agent="nosuch")).status == 409
        assert (await client.send("/agents", "/agents", do="write", agent="cursor", kind="x")).status == 409
