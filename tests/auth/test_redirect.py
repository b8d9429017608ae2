"""The way to the browser and back: nothing but the answer to this login ends the wait for it."""

import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from yarl import URL

from fairlead.auth.browser import commands, is_openable, open_in_browser
from fairlead.auth.flow import log_in
from fairlead.auth.http import HttpContext
from fairlead.auth.redirect import BrowserRedirect, PastedRedirect
from fairlead.auth.tokens import Login, LoginRedirect, LoginTarget
from fairlead.errors import ListenFailed, LoginFailed
from tests.auth import clicking_browser
from tests.auth.authorization_server import authorization_server

PATIENCE = 60.0
LOGIN_PAGE = "https://as.example/authorize?response_type=code&client_id=c&state=right"


async def yes(url: str) -> bool:
    return True


async def broken(url: str) -> bool:
    raise OSError("no such program")


@asynccontextmanager
async def visiting(
    while_waiting: Callable[[BrowserRedirect], Awaitable[None]], **rest: Any
) -> AsyncGenerator[str]:
    """Visit the login page, do something while the visit lasts, and give what it came back with."""
    opened = anyio.Event()

    async def open_url(url: str) -> bool:
        opened.set()
        return True

    with anyio.fail_after(PATIENCE):
        async with BrowserRedirect.open("notes", agree=yes, open_url=open_url, **rest) as redirect:
            came_back: list[str] = []

            async def visit() -> None:
                came_back.append(await redirect.visit(LOGIN_PAGE))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visit)
                await opened.wait()
                await while_waiting(redirect)
            yield came_back[0]


async def get(url: str, **rest: Any) -> tuple[int, str, dict[str, str]]:
    async with aiohttp.ClientSession() as browser, browser.get(url, **rest) as answer:
        return answer.status, await answer.text(), dict(answer.headers)


async def test_the_browser_comes_back_and_its_answer_is_the_whole_url() -> None:
    async def come_back(redirect: BrowserRedirect) -> None:
        url = f"{redirect.redirect_uri}?code=a%2Fb&state=right&iss=https%3A%2F%2Fas.example"
        status, page, headers = await get(url)
        assert status == 200
        assert "You can close this window" in page
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
        assert headers["Cache-Control"] == "no-store"
        assert "a/b" not in page

    async with visiting(come_back) as url:
        assert URL(url).query == {"code": "a/b", "state": "right", "iss": "https://as.example"}
        assert url.startswith("http://127.0.0.1:")
        assert URL(url).path == "/callback"
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(url)


@pytest.mark.requirement("HARD-32")
async def test_nothing_but_the_answer_to_this_login_ends_the_wait() -> None:
    async def bother(redirect: BrowserRedirect) -> None:
        url, port = redirect.redirect_uri, redirect.port
        base = f"http://127.0.0.1:{port}"
        assert (await get(f"{url}?code=stolen&state=wrong"))[0] == 400
        assert (await get(f"{url}?code=stolen"))[0] == 400
        assert (await get(f"{url}?code=stolen&state="))[0] == 400
        assert (await get(f"{url}?code=stolen&state=wrong&state=right"))[0] == 400
        assert (await get(f"{url}?state=right"))[0] == 400
        assert (await get(url))[0] == 400
        assert (await get(f"{base}/favicon.ico"))[0] == 404
        assert (await get(f"{base}/callback/x?code=c&state=right"))[0] == 404
        good = f"{url}?code=stolen&state=right"
        assert (await get(good, headers={"Host": "evil.example"}))[0] == 421
        assert (await get(good, headers={"Host": f"evil.example:{port}"}))[0] == 421
        async with aiohttp.ClientSession() as browser:
            async with browser.post(good, data="x") as answer:
                assert answer.status == 405
            with pytest.raises(aiohttp.ClientError):
                await browser.get(good, headers={"X-Long": "x" * 100_000})
        for raw in (b"", b"nonsense", b"\r\n\r\n", b"GET\r\n\r\n", b"GET http://[/ HTTP/1.1\r\n\r\n"):
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                await stream.send(raw or b"G")
                await stream.send_eof()
        assert (await get(f"http://localhost:{port}/callback?code=good&state=right"))[0] == 200

    async with visiting(bother) as url:
        assert URL(url).query["code"] == "good"


