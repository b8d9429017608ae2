"""Who opens which page of the dashboard, for every route that there is: new pages need no new test."""

import re
from pathlib import Path

import pytest
from starlette.routing import Mount, Route

from fairlead.web.app import dashboard_routes
from fairlead.web.page_request import AccessCheck
from tests.conftest import Machine
from tests.web.support import AGENT, Dashboard, dashboard
from tests.web.test_tool_page import ECHO, ChangingServer, path_of

OWN_PAGES = {"/approvals", "/events", "/logout", "/theme"}
"""Pages of a user who decides for themselves; all others are an administrator's."""
ACTIONS = ("/tool", "/tokens", "/tokens/bundles", "/agents", "/import", "/add", "/reviews", "/calls")


def pages_of(board: Dashboard) -> list[str]:
    """The paths of all pages for people."""
    routes = dashboard_routes(board.panel, board.login_sessions)
    found: list[str] = []
    for route in routes:
        if isinstance(route, Mount) or not isinstance(route, Route):
            continue
        if isinstance(route.endpoint, AccessCheck) and route.endpoint.is_for_people:
            found.append(re.sub(r"\{[^}]*\}", "x", route.path))
    assert {*ACTIONS, *OWN_PAGES} < {*found}
    return found


@pytest.mark.requirement("HARD-81")
async def test_no_page_opens_for_a_token_without_its_scope(machine: Machine, tmp_path: Path) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with dashboard(machine, {"x": server.entry()}) as board, board.visited(logged_in=False) as client:
        paths = pages_of(board)
        weak = {
            "agent": AGENT,
            "status": board.tokens.add("monitor", scopes=("status",)),
            "other's agent": board.tokens.add("ada", scopes=("mcp",)),
        }
        for name, token in weak.items():
            header = {"Authorization": f"Bearer {token}"}
            for path in paths:
                for address in (path, f"/~guess{path}", f"{path}?place=x"):
                    got = await client.get(address, **header)
                    assert got.status == 403 if path not in ("/logout", "/theme") else got.status == 405, name
                    posted = await client.post(address, {"form_token": "x"}, **header)
                    assert posted.status in (403, 405), (name, address)
        assert not board.panel.activity.finished


@pytest.mark.requirement("HARD-81")
async def test_who_decides_for_themselves_reaches_no_page_of_an_administrator(
    machine: Machine, tmp_path: Path
) -> None:
    server = ChangingServer(tmp_path, ECHO)
    async with dashboard(machine, {"x": server.entry()}) as board, board.visited(logged_in=False) as client:
        await board.host.connect("x")
        token = board.tokens.add("ada", scopes=("mcp", "decide"))
        assert (await client.log_in(token)).status == 303
        form = (await client.get("/approvals")).form_token
        call = {
            "form_token": form,
            "server": "x",
            "name": "echo",
            "do": "json",
            "all-arguments": '{"what":"a"}',
        }
        for path in pages_of(board):
            if path in OWN_PAGES:
                continue
            assert (await client.get(path)).status == 403, path
            assert (await client.post(path, call)).status in (403, 405), path
        assert (await client.get(path_of("echo"))).status == 403
        assert not board.panel.activity.finished
