"""docs.fetch against hostile URLs and hostile websites."""

import json
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from fairlead.errors import ToolFailed
from fairlead.net.ssrf import public_or_loopback
from fairlead.servers.docs.allowlist import AllowList, parse_url
from fairlead.servers.docs.pages import MAX_INPUT
from tests.fixtures.hostile_http import GZIP, MEBIBYTE, bomb
from tests.fixtures.plain_http import Exchange
from tests.servers.site import PRIVATE, PUBLIC, Lookups, fetch, serving, web

DATA = Path(__file__).parents[2] / "data"
URL_CASES = json.loads((DATA / "ssrf_url_cases.json").read_text(encoding="utf-8"))
DYNAMIC_CASES = json.loads((DATA / "docs_fetch_dynamic_cases.json").read_text(encoding="utf-8"))
SECONDS = 30


@pytest.mark.requirement("HARD-58", "HARD-59")
@pytest.mark.parametrize("case", URL_CASES, ids=lambda case: case["why"][:40])
async def test_hostile_urls_are_not_visited(case: dict[str, str]) -> None:
    lookups = Lookups()
    way = web(lookups)
    if case["expect"] == "allow":
        AllowList(case["allowlist"]).check(parse_url(case["url"]))
        return
    async with serving() as site:
        with pytest.raises(ToolFailed):
            await fetch(site, case["url"], way=way, allow=[*case["allowlist"]])
    assert lookups.asked == []


@pytest.mark.requirement("HARD-59")
@pytest.mark.parametrize("case", URL_CASES, ids=lambda case: case["why"][:40])
async def test_hostile_urls_are_not_followed_either(case: dict[str, str]) -> None:
    if case["expect"] == "allow" or case["url"].startswith("//") or "\n" in case["url"]:
        return  # Fine in a redirect, or cannot be in one.
    lookups = Lookups()
    async with serving() as site:
        site.redirect("/", case["url"])
        with pytest.raises(ToolFailed, match="redirects to"):
            await fetch(
                site, site.url(), way=web(lookups), allow=[*case["allowlist"], f"docs.test:{site.port}"]
            )
    assert lookups.asked == ["docs.test"]


@pytest.mark.requirement("HARD-58")
async def test_the_url_that_was_matched_is_the_one_that_is_sent() -> None:
    text = "https://docs.test\\@evil.test/"
    with pytest.raises(ValueError, match="backslash"):
        parse_url(text)
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            lookups = Lookups()
            site.page("/a%2Fb?q=%C3%A9", "fine")
            reply = await fetch(site, site.url("/a%2fb?q=\u00e9#top"), way=web(lookups))
    assert reply.output.text == "fine"
    assert (lookups.asked, site.names) == (["docs.test"], ["docs.test"])
    assert site.requests[0].headers["host"] == f"docs.test:{site.port}"


DynamicTest = Callable[[], Awaitable[None]]
DYNAMIC: dict[str, DynamicTest] = {}


def dynamic(test: DynamicTest) -> DynamicTest:
    """One of the cases in the file, by name."""
    DYNAMIC[test.__name__] = test
    return test


@pytest.mark.requirement("HARD-59", "HARD-60")
@pytest.mark.parametrize("case", DYNAMIC_CASES, ids=lambda case: case["name"])
async def test_hostile_sites_get_nowhere(case: dict[str, str]) -> None:
    with anyio.fail_after(SECONDS):
        await DYNAMIC[case["name"]]()


@dynamic
async def redirect_to_internal() -> None:
    async with serving() as site, serving(tls=False) as internal:
        for target in ("http://169.254.169.254/", f"http://{PUBLIC}:{internal.port}/", "https://10.0.0.1/"):
            site.redirect("/", target)
            with pytest.raises(ToolFailed, match="redirects to") as caught:
                await fetch(site, site.url())
            assert target in str(caught.value)
        assert internal.connections == 0


@dynamic
async def redirect_to_nonlisted() -> None:
    async with serving() as site, serving() as evil:
        site.redirect("/", evil.url(host="evil.test"))
        lookups = Lookups(**{"evil.test": [[PUBLIC]]})
        with pytest.raises(ToolFailed, match=r"evil\.test") as caught:
            await fetch(site, site.url(), way=web(lookups))
        assert f"fairlead docs allow evil.test:{evil.port}" in (caught.value.hint or "")
        assert (evil.connections, lookups.asked) == (0, ["docs.test"])


@dynamic
async def redirect_https_to_http() -> None:
    async with serving() as site:
        site.redirect("/", f"http://docs.test:{site.port}/plain")
        with pytest.raises(ToolFailed, match="not https"):
            await fetch(site, site.url())
        assert site.paths == ["/"]


@dynamic
async def dns_private() -> None:
    async with serving() as site:
        with pytest.raises(ToolFailed, match=rf"docs\.test is at {PUBLIC}, a loopback address"):
            await fetch(site, site.url(), way=web(vet=public_or_loopback))
        assert site.connections == 0


@dynamic
async def dns_mixed() -> None:
    async with serving() as site, serving(address=PRIVATE, port=site.port) as private:
        site.page("/", "public")
        lookups = Lookups(**{"docs.test": [[PRIVATE, PUBLIC, PRIVATE]]})
        reply = await fetch(site, site.url(), way=web(lookups))
        assert reply.output.text == "public"
        assert private.connections == 0


@dynamic
async def dns_rebind() -> None:
    async with serving() as site, serving(address=PRIVATE, port=site.port) as private:
        site.page("/", "public")
        lookups = Lookups(**{"docs.test": [[PUBLIC], [PRIVATE]]})
        reply = await fetch(site, site.url(), way=web(lookups))
        assert reply.output.text == "public"
        assert (lookups.asked, private.connections) == (["docs.test"], 0)
        assert site.names == ["docs.test"]
        assert site.requests[0].headers["host"] == f"docs.test:{site.port}"


@dynamic
async def proxy_env() -> None:
    async with serving() as site, serving(tls=False) as proxy:
        site.page("/", "direct")
        with pytest.MonkeyPatch.context() as patch:
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                patch.setenv(name, f"http://{PUBLIC}:{proxy.port}")
            patch.setenv("NO_PROXY", "")
            reply = await fetch(site, site.url())
        assert reply.output.text == "direct"
        assert proxy.connections == 0


@dynamic
async def double_gzip() -> None:
    async with serving() as site:
        for encoding in ("gzip, gzip, br", "br", "x-gzip", "zstd", "gzip,deflate"):
            site.page("/", zlib.compress(b"x"), Content_Encoding=encoding)
            with pytest.raises(ToolFailed, match=r"packed as|content-encoding"):
                await fetch(site, site.url())


async def pour(exchange: Exchange) -> None:
    await exchange.head(200, {"Content-Type": "text/plain", "Transfer-Encoding": "chunked"})
    while True:
        await exchange.chunk(b"x" * 64 * 1024)
        await anyio.lowlevel.checkpoint()  # To a TLS connection that is gone, writing never waits by itself.


@dynamic
async def endless_chunked() -> None:
    async with serving() as site:
        site.pages["/"] = pour
        reply = await fetch(site, site.url())
        assert (len(reply.output.text), reply.output.truncated) == (200_000, True)
        end = await fetch(site, site.url(), start=MAX_INPUT)
        assert (end.output.text, end.output.truncated, end.output.next_start) == ("", True, None)
        assert "longer" in (end.output.note or "")
        await site.left.wait()


@dynamic
async def slowloris() -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.head(200, {"Content-Type": "text/plain", "Content-Length": "1000"})
        while True:
            await exchange.send(b"x")
            await anyio.sleep(0.05)

    async with serving() as site:
        site.pages["/"] = drip
        with pytest.raises(ToolFailed, match=r"took longer than 0\.4 seconds"):
            await fetch(site, site.url(), deadline_seconds=0.4)
        await site.left.wait()


@dynamic
async def binary() -> None:
    async with serving() as site:
        site.page("/", b"\x89PNG" + bytes(1000), "image/png")
        reply = await fetch(site, site.url())
        assert (reply.output.text, reply.output.content_type) == ("", "image/png")
        assert reply.output.note == "image/png holds no text"
        assert "image/png holds no text" in getattr(reply.content[0], "text", "")


@pytest.mark.requirement("HARD-60")
async def test_a_bomb_is_cut_before_it_has_grown() -> None:
    packed = bomb(GZIP, b"boom", 400)
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/", packed, Content_Encoding="gzip")
            tracemalloc.start()
            try:
                reply = await fetch(site, site.url(), max_bytes=100)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert reply.output.truncated
    assert reply.output.text.startswith("boom")
    assert peak < 40 * len(MEBIBYTE)


@pytest.mark.requirement("HARD-60")
async def test_headers_that_never_end_are_not_waited_for() -> None:
    async def stall(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nX: ")
        await exchange.hung_up()

    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.pages["/"] = stall
            with pytest.raises(ToolFailed, match="took longer"):
                await fetch(site, site.url(), deadline_seconds=0.3)