@pytest.mark.requirement("HARD-32")
async def test_what_an_issuer_writes_is_text_on_the_page_and_nothing_else() -> None:
    async def come_back(redirect: BrowserRedirect) -> None:
        query = {
            "error": "access_denied",
            "error_description": "<script>alert(1)</script>" + "x" * 5000,
            "state": "right",
        }
        status, page, _ = await get(str(URL(redirect.redirect_uri).with_query(query)))
        assert status == 200
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert len(page) < 2000

    async with visiting(come_back) as url:
        assert URL(url).query["error"] == "access_denied"


async def test_who_says_no_sees_no_browser() -> None:
    async def no(url: str) -> bool:
        return False

    async def open_url(url: str) -> bool:
        raise AssertionError

    async with BrowserRedirect.open("notes", agree=no, open_url=open_url) as redirect:
        with pytest.raises(LoginFailed, match="was not opened"):
            await redirect.visit(LOGIN_PAGE)
        assert redirect.paste("code=c&state=right") == "nothing is waited for"


async def test_nobody_is_waited_for_for_ever() -> None:
    async with BrowserRedirect.open("notes", agree=yes, open_url=yes) as redirect:
        redirect.seconds = 0.01
        with pytest.raises(LoginFailed, match="was not completed"):
            await redirect.visit(LOGIN_PAGE)


async def test_a_browser_that_cannot_be_opened_is_no_reason_to_give_up() -> None:
    async with BrowserRedirect.open("notes", agree=yes, open_url=broken) as redirect:
        redirect.seconds = 0.01
        with pytest.raises(LoginFailed, match="was not completed"):
            await redirect.visit(LOGIN_PAGE)


async def test_a_login_page_that_sends_no_state_back_is_not_visited() -> None:
    async with BrowserRedirect.open("notes", agree=yes, open_url=yes) as redirect:
        with pytest.raises(ValueError, match="state"):
            await redirect.visit("https://as.example/authorize?client_id=c")


@pytest.mark.requirement("NEED-13")
async def test_a_port_can_be_chosen_if_nobody_has_it() -> None:
    async with BrowserRedirect.open("notes", agree=yes, open_url=yes) as first:
        with pytest.raises(ListenFailed) as caught:
            async with BrowserRedirect.open("notes", agree=yes, open_url=yes, port=first.port):
                pass
        assert "callback_port" in (caught.value.hint or "")
        port = first.port
    async with BrowserRedirect.open("notes", agree=yes, open_url=yes, port=port) as second:
        assert second.redirect_uri == f"http://127.0.0.1:{port}/callback"


@pytest.mark.requirement("NEED-14")
async def test_while_the_browser_is_waited_for_its_address_can_be_pasted() -> None:
    async def paste(redirect: BrowserRedirect) -> None:
        assert redirect.paste("hello") is not None
        assert "another login" in (redirect.paste(f"{redirect.redirect_uri}?code=c&state=wrong") or "")
        assert redirect.paste(f" {redirect.redirect_uri}?code=pasted&st\n  ate=right\n") is None
        assert redirect.paste(f"{redirect.redirect_uri}?code=second&state=right") is None

    async with visiting(paste) as url:
        assert URL(url).query == {"code": "pasted", "state": "right"}


