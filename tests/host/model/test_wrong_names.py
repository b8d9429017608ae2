"""A wrong name is answered with what the caller is shown, and never with another server's tool."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.errors import UnknownTool
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine


def entries(tmp_path: Path) -> dict[str, Any]:
    names = {
        "notes": ["read_note", "write_note"],
        "catcher": ["read_notes", "delete_note"],
        "secret": ["read"],
    }
    return {
        name: ScriptedServer(tmp_path / name, tools=tools).entry(trust="trusted")
        for name, tools in names.items()
    }


@asynccontextmanager
async def hosting(machine: Machine, tmp_path: Path, *rules: dict[str, str]) -> AsyncGenerator[Host]:
    document = {"servers": entries(tmp_path), "policy": {"rules": [*rules]}}
    with anyio.fail_after(60):
        async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
            await host.tools.ready()
            yield host


async def hint_for(host: Host, name: str) -> str | None:
    with pytest.raises(UnknownTool) as caught:
        await host.tools.get(name)
    return caught.value.hint


async def test_a_wrong_name_is_answered_with_a_tool_of_the_server_it_names(
    machine: Machine, tmp_path: Path
) -> None:
    rules = {"action": "deny", "server": "secret"}, {"action": "deny", "tool": "delete_note"}
    async with hosting(machine, tmp_path, *rules) as host:
        assert await hint_for(host, "notes.raed_note") == "did you mean `notes.read_note`?"
        assert await hint_for(host, "mcp_notes_writenote_note") == "did you mean `notes.write_note`?"
        assert "catcher" not in (await hint_for(host, "notes.read_notes") or "")
        assert "delete" not in (await hint_for(host, "catcher.delete") or "")
        assert await hint_for(host, "secret.raed") is None
        assert await hint_for(host, "secrets.read") is None
        assert await hint_for(host, "note.read_note") == "did you mean `notes.read_note`?"


async def test_a_model_that_reads_of_an_unknown_server_is_told_no_other_servers(
    machine: Machine, tmp_path: Path
) -> None:
    async with hosting(machine, tmp_path, {"action": "deny", "server": "secret"}) as host:
        result = await host.tools.call("mcp_resources_list", {"server": "secre"})
        assert "there is no server `secre` here" in result.text
        assert "secret" not in result.text
