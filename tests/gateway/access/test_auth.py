"""Who gets in at a real socket, and how everybody else is answered."""

import json
from collections.abc import AsyncGenerator
from io import BytesIO
from pathlib import Path

import pytest

from fairlead.gateway.access.auth import bundle_of, scope_of
from fairlead.gateway.access.rate_limit import RateLimit
from fairlead.gateway.access.tokens import TokenFile
from fairlead.net.listen import MAX_BODY_BYTES
from fairlead.testing.fixtures import FakeClock
from tests.gateway.guarded_support import DECIDE, TOKEN, Guarded, guarded


@pytest.fixture
async def served() -> AsyncGenerator[Guarded]:
    async with guarded() as running:
        yield running


@pytest.mark.requirement("HARD-49")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost.evil.example:{port}",
        "evil.localhost:{port}",
        "localhost:",
        "localhost:{port}x",
        "localhost:123456",
        "127.0.0.1.nip.example:{port}",
        "127.0.0.2:{port}",
        "localhost@evil.example",
        "::1",
        "[::1",
        ":{port}",
        "",
    ],
)
async def test_another_host_is_misdirected(served: Guarded, host: str) -> None:
    reply = await served.ask(headers={"Host": host.format(port=served.port)})
    assert reply.status == 421
    assert served.seen == []


@pytest.mark.requirement("HARD-49", "HARD-50")
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "https://evil.example",
        "http://localhost:1",
        "http://127.0.0.1",
        "https://127.0.0.1:{port}",
        "",
    ],
)
async def test_a_page_of_another_origin_is_refused_even_with_the_token(served: Guarded, origin: str) -> None:
    reply = await served.ask(headers={"Origin": origin.format(port=served.port)})
    assert reply.status == 403
    assert served.seen == []


@pytest.mark.requirement("HARD-49")
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "LocalHost"])
@pytest.mark.parametrize("port", ["", ":1", ":9000", ":65535"])
async def test_a_tunnel_on_any_local_port_is_let_in_and_pages_of_other_ports_are_not(
    served: Guarded, name: str, port: str
) -> None:
    authority = f"{name}{port}"
    assert (await served.ask(headers={"Host": authority})).status == 200
    same = {"Host": authority, "Origin": f"http://{authority}".lower()}
    assert (await served.ask(headers=same)).status == 200
    for other in ("http://localhost:3000", "http://127.0.0.1:3000", f"https://{authority}", "null"):
        assert (await served.ask(headers={"Host": authority, "Origin": other})).status == 403
    for rebound in ("evil.example", f"evil.example{port}"):
        assert (await served.ask(headers={"Host": rebound, "Origin": f"http://{rebound}"})).status == 421


async def test_its_own_names_and_pages_are_let_in(served: Guarded) -> None:
    assert (await served.ask()).status == 200
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        authority = f"{name}:{served.port}"
        reply = await served.ask(headers={"Host": authority, "Origin": f"http://{authority}"})
        assert reply.status == 200, reply.body
    assert set(served.seen) == {"local"}


@pytest.mark.requirement("HARD-49")
async def test_a_header_that_is_there_twice_lets_nobody_in(served: Guarded) -> None:
    for twice in (f"Host: 127.0.0.1:{served.port}", f"Authorization: Bearer {TOKEN}", "Origin: null"):
        head = f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        answer = await served.raw(f"{head}{twice}\r\nConnection: close\r\n\r\n".encode())
        assert answer.split()[1] in (b"400", b"401", b"403", b"421")
    assert served.seen == []


@pytest.mark.requirement("HARD-49")
@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
async def test_what_a_page_could_send_without_asking_is_a_bad_request(
    served: Guarded, content_type: str
) -> None:
    reply = await served.ask(headers={"Content-Type": content_type})
    assert reply.status == 400
    assert served.seen == []


async def test_only_pages_for_people_take_forms(served: Guarded) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    assert (await served.ask("/servers/x", headers=form, token=DECIDE)).status == 200
    assert (await served.ask("/servers/x", headers={"Content-Type": "text/plain"})).status == 400


async def test_a_permission_to_send_across_origins_is_never_given(served: Guarded) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    reply = await served.ask(method="OPTIONS", headers=headers, token=None)
    assert reply.status == 403
    assert not any(name.lower().startswith("access-control") for name in reply.headers)
    assert (await served.ask(method="OPTIONS", token=None)).status == 405


@pytest.mark.requirement("HARD-49")
async def test_five_megabytes_are_too_much(served: Guarded) -> None:
    assert (await served.ask(data=BytesIO(b" " * 5_000_000))).status == 413
    assert (await served.ask(data=BytesIO(b" " * MAX_BODY_BYTES))).status == 200


@pytest.mark.requirement("HARD-49")
async def test_a_body_that_announces_no_length_is_cut_at_the_limit(served: Guarded) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        for _ in range(80):
            yield b" " * 65_536

    reply = await served.ask(data=endless())
    assert reply.status == 413
    assert served.seen == []


@pytest.mark.requirement("HARD-50")
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ü"])
async def test_a_program_without_the_token_is_unauthorized(served: Guarded, token: str | None) -> None:
    reply = await served.ask(token=token)
    assert reply.status == 401
    assert reply.headers["WWW-Authenticate"].startswith("Bearer")
    assert TOKEN not in reply.body
    assert served.seen == []