@pytest.mark.requirement("NEED-14")
@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:33419/callback?code=a%2Fb&state=right",
        "  http://127.0.0.1:33419/callback?code=a%2Fb&state=right#_=_\n",
        "http://127.0.0.1:33419/callback?code=a%2\r\n   Fb&sta\nte=right",
        '"http://localhost:33419/callback?state=right&code=a/b"',
        "<http://127.0.0.1:33419/callback?code=a%2Fb&state=right>",
        "code=a%2Fb&state=right",
        "?code=a%2Fb&state=right",
    ],
)
async def test_a_pasted_address_completes_the_login(text: str) -> None:
    async def ask(url: str, problem: str | None) -> str | None:
        assert (url, problem) == (LOGIN_PAGE, None)
        return text

    redirect: LoginRedirect = PastedRedirect("notes", ask)
    url = URL(await redirect.visit(LOGIN_PAGE))
    assert url.query == {"code": "a/b", "state": "right"}
    assert str(url.with_query(None)) == redirect.redirect_uri == "http://127.0.0.1:33419/callback"


@pytest.mark.requirement("NEED-14", "HARD-32")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing was pasted"),
        (" \n ", "nothing was pasted"),
        (LOGIN_PAGE, "the address of the login page"),
        ("http://127.0.0.1:33419/callback", "no code in it"),
        ("SplxlOBeZQQYbYS6WxSbIA", "no code in it"),
        ("code=c", "has no `state`"),
        ("code=c&state=wrong", "another login"),
        ("code=c&state=wrong&state=right", "twice"),
        ("code=&state=right", "neither a code nor an error"),
        (f"code={'x' * 20_000}&state=right", "too long"),
        ("code=\udcff&state=right", "not text in UTF-8"),
        ("code=c&state=\udcff", "not text in UTF-8"),
    ],
)
async def test_what_is_not_the_answer_is_said_and_asked_for_again(text: str, reason: str) -> None:
    problems: list[str | None] = []

    async def ask(url: str, problem: str | None) -> str | None:
        problems.append(problem)
        return text if len(problems) == 1 else "code=c&state=right"

    url = await PastedRedirect("notes", ask, port=4000).visit(LOGIN_PAGE)
    assert URL(url).query["code"] == "c"
    assert reason in (problems[1] or "")


async def test_after_some_tries_or_when_nobody_wants_any_more_the_login_fails() -> None:
    async def nonsense(url: str, problem: str | None) -> str | None:
        return "nonsense"

    async def nothing(url: str, problem: str | None) -> str | None:
        return None

    with pytest.raises(LoginFailed, match="no code in it"):
        await PastedRedirect("notes", nonsense).visit(LOGIN_PAGE)
    with pytest.raises(LoginFailed, match="nothing was pasted"):
        await PastedRedirect("notes", nothing).visit(LOGIN_PAGE)


@pytest.mark.requirement("HARD-31")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://as.example/authorize?client_id=a&state=b%20c", True),
        ("http://127.0.0.1:8080/authorize", True),
        ("http://localhost/authorize", True),
        ("http://as.example/authorize", False),
        ("https://user@as.example/", False),
        ("https://as.example/$(touch x)", False),
        ("https://as.example/`id`", False),
        ("https://as.example/;id", False),
        ("https://as.example/a b", False),
        ("https://as.example/\n--flag", False),
        ("--version", False),
        ("-https://as.example/", False),
        ("file:///etc/passwd", False),
        ("javascript:alert", False),
        ("https:///nowhere", False),
        ("https://as.example:port/", False),
        ("https://[/", False),
        ("https://ás.example/", False),
    ],
)
async def test_only_plain_urls_that_lead_to_a_web_page_are_opened(
    url: str, expected: bool, tmp_path: Path
) -> None:
    assert is_openable(url) is expected
    browser = Browser(tmp_path)
    assert await open_in_browser(url, browser.env()) is expected
    assert browser.arguments() == ([url] if expected else [])


