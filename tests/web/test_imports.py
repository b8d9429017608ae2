"""Servers of other agents are taken over in the dashboard."""

import html
import json
import re

import pytest

from tests.conftest import Machine, write
from tests.web.support import Client, Page, dashboard

SECRET = "sk-proj-0123456789abcdefghijklmnop"


def cursor_has(machine: Machine, **servers: object) -> None:
    write(machine.home / ".cursor" / "mcp.json", json.dumps({"mcpServers": servers}))


def digests(page: Page, name: str = "take") -> dict[str, str]:
    """The boxes of a page, by their labels."""
    found = re.findall(rf'name="{name}" id="([^"]+)" value="([^"]+)"', page.text)
    labels = dict(re.findall(r'<label for="([^"]+)">([^<]*)</label>', page.text))
    return {html.unescape(labels[element]): value for element, value in found}


async def take(client: Client, path: str, **fields: str) -> Page:
    return await client.send(path, "/import", **fields)


@pytest.mark.requirement("HARD-54")
async def test_servers_of_another_agent_are_shown_ticked_and_taken_over(machine: Machine) -> None:
    cursor_has(
        machine,
        time={"command": "true", "env": {"API_KEY": SECRET}},
        files={"command": "false"},
        there={"command": "true"},
    )
    async with dashboard(machine, {"there": {"command": "true"}}) as board, board.visited() as client:
        page = await client.get("/import")
        assert ".cursor/mcp.json" in page.text
        assert SECRET not in page.text
        boxes = digests(page)
        assert set(boxes) == {"time", "files"}, "what is there already is not offered"
        assert "there already" in page.text
        sent = await take(client, "/import", take=boxes["time"])
        assert sent.status == 303
        written = json.loads(machine.user_file.read_text())["servers"]
        assert set(written) == {"there", "time"}
        assert SECRET not in machine.user_file.read_text()
        assert f"Added <code>time</code> to {machine.user_file}" in html.unescape(
            (await client.get("/")).text
        )
        assert set(board.configuration.loaded.servers) == {"there", "time"}


async def test_a_server_is_overwritten_only_where_that_was_asked_for(machine: Machine) -> None:
    cursor_has(machine, there={"command": "false"})
    async with dashboard(machine, {"there": {"command": "true"}}) as board, board.visited() as client:
        assert digests(await client.get("/import")) == {}
        boxes = digests(await client.get("/import?replace=yes"))
        sent = await take(client, "/import?replace=yes", take=boxes["there"], replace="yes")
        assert sent.status == 303
        assert json.loads(machine.user_file.read_text())["servers"]["there"]["command"] == "false"


async def test_what_changed_since_it_was_shown_is_not_imported(machine: Machine) -> None:
    cursor_has(machine, time={"command": "true"})
    async with dashboard(machine, {}) as board, board.visited() as client:
        box = digests(await client.get("/import"))["time"]
        cursor_has(machine, time={"command": "rm", "args": ["-rf", "x"]})
        page = await take(client, "/import", take=box)
        assert page.status == 409
        assert "changed meanwhile" in page.text
        assert (await take(client, "/import")).status == 409
        assert json.loads(machine.user_file.read_text())["servers"] == {}


async def test_mcp_remote_can_be_left_out(machine: Machine) -> None:
    cursor_has(machine, far={"command": "npx", "args": ["-y", "mcp-remote", "http://127.0.0.1:9/mcp"]})
    async with dashboard(machine, {}) as board, board.visited() as client:
        page = await client.get("/import")
        (box,) = digests(page).values()
        assert [*digests(page, "native").values()] == [box]
        assert (await take(client, "/import", take=box, native=box)).status == 303
        assert json.loads(machine.user_file.read_text())["servers"]["far"]["url"] == "http://127.0.0.1:9/mcp"


async def test_where_there_is_nothing_to_import_it_says_so(machine: Machine) -> None:
    async with dashboard(machine, {}) as board, board.visited() as client:
        assert "No other agent&#x27;s servers were found" in (await client.get("/import")).text
