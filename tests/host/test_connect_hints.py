"""What the user reads of a server at a URL that cannot be used, and that following the hint helps.

Every case is a real server on the loopback interface.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import jwt
import pytest
import trustme

from fairlead.errors import AuthRequired, CallFailed, ConnectFailed, FairleadError
from fairlead.host.host import Host
from fairlead.net.http import tls_context
from tests.conftest import Machine
from tests.fixtures.hostile_http import HostileServer
from tests.fixtures.plain_http import Exchange
from tests.host.support import hosting

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def own_trust(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    tls_context.cache_clear()
    yield
    tls_context.cache_clear()


@asynccontextmanager
async def listening(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def answering(head: str, body: str = "") -> AsyncGenerator[str]:
    """A server that gives every request the same answer."""
    answer = f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        for line in request.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                await reader.readexactly(int(line.partition(b":")[2]))
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with listening(handle) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def tls_server(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with certificate.private_key_and_cert_chain_pem.tempfile() as file:
        context.load_cert_chain(file)
    return context


async def failure_of(host: Host, server_id: str = "x") -> FairleadError:
    return (await host.connect(server_id))[server_id]


async def failure_at(machine: Machine, url: str, **entry: object) -> FairleadError:
    async with hosting(machine, x={"url": url, "oauth": False, **entry}) as host:
        return await failure_of(host)


@pytest.mark.parametrize(
    ("head", "body", "words", "hint"),
    [
        ("400 Bad Request", "", "HTTP 400", "is `url` an MCP endpoint?"),
        (
            "400 Bad Request\r\nContent-Type: text/plain",
            "Client sent an HTTP request to an HTTPS server.",
            "HTTPS server",
            "write `https://`",
        ),
        ("402 Payment Required", "", "HTTP 402", "see to your plan"),
        ("403 Forbidden", "", "HTTP 403", "rights of the token or key in `headers`"),
        ("404 Not Found", "", "HTTP 404", "check the path of `url`"),
        ("405 Method Not Allowed", "", "HTTP 405", "takes no MCP requests"),
        ("406 Not Acceptable", "", "HTTP 406", "does not answer as MCP does"),
        ("407 Proxy Authentication Required", "", "HTTP 407", "http://user:password@host:port"),
        ("410 Gone", "", "HTTP 410", "is gone"),
        ("415 Unsupported Media Type", "", "HTTP 415", "does not take what MCP sends"),
        ("418 I'm a teapot", "", "HTTP 418", "MCP endpoint"),
        ("421 Misdirected Request", "", "HTTP 421", "as the server knows it"),
        ("429 Too Many Requests", "", "HTTP 429", "limits the rate of requests; try again later"),
        ("429 Slow Down\r\nRetry-After: 17", "", "HTTP 429", "wait 17 s and try again"),
        (
            "429 Slow Down\r\nRetry-After: Mon, 16 Nov 2026 10:00:00 GMT",
            '{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "the quota is used up"}}',
            "the quota is used up",
            "wait until Mon, 16 Nov 2026",
        ),
        ("431 Request Header Fields Too Large", "", "HTTP 431", "`headers` has too much"),
        ("511 Network Authentication Required", "", "HTTP 511", "log in there"),
        ("500 Internal Server Error", "", "HTTP 500", "the trouble is at the server"),
        ("501 Not Implemented", "", "HTTP 501", "the trouble is at the server"),
        ("502 Bad Gateway", "", "HTTP 502", "is the server behind it running?"),
        ("503 Service Unavailable\r\nRetry-After: 30", "", "HTTP 503", "wait 30 s"),
        ("504 Gateway Timeout", "", "HTTP 504", "got no answer"),
        ("200 OK\r\nContent-Type: text/html", "<html>hello</html>", "'text/html'", "is a web page"),
        ("302 Found\r\nLocation: https://sso.example/signin?next=1", "", "sso.example", "login page"),
        (
            "302 Found\r\nLocation: /mcp",
            "",
            "redirects in a circle, to 'http://127.0.0.1:",
            "look for the MCP URL",
        ),
        ("302 Found\r\nLocation: /other", "", "/other' was not followed", "write that address"),
        ("302 Found", "", "names no place to go to", "look for the MCP URL"),
        (
            "200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip",
            "no gzip",
            "cannot be decompressed",
            "answers that are damaged",
        ),
        (
            "307 Moved\r\nLocation: https://elsewhere.example/mcp",
            "",
            "elsewhere.example",
            "write that address",
        ),
        ("200 OK\r\nContent-Type: application/json", "{not json", "cannot be read", "is it an MCP server?"),
    ],
)
async def test_an_answer_that_is_none_says_what_to_do(
    machine: Machine, head: str, body: str, words: str, hint: str
) -> None:
    async with answering(head, body) as url:
        error = await failure_at(machine, url)
    assert isinstance(error, ConnectFailed)
    assert words in str(error)
    assert hint in (error.hint or "")


async def test_the_url_of_the_older_transport_says_which_that_is(machine: Machine) -> None:
    async with answering("405 Method Not Allowed\r\nAllow: GET") as url:
        error = await failure_at(machine, url.replace("/mcp", "/sse"))
    assert 'write `"transport": "sse"` in its entry' in (error.hint or "")


async def test_a_401_names_the_command_and_the_setting(machine: Machine) -> None:
    async with answering("401 Unauthorized") as url:
        error = await failure_at(machine, url, headers={"Authorization": "Bearer stale-token-1234"})
    assert isinstance(error, AuthRequired)
    assert "`headers.Authorization`" in (error.hint or "")
    assert "`fairlead login x`" in (error.hint or "")
    assert "stale-token" not in f"{error} {error.hint}"


async def test_a_name_that_cannot_be_resolved_is_the_hosts(machine: Machine) -> None:
    error = await failure_at(machine, "http://mcp.invalid/mcp")
    assert "mcp.invalid cannot be resolved" in str(error)
    assert "check the host in `url`" in (error.hint or "")


async def test_a_refused_port_asks_whether_the_server_runs_and_it_helps_to_start_it(machine: Machine) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with hosting(machine, x={"url": f"http://127.0.0.1:{port}/mcp", "oauth": False}) as host:
        error = await failure_of(host)
        assert "is the server running, and is the port" in (error.hint or "")
        server = await asyncio.start_server(HostileServer(frozenset()).serve, "127.0.0.1", port)
        assert await host.connect("x") == {}
        (status,) = [each for each in host.status() if each.server_id == "x"]
        assert (status.state, status.last_error, status.hint) == ("ready", None, None)
        server.close()


async def test_tls_at_a_plain_port_is_told_and_the_other_scheme_works(machine: Machine) -> None:
    hostile = HostileServer(frozenset())

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not is_plain:  # as HTTP servers do with what is no HTTP
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
        else:
            await hostile.serve(reader, writer)

    is_plain = False
    async with listening(serve) as port:
        error = await failure_at(machine, f"https://127.0.0.1:{port}/mcp")
        is_plain = True
        assert f"127.0.0.1:{port} does not speak TLS" in str(error)
        assert "write `http://` in `url`" in (error.hint or "")
        async with hosting(machine, x={"url": f"http://127.0.0.1:{port}/mcp", "oauth": False}) as host:
            assert await host.connect("x") == {}


async def test_plain_http_at_a_tls_port_is_told(machine: Machine) -> None:
    tls = tls_server(trustme.CA().issue_cert("127.0.0.1"))
    async with listening(HostileServer(frozenset()).serve, tls) as port:
        error = await failure_at(machine, f"http://127.0.0.1:{port}/mcp")
    assert f"127.0.0.1:{port} speaks TLS" in str(error)
    assert error.hint == "write `https://` in `url`"


async def test_an_untrusted_certificate_is_said_to_be_it_and_naming_it_helps(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    tls = tls_server(authority.issue_cert("127.0.0.1"))
    async with listening(HostileServer(frozenset()).serve, tls) as port:
        url = f"https://127.0.0.1:{port}/mcp"
        error = await failure_at(machine, url)
        assert "certificate of 127.0.0.1 is not trusted" in str(error)
        assert "running" not in (error.hint or "")
        assert "SSL_CERT_FILE" in (error.hint or "")
        authority.cert_pem.write_to_path(str(tmp_path / "trusted.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
        tls_context.cache_clear()  # as in a process that is started anew
        async with hosting(machine, x={"url": url, "oauth": False}) as host:
            assert await host.connect("x") == {}


@pytest.mark.parametrize(
    ("name", "not_after", "words", "hint"),
    [
        ("127.0.0.1", datetime(2020, 1, 1, tzinfo=UTC), "expired", "certificate renewed"),
        ("other.example", None, "not valid for '127.0.0.1'", "as the certificate names it"),
    ],
)
async def test_a_certificate_that_is_expired_or_of_another_host_is_told_apart(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    not_after: datetime | None,
    words: str,
    hint: str,
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "trusted.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    tls = tls_server(authority.issue_cert(name, not_after=not_after))
    async with listening(HostileServer(frozenset()).serve, tls) as port:
        error = await failure_at(machine, f"https://127.0.0.1:{port}/mcp")
    assert words in str(error)
    assert hint in (error.hint or "")


async def test_a_connection_that_is_reset_is_no_refused_handshake(machine: Machine) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    async with listening(reset) as port:
        error = await failure_at(machine, f"http://127.0.0.1:{port}/mcp")
    assert "refused the handshake" not in str(error)
    assert "log may say why" in (error.hint or "")


async def test_a_server_that_never_answers_is_told_of_its_url(machine: Machine) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with listening(hang) as port:
        error = await failure_at(machine, f"http://127.0.0.1:{port}/mcp", startup_timeout_ms=1_000)
    assert "not ready after 1 s" in str(error)
    assert "is `url` an MCP endpoint?" in (error.hint or "")
    assert "fairlead logs" not in (error.hint or "")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_wants_a_login_is_told_and_gets_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with listening(proxy) as port:
        monkeypatch.setenv(f"{scheme}_proxy", f"http://127.0.0.1:{port}")
        error = await failure_at(machine, f"{scheme}://mcp.test/mcp")
        assert "407" in str(error)
        assert "http://user:password@host:port" in (error.hint or "")
        monkeypatch.setenv(f"{scheme}_proxy", f"http://me:the-proxys-password@127.0.0.1:{port}")
        error = await failure_at(machine, f"{scheme}://mcp.test/mcp")
        assert any(b"proxy-authorization: basic" in request.lower() for request in seen)
        assert "the-proxys-password" not in f"{error} {error.hint}"


async def test_a_proxy_that_is_not_there_is_told_apart_from_the_server(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    error = await failure_at(machine, "http://mcp.test/mcp")
    assert "the proxy 127.0.0.1" in str(error)
    assert "NO_PROXY" in (error.hint or "")


async def test_a_bad_request_is_told_by_its_own_words_not_by_the_older_transport(machine: Machine) -> None:
    async def picky(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if request.startswith(b"POST"):
            body = b"the header X-Tenant is missing"
            head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
        else:
            head, body = b"HTTP/1.1 405 Method Not Allowed\r\n", b""
        writer.write(head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    async with listening(picky) as port:
        error = await failure_at(machine, f"http://127.0.0.1:{port}/mcp")
    assert "the header X-Tenant is missing" in str(error)


class Limited(HostileServer):
    """A server that is asked too often as soon as a tool is called."""

    async def respond(self, exchange: Exchange) -> None:
        if b"tools/call" in exchange.request.body:
            await exchange.reply(status=429, headers={"Retry-After": "5"})
        else:
            await super().respond(exchange)


async def test_a_call_that_is_rate_limited_says_when_to_try_again(machine: Machine) -> None:
    async with listening(Limited(frozenset()).serve) as port:
        entry = {"url": f"http://127.0.0.1:{port}/mcp", "oauth": False, "trust": "trusted"}
        async with hosting(machine, x=entry) as host:
            with pytest.raises(CallFailed, match="429") as raised:
                await host.call("x", "echo")
    assert "wait 5 s" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("stale-token-1234", "it refused the token in `headers.X-Api-Key` (401): bad signature"),
        (
            jwt.encode({"exp": 1}, "k" * 32),
            "the token in `headers.X-Api-Key` has expired (401): bad signature",
        ),
        ("a.b.c", "it refused the token in `headers.X-Api-Key` (401): bad signature"),
    ],
    ids=["opaque", "jwt", "no-jwt"],
)
async def test_a_401_says_which_token_was_refused_and_why(machine: Machine, token: str, words: str) -> None:
    head = "401 Unauthorized\r\nContent-Type: application/json"
    async with answering(head, '{"error": {"message": "bad signature"}}') as url:
        error = await failure_at(machine, url, headers={"X-Api-Key": token})
    assert isinstance(error, AuthRequired)
    assert words in str(error)
    assert token not in f"{error} {error.hint}"


async def test_a_key_that_may_be_refused_beside_a_missing_login_is_named(machine: Machine) -> None:
    async with (
        answering("401 Unauthorized") as url,
        hosting(machine, x={"url": url, "headers": {"X-Api-Key": "key-1234"}}) as host,
    ):
        error = await failure_of(host)
    assert "it refused `headers.X-Api-Key` (401), and has no login" in str(error)
    assert error.hint is not None
    assert error.hint.startswith("correct `headers.X-Api-Key`")


@pytest.mark.parametrize(
    ("posted", "got", "words"),
    [
        ("404 Not Found", "405 Method Not Allowed", "HTTP 404"),
        ("405 Method Not Allowed", "404 Not Found", "HTTP 405"),
        ("405 Method Not Allowed", "200 OK\r\nContent-Type: text/html", "a web page of type 'text/html'"),
        ("404 Not Found", "503 Service Unavailable", "HTTP 503"),
    ],
)
async def test_of_two_refusals_the_more_telling_one_is_told(
    machine: Machine, posted: str, got: str, words: str
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        head = posted if request.startswith(b"POST") else got
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with listening(refuse) as port:
        error = await failure_at(machine, f"http://127.0.0.1:{port}/mcp")
    assert words in str(error)


async def test_streamable_http_that_is_configured_as_sse_is_told_and_works_without(machine: Machine) -> None:
    async with listening(HostileServer(frozenset()).serve) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        error = await failure_at(machine, url, transport="sse")
        assert "take `transport` out" in (error.hint or "")
        async with hosting(machine, x={"url": url, "oauth": False}) as host:
            assert await host.connect("x") == {}


async def test_a_proxy_that_refuses_is_told(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Not That Host\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with listening(proxy) as port:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        error = await failure_at(machine, "https://mcp.test/mcp")
    assert "the proxy refused the connection: 403" in str(error)
    assert "NO_PROXY" in (error.hint or "")


async def test_a_server_at_the_other_loopback_address_is_found_by_the_hint(machine: Machine) -> None:
    try:
        server = await asyncio.start_server(HostileServer(frozenset()).serve, "::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    port = server.sockets[0].getsockname()[1]
    error = await failure_at(machine, f"http://127.0.0.1:{port}/mcp")
    assert f"no connection to 127.0.0.1:{port}: nothing listens there" in str(error)
    assert "`[::1]`" in (error.hint or "")
    async with hosting(machine, x={"url": f"http://[::1]:{port}/mcp", "oauth": False}) as host:
        assert await host.connect("x") == {}
    server.close()
