"""Servers are added, edited and removed in the dashboard, with the checks of the command line."""

import html
import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.paths import store_file
from fairlead.policy.audit import AuditQuery, latest_calls
from fairlead.store.opening import open_database
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.test_quarantine import ChangingServer
from tests.web.support import Client, Page, dashboard, dashboard_of

SECRET = "sk-proj-0123456789abcdefghijklmnop"
ECHO: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}}


def lines(*words: str) -> str:
    return "\r\n".join(words)


async def add(client: Client, **fields: str) -> Page:
    return await client.send("/add", "/add", **{"kind": "stdio", "scope": "user", **fields})


def servers_of(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())["servers"]


def kinds_recorded(machine: Machine) -> list[tuple[str, str, str]]:
    with open_database(store_file(machine.env)) as database:
        records = latest_calls(database, AuditQuery(), 50)
    return [(record.kind, record.server, str((record.details or {}).get("in"))) for record in records]


@pytest.mark.requirement("NEED-32")
async def test_a_server_is_added_connected_and_said_to_be_there(machine: Machine, tmp_path: Path) -> None:
    command, *arguments = ScriptedServer(tmp_path / "record", tools=[ECHO]).argv
    async with dashboard(machine, {}) as board, board.visited() as client:
        assert 'href="' + client.base + '/add"' in (await client.get("/")).text
        sent = await add(
            client, id="notes", command=command, args=lines(*arguments), description="It talks.", cwd=""
        )
        assert sent.status == 303
        assert sent.headers["location"] == f"{client.base}/servers/notes"
        page = await client.get("/servers/notes")
        assert f"Added <code>notes</code> to {machine.user_file}" in html.unescape(page.text)
        assert "Added <code>notes</code>" not in (await client.get("/servers/notes")).text, "it is said once"
        await client.sees("/servers/notes", "ready")
        entry = servers_of(machine.user_file)["notes"]
        assert entry == {"command": command, "args": arguments, "description": "It talks."}
        assert ("add", "notes", "dashboard") in kinds_recorded(machine)


@pytest.mark.requirement("HARD-54")
async def test_a_secret_goes_out_of_the_file_and_is_never_shown_again(machine: Machine) -> None:
    async with dashboard(machine, {}) as board, board.visited() as client:
        header = f"Authorization: Bearer {SECRET}"
        sent = await add(client, kind="http", id="far", url="http://127.0.0.1:9/mcp", headers=header)
        assert sent.status == 303
        text = machine.user_file.read_text()
        assert SECRET not in text
        assert "Bearer ${file:" in text
        for path in ("/servers/far", "/servers/far/edit"):
            page = await client.get(path)
            assert page.status == 200
            assert SECRET not in page.text


async def test_what_is_wrong_is_said_at_its_field_and_nothing_typed_is_lost(machine: Machine) -> None:
    async with dashboard(machine, {"taken": {"command": "true"}}) as board, board.visited() as client:
        page = await add(
            client, kind="http", id="far away", url="ftp://x", headers="No header", trust="trusted"
        )
        assert page.status == 422
        for kept in ('value="far away"', 'value="ftp://x"', "No header", 'value="trusted" selected'):
            assert kept in page.text
        assert 'id="f-headers-problem-0"' in page.text
        page = await add(client, kind="http", id="far away", url="ftp://x")
        assert 'id="f-id-problem-0"' in page.text
        page = await add(client, kind="http", id="far", url="ftp://x")
        assert 'id="f-url-problem-0">must be an http:// or https:// URL with a host' in page.text
        page = await add(client, id="empty", command="")
        assert 'id="f-command-problem-0"' in page.text
        page = await add(client, id="taken", command="echo", env="A=b")
        assert page.status == 422
        assert 'id="f-id-problem-0"' in page.text
        assert "A=b" in page.text
        page = await add(client, id="boxed", command="echo", env=lines("=x"))
        assert 'id="f-env-problem-0"' in page.text
        assert set(servers_of(machine.user_file)) == {"taken"}


