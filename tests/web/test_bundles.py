"""Bundles are made and removed in the dashboard, with the checks of the command line."""

import json

from tests.conftest import Machine
from tests.web.support import dashboard

SERVERS = {"x": {"command": "true"}, "y": {"command": "true"}}
PATH = "/tokens/bundles"


async def test_a_bundle_is_made_shown_and_removed_after_asking(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        assert 'href="' + client.base + PATH in (await client.get("/tokens")).text
        token = (await client.get(PATH)).form_token
        fields = [("form_token", token), ("do", "make"), ("name", "work"), ("server", "x"), ("server", "y")]
        fields += [("tools", "y.echo\ny.get_*"), ("description", "For work.")]
        assert (await client.post(PATH, fields)).status == 303
        written = json.loads(machine.user_file.read_text())["bundles"]
        limits = {"x": {}, "y": {"allow_tools": ["echo", "get_*"]}}
        assert written == {"work": {"servers": limits, "description": "For work."}}
        page = (await client.get(PATH)).text
        for shown in ("Saved the bundle `work`", "/mcp/work", ": echo, get_*", "For work."):
            assert shown in page
        assert "/mcp/work" in (await client.get("/tokens")).text
        asked = await client.send(PATH, PATH, do="ask", name="work")
        assert "Remove the bundle" in asked.text
        assert board.panel.bundles(), "it was only asked about"
        assert (await client.send(PATH, PATH, do="remove", name="work")).status == 303
        assert "Removed the bundle `work`" in (await client.get(PATH)).text
        assert board.panel.bundles() == {}
        audit = (await client.get("/audit")).text
        assert "add bundle" in audit
        assert "remove bundle" in audit


async def test_what_is_wrong_with_a_bundle_is_said_and_what_was_typed_stays(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        page = await client.send(PATH, PATH, do="make", name="work", tools="z.echo")
        assert page.status == 422
        assert "there is no server `z`" in page.text
        assert 'value="work"' in page.text
        assert "z.echo</textarea>" in page.text
        page = await client.send(PATH, PATH, do="make", name="work", server="")
        assert page.status == 422
        assert (await client.send(PATH, PATH, do="make", name="work", server="x")).status == 303
        again = await client.send(PATH, PATH, do="make", name="work", server="y")
        assert again.status == 422
        fields = {"do": "make", "name": "work", "server": "y", "replace": "on"}
        assert (await client.send(PATH, PATH, **fields)).status == 303
        assert [*board.panel.bundles()["work"].servers] == ["y"]
        assert (await client.send(PATH, PATH, do="remove", name="other")).status == 409
