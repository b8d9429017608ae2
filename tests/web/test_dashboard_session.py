"""A dashboard session is worth what its token is worth, for as long as that token is valid."""

import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.gateway.access.jwt import FRESH_SECONDS, TRUST_SECONDS
from fairlead.gateway.registry import DASHBOARD_LINKS_PATH
from fairlead.testing.fixtures import FakeClock
from fairlead.web import sessions
from tests.conftest import Machine
from tests.gateway.access.test_jwt import EC_KEY, access, signing
from tests.web.support import AGENT, TOKEN, Client, Dashboard, dashboard

SERVERS = {"x": {"command": "there-is-no-such-program", "allow_tools": ["echo"]}}
PAGES = ("/", "/servers/x", "/servers/x/review", "/tools", "/calls", "/approvals", "/events")


async def ask_for_links(board: Dashboard, token: str | None) -> tuple[int, list[str]]:
    """Ask for login links as `fairlead gateway dashboard` does."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{board.url}{DASHBOARD_LINKS_PATH}", json={}, headers=headers) as answer,
    ):
        found: Mapping[str, list[str]] = await answer.json() if answer.status == 200 else {}
        return answer.status, found.get("links", [])


async def follow(client: Client, link: str) -> int:
    """Open a login link, and stay in the session that it begins."""
    page = await client.get("/login?" + link.partition("?")[2])
    if page.status == 303:
        client.base = page.headers["location"].rstrip("/")
    return page.status


@asynccontextmanager
async def streaming(client: Client, token: str) -> AsyncGenerator[AsyncIterator[str]]:
    """Log in, and follow the stream of changes."""
    assert (await client.log_in(token)).status == 303
    async with client.stream() as lines:
        yield lines


async def is_inside(client: Client) -> bool:
    """Does a page of the session open? It either does, or leads to the login."""
    page = await client.get("/approvals")
    assert page.status in (200, 303)
    return page.status == 200


@pytest.mark.requirement("HARD-81", "HARD-82")
async def test_a_session_from_a_link_ends_with_the_token_that_made_the_link(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        status, links = await ask_for_links(board, board.tokens.add("adm", scopes=("admin",)))
        assert status == 200
        assert await follow(client, links[-1]) == 303
        form = (await client.get("/")).form_token
        board.tokens.remove("adm")
        for path in PAGES:
            page = await client.get(path)
            assert (page.status, page.headers["location"].partition("?")[0]) == (303, "/login"), path
        assert (await client.post("/servers/x", {"form_token": form, "do": "disable"})).status in (401, 403)
        assert board.configuration.loaded.server("x").enabled
        board.tokens.add("adm", scopes=("admin",))  # of the same name, and yet another token
        assert not await is_inside(client)


@pytest.mark.requirement("HARD-81")
async def test_a_link_opens_nothing_once_its_token_is_removed(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        _, links = await ask_for_links(board, board.tokens.add("adm", scopes=("admin",)))
        board.tokens.remove("adm")
        assert await follow(client, links[-1]) == 403
        assert (await client.log_in(links[-1].partition("code=")[2])).status == 403


@pytest.mark.requirement("HARD-80", "HARD-81")
async def test_a_session_from_a_link_is_of_the_principal_that_made_the_link(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board:
        tokens = {
            "token:adm": board.tokens.add("adm", scopes=("admin",)),
            "token:decider": board.tokens.add("decider", scopes=("decide",)),
            "local": TOKEN,
        }
        for principal, token in tokens.items():
            entered = await board.login_sessions.redeem(await board.code(token))
            assert entered is not None
            scope: dict[str, Any] = {
                "type": "http",
                "path_params": {"place": entered.base.removeprefix("/~")},
                "headers": [],
            }
            admitted = await board.login_sessions.admit(scope, entered.cookie, "decide")
            assert getattr(admitted, "principal", None) == principal
            assert getattr(admitted, "decides_for", None) == (
                "token:decider" if principal == "token:decider" else None
            )


@pytest.mark.requirement("HARD-81")
async def test_only_a_token_that_is_admin_gets_links(machine: Machine) -> None:
    async with dashboard(machine, SERVERS, with_tokens=False) as board:
        lesser = [board.tokens.add(name, scopes=(name,)) for name in ("mcp", "status", "decide")]
        for token in (None, "", "no-such-token", AGENT, *lesser):
            status, links = await ask_for_links(board, token)
            assert (status in (401, 403), links) == (True, []), token
        for token in ("", "no-such-token", AGENT, *lesser[:2]):
            assert await board.login_sessions.one_time_code(token) is None
            assert await board.login_sessions.links(token) == []


def rewrite(path: Path) -> None:
    path.write_text("another\n")


def rewrite_unnoticed(path: Path) -> None:
    """Put a token of the same length there, with the time of the file as it was."""
    before = path.stat()
    path.write_text("T" * len(path.read_text().strip()) + "\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_file(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("another\n")
    other.replace(path)


def empty(path: Path) -> None:
    path.write_text("")


@pytest.mark.requirement("HARD-81")
@pytest.mark.parametrize("rotate", [rewrite, rewrite_unnoticed, replace_file, empty, Path.unlink])
@pytest.mark.parametrize("by_link", [True, False])
async def test_another_decide_token_ends_the_sessions_of_the_one_before(
    machine: Machine, tmp_path: Path, rotate: Callable[[Path], None], by_link: bool
) -> None:
    kept = tmp_path / "decide-token"
    kept.write_text("the-first-one\n")
    async with dashboard(machine, SERVERS, decide=kept) as board, board.visited(logged_in=False) as client:
        if by_link:
            _, links = await ask_for_links(board, "the-first-one")
            assert await follow(client, links[-1]) == 303
        else:
            assert (await client.log_in("the-first-one")).status == 303
        assert await is_inside(client)
        unused = await board.code("the-first-one")
        rotate(kept)
        assert not await is_inside(client)
        assert (await client.log_in(unused)).status == 403


@pytest.mark.requirement("HARD-81")
async def test_the_stream_ends_with_the_token_of_its_session_or_with_the_session(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board:
        staying, leaving = (board.tokens.add(name, scopes=("admin",)) for name in ("staying", "leaving"))
        for end in ("token", "logout"):
            async with (
                board.visited(logged_in=False) as client,
                board.visited(logged_in=False) as other,
                streaming(other, staying) as still_open,
            ):
                assert (await client.log_in(await board.code(leaving))).status == 303
                async with client.stream() as lines:
                    assert await anext(lines) == "retry: 2000"
                    if end == "token":
                        assert board.tokens.remove("leaving")
                        leaving = board.tokens.add("leaving", scopes=("admin",))
                    else:
                        assert (await client.send("/", "/logout")).status == 303
                    with anyio.fail_after(20):
                        rest = [line async for line in lines]
                    assert not [line for line in rest if line.startswith("event")]
                board.panel.note_change()
                with anyio.fail_after(20):
                    while await anext(still_open) != "event: changed":
                        pass


@pytest.mark.requirement("HARD-81")
async def test_the_stream_of_a_program_ends_with_its_token(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {board.tokens.add('program', scopes=('admin',))}"}
        async with http.get(f"{board.url}/events", headers=headers) as response:
            assert response.status == 200
            board.tokens.remove("program")
            with anyio.fail_after(20):
                await response.content.read()


@pytest.mark.requirement("HARD-81")
async def test_a_session_by_a_signed_token_ends_when_its_issuer_retires_the_key(machine: Machine) -> None:
    clock = FakeClock()
    async with signing() as signer:
        checked = access(signer, clock, decide_scope="decide")
        async with (
            dashboard(machine, SERVERS, jwt=checked) as board,
            board.visited(logged_in=False) as client,
        ):
            assert (await client.log_in(signer.token(scope="tools"))).status == 403
            assert (await client.log_in(signer.token(scope="tools decide"))).status == 303
            assert await is_inside(client)
            assert (await client.get("/")).status == 403  # it decides for its own principal only
            signer.keys = {"new": EC_KEY}
            clock.advance(TRUST_SECONDS + FRESH_SECONDS)
            assert not await is_inside(client)


@pytest.mark.requirement("HARD-81")
async def test_codes_and_sessions_end_by_themselves(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        code, later = await board.code(), time.time() + sessions.CODE_SECONDS + 1
        monkeypatch.setattr(sessions.time, "time", lambda: later)
        assert await board.login_sessions.redeem(code) is None
        assert await is_inside(client)
        monkeypatch.setattr(sessions.time, "time", lambda: later + sessions.SESSION_SECONDS)
        assert not await is_inside(client)
