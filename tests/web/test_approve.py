"""The page that asks whether a project's server may run: what it shows, and what it approves."""

import html
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.actions.saved_state import read_saved
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.fixtures.hostile_http import serving
from tests.web.support import AGENT, Dashboard, Page, dashboard_of

TOOLS = [{"name": "deploy", "inputSchema": {"type": "object"}}]
PAGE = "/servers/deploy/approve"


def write_project(machine: Machine, **servers: dict[str, Any]) -> None:
    machine.write_project(json.dumps({"servers": servers}))


def is_approved(machine: Machine, server_id: str = "deploy") -> bool:
    """As the command line sees it."""
    loaded = machine.load()
    return read_saved(loaded)[server_id].approved


def words_of(page: Page) -> str:
    """The text of a page, as a reader gets it."""
    return html.unescape(page.text)


@asynccontextmanager
async def project(machine: Machine, **servers: dict[str, Any]) -> AsyncGenerator[Dashboard]:
    machine.write_user("{}")
    write_project(machine, **servers)
    async with dashboard_of(machine) as board:
        yield board


@pytest.mark.requirement("HARD-1", "NEED-24", "NEED-32")
async def test_a_projects_server_is_approved_as_it_was_shown(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=TOOLS)
    entry = server.entry(env={"STAGE": "staging", "DEPLOY_TOKEN": "${DEPLOY_TOKEN:-none}"})
    async with project(machine, deploy=entry) as board, board.visited() as client:
        for place in ("/", "/servers", "/servers/deploy", "/approvals"):
            assert f'href="{client.base}{PAGE}"' in (await client.get(place)).text, place
        page = await client.get(PAGE)
        shown = words_of(page)
        for word in (*server.argv, "STAGE", "staging", "DEPLOY_TOKEN", "your variable DEPLOY_TOKEN"):
            assert word in shown
        assert str(machine.project / "fairlead.json") in shown
        assert "It is not sandboxed" in shown
        assert "hidden characters" not in shown
        assert server.starts == 0
        done = await client.post(PAGE, {"form_token": page.form_token, "digest": page.hidden("digest")})
        assert done.status == 303
        assert done.headers["location"] == f"{client.base}/servers/deploy"
        assert "Approved <code>deploy</code>" in (await client.get("/servers/deploy")).text
        assert is_approved(machine)
        listing = await board.host.list_now("deploy")
        assert [tool.key.tool for tool in listing.tools] == ["deploy"]
        assert "Approve" not in words_of(await client.get("/servers"))
        assert "needs no approval" in (await client.get(PAGE)).text
        again = await client.post(PAGE, {"form_token": page.form_token, "digest": page.hidden("digest")})
        assert again.status == 303, "a second click is no error"
        record = await client.sees("/audit", "approve")
        assert "dashboard" in record.text


@pytest.mark.requirement("HARD-1", "NEED-24")
async def test_what_changed_after_it_was_shown_is_not_approved(machine: Machine, tmp_path: Path) -> None:
    script = machine.project / "deploy.sh"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    entry: dict[str, Any] = {"command": "./deploy.sh", "args": ["--stage", "staging"]}
    async with project(machine, deploy=entry) as board, board.visited() as client:
        page = await client.get(PAGE)
        script.write_text("#!/bin/sh\nexit 2\n")
        sent = {"form_token": page.form_token, "digest": page.hidden("digest")}
        refused = await client.post(PAGE, sent)
        assert refused.status == 409
        assert "changed while you looked at it" in refused.text
        assert f'href="{client.base}{PAGE}"' in refused.text, "the way back to what it is now"

        page = await client.get(PAGE)
        write_project(machine, deploy={**entry, "args": ["--stage", "production"]})
        await board.configuration.reload()
        sent = {"form_token": page.form_token, "digest": page.hidden("digest")}
        assert (await client.post(PAGE, sent)).status == 409
        assert (await client.post(PAGE, {"form_token": page.form_token})).status == 409
        assert not is_approved(machine)
        assert board.panel.unapproved() == ["deploy"]