async def test_the_token_counts_as_a_bearer_only(served: Guarded) -> None:
    assert (await served.ask(token=None, headers={"Authorization": f"Basic {TOKEN}"})).status == 401
    assert (await served.ask(token=None, headers={"Authorization": TOKEN})).status == 401
    assert (await served.ask(token=None, headers={"Authorization": f"bearer {TOKEN}"})).status == 200


async def test_without_tokens_the_perimeter_still_stands() -> None:
    async with guarded(auth=False) as served:
        assert (await served.ask(token=None)).status == 200
        assert (await served.ask(token=None, headers={"Host": "evil.example"})).status == 421
        assert (await served.ask(token=None, headers={"Origin": "null"})).status == 403


async def test_configured_names_are_its_own_behind_a_proxy_and_with_the_port() -> None:
    async with guarded(names=("gateway.example.org", "box.lan:8443")) as served:
        for host in ("gateway.example.org", f"Gateway.Example.org:{served.port}", "box.lan:8443"):
            assert (await served.ask(headers={"Host": host})).status == 200
        assert (await served.ask(headers={"Host": "box.lan"})).status == 421
        same = {"Host": "gateway.example.org", "Origin": "https://gateway.example.org"}
        assert (await served.ask(headers=same)).status == 200
        assert (await served.ask(headers=same | {"Origin": "http://gateway.example.org"})).status == 403


async def test_listening_everywhere_the_address_that_was_dialled_is_its_own() -> None:
    async with guarded(host="0.0.0.0") as served:
        assert (await served.ask()).status == 200
        assert (await served.ask(headers={"Host": f"evil.example:{served.port}"})).status == 421
        assert (await served.ask(headers={"Host": f"192.0.2.1:{served.port}"})).status == 421


async def test_a_named_token_opens_its_bundles_and_nothing_else(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    token = named.add("ci", bundles=("work", "docs"))
    async with guarded(named=named) as served:
        assert json.loads((await served.ask("/mcp/work", token=token)).body)["principal"] == "token:ci"
        assert (await served.ask("/sse/docs", method="GET", token=token)).status == 200
        for path in ("/mcp", "/mcp/other", "/sse", "/mcp/workx", "/mcp//work"):
            reply = await served.ask(path, token=token)
            assert reply.status == 403
            assert "/mcp/docs, /mcp/work" in reply.body
        for path in ("/", "/api/status", "/metrics"):
            assert (await served.ask(path, method="GET", token=token)).status == 403


async def test_scopes_say_what_a_token_is_for(tmp_path: Path) -> None:
    named = TokenFile(tmp_path / "tokens.json")
    watcher = named.add("prometheus", scopes=("status",))
    async with guarded(named=named) as served:
        assert (await served.ask("/metrics", method="GET", token=watcher)).status == 200
        assert (await served.ask("/api/status", method="GET", token=watcher)).status == 200
        assert (await served.ask("/mcp", token=watcher)).status == 403
        assert (await served.ask("/", method="GET", token=watcher)).status == 403


@pytest.mark.parametrize("path", ["/mcp", "/api/status"])
async def test_too_many_requests_of_one_principal_are_told_when_to_come_back(
    path: str, tmp_path: Path
) -> None:
    clock = FakeClock()
    named = TokenFile(tmp_path / "tokens.json")
    other = named.add("other", scopes=("mcp", "status"))
    own = TOKEN if path == "/mcp" else DECIDE
    async with guarded(named=named, rate=RateLimit(3, clock=clock)) as served:
        assert [(await served.ask(path, token=own)).status for _ in range(4)] == [200, 200, 200, 429]
        reply = await served.ask(path, token=own)
        assert reply.headers["Retry-After"] == "20"
        assert (await served.ask(path, token=other)).status == 200
        clock.advance(20)
        assert [(await served.ask(path, token=own)).status for _ in range(2)] == [200, 429]


async def test_a_refused_request_uses_nothing_up() -> None:
    async with guarded(rate=RateLimit(1, clock=FakeClock())) as served:
        assert (await served.ask(token="wrong")).status == 401
        assert (await served.ask(headers={"Origin": "null"})).status == 403
        assert (await served.ask()).status == 200


async def test_buckets_of_people_who_left_are_forgotten() -> None:
    clock = FakeClock()
    limit = RateLimit(60, clock=clock)
    for number in range(10_000):
        assert await limit.take(str(number)) is None
    clock.advance(60)
    assert await limit.take("another") is None
    assert len(limit._buckets) == 1  # pyright: ignore[reportPrivateUsage]


def test_paths_say_what_they_need() -> None:
    bundles = {path: bundle_of(path) for path in ("/mcp", "/mcp/", "/mcp/a", "/sse/b", "/x/a")}
    assert bundles == {"/mcp": None, "/mcp/": None, "/mcp/a": "a", "/sse/b": "b", "/x/a": None}
    scopes = {path: scope_of(path) for path in ("/mcp/a", "/messages/", "/api/status", "/metrics", "/", "/x")}
    assert list(scopes.values()) == ["mcp", "mcp", "status", "status", "admin", "admin"]
