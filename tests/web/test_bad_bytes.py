"""Bytes that are no text, at every route: the answer is a 400 where they matter, and never a traceback."""

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote_from_bytes

import aiohttp
import anyio
import pytest
from yarl import URL

from fairlead.auth.redirect import BrowserRedirect
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.gateway.access.test_rate_limit import BAD_BODIES
from tests.gateway.access.test_scopes import AGENT, PERSON, Up, guarded_gateway
from tests.gateway.support import Raw
from tests.web.support import Client

pytestmark = pytest.mark.requirement("HARD-71")

BAD_TEXTS = {
    "invalid UTF-8": b"a\xff\xfe",
    "half a character": b"\xc3",
    "an overlong form": b"\xc0\xaf",
    "an encoded surrogate": b"\xed\xa0\x80",
    "beyond Unicode": b"\xf5\x80\x80\x80",
    "NUL": b"a\x00b",
    "only NUL": b"\x00",
    "a line break": b"a\r\nX-Injected: 1",
    "an escape": b"\x1b[31m",
}
ODD_TEXTS = ["\x00", "a\x00b", "\x1b[2J", "\u202e", "\U0010ffff", "\ufffe", "..", "/", "\r\n", "x" * 5_000]
"""What JSON can say and no id of ours can be."""

PAGES = (
    "/servers/{}",
    "/servers/{}/review",
    "/tools?q={}",
    "/tools?server={}",
    "/calls?server={}",
    "/calls?before={}",
    "/calls?{}={}",
    "/login?code={}",
    "/connect/{}",
    "/~{}/",
    "/~{}/approvals",
    "/static/{}",
    "/api/{}",
    "/mcp/{}",
    "/messages?session_id={}",
    "/{}",
)


@pytest.fixture(autouse=True)
def no_traceback(caplog: pytest.LogCaptureFixture) -> AsyncGenerator[None] | object:
    caplog.set_level(logging.DEBUG)
    yield
    failures = [record.getMessage() for record in caplog.records if record.exc_info]
    assert not failures
    assert "Traceback" not in caplog.text


@asynccontextmanager
async def served(machine: Machine, folder: Path) -> AsyncGenerator[Up]:
    server = ScriptedServer(folder / "script", tools=["echo"])
    config = {"servers": {"x": {**server.entry(), "trust": "trusted"}}}
    async with guarded_gateway(machine, folder, config) as up:
        yield up


async def send_raw(up: Up, request: bytes) -> bytes:
    """Send a request that no client library would, and return what comes back until it is closed."""
    answer = b""
    with anyio.fail_after(20):
        async with await anyio.connect_tcp("127.0.0.1", URL(up.url).port or 0) as stream:
            await stream.send(request)
            try:
                async for chunk in stream:
                    answer += chunk
            except anyio.BrokenResourceError:
                return answer
    return answer


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@pytest.mark.parametrize("path", ["/api/approvals", "/api/control", "/api/control/answers"])
async def test_what_is_no_json_in_utf_8_is_a_400_of_the_control_api(
    machine: Machine, tmp_path: Path, path: str
) -> None:
    async with served(machine, tmp_path) as up:
        for name, body in BAD_BODIES.items():
            assert await up.ask(path, PERSON, "POST", data=body) == 400, name


async def test_json_texts_that_name_nothing_are_answered_in_words(machine: Machine, tmp_path: Path) -> None:
    async with served(machine, tmp_path) as up:
        for text in ODD_TEXTS:
            works: list[Mapping[str, object]] = [
                {"type": "call", "server": text, "tool": "echo", "arguments": {}, "reviewed": True},
                {"type": "call", "server": "x", "tool": text, "arguments": {}, "reviewed": True},
                {"type": "call", "server": "x", "tool": "echo", "arguments": {text: text}, "reviewed": True},
                {"type": "tools", "server": text},
                {"type": "allow", "server": text, "tool": text},
                {"type": "servers", "servers": [text]},
            ]
            for work in works:
                body = json.dumps({"work": work, "config": text}).encode()
                assert await up.ask("/api/control", PERSON, "POST", data=body) in (200, 400), work
            answer = json.dumps({"id": text, "answer": text}).encode()
            assert await up.ask("/api/approvals", PERSON, "POST", data=answer) == 400
            word = json.dumps({"id": text, "answer": "no"}).encode()
            assert await up.ask("/api/approvals", PERSON, "POST", data=word) == 200


async def test_addresses_with_bytes_that_are_no_text_are_refused_or_name_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    async with served(machine, tmp_path) as up:
        for name, text in BAD_TEXTS.items():
            for page in PAGES:
                path = page.replace("{}", quote_from_bytes(text, safe=""))
                for token in (None, PERSON, AGENT):
                    url = URL(up.url + path, encoded=True)
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    with anyio.fail_after(20):
                        async with up.http.get(url, headers=headers, allow_redirects=False) as response:
                            is_refused = name != "a line break" and name != "an escape"
                            if is_refused or "?" not in page:
                                assert response.status == 400, (name, page)
                            assert response.status < 500, (name, page)
                            assert "X-Injected" not in response.headers


