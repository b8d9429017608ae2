"""Where requests go, and with which headers."""

import asyncio
from collections.abc import Mapping

import pytest
from yarl import URL

from fairlead.connection.outcomes import HeadersUnavailable, HttpRejected, NotSent, Unreachable
from fairlead.connection.transport.http import HttpDispatcher
from fairlead.connection.transport.http_endpoint import HttpEndpoint, RejectedRequest, fixed_headers
from fairlead.errors import AuthRequired
from fairlead.net.http import open_client
from tests.connection.http_support import MODERN, call, call_text, connected, running
from tests.fixtures.hostile_http import serving

SECRET = fixed_headers({"Authorization": "Bearer right"})


async def test_a_message_that_is_kept_back_at_the_last_moment_does_not_reach_the_server() -> None:
    def keep_back() -> None:
        raise NotSent("the call is over")

    async with serving() as server, open_client() as client:
        endpoint = HttpEndpoint(server.url, client, fixed_headers({}))
        with pytest.raises(NotSent):
            await endpoint.request("POST", {"Content-Type": "application/json"}, b"{}", keep_back)
        assert server.requests == []


# ── redirects ──


@pytest.mark.requirement("HARD-26")
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed_and_no_credential_goes_there(code: int) -> None:
    async with serving() as elsewhere, serving() as server, connected(server, headers=SECRET) as dispatcher:
        with pytest.raises(HttpRejected, match="was not followed") as caught:
            await call(dispatcher, "redirect", code=code, location=elsewhere.url)
        assert caught.value.status == code
        assert caught.value.delivery == "not_sent"
        assert elsewhere.connections == 0


@pytest.mark.parametrize("code", [307, 308])
async def test_a_redirect_within_the_origin_is_followed_with_all_that_was_sent(code: int) -> None:
    async with serving() as server, connected(server, headers=SECRET) as dispatcher:
        assert await call_text(dispatcher, "redirect", code=code, location="/moved") == "moved"
        first, second = server.seen("tools/call")
        assert second.method == "POST"
        assert second.path == "/moved"
        assert second.body == first.body
        assert second.headers == first.headers
        assert second.headers["authorization"] == "Bearer right"


async def test_a_redirect_that_would_drop_what_was_sent_is_not_followed() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(HttpRejected, match="was not followed"):
            await call(dispatcher, "redirect", code=302, location="/moved")


async def test_redirects_in_a_circle_end() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(HttpRejected, match=r"in a circle, to 'http://127.0.0.1:[0-9]+/mcp'"):
            await call(dispatcher, "redirect", code=307, location="/mcp")
        assert len(server.seen("tools/call")) == 4


async def test_a_redirect_that_leads_nowhere_says_so() -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(HttpRejected, match="in a circle"):
            await call(dispatcher, "redirect", code=302, location="/mcp")
        with pytest.raises(HttpRejected, match="names no place to go to"):
            await call(dispatcher, "redirect", code=302, location="")


# ── headers ──


async def test_configured_headers_go_with_every_request() -> None:
    async with serving() as server:
        async with connected(server, headers=fixed_headers({"X-Team": "blue"})) as dispatcher:
            await call(dispatcher, "echo")
        assert {request.method for request in server.requests} == {"GET", "POST", "DELETE"}
        assert {request.headers["x-team"] for request in server.requests} == {"blue"}


async def test_configured_headers_do_not_replace_those_of_the_protocol() -> None:
    headers = fixed_headers({"content-type": "text/plain", "MCP-SESSION-ID": "stolen", "user-agent": "mine"})
    async with serving() as server, connected(server, headers=headers) as dispatcher:
        await call(dispatcher, "echo")
        sent = server.seen("tools/call")[0].headers
        assert sent["content-type"] == "application/json"
        assert sent["mcp-session-id"] == "session-1"
        assert sent["user-agent"] == "mine"


