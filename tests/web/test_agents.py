"""The page that connects agents: install with the change in view, test the entry, remove it again."""

import json
from pathlib import Path

import pytest

from fairlead.web.pages import agents
from tests.conftest import Machine
from tests.web.support import dashboard

OWN = '{\n  "numStartups": 7,\n  "mcpServers": {\n    "time": {"command": "uvx"}\n  }\n}\n'


def claude_file(machine: Machine) -> Path:
    return machine.home / ".claude.json"


async def test_an_agent_is_connected_after_the_change_was_shown_and_gets_its_bytes_back(
    machine: Machine,
) -> None:
    file = claude_file(machine)
    file.write_text(OWN)
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        page = (await client.get("/agents")).text
        assert "Claude Code" in page
        assert str(file) in page.replace("<wbr>", "")
        shown = await client.send("/agents", "/agents", do="install", agent="claude")
        assert shown.status == 200
        assert "+    &quot;fairlead&quot;" in shown.text or "gateway" in shown.text
        assert file.read_text() == OWN, "it was only shown"
        written = await client.send(
            "/agents", "/agents", do="install", agent="claude", digest=shown.hidden("digest")
        )
        assert written.status == 303
        entry = json.loads(file.read_text())["mcpServers"]["fairlead"]
        assert Path(entry["command"]).is_absolute()
        assert "--stdio" in entry["args"]
        assert "Claude Code: Restart it, and it has the tools." in (await client.get("/agents")).text
        asked = await client.send("/agents", "/agents", do="uninstall", agent="claude")
        removed = await client.send(
            "/agents", "/agents", do="uninstall", agent="claude", digest=asked.hidden("digest")
        )
        assert removed.status == 303
        assert file.read_text() == OWN
        audit = (await client.get("/audit")).text
        assert "install" in audit
        assert "uninstall" in audit


async def test_what_was_shown_is_what_is_written(machine: Machine) -> None:
    file = claude_file(machine)
    file.write_text(OWN)
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        shown = await client.send("/agents", "/agents", do="install", agent="claude")
        edited = OWN.replace("7", "8")
        file.write_text(edited)
        refused = await client.send(
            "/agents", "/agents", do="install", agent="claude", digest=shown.hidden("digest")
        )
        assert refused.status == 409
        assert "changed meanwhile" in refused.text
        assert file.read_text() == edited


async def test_entries_to_paste_have_no_token_in_them(machine: Machine) -> None:
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        page = (await client.get("/agents")).text
        assert f"{board.url}/mcp" in page
        assert "Bearer TOKEN" in page
        assert "the-token-of" not in page


@pytest.mark.parametrize("agent", ["", "emacs", "../claude"])
async def test_an_agent_that_is_none_is_refused(machine: Machine, agent: str) -> None:
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        for do in ("install", "uninstall", "test"):
            page = await client.send("/agents", "/agents", do=do, agent=agent)
            assert page.status == 409
            assert "there is no agent" in page.text


async def test_a_file_that_cannot_be_read_is_named_and_costs_only_itself(machine: Machine) -> None:
    claude_file(machine).write_text("{ not json")
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        page = (await client.get("/agents")).text
        assert "unreadable" in page
        assert page.count("no file") == len(agents.AGENTS) - 1
        refused = await client.send("/agents", "/agents", do="install", agent="claude")
        assert refused.status == 409


async def test_a_test_of_an_agent_without_the_entry_names_the_command(machine: Machine) -> None:
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        page = await client.send("/agents", "/agents", do="test", agent="cursor")
        assert page.status == 409
        assert "fairlead gateway --install cursor" in page.text