class Browser:
    """A program that writes down its arguments, and ends as it is told to."""

    def __init__(self, folder: Path, name: str = "browser", status: int = 0) -> None:
        self.folder, self.program, self.log = folder, folder / name, folder / f"{name}.log"
        self.program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{self.log}\nexit {status}\n')
        self.program.chmod(stat.S_IRWXU)

    def env(self, **rest: str) -> dict[str, str]:
        return {"PATH": f"{self.folder}{os.pathsep}/usr/bin{os.pathsep}/bin", "BROWSER": "browser", **rest}

    def arguments(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


async def test_a_browser_that_fails_is_followed_by_the_next(tmp_path: Path) -> None:
    Browser(tmp_path, "broken", status=1)
    browser = Browser(tmp_path)
    env = browser.env(BROWSER="missing:'unbalanced:broken:browser --new-tab %s --quiet")
    url = "https://as.example/a?b=c&d=e"
    assert await open_in_browser(url, env)
    assert browser.arguments() == ["--new-tab", url, "--quiet"]


async def test_a_browser_that_keeps_running_has_opened_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.auth.browser.START_SECONDS", 0.05)
    go, ended, program = tmp_path / "go", tmp_path / "ended", tmp_path / "slow"
    program.write_text(f"#!/bin/sh\nread line <{go}\necho ended >{ended}\n")
    program.chmod(stat.S_IRWXU)
    os.mkfifo(go)
    os.mkfifo(ended)
    assert await open_in_browser("https://as.example/", {"PATH": "/usr/bin:/bin", "BROWSER": str(program)})
    with anyio.fail_after(PATIENCE):
        await anyio.to_thread.run_sync(go.write_text, "go\n", abandon_on_cancel=True)
        assert await anyio.to_thread.run_sync(ended.read_text, abandon_on_cancel=True) == "ended\n"


async def test_without_a_screen_or_a_program_there_is_no_browser(tmp_path: Path) -> None:
    assert not await open_in_browser("https://as.example/", {"PATH": "/usr/bin:/bin"})
    assert not await open_in_browser("https://as.example/", {"PATH": str(tmp_path), "DISPLAY": ":0"})
    broken = tmp_path / "broken"
    broken.write_text("no program")
    broken.chmod(stat.S_IRWXU)
    assert not await open_in_browser("https://as.example/", {"PATH": str(tmp_path), "BROWSER": "broken"})


def test_each_system_has_its_own_way_to_a_browser(tmp_path: Path) -> None:
    for name in ("xdg-open", "gio", "wslview"):
        Browser(tmp_path, name)
    url, path = "https://as.example/", str(tmp_path)
    assert list(commands(url, {}, "darwin")) == [["/usr/bin/open", url]]
    assert list(commands(url, {"SSH_CONNECTION": "x"}, "darwin")) == []
    wayland = commands(url, {"PATH": path, "WAYLAND_DISPLAY": "wayland-0"}, "linux")
    assert list(wayland) == [[f"{path}/xdg-open", url], [f"{path}/gio", "open", url]]
    assert list(commands(url, {"PATH": path, "WSL_DISTRO_NAME": "x"}, "linux")) == [[f"{path}/wslview", url]]


@pytest.mark.slow
async def test_a_person_logs_in_in_a_real_browser() -> None:
    send, receive = anyio.create_memory_object_stream[str](1)
    logins: list[Login] = []

    async def open_url(url: str) -> bool:
        await send.send(url)
        return True

    async def log_in_to(url: str) -> None:
        async with BrowserRedirect.open("notes", agree=yes, open_url=open_url) as redirect:
            logins.append(await log_in(LoginTarget(server_id="notes", url=url), redirect, HttpContext()))

    with anyio.fail_after(PATIENCE), send, receive, authorization_server() as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log_in_to, server.mcp_url)
            browser = await anyio.run_process(clicking_browser.command(await receive.receive(), "ada"))
            assert b"You can close this window" in browser.stdout
        assert server.access_tokens[logins[0].token.access_token].account == "ada"