async def test_a_project_server_that_is_added_here_is_approved_by_that(
    machine: Machine, tmp_path: Path
) -> None:
    machine.write_project('{"servers": {}}')
    command, *arguments = ScriptedServer(tmp_path / "record", tools=[ECHO]).argv
    async with dashboard(machine, {}) as board, board.visited() as client:
        assert str(machine.project_file) in (await client.get("/add")).text
        sent = await add(client, id="notes", scope="project", command=command, args=lines(*arguments))
        assert sent.status == 303
        assert set(servers_of(machine.project_file)) == {"notes"}
        await client.sees("/servers/notes", "ready")


async def test_an_edit_keeps_the_rest_of_the_file_and_secrets_as_they_are(machine: Machine) -> None:
    machine.write_user(
        '{\n  // mine\n  "servers": {\n    "notes": {\n      "command": "true", // why\n'
        f'      "env": {{"API_KEY": "{SECRET}", "MODE": "fast"}},\n'
        '      "deny_tools": ["x"]\n    }\n  }\n}\n'
    )
    async with dashboard_of(machine) as board, board.visited() as client:
        page = await client.get("/servers/notes/edit")
        assert SECRET not in page.text
        assert "API_KEY=•••" in page.text
        fields = {
            "kind": "stdio",
            "command": "true",
            "env": lines("API_KEY=•••", "MODE=slow"),
            "trust": "untrusted",
        }
        sent = await client.send("/servers/notes/edit", "/servers/notes/edit", scope="user", **fields)
        assert sent.status == 303
        text = machine.user_file.read_text()
        assert "// mine" in text
        assert "// why" in text
        assert SECRET not in text, "what was in plain text is put away once it is saved"
        assert '"MODE": "slow"' in text
        assert '"deny_tools": ["x"]' in text
        server = board.configuration.loaded.server("notes")
        assert server.config is not None
        assert ("edit", "notes", "dashboard") in kinds_recorded(machine)
        # A mask that stands for nothing that is known is refused, rather than saved.
        fields["env"] = lines("OTHER_KEY=•••")
        page = await client.send("/servers/notes/edit", "/servers/notes/edit", scope="user", **fields)
        assert page.status == 422
        assert 'id="f-env-problem-0"' in page.text


async def test_the_kind_of_a_server_can_be_changed(machine: Machine) -> None:
    async with (
        dashboard(machine, {"notes": {"command": "true", "args": ["a"]}}) as board,
        board.visited() as client,
    ):
        fields = {
            "kind": "http",
            "url": "http://127.0.0.1:9/mcp",
            "command": "true",
            "args": "a",
            "login": "never",
        }
        sent = await client.send("/servers/notes/edit", "/servers/notes/edit", **fields)
        assert sent.status == 303
        assert servers_of(machine.user_file)["notes"] == {"url": "http://127.0.0.1:9/mcp", "oauth": False}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{"servers": {"notes": {"transport": {"type": "stdio", "command": "true", "args": ["a"]}}}}',
            {"servers": {"notes": {"transport": {"type": "stdio", "command": "true", "args": ["b"]}}}},
        ),
        (
            '{"mcp": {"servers": {"notes": {"command": "true", "args": ["${A}", "a"]}}}}',
            {"mcp": {"servers": {"notes": {"command": "true", "args": ["${A}", "b"]}}}},
        ),
    ],
    ids=["seed 000", "seed 003"],
)
async def test_an_entry_in_the_shape_of_a_seed_is_edited_where_it_is(
    machine: Machine, before: str, after: dict[str, Any]
) -> None:
    machine.write_user(before)
    async with dashboard_of(machine) as board, board.visited() as client:
        page = await client.get("/servers/notes/edit")
        assert 'value="true"' in page.text
        arguments = ["$${A}", "b"] if "mcp" in after else ["b"]
        fields = {"kind": "stdio", "command": "true", "args": lines(*arguments), "trust": "untrusted"}
        sent = await client.send("/servers/notes/edit", "/servers/notes/edit", scope="user", **fields)
        assert sent.status == 303, sent.text
        assert json.loads(machine.user_file.read_text()) == after
        server = board.configuration.loaded.server("notes")
        assert server.config is not None
        assert getattr(server.config, "args", None) == tuple(arguments)


