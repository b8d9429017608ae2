"""The dashboard in a real browser that runs no scripts: everything can be read, and every form works."""

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.catalog.results import ToolResult
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.test_quarantine import ChangingServer
from tests.web.browsing import Browser, browsing
from tests.web.support import TOKEN, Dashboard, dashboard, dashboard_of

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)

ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}},
}


async def log_in(browser: Browser, board: Dashboard) -> None:
    """Paste a token, as a user without a link does."""
    await browser("open", f"{board.url}/login")
    await browser("fill", "[name=secret]", TOKEN)
    await browser("click", "button[type=submit]")
    await browser("see", "h1", "Overview")


@pytest.mark.slow
@pytest.mark.requirement("NEED-32")
async def test_a_server_is_added_reviewed_tried_disabled_and_removed(
    machine: Machine, tmp_path: Path
) -> None:
    command, *arguments = ScriptedServer(tmp_path / "record", tools=[ECHO]).argv
    async with dashboard(machine, {}) as board, browsing("--no-scripts") as browser:
        await log_in(browser, board)
        await browser("click", "text=Add a server")
        await browser("fill", "[name=id]", "notes")
        await browser("fill", "[name=command]", command)
        await browser("fill", "[name=args]", "\n".join(arguments))
        await browser("click", "main button[type=submit]")
        await browser("see", "h1", "notes")
        await browser("see", "[role=status]", "Added notes")
        await board.host.list_now("notes")  # the page does not reload by itself
        await browser("click", "#review-tools")
        await browser("see", ".card", "Say it again.")
        await browser("click", "text=Allow as it is")
        await browser("click", "#to-Tools")
        await browser("click", "main a[href*=tool\\?]")
        await browser("fill", "main form [name*=what]", "hello")
        await browser("click", "main button[type=submit]")
        await browser("see", "#result", "hello")
        await browser("click", "#to-Servers")
        await browser("click", "#server-notes")
        await browser("click", "button[value=disable]")
        await browser("see", "dl, table", "disabled")
        await browser("click", "#remove-server")
        await browser("click", "main button[type=submit]")
        await browser("see", "[role=status]", "Removed")
        assert '"notes"' not in machine.user_file.read_text()
        assert await browser("complaints") == []


@pytest.mark.slow
@pytest.mark.requirement("NEED-24", "NEED-32")
async def test_a_projects_server_is_approved(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=[ECHO])
    machine.write_user("{}")
    machine.write_project(
        json.dumps({"servers": {"notes": server.entry(args=[*server.argv[1:], "a\u200bb"])}})
    )
    async with dashboard_of(machine) as board, browsing("--no-scripts") as browser:
        await log_in(browser, board)
        await browser("click", "#approve-notes")
        await browser("see", "h1", "May notes run?")
        await browser("see", "main", "a⟨U+200B⟩b")
        assert server.starts == 0
        await browser("click", "#approve-server")
        await browser("see", "[role=status]", "Approved notes")
        await browser("gone", "#approve-notes", "")
        await board.host.list_now("notes")
        assert server.starts == 1
        assert await browser("complaints") == []


@pytest.mark.slow
async def test_a_call_that_waits_is_answered_and_a_token_is_made_and_revoked(
    machine: Machine, tmp_path: Path
) -> None:
    server = ChangingServer(tmp_path, ECHO)
    results: list[ToolResult] = []
    async with (
        dashboard(machine, {"notes": server.entry(approval="ask")}) as board,
        browsing("--no-scripts") as browser,
    ):
        await log_in(browser, board)

        async def call() -> None:
            results.append(await board.host.call("notes", "echo", {"what": "a text"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            while not board.queue.pending():  # noqa: ASYNC110 - the page does not reload by itself
                await anyio.sleep(0.01)
            await browser("click", "#to-Approvals")
            await browser("see", ".card", "a text")
            await browser("click", "text=Allow once")
        assert "a text" in results[0].text
        await browser("see", "p", "No call waits for you.")
        await browser("click", "#to-Tokens")
        await browser("fill", "[name=name]", "laptop")
        await browser("click", "#make-token")
        await browser("see", "[name=token]", "")
        await browser("click", "#to-Tokens")
        await browser("click", "#ask-laptop")
        await browser("click", "#revoke-token")
        await browser("gone", "#ask-laptop", "")
        assert await browser("complaints") == []
