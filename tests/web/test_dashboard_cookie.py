"""The dashboard's cookie: which server a browser sends it to, and what it is worth to a thief."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie

import aiohttp
import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from fairlead.net.listen import bind, listening
from tests.conftest import Machine
from tests.web.browsing import browsing
from tests.web.support import AGENT, NAME, SECONDS, TOKEN, dashboard

SERVERS = {"x": {"command": "there-is-no-such-program", "allow_tools": ["echo"]}}


@dataclass
class Thief:
    """A server on another port, and the cookies that browsers sent it."""

    port: int
    cookies: list[str] = field(default_factory=list[str])
    paths: list[str] = field(default_factory=list[str])


@asynccontextmanager
async def thieving() -> AsyncGenerator[Thief]:
    with bind("127.0.0.1", 0) as listener:
        thief = Thief(listener.getsockname()[1])

        async def answer(request: Request) -> Response:
            thief.paths.append(request.url.path)
            if cookie := request.headers.get("cookie"):
                thief.cookies.append(cookie)
            return HTMLResponse("<h1>Nothing to see</h1>")

        async with listening(Starlette(routes=[Route("/{path:path}", answer)]), listener):
            yield thief


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")
@pytest.mark.requirement("HARD-82")
@pytest.mark.parametrize("host", [NAME, "127.0.0.1", "localhost"])
async def test_a_server_on_another_port_is_sent_no_cookie(machine: Machine, host: str) -> None:
    with anyio.fail_after(2 * SECONDS):
        async with dashboard(machine, SERVERS) as board, thieving() as thief, browsing() as browser:
            port = board.url.rpartition(":")[2]
            await browser("open", f"http://{host}:{port}/login?code={await board.code()}")
            await browser("see", "h1", "Overview")
            assert "/~" in await browser("value", "location.pathname")
            for other in (host, "127.0.0.1", "localhost", NAME):
                for path in ("/", "/login", "/servers/x", "/approvals"):
                    await browser("open", f"http://{other}:{thief.port}{path}")
                    await browser("see", "h1", "Nothing to see")
            assert "/approvals" in thief.paths
            assert thief.cookies == []


@pytest.mark.requirement("HARD-82")
async def test_a_stolen_cookie_alone_neither_reads_nor_posts(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        own = await client.get("/")
        cookies = [f"{morsel.key}={morsel.value}" for morsel in client.cookies()]
        assert cookies
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as thief:
            stolen = {"Cookie": "; ".join(cookies), "Origin": board.url}
            for base in ("", "/~guessed", "/~", "/~" + "A" * 32):
                url = f"{board.url}{base}/"
                async with thief.get(url, headers=stolen, allow_redirects=False) as page:
                    assert page.status in (303, 404)
                    assert "form_token" not in await page.text()
                for token in ("", own.form_token):  # even one that leaked
                    fields = {"form_token": token, "do": "disable"}
                    async with thief.post(f"{url}servers/x", data=fields, headers=stolen) as answer:
                        assert answer.status in (401, 403, 404)
        assert board.configuration.loaded.server("x").enabled


@pytest.mark.requirement("HARD-82")
async def test_a_form_needs_the_exact_origin_of_its_page(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        fields = {"form_token": (await client.get("/")).form_token, "do": "disable"}
        port = board.url.rpartition(":")[2]
        others = (f"http://localhost:{port}", f"http://{NAME}:{port}", f"https://127.0.0.1:{port}")
        for origin in (*others, "null"):
            assert (await client.post("/servers/x", fields, Origin=origin)).status == 403
        async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as bare:
            cookie = "; ".join(f"{morsel.key}={morsel.value}" for morsel in client.cookies())
            async with bare.post(client.at("/servers/x"), data=fields, headers={"Cookie": cookie}) as answer:
                assert answer.status == 403  # without any
        assert board.configuration.loaded.server("x").enabled
        assert (await client.post("/servers/x", fields)).status == 303


@pytest.mark.requirement("HARD-82")
async def test_the_name_of_the_dashboard_serves_nothing_else(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        host = f"{NAME}:{board.url.rpartition(':')[2]}"
        assert (await client.get("/login", Host=host)).status == 200
        for path in ("/api/status", "/metrics"):
            assert (await client.get(path, Host=host, Authorization=f"Bearer {TOKEN}")).status == 421
        for other in (f"x{host}", host.replace(".localhost", ".evil.example"), f"a.{host}"):
            assert (await client.get("/login", Host=other)).status == 421


@pytest.mark.requirement("HARD-82")
async def test_a_link_logs_in_once_without_scripts(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        named, plain = await board.login_sessions.links(TOKEN)
        assert named.startswith(f"http://{NAME}:")
        path = plain.removeprefix(board.url)
        assert (await client.get(path, **{"Sec-Purpose": "prefetch;prerender"})).status == 200
        entered = await client.get(path)
        (cookie,) = SimpleCookie(entered.headers["set-cookie"]).values()
        base = entered.headers["location"].rstrip("/")
        assert (entered.status, cookie["path"], cookie["samesite"]) == (303, base, "strict")
        assert cookie["httponly"]
        assert (await client.get(f"{base}/")).status == 200
        assert (await client.get(path)).status == 403
        assert await board.login_sessions.redeem(named.partition("code=")[2]) is None


@pytest.mark.requirement("HARD-81")
async def test_an_agents_token_opens_no_page(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        assert (await client.log_in(AGENT)).status == 403
        header = {"Authorization": f"Bearer {AGENT}"}
        for path in ("/", "/servers/x", "/servers/x/review", "/tools", "/calls", "/approvals", "/events"):
            assert (await client.get(path, **header)).status == 403
            assert (await client.get(f"/~anything{path}", **header)).status == 403


@pytest.mark.requirement("HARD-80")
async def test_who_decides_for_themselves_sees_no_page_about_others(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        token = board.tokens.add("alice", scopes=("mcp", "decide"))
        assert (await client.log_in(token)).status == 303
        assert (await client.get("/approvals")).status == 200
        for path in ("/", "/servers/x", "/servers/x/review", "/tools", "/calls"):
            assert (await client.get(path)).status == 403
        form = (await client.get("/approvals")).form_token
        assert (await client.post("/servers/x", {"form_token": form, "do": "disable"})).status == 403