async def test_the_kind_of_a_nested_entry_can_be_changed(machine: Machine) -> None:
    machine.write_user('{"servers": {"notes": {"transport": {"type": "stdio", "command": "true"}}}}')
    async with dashboard_of(machine) as board, board.visited() as client:
        fields = {"kind": "http", "url": "http://127.0.0.1:9/mcp", "login": "never"}
        sent = await client.send("/servers/notes/edit", "/servers/notes/edit", scope="user", **fields)
        assert sent.status == 303, sent.text
        assert servers_of(machine.user_file)["notes"] == {
            "transport": {"type": "http", "url": "http://127.0.0.1:9/mcp"},
            "oauth": False,
        }


async def test_a_secret_cannot_be_kept_out_of_a_file_without_references(machine: Machine) -> None:
    machine.write_user('{"mcp": {"servers": {"notes": {"transport": "stdio", "command": "true"}}}}')
    async with dashboard_of(machine) as board, board.visited() as client:
        fields = {"kind": "stdio", "command": "true", "env": f"API_KEY={SECRET}", "trust": "untrusted"}
        sent = await client.send("/servers/notes/edit", "/servers/notes/edit", scope="user", **fields)
        assert "below <code>mcp</code>" in sent.text or "below `mcp`" in html.unescape(sent.text)
        assert SECRET not in machine.user_file.read_text()


async def test_an_id_below_mcp_is_taken(machine: Machine) -> None:
    machine.write_user('{"mcp": {"servers": {"notes": {"transport": "stdio", "command": "true"}}}}')
    async with dashboard_of(machine) as board, board.visited() as client:
        page = await add(client, id="notes", command="true")
        assert "there is a server" in page.text
        assert "already" in page.text


async def test_a_server_is_removed_after_it_was_asked_about(machine: Machine, tmp_path: Path) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with dashboard(machine, {"notes": server.entry()}) as board, board.visited() as client:
        await board.host.connect("notes")
        page = await client.get("/servers/notes/remove")
        assert str(machine.user_file) in page.text
        sent = await client.send("/servers/notes/remove", "/servers/notes/remove", scope="user")
        assert sent.status == 303
        assert servers_of(machine.user_file) == {}
        assert f"Removed <code>notes</code> from {machine.user_file}" in html.unescape(
            (await client.get("/")).text
        )
        assert (await client.get("/servers/notes")).status == 404
        assert ("remove", "notes", "dashboard") in kinds_recorded(machine)
        assert (await client.get("/servers/notes/remove")).status in (404, 409)


async def test_an_edit_needs_the_form_of_the_page(machine: Machine) -> None:
    async with dashboard(machine, {}) as board, board.visited() as client:
        sent = await client.post(
            "/add", {"form_token": "other", "id": "x", "kind": "stdio", "command": "true"}
        )
        assert sent.status == 403
        assert servers_of(machine.user_file) == {}


async def test_a_server_that_comes_with_fairlead_is_added_and_edited(machine: Machine) -> None:
    library = machine.home / "library"
    library.mkdir()
    (library / "book.txt").write_text("words")
    other = {"command": "true", "roots": ["~/kept"]}
    async with dashboard(machine, {"other": other}) as board, board.visited() as client:
        wrong = await add(client, id="books", kind="builtin", builtin="nonsense")
        assert wrong.status == 422
        assert "choose one of them" in wrong.text
        added = await add(client, id="books", kind="builtin", builtin="repo", roots=lines(str(library)))
        assert added.status == 303, added.text
        assert servers_of(machine.user_file)["books"] == {"builtin": "repo", "roots": [str(library)]}
        await client.sees("/servers/books", "ready")
        page = "/servers/books/edit"
        shown = (await client.get(page)).text
        assert 'value="repo" selected' in shown
        assert str(library) in shown
        fields = {"kind": "builtin", "builtin": "repo", "description": "Books.", "scope": "user"}
        assert (await client.send(page, page, **fields)).status == 303
        assert servers_of(machine.user_file)["books"] == {"builtin": "repo", "description": "Books."}
        page = "/servers/other/edit"
        fields = {"kind": "stdio", "command": "false", "scope": "user"}
        assert (await client.send(page, page, **fields)).status == 303
        assert servers_of(machine.user_file)["other"] == {"command": "false", "roots": ["~/kept"]}
