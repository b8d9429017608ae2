"""Tokens are made, shown once and revoked in the dashboard; bundles are shown with what is in them."""

import re

import pytest

from tests.conftest import Machine
from tests.web.support import dashboard

BUNDLES = {"work": {"servers": {"x": {"allow_tools": ["echo"]}}, "description": "For work."}}


@pytest.mark.requirement("HARD-54")
async def test_a_token_is_shown_once_works_and_is_revoked(machine: Machine) -> None:
    async with (
        dashboard(machine, {"x": {"command": "true"}}, bundles=BUNDLES) as board,
        board.visited() as client,
    ):
        page = await client.get("/tokens")
        for shown in ("/mcp/work", "For work.", ": echo", "There are no named tokens."):
            assert shown in page.text
        made = await client.send("/tokens", "/tokens", do="make", name="ci", scope="admin")
        assert made.status == 200
        token = re.search(r'value="(fl_[\w-]+)"', made.text)
        assert token is not None
        assert token[1] not in (await client.get("/tokens")).text
        async with board.visited(logged_in=False) as other:
            assert (await other.log_in(token[1])).status == 303
            assert (await client.send("/tokens", "/tokens", do="ask", name="ci")).status == 200
            assert board.tokens.read(), "it was only asked about"
            assert (await client.send("/tokens", "/tokens", do="revoke", name="ci")).status == 303
            assert board.tokens.read() == []
            assert (await other.get("/tokens")).status == 303, "its session ends with it"
        assert "Token <code>ci</code> revoked" in (await client.get("/tokens")).text
        audit = (await client.get("/calls")).text + (await client.get("/audit")).text
        assert "add token" in audit


async def test_what_is_wrong_with_a_token_is_said_and_what_was_typed_stays(machine: Machine) -> None:
    async with (
        dashboard(machine, {"x": {"command": "true"}}, bundles=BUNDLES) as board,
        board.visited() as client,
    ):
        page = await client.send("/tokens", "/tokens", do="make", name="no name", scope="mcp", bundle="work")
        assert page.status == 422
        assert "letters, digits" in page.text
        assert 'value="no name"' in page.text
        page = await client.send("/tokens", "/tokens", do="make", name="a", scope="mcp", bundle="other")
        assert page.status == 422
        assert "there is no bundle `other`" in page.text
        assert (await client.send("/tokens", "/tokens", do="revoke", name="a")).status == 409
        assert board.tokens.read() == []
