"""Logging in to the dashboard, and which forms it accepts."""

from contextlib import AsyncExitStack

import anyio
import pytest
from anyio.abc import TaskStatus

from fairlead.web.page_request import HEADERS
from fairlead.web.sessions import COOKIE
from tests.conftest import Machine
from tests.web.support import SECONDS, TOKEN, Client, cookie_of, dashboard

PAGES = (
    "/",
    "/servers",
    "/servers/x",
    "/servers/x/review",
    "/tools",
    "/calls",
    "/logs",
    "/audit",
    "/audit.csv",
    "/approvals",
    "/events",
)
OTHERS = ("/api/status", "/metrics", "/healthz", "/readyz", "/static/live.js", "/static/fairlead.css")
SERVERS = {"x": {"command": "there-is-no-such-program", "allow_tools": ["echo"]}}


async def test_whoever_is_not_logged_in_is_sent_to_the_login_and_sees_nothing(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        for path in PAGES:
            page = await client.get(path)
            login = "/login" if path == "/" else f"/login?next={path}"
            assert (page.status, page.headers["location"], page.text) == (303, login, "")
        for path in ("/api/status", "/metrics"):
            page = await client.get(path)
            assert page.status == 401
            assert page.headers["www-authenticate"] == "Bearer"
        form = await client.get("/login")
        fields = {"form_token": form.form_token, "do": "restart"}
        assert (await client.post("/servers/x", fields)).status == 401


async def test_a_token_opens_it_once_pasted_and_the_cookie_is_out_of_reach_of_scripts(
    machine: Machine,
) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        before = cookie_of(await client.get("/login"))
        wrong = await client.log_in("no-such-token")
        assert wrong.status == 403
        assert "That token lacks the scope" in wrong.text
        entered = await client.log_in()
        assert entered.status == 303
        assert entered.headers["location"] == f"{client.base}/"
        cookie = cookie_of(entered)
        assert cookie["path"] == client.base
        assert not cookie["domain"]
        assert cookie.value != before.value
        assert cookie["httponly"]
        assert cookie["samesite"] == "strict"
        assert TOKEN not in entered.headers["set-cookie"]
        assert (await client.get("/")).status == 200


async def test_the_page_that_was_asked_for_is_opened_after_the_login(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board:
        async with board.visited(logged_in=False) as client:
            asked = await client.get("/calls?server=x&outcome=failed")
            login = asked.headers["location"]
            assert login == "/login?next=/calls%3Fserver%3Dx%26outcome%3Dfailed"
            form = await client.get(login)
            fields = {
                "form_token": form.form_token,
                "secret": TOKEN,
                "next": form.hidden("next").replace("&amp;", "&"),
            }
            entered = await client.post("/login", fields)
            base, _, rest = entered.headers["location"].partition("/calls")
            assert base.startswith("/~")
            assert rest == "?server=x&outcome=failed"
        async with board.visited(logged_in=False) as client:
            linked = await client.get(f"/login?code={await board.code()}&next=/servers/x")
            assert linked.headers["location"].endswith("/servers/x")
            assert linked.headers["location"].startswith("/~")


@pytest.mark.requirement("HARD-54")
@pytest.mark.parametrize("address", ["//evil.example", "https://evil.example/", "/\\evil.example", "x"])
async def test_no_link_to_the_login_leads_elsewhere(machine: Machine, address: str) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        token = (await client.get("/login")).form_token
        entered = await client.post("/login", {"form_token": token, "secret": TOKEN, "next": address})
        assert entered.status == 303
        assert entered.headers["location"].startswith("/~")
        assert entered.headers["location"].endswith("/")


async def test_a_theme_is_kept_in_the_browser_and_applies_to_every_page(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        assert "data-theme" not in (await client.get("/")).text
        chosen = await client.send("/", "/theme", theme="dark", back="/calls?outcome=ok")
        assert chosen.headers["location"] == f"{client.base}/calls?outcome=ok"
        assert '<html lang="en" data-theme="dark">' in (await client.get("/calls")).text
        assert 'data-theme="dark"' in (await client.get("/login")).text
        assert "Done." not in (await client.get("/")).text
        await client.send("/", "/theme", theme="auto")
        assert "data-theme" not in (await client.get("/")).text
        await client.send("/", "/theme", theme='"><script>')
        assert "data-theme" not in (await client.get("/")).text


async def test_what_was_done_is_confirmed_once_on_the_next_page(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client, board.visited() as other:
        done = await client.send("/", "/servers/x", do="disable")
        assert done.status == 303
        assert "one" not in done.headers["location"].partition("?")[2]
        assert 'class="said"' not in (await other.get("/")).text
        assert 'class="said"' not in (await client.get("/", **{"Fairlead-Live": "1"})).text
        assert 'class="said" role="status"' in (await client.get("/servers/x")).text
        assert 'class="said"' not in (await client.get("/servers/x")).text


async def test_an_address_without_a_page_is_a_page_that_says_so(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        page = await client.get("/no/such<page>")
        assert page.status == 404
        assert "There is no such page" in page.text
        assert "/no/such&lt;page&gt;" in page.text
        assert "Log out" in page.text
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        page = await client.get("/no/such", Accept="text/html,*/*")
        assert page.status == 404
        assert "There is no such page" in page.text
        assert page.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
        assert "<html" not in (await client.get("/no/such", Accept="application/json")).text
        assert (await client.get("/api/status", Accept="text/html")).status == 401


async def test_a_page_that_fails_says_what_to_do_and_nothing_of_why(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:

        async def fail() -> None:
            raise RuntimeError("the secret reason")

        monkeypatch.setattr(board.panel.watch, "history", fail)
        page = await client.get("/")
        assert page.status == 500
        assert "This is a fault of Fairlead" in page.text
        assert "the secret reason" not in page.text
        assert "the secret reason" in caplog.text


async def test_a_token_that_is_taken_back_ends_the_session_and_so_does_logging_out(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board:
        async with board.visited() as client:
            left = await client.send("/", "/logout")
            assert (left.status, left.headers["location"]) == (303, "/login")
            assert (await client.get("/")).status == 303
        token = board.tokens.add("ada", scopes=("admin",))
        async with board.visited(logged_in=False) as client:
            assert (await client.log_in(token)).status == 303
            assert (await client.get("/")).status == 200
            board.tokens.remove("ada")
            assert (await client.get("/")).status == 303


async def test_a_link_works_once(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board:
        code = await board.code()
        async with board.visited(logged_in=False) as client:
            assert (await client.log_in(code)).status == 303
            assert (await client.get("/")).status == 200
        async with board.visited(logged_in=False) as client:
            assert (await client.log_in(code)).status == 403


async def test_a_token_for_programs_reads_the_status_and_opens_no_page(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        token = board.tokens.add("looker", scopes=("status",))
        assert (await client.log_in(token)).status == 403
        assert (await client.get("/api/status", Authorization=f"Bearer {token}")).status == 200
        assert (await client.get("/", Authorization=f"Bearer {token}")).status == 403


@pytest.mark.requirement("HARD-54", "HARD-81")
async def test_where_all_may_call_without_a_token_the_dashboard_still_wants_one(machine: Machine) -> None:
    async with (
        dashboard(machine, SERVERS, with_tokens=False) as board,
        board.visited(logged_in=False) as client,
    ):
        assert (await client.post("/servers/x", {"do": "disable"})).status == 403
        assert (await client.get("/")).headers["location"] == "/login"
        await client.log_in()
        assert (await client.send("/", "/servers/x", do="disable")).status == 303


async def test_a_cookie_that_makes_no_sense_is_no_cookie(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited(logged_in=False) as client:
        for cookie in ("fairlead_session_1=x", "]=[", "a" * 4000, f"{COOKIE}_{board.url[-5:]}=x"):
            assert (await client.get("/", Cookie=cookie)).status == 303


@pytest.mark.requirement("HARD-54")
async def test_a_form_without_the_right_form_token_is_refused(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client, board.visited() as other:
        own = (await client.get("/")).form_token
        foreign = (await other.get("/")).form_token
        assert own != foreign
        for path in ("/servers/x", "/servers/x/review", "/approvals", "/logout", "/login"):
            for fields in ({}, {"form_token": ""}, {"form_token": foreign}, {"form_token": f"{own}x"}):
                assert (await client.post(path, {"do": "disable", **fields})).status == 403
        assert board.configuration.loaded.server("x").enabled
        assert (await client.get("/")).status == 200


@pytest.mark.requirement("HARD-49", "HARD-54")
async def test_forms_from_elsewhere_are_refused_even_with_everything_right(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        fields = {"form_token": (await client.get("/")).form_token, "do": "disable"}
        others = ("http://evil.example", "null", "http://127.0.0.1:1", board.url.upper(), f"{board.url}/")
        for origin in others:
            assert (await client.post("/servers/x", fields, Origin=origin)).status == 403
        assert (await client.get("/", Host="evil.example")).status == 421
        kind = {"Content-Type": "text/plain"}
        assert (await client.post("/servers/x", fields, **kind)).status == 400
        assert (await client.post("/servers/x", {**fields, "more": "x" * 100_000})).status == 413
        assert (await client.post("/servers/x", fields, Origin=board.url)).status == 303


@pytest.mark.requirement("HARD-54")
async def test_every_answer_says_that_nothing_foreign_runs_or_frames_it(machine: Machine) -> None:
    async with dashboard(machine, SERVERS) as board, board.visited() as client:
        pages = [
            await client.get(path) for path in (*PAGES[:-1], *OTHERS, "/login", "/servers/nobody", "/nobody")
        ]
        pages.append(await client.post("/", {}))
        pages.append(await client.post("/logout", {}))
        pages.append(await client.get("/logout"))
        async with board.visited(logged_in=False) as stranger:
            pages.append(await stranger.get("/"))
            pages.append(await stranger.get("/api/status"))
        assert {page.status for page in pages} == {200, 303, 401, 403, 404, 405}
        for page in pages:
            for name in ("Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options"):
                assert page.headers[name] == HEADERS[name]
            assert "script-src 'self';" in page.headers["Content-Security-Policy"]


async def test_the_stream_tells_of_changes_and_ends_with_the_dashboard(machine: Machine) -> None:
    told, over = anyio.Event(), anyio.Event()

    async def watch(client: Client, task_status: TaskStatus[None]) -> None:
        async with client.stream() as lines:
            task_status.started()
            async for line in lines:
                if line == "event: changed":
                    told.set()
        over.set()

    async with AsyncExitStack() as outlives, anyio.create_task_group() as tasks:
        async with dashboard(machine, SERVERS) as board:
            client = await outlives.enter_async_context(board.visited())
            await tasks.start(watch, client)
            while not told.is_set():
                board.panel.note_change()
                await anyio.sleep(0.01)
        with anyio.fail_after(SECONDS):
            await over.wait()