class Login:
    """A source whose first headers are no longer good."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)
        self.challenges: list[RejectedRequest] = []

    async def __call__(
        self, _method: str, _url: URL, challenge: RejectedRequest | None = None, /
    ) -> Mapping[str, str]:
        if challenge is not None:
            self.challenges.append(challenge)
            self.tokens = self.tokens[1:] or self.tokens
        return {"Authorization": f"Bearer {self.tokens[0]}"}


async def test_after_a_401_the_headers_are_asked_for_once_more_and_the_request_is_sent_again() -> None:
    login = Login("wrong", "right")
    async with serving("token") as server, connected(server, headers=login) as dispatcher:
        assert await call_text(dispatcher, "echo") == "{}"
        assert len(server.seen("initialize")) == 2
        assert len(server.seen("tools/call")) == 1
        (challenge,) = login.challenges
        assert challenge.www_authenticate == 'Bearer realm="hostile"'
        assert challenge.refused == {"Authorization": "Bearer wrong"}
        assert "wrong" not in repr(challenge)


@pytest.mark.parametrize("tokens", [("wrong",), ("wrong", "wrong as well", "right")])
async def test_headers_that_stay_wrong_are_not_tried_for_ever(tokens: tuple[str, ...]) -> None:
    login = Login(*tokens)
    async with serving("token") as server, open_client() as client:
        dispatcher = HttpDispatcher(server.url, client, headers=login)
        async with running(dispatcher) as session:
            with pytest.raises(HttpRejected) as caught:
                await session.initialize()
        assert caught.value.status == 401
        assert caught.value.challenge == 'Bearer realm="hostile"'
        assert len(server.requests) == min(2, len(tokens))


async def test_a_source_that_wants_a_login_is_heard() -> None:
    async def source(
        _method: str, _url: URL, challenge: RejectedRequest | None = None, /
    ) -> Mapping[str, str]:
        raise AuthRequired("hostile", "login required")

    async with serving() as server, open_client() as client:
        dispatcher = HttpDispatcher(server.url, client, headers=source)
        async with running(dispatcher):
            with pytest.raises(AuthRequired):
                await call(dispatcher, "echo", MODERN)
        assert server.requests == []


async def test_a_source_that_breaks_is_a_request_that_was_not_sent() -> None:
    async def source(
        _method: str, _url: URL, challenge: RejectedRequest | None = None, /
    ) -> Mapping[str, str]:
        raise LookupError("no such drawer")

    async with serving() as server, open_client() as client:
        dispatcher = HttpDispatcher(server.url, client, headers=source)
        async with running(dispatcher):
            with pytest.raises(HeadersUnavailable, match="no such drawer") as caught:
                await call(dispatcher, "echo", MODERN)
        assert caught.value.delivery == "not_sent"
        assert server.requests == []


# ── proxies ──


@pytest.mark.requirement("NEED-34")
async def test_a_proxy_is_used_where_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as proxy, open_client() as client:
        monkeypatch.setenv(
            "http_proxy", proxy.url.replace("http://", "http://me:secret@").removesuffix("/mcp")
        )
        monkeypatch.setenv("no_proxy", "")
        dispatcher = HttpDispatcher("http://mcp.test/mcp", client)
        async with running(dispatcher):
            assert await call_text(dispatcher, "echo", MODERN) == "{}"
        (request,) = proxy.requests
        assert request.path == "http://mcp.test/mcp"
        assert request.headers["host"] == "mcp.test"
        assert request.headers["proxy-authorization"].startswith("Basic ")


async def test_a_proxy_is_not_asked_about_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as proxy, serving() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with connected(server) as dispatcher:
            await call(dispatcher, "echo")
        assert proxy.connections == 0


async def test_a_proxy_that_refuses_is_a_server_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy, open_client() as client:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        dispatcher = HttpDispatcher("https://mcp.test/mcp", client)
        async with running(dispatcher):
            with pytest.raises(Unreachable, match="the proxy refused the connection: 407"):
                await call(dispatcher, "echo", MODERN)
