"""What an action has to say besides is in its confirmation, for the visitor to read."""

from collections.abc import Mapping

import pytest

from fairlead.errors import StoreError
from fairlead.policy import audit
from fairlead.testing import ScriptedServer
from fairlead.web import config_panel
from tests.conftest import Machine
from tests.web.support import dashboard

UNWRITTEN = "this is not in the audit log: the disk is full (make room on it)."


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreError("the disk is full", hint="make room on it")

    monkeypatch.setattr(audit, "note", refuse)


@pytest.mark.parametrize(
    ("page", "fields"),
    [
        ("/servers/x", {"do": "disable"}),
        ("/servers/x", {"do": "restart"}),
        ("/tokens/bundles", {"do": "make", "name": "b", "server": "x"}),
        ("/servers/x/edit", {"kind": "command", "command": "true", "description": "new"}),
        ("/servers/x/remove", {}),
    ],
)
async def test_the_confirmation_of_an_action_has_its_notices(
    machine: Machine, full_disk: None, page: str, fields: Mapping[str, str]
) -> None:
    servers = {"x": {"command": "true"}, "y": {"command": "true"}}
    async with dashboard(machine, servers) as board, board.visited() as client:
        done = await client.send(page, page, **fields)
        assert done.status == 303, done.text
        said = (await client.get("/")).text
        assert UNWRITTEN in said
        assert UNWRITTEN not in (await client.get("/")).text, "once"


async def test_the_notices_of_a_token_are_where_it_is_shown(machine: Machine, full_disk: None) -> None:
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        made = await client.send("/tokens", "/tokens", do="make", name="ci", scope="mcp")
        assert UNWRITTEN in made.text
        await client.send("/tokens", "/tokens", do="revoke", name="ci")
        said = (await client.get("/tokens")).text
        assert "revoked" in said
        assert UNWRITTEN in said


async def test_the_notices_of_a_review_are_shown(machine: Machine, full_disk: None) -> None:
    server = ScriptedServer(machine.home / "record", tools=["echo"])
    async with dashboard(machine, {"x": server.entry()}) as board, board.visited() as client:
        await board.host.connect("x")
        page = await client.get("/servers/x/review")
        fields = {"verdict": "allow", "digest": page.hidden("digest")}
        done = await client.send("/servers/x/review", "/servers/x/review", **fields)
        assert done.status == 303, done.text
        assert UNWRITTEN in (await client.get("/servers/x/review")).text


async def test_a_command_in_a_cache_is_told_before_and_after_it_is_installed(
    machine: Machine, full_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "/home/me/.cache/uv/archive-v0/abc/bin/fairlead"
    monkeypatch.setattr(config_panel, "own_command", lambda: (command,))
    cached = "is in a cache, and gone when that is emptied"
    async with dashboard(machine, {"x": {"command": "true"}}) as board, board.visited() as client:
        shown = await client.send("/agents", "/agents", do="install", agent="claude")
        assert cached in shown.text
        fields = {"do": "install", "agent": "claude", "digest": shown.hidden("digest")}
        assert (await client.send("/agents", "/agents", **fields)).status == 303
        said = (await client.get("/agents")).text
        assert cached in said
        assert UNWRITTEN in said
