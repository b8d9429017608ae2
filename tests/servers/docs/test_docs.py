"""docs.fetch against real websites on loopback."""

import time
from pathlib import Path

import anyio
import pytest
from pydantic import ValidationError

from fairlead.errors import ToolFailed
from fairlead.net.ssrf import Address, public_or_loopback
from fairlead.servers.docs.docs import MAX_REDIRECTS, FetchInput, docs_tool
from fairlead.servers.docs.fetch import USER_AGENT, FetchContext
from tests.fixtures.plain_http import Exchange
from tests.servers.site import PRIVATE, PUBLIC, Lookups, Site, fetch, serving, web

SECONDS = 30
PAGE = "<title>Loops</title><main><h1>The loop</h1><p>See <a href='tasks.html'>tasks</a>.</p></main>"


async def test_a_page_is_read_as_markdown_under_a_line_that_says_what_it_is() -> None:
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/guide/loops.html", PAGE, "text/html; charset=utf-8")
            reply = await fetch(site, site.url("/guide/loops.html#here"))
    text = f"# The loop\n\nSee [tasks]({site.url('/guide/tasks.html')})."
    assert reply.output.model_dump(by_alias=True, exclude_none=True) == {
        "url": site.url("/guide/loops.html"),
        "status": 200,
        "contentType": "text/html; charset=utf-8",
        "title": "Loops",
        "text": text,
        "truncated": False,
    }
    (block,) = reply.content
    assert block.type == "text"
    assert block.text == f"Loops <{site.url('/guide/loops.html')}> (200 text/html)\n\n{text}"


@pytest.mark.parametrize(
    ("content", "body"),
    [
        ("application/json", '{"a": [1, 2]}'),
        ("text/markdown", "# As it is\n\n*really*"),
        ("text/plain; charset=latin-1", "caf\u00e9"),
    ],
)
async def test_what_is_text_already_is_left_as_it_is(content: str, body: str) -> None:
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/x", body.encode("latin-1"), content)
            reply = await fetch(site, site.url("/x"))
    assert (reply.output.text, reply.output.truncated) == (body, False)


async def test_a_long_text_comes_in_parts_that_fit_and_lose_nothing() -> None:
    body = "".join(f"line {number} \N{EURO SIGN}\n" for number in range(300))
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/x", body, "text/plain; charset=utf-8")
            start, parts = 0, list[str]()
            while start is not None:
                reply = await fetch(site, site.url("/x"), max_bytes=1000, start=start)
                assert len(reply.output.text.encode()) <= 1000
                assert reply.output.truncated == (reply.output.next_start is not None)
                parts.append(reply.output.text)
                start = reply.output.next_start
            assert "".join(parts) == body
            with pytest.raises(ToolFailed, match=f"has {len(body)} characters"):
                await fetch(site, site.url("/x"), start=len(body) + 1)
            tiny = await fetch(site, site.url("/x"), max_bytes=1, start=body.index("\N{EURO SIGN}"))
            assert tiny.output.text == "\N{EURO SIGN}"