@pytest.mark.requirement("HARD-81")
async def test_no_other_site_and_no_agent_approves(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=TOOLS)
    async with project(machine, deploy=server.entry()) as board, board.visited() as client:
        page = await client.get(PAGE)
        digest = page.hidden("digest")
        for fields in ({"digest": digest}, {"digest": digest, "form_token": "guessed"}):
            assert (await client.post(PAGE, fields)).status == 403
        own = {"digest": digest, "form_token": page.form_token}
        assert (await client.post(PAGE, own, Origin="https://elsewhere.example")).status == 403
        async with board.visited(logged_in=False) as agent:
            header = {"Authorization": f"Bearer {AGENT}"}
            assert (await agent.get(PAGE, **header)).status == 403
            assert (await agent.post(PAGE, own, **header)).status == 403
            assert (await agent.get(PAGE)).status == 303, "the login page"
        ada = board.tokens.add("ada", scopes=("mcp", "decide"))
        async with board.visited(logged_in=False) as client_of_ada:
            await client_of_ada.log_in(ada)
            assert (await client_of_ada.get(PAGE)).status == 403
            assert "Approve" not in (await client_of_ada.get("/approvals")).text.replace("Approvals", "")
        assert not is_approved(machine)
        assert server.starts == 0


@pytest.mark.requirement("HARD-1")
async def test_nothing_in_a_command_is_hidden(machine: Machine) -> None:
    arguments = [
        "--quiet\n--delete-all",
        "a  b",
        "pass\u200bword",
        "left\u202eright",
        "fill\u3164er",
        "",
        "\u00a0",
    ]
    entry: dict[str, Any] = {
        "command": "deploy\u2060",
        "args": arguments,
        "env": {"NA\u200bME": "x<b>y", "API_KEY": "a-literal-of-the-project-0123456789"},
        "cwd": "sub\u202efolder",
    }
    async with project(machine, deploy=entry) as board, board.visited() as client:
        shown = words_of(await client.get(PAGE))
        assert "there are hidden characters" in shown
        for word in (
            "deploy⟨U+2060⟩",
            "--quiet⟨U+000A⟩--delete-all",
            "a  b",
            "pass⟨U+200B⟩word",
            "left⟨U+202E⟩right",
            "fill⟨U+3164⟩er",
            '<code class="exact">""</code>',
            "⟨U+00A0⟩",
            "NA⟨U+200B⟩ME",
            "x<b>y",
            "sub⟨U+202E⟩folder",
        ):
            assert word in shown, word
        assert "x<b>y" not in (await client.get(PAGE)).text, "it is escaped"
        assert "a-literal-of-the-project-0123456789" not in shown


async def test_a_server_that_is_contacted_is_approved_too(machine: Machine) -> None:
    async with serving() as server:
        entry = {"url": server.url, "headers": {"X-Key": "${DEPLOY_KEY}"}}
        async with project(machine, deploy=entry) as board, board.visited() as client:
            shown = words_of(await client.get(PAGE))
            assert f"talks to {server.url}" in shown
            assert "your variable DEPLOY_KEY goes to" in shown
            assert "sandboxed" not in shown
            assert server.connections == 0


async def test_there_is_no_question_where_none_is_open(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=TOOLS)
    machine.write_user(json.dumps({"servers": {"mine": server.entry()}}))
    write_project(machine, broken={"command": ["no", "text"]})
    async with dashboard_of(machine) as board, board.visited() as client:
        page = await client.get("/servers/mine/approve")
        assert page.status == 200
        assert "needs no approval" in page.text
        assert (await client.get("/servers/nosuch/approve")).status == 404
        broken = await client.get("/servers/broken/approve")
        assert broken.status == 409
        assert "command" in words_of(broken)
        with anyio.fail_after(5):
            assert (await client.send("/", "/servers/broken/approve", digest="x")).status == 409