async def test_raw_bytes_in_request_lines_and_headers_are_refused(machine: Machine, tmp_path: Path) -> None:
    async with served(machine, tmp_path) as up:
        host = f"127.0.0.1:{URL(up.url).port}".encode()
        for name, text in BAD_TEXTS.items():
            for line, header in (
                (b"GET /servers/" + text + b" HTTP/1.1", b""),
                (b"GET /tools?q=" + text + b" HTTP/1.1", b""),
                (b"GET / HTTP/1.1", b"Authorization: Bearer " + text + b"\r\n"),
                (b"GET / HTTP/1.1", b"Cookie: fairlead_session_1=" + text + b"\r\n"),
                (b"GET /login HTTP/1.1", b"Origin: " + text + b"\r\n"),
                (b"GET /mcp HTTP/1.1", b"Mcp-Session-Id: " + text + b"\r\n"),
                (b"GET /mcp HTTP/1.1", b"Mcp-Protocol-Version: " + text + b"\r\n"),
                (b"POST /login HTTP/1.1", b"Content-Length: 0\r\nContent-Type: " + text + b"\r\n"),
            ):
                request = line + b"\r\nHost: " + host + b"\r\nConnection: close\r\n" + header + b"\r\n"
                status = status_of(await send_raw(up, request))
                assert status < 500, (name, line, header, status)


async def test_forms_of_the_dashboard_with_bytes_that_are_no_text_are_refused(
    machine: Machine, tmp_path: Path
) -> None:
    async with served(machine, tmp_path) as up:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as session:
            client = Client(session, up.url)
            assert (await client.log_in(PERSON)).status == 303
            token = (await client.get("/servers/x")).form_token
            headers = {"Origin": up.url, "Content-Type": "application/x-www-form-urlencoded"}
            for name, text in BAD_TEXTS.items():
                is_text = name in ("a line break", "an escape")
                for path, field in (
                    ("/servers/x", "do"),
                    ("/servers/x/review", "do"),
                    ("/servers/x/review", "tool"),
                    ("/approvals", "id"),
                    ("/approvals", "answer"),
                    ("/login", "secret"),
                    ("/connect/code", "address"),
                    ("/logout", "next"),
                ):
                    if path == "/logout" and is_text:
                        continue  # which it does
                    for value in (quote_from_bytes(text).encode(), text):
                        body = b"form_token=%b&%b=%b" % (token.encode(), field.encode(), value)
                        with anyio.fail_after(20):
                            async with session.post(
                                client.at(path), data=body, headers=headers, allow_redirects=False
                            ) as response:
                                expected = (400, 403, 404, 409, 303, 200) if is_text else (400,)
                                assert response.status in expected, (name, path, field, response.status)


async def test_a_login_callback_with_bytes_that_are_no_text_has_no_effect() -> None:
    opened = anyio.Event()

    async def agree(url: str) -> bool:
        return True

    async def open_url(url: str) -> bool:
        opened.set()
        return True

    with anyio.fail_after(60):
        async with BrowserRedirect.open("x", agree=agree, open_url=open_url) as redirect:
            came_back: list[str] = []

            async def visit() -> None:
                came_back.append(await redirect.visit("https://as.example/authorize?state=right"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visit)
                await opened.wait()
                host = f"127.0.0.1:{redirect.port}".encode()
                for name, text in BAD_TEXTS.items():
                    for value in (quote_from_bytes(text, safe="").encode(), text):
                        for query in (
                            b"code=c&state=" + value,
                            value + b"=c&state=right",
                            b"error=" + value + b"&state=wrong",
                            b"code=" + value + b"&state=right&state=" + value,
                        ):
                            answer = await callback(redirect.port, query, host)
                            assert status_of(answer) in (400, 421), (name, query, answer[:100])
                            assert b"X-Injected: 1\r\n" not in answer
                            assert redirect.paste(
                                f"http://{host.decode()}/callback?{query.decode('latin-1')}"
                            )
                    assert redirect.paste(text.decode("utf-8", "surrogateescape"))
                assert status_of(await callback(redirect.port, b"code=c&state=right", host)) == 200
            assert came_back[0].endswith("?code=c&state=right")


async def callback(port: int, query: bytes, host: bytes) -> bytes:
    answer = b""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"GET /callback?" + query + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        try:
            async for chunk in stream:
                answer += chunk
        except anyio.BrokenResourceError:
            return answer
    return answer


async def test_artifacts_named_by_what_is_no_text_do_not_exist(machine: Machine, tmp_path: Path) -> None:
    async with served(machine, tmp_path) as up:
        client = Raw(up.http, f"{up.url}/mcp", AGENT)
        for text in (*ODD_TEXTS, "../../etc/passwd", "%00", "%ff", "\ud7ff"):
            answers = [
                await client.modern("resources/read", uri=f"artifact://{text}"),
                await client.modern("resources/read", uri=text),
                await client.modern("tools/call", name="mcp_read_artifact", arguments={"handle": text}),
                await client.modern(
                    "tools/call", name="mcp_read_artifact", arguments={"handle": f"artifact://{text}"}
                ),
            ]
            for answer in answers:
                assert "error" in answer or answer["result"]["isError"], (text, answer)
        for name, body in BAD_BODIES.items():
            status = await up.ask("/mcp", AGENT, "POST", data=body)
            assert status in (400, 406), name