@pytest.mark.parametrize(
    "asked", [{"maxBytes": 0}, {"maxBytes": 2_000_001}, {"start": -1}, {"url": "x" * 5000}]
)
def test_what_makes_no_sense_is_not_asked_for(asked: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FetchInput.model_validate({"url": "https://docs.test/", **asked})


async def test_an_error_page_is_told_by_its_status_and_kept_short() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.reply(b"sorry " * 10_000, status=503, content="text/plain")

    with anyio.fail_after(SECONDS):
        async with serving() as site:
            missing = await fetch(site, site.url("/nothing"))
            site.pages["/down"] = answer
            down = await fetch(site, site.url("/down"))
    assert (missing.output.status, missing.output.text) == (404, "# Not here")
    assert (down.output.status, len(down.output.text), down.output.truncated) == (503, 2000, True)


async def test_nothing_is_allowed_until_the_user_allows_it() -> None:
    async with serving() as site:
        with pytest.raises(ToolFailed, match="no site may be read yet") as caught:
            await fetch(site, site.url(), allow=[])
        assert f"fairlead docs allow docs.test:{site.port}" in (caught.value.hint or "")
        with pytest.raises(ToolFailed, match=r"not among what may be read: python\.org") as caught:
            await fetch(site, site.url(), allow=["python.org"])
        assert "fairlead docs allow docs.test" in (caught.value.hint or "")
    assert site.connections == 0


async def test_an_entry_that_makes_no_sense_is_named_and_allows_nothing() -> None:
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            with pytest.raises(ToolFailed, match=r"`http://a\.test`"):
                await fetch(site, site.url(), allow=["docs.test", "http://a.test"])
    assert site.connections == 0


@pytest.mark.requirement("HARD-59")
async def test_redirects_within_what_is_allowed_are_followed_without_cookies() -> None:
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.redirect("/old", "/older/../new")
            site.redirect("/new", site.url("/there", host="other.test"))
            site.page("/there", "found")
            lookups = Lookups()
            allow = [f"docs.test:{site.port}", f"other.test:{site.port}"]
            reply = await fetch(site, site.url("/old"), way=web(lookups), allow=allow)
    assert (reply.output.url, reply.output.text) == (site.url("/there", host="other.test"), "found")
    assert site.paths == ["/old", "/new", "/there"]
    assert not any("cookie" in request.headers for request in site.requests)


async def test_a_circle_of_redirects_ends() -> None:
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.redirect("/", "/")
            with pytest.raises(ToolFailed, match=f"more than {MAX_REDIRECTS} redirects"):
                await fetch(site, site.url())
    assert len(site.requests) == MAX_REDIRECTS + 1


@pytest.mark.requirement("HARD-59")
async def test_a_redirect_to_an_allowed_name_at_a_private_address_is_not_followed() -> None:
    with anyio.fail_after(SECONDS):
        async with serving() as site, serving(address=PRIVATE, port=site.port) as private:
            site.redirect("/", site.url("/secret", host="other.test"))
            lookups = Lookups(**{"other.test": [[PRIVATE]]})
            allow = [f"docs.test:{site.port}", f"other.test:{site.port}"]
            with pytest.raises(ToolFailed, match=rf"other\.test is at {PRIVATE}"):
                await fetch(site, site.url(), way=web(lookups), allow=allow)
    assert private.connections == 0


@pytest.mark.requirement("HARD-59")
async def test_no_credential_of_the_user_is_sent_and_the_reader_says_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine docs.test login me password secret\ndefault login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/", "fine")
            await fetch(site, site.url())
    headers = site.requests[0].headers
    assert headers["user-agent"] == USER_AGENT
    assert headers.keys() == {"host", "user-agent", "accept", "accept-encoding"}


async def test_this_machine_is_read_where_the_user_named_it_and_only_under_its_name() -> None:
    way = web(Lookups(localhost=[[PUBLIC]]), vet=public_or_loopback)
    with anyio.fail_after(SECONDS):
        async with serving(tls=False) as site:
            site.page("/", "mine")
            for host in ("localhost", PUBLIC):
                url = f"http://{host}:{site.port}/"
                allow = [f"{host}:{site.port}"]
                assert (await fetch(site, url, way=way, allow=allow)).output.text == "mine"
                with pytest.raises(ToolFailed):
                    await fetch(site, url, way=way, allow=["docs.test", "localhost", PUBLIC])
        async with serving() as site:
            site.page("/", "mine")
            allow = [f"localhost:{site.port}", f"docs.test:{site.port}"]
            assert (await fetch(site, site.url(host="localhost"), way=way, allow=allow)).output.text == "mine"
            with pytest.raises(ToolFailed, match="a loopback address"):
                await fetch(site, site.url(), way=way, allow=allow)


async def test_with_nothing_made_up_this_machine_can_be_read() -> None:
    with anyio.fail_after(SECONDS):
        async with serving(tls=False) as site:
            site.page("/", "mine")
            for host in ("localhost", PUBLIC):
                url = f"http://{host}:{site.port}/"
                reply = await fetch(site, url, way=FetchContext(), allow=[f"{host}:{site.port}"])
                assert reply.output.text == "mine"


async def test_a_name_for_this_machine_leads_nowhere_else() -> None:
    way = web(Lookups(localhost=[["93.184.216.34"]]), vet=public_or_loopback)
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            with pytest.raises(ToolFailed, match="not this machine"):
                await fetch(site, site.url(host="localhost"), way=way, allow=[f"localhost:{site.port}"])


async def test_a_literal_address_is_vetted_too() -> None:
    def vet(host: str, address: Address) -> str:
        return f"vetted as {host}"

    way = web(vet=vet)
    with anyio.fail_after(SECONDS):
        async with serving(tls=False) as site:
            url = f"http://{PUBLIC}:{site.port}/"
            with pytest.raises(ToolFailed, match=f"{PUBLIC} is vetted as {PUBLIC}"):
                await fetch(site, url, way=way, allow=[f"{PUBLIC}:{site.port}"])
    assert site.connections == 0


async def test_every_trouble_is_told_in_words() -> None:
    async def hang_up(exchange: Exchange) -> None:
        exchange.drop()

    async def break_off(exchange: Exchange) -> None:
        await exchange.head(200, {"Content-Type": "text/plain", "Content-Length": "100"})
        await exchange.send(b"x")
        exchange.drop()

    async def babble(exchange: Exchange) -> None:
        await exchange.send(b"SSH-2.0-hello\r\n\r\n")

    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.pages |= {"/hang": hang_up, "/break": break_off, "/babble": babble}
            site.page("/torn", b"no gzip", Content_Encoding="gzip")
            allow = [f"{host}:{site.port}" for host in ("docs.test", "lost.test", "wrong.test")]
            way = web(Lookups(**{"wrong.test": [[PUBLIC]]}))
            for url, words in {
                site.url("/hang"): "hung up",
                site.url("/break"): "broke off|hung up",
                site.url("/babble"): "does not speak HTTP",
                site.url("/torn"): "packed wrongly",
                site.url(host="lost.test"): "host name cannot be looked up",
                site.url(host="wrong.test"): "certificate is not to be trusted",
            }.items():
                with pytest.raises(ToolFailed, match=words):
                    await fetch(site, url, way=way, allow=allow)
        with pytest.raises(ToolFailed, match=r"(?i)refused|connect"):
            await fetch(site, site.url())


def cached(site: Site, path: str = "/") -> int:
    return site.paths.count(path)


async def test_a_fresh_page_is_not_asked_for_again(tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/", PAGE, "text/html", Cache_Control="max-age=600")
            first = await fetch(site, site.url(), cache=tmp_path / "pages")
            second = await fetch(site, site.url(), cache=tmp_path / "pages")
            assert first == second
            assert cached(site) == 1
            with pytest.raises(ToolFailed):
                await fetch(site, site.url(), cache=tmp_path / "pages", allow=["elsewhere.test"])


async def test_an_unchanged_page_is_not_sent_again(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.request.headers.get("if-none-match") == '"1"':
            assert exchange.request.headers["if-modified-since"] == "Mon, 01 Jan 2024 00:00:00 GMT"
            await exchange.reply(status=304)
        else:
            headers = {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
            await exchange.reply(b"once", content="text/plain", headers=headers)

    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.pages["/"] = answer
            replies = [await fetch(site, site.url(), cache=tmp_path / "pages") for _ in range(3)]
    assert [reply.output.text for reply in replies] == ["once"] * 3
    assert [reply.output.status for reply in replies] == [200] * 3
    assert cached(site) == 3


async def test_who_reads_on_gets_the_rest_of_the_same_page(tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/", "aaaabbbb")
            first = await fetch(site, site.url(), cache=tmp_path / "pages", max_bytes=4)
            site.page("/", "changed")
            rest = await fetch(site, site.url(), cache=tmp_path / "pages", start=4)
            again = await fetch(site, site.url(), cache=tmp_path / "pages")
    assert (first.output.text, rest.output.text, again.output.text) == ("aaaa", "bbbb", "changed")


async def test_what_is_not_to_be_kept_or_went_wrong_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/", "secret", Cache_Control="no-store")
            await fetch(site, site.url(), cache=folder)
            await fetch(site, site.url("/missing"), cache=folder)
    assert not folder.exists()


async def test_a_cache_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "pages").write_text("a file where the folder should be")
    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.page("/", "fine", Cache_Control="max-age=600")
            for _ in range(2):
                assert (await fetch(site, site.url(), cache=tmp_path / "pages")).output.text == "fine"
    assert cached(site) == 2


async def test_a_server_that_claims_what_nobody_asked_is_taken_at_its_word() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.reply(status=304)

    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.pages["/"] = answer
            reply = await fetch(site, site.url())
    assert (reply.output.status, reply.output.text) == (304, "")


async def test_the_deadline_counts_for_all_redirects_together() -> None:
    async def slow(exchange: Exchange) -> None:
        await anyio.sleep(0.2)
        await exchange.reply(status=302, headers={"Location": "/"})

    with anyio.fail_after(SECONDS):
        async with serving() as site:
            site.pages["/"] = slow
            began = time.monotonic()
            with pytest.raises(ToolFailed, match="took longer"):
                await fetch(site, site.url(), deadline_seconds=0.5)
    assert time.monotonic() - began < 15
    assert len(site.requests) <= MAX_REDIRECTS


def test_the_tool_says_what_it_does() -> None:
    tool = docs_tool(allow=lambda: ["docs.test"], cache=None)
    assert tool.name == "docs.fetch"
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint
