import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest
from yarl import URL

from fairlead.auth.http import MAX_BYTES, HttpContext, OAuthHttp
from fairlead.errors import IssuerUnavailable, LoginFailed
from tests.auth.logging_in import Lookups
from tests.fixtures.plain_http import Exchange, read_request
from tests.servers import site

Serve = Callable[[Exchange], Awaitable[None]]


@asynccontextmanager
async def http_to(serve: Serve, *, web: HttpContext | None = None) -> AsyncGenerator[tuple[OAuthHttp, URL]]:
    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[str]) -> None:
        request = await read_request(reader)
        if request is not None:
            asked.append(request.path)
            await serve(Exchange(request, reader, writer))
        writer.close()

    asked: list[str] = []
    server = await asyncio.start_server(partial(converse, asked=asked), "127.0.0.1", 0)
    url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/start")
    try:
        with anyio.fail_after(30):
            yield await (web or HttpContext(seconds=5)).client_for("notes", str(url)), url
    finally:
        server.close()


@pytest.mark.requirement("HARD-30")
async def test_an_answer_of_any_size_is_cut_off() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.head(200, {"Content-Type": "application/json"})
        for _ in range(MAX_BYTES // 65536 + 2):
            await exchange.send(b" " * 65536)

    async with http_to(endless) as (http, url):
        answer = await http.get(url)
        assert (answer.body, answer.fault) == (b"", f"sends more than {MAX_BYTES} bytes")
        assert answer.read(dict[str, int]) is None
        with pytest.raises(LoginFailed, match="more than"):
            await http.post(url, form={"a": "b"})


@pytest.mark.requirement("HARD-30")
async def test_an_answer_that_drips_is_given_up() -> None:
    async def dripping(exchange: Exchange) -> None:
        await exchange.head(200, {"Content-Type": "application/json", "Content-Length": "1000"})
        await exchange.send(b"{")
        await exchange.hung_up()

    async with http_to(dripping, web=HttpContext(seconds=0.3)) as (http, url):
        with pytest.raises(IssuerUnavailable, match="in time"):
            await http.get(url)


async def test_redirects_are_followed_within_the_site_and_not_beyond() -> None:
    async def serve(exchange: Exchange) -> None:
        to = {"/start": "/next", "/next": "/end", "/away": "https://evil.test/", "/round": "/round"}
        if exchange.request.path in to:
            await exchange.reply(status=302, headers={"Location": to[exchange.request.path]})
        else:
            await exchange.reply(b'{"a": 1}')

    async with http_to(serve) as (http, url):
        answer = await http.get(url)
        assert (answer.status, answer.url.path, answer.read(dict[str, int])) == (200, "/end", {"a": 1})
        away, around = await http.get(url.with_path("/away")), await http.get(url.with_path("/round"))
        assert (away.status, away.fault) == (302, "redirects to another site; not followed")
        assert (around.status, around.fault) == (302, "redirects too often")
        assert (await http.post(url, form={"a": "b"})).status == 302


@pytest.mark.parametrize(
    ("content", "body", "expected"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/problem+json; charset=utf-8", b'{"a": 1}', {"a": 1}),
        ("text/html", b'{"a": 1}', None),
        ("application/json", b"<html>", None),
        ("application/json", b'{"a": "\xff"}', None),
        ("application/json", b"[" * 500_000, None),
        ("application/json", b'{"a": "text"}', None),
    ],
)
async def test_only_json_of_the_right_shape_is_read(
    content: str, body: bytes, expected: dict[str, int] | None
) -> None:
    async def serve(exchange: Exchange) -> None:
        await exchange.reply(body, content=content)

    async with http_to(serve) as (http, url):
        assert (await http.get(url)).read(dict[str, int]) == expected


async def test_a_server_that_breaks_off_or_speaks_no_http_is_unavailable() -> None:
    async def serve(exchange: Exchange) -> None:
        await exchange.send(b"\x00\x01garbage\r\n\r\n")
        exchange.drop()

    async with http_to(serve) as (http, url):
        with pytest.raises(IssuerUnavailable, match="as it should"):
            await http.get(url)


async def test_a_name_that_cannot_be_looked_up_is_unavailable() -> None:
    http = await HttpContext(resolver=Lookups, seconds=5).client_for("notes", "https://mcp.test/")
    with pytest.raises(IssuerUnavailable, match=r"https://as\.test/ cannot be reached: unknown host"):
        await http.get(URL("https://as.test/"))


async def test_a_proxy_is_used_where_the_environment_names_one() -> None:
    asked: list[str] = []

    async def serve(exchange: Exchange) -> None:
        asked.append(exchange.request.path)
        await exchange.reply(b"{}")

    async with http_to(serve) as (_, proxy):
        web = HttpContext(environment={"HTTP_PROXY": str(proxy.origin())}, resolver=Lookups, seconds=5)
        http = await web.client_for("notes", "http://mcp.test/mcp")
        assert (await http.get(URL("http://mcp.test/meta"))).status == 200
        with pytest.raises(LoginFailed, match=r"169\.254\.169\.254 is a link-local address"):
            await http.get(URL("http://169.254.169.254/latest"))
    assert asked == ["http://mcp.test/meta"]


async def test_only_who_has_a_good_certificate_is_believed() -> None:
    async with site.serving(address="127.0.0.1") as served:
        url = f"https://docs.test:{served.port}/page"
        found = Lookups(docs_test="127.0.0.1")
        good = HttpContext(resolver=lambda: found, tls=site.client_tls, seconds=5)
        http = await good.client_for("notes", url)
        assert (await http.get(http.own)).status == 404
        strict = HttpContext(resolver=lambda: found, seconds=5)
        with pytest.raises(IssuerUnavailable, match="certificate"):
            await (await strict.client_for("notes", url)).get(http.own)


@pytest.mark.requirement("HARD-10")
async def test_what_a_query_holds_is_in_no_message() -> None:
    http = await HttpContext(resolver=Lookups, seconds=5).client_for("notes", "https://mcp.test/?key=s3cret")
    with pytest.raises(IssuerUnavailable) as unreachable:
        await http.get(URL("https://as.test/token?key=s3cret"))
    with pytest.raises(LoginFailed) as refused:
        http.require_url("https://me:s3cret@as.test/", "`oauth.token_url`")
    assert "s3cret" not in f"{unreachable.value} {refused.value}"


async def test_what_is_no_url_is_nothing_to_log_in_to() -> None:
    with pytest.raises(LoginFailed, match="cannot be used for a login"):
        await HttpContext().client_for("notes", "stdio:nonsense")
