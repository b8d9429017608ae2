"""Auth flows of a program: the MCP SDK's own, and those that httpx takes (seeds 000 and 002)."""

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import aiohttp
import anyio
import anyio.abc
import httpx2
import pytest
from anyio.abc import SocketStream
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl
from yarl import URL

from fairlead.errors import AuthRequired, ConnectFailed, LoginFailed
from fairlead.host.host import Host
from tests.auth.authorization_server import AuthorizationServer, Clicking, authorization_server
from tests.conftest import Machine
from tests.host.support import SECONDS


class Storage:
    """Tokens of the SDK's provider, in memory."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def sdk_provider(server: AuthorizationServer, person: Clicking, storage: Storage) -> OAuthClientProvider:
    opened: list[str] = []

    async def open_page(url: str) -> None:
        opened.append(url)

    async def come_back() -> AuthorizationCodeResult:
        answer = URL(await person.visit(opened[-1])).query
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    metadata = OAuthClientMetadata(
        client_name="a program",
        redirect_uris=[AnyUrl(person.redirect_uri)],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    return OAuthClientProvider(
        server_url=server.mcp_url,
        client_metadata=metadata,
        storage=storage,
        redirect_handler=open_page,
        callback_handler=come_back,
    )


@asynccontextmanager
async def hosting(machine: Machine, provider: Any, url: str) -> AsyncGenerator[Host]:
    """A host over a document of seed 000, whose server names the provider."""
    transport = {"type": "http", "url": url, "authProviderId": "corp"}
    document = {"servers": {"x": {"trust": "trusted", "approval": "allow", "transport": transport}}}
    with anyio.fail_after(SECONDS):
        async with Host.open(
            overrides=document, env=machine.env, cwd=machine.project, auth_providers={"corp": provider}
        ) as host:
            yield host


async def test_the_sdks_provider_logs_in_to_a_protected_server_seeds_000_and_002(machine: Machine) -> None:
    person, storage = Clicking(), Storage()
    with authorization_server(scope="mcp:read") as server:
        async with hosting(machine, sdk_provider(server, person, storage), server.mcp_url) as host:
            assert (await host.call("x", "whoami")).text == "ada mcp:read"
            assert (await host.call("x", "whoami")).text == "ada mcp:read"
            assert len(person.visited) == 1
            assert storage.tokens is not None
            server.expire_access_tokens()
            assert (await host.call("x", "whoami")).text == "ada mcp:read"
            assert host.status()[0].state == "ready"
        # Another host, with what the program stored: nobody is asked again.
        visits = len(person.visited)
        async with hosting(machine, sdk_provider(server, person, storage), server.mcp_url) as host:
            assert (await host.call("x", "whoami")).text == "ada mcp:read"
    assert len(person.visited) == visits
    assert server.count("/register") == 1


async def test_many_calls_at_once_are_one_login_of_the_sdks_provider(machine: Machine) -> None:
    person = Clicking()
    with authorization_server() as server:
        async with (
            hosting(machine, sdk_provider(server, person, Storage()), server.mcp_url) as host,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(6):
                tasks.start_soon(host.call, "x", "whoami")
    assert len(person.visited) == 1


async def test_a_provider_that_fails_is_an_error_of_ours(machine: Machine) -> None:
    with authorization_server(registration_status=403) as server:
        provider = sdk_provider(server, Clicking(), Storage())
        async with hosting(machine, provider, server.mcp_url) as host:
            with pytest.raises(ConnectFailed, match=r"(?i)regist"):
                await host.call("x", "whoami")


class Token(httpx2.Auth):
    """A flow that fetches its token when it is refused, and forgets it after the request."""

    def __init__(self, token: str) -> None:
        self.token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        response = yield request
        if response.status_code == 401:
            request.headers["Authorization"] = f"Bearer {self.token}"
            yield request


class PlainToken:
    """The same without a base class of any library."""

    def __init__(self, token: str) -> None:
        self.token = token

    def auth_flow(self, request: Any) -> Generator[Any, Any, None]:
        request.headers["Authorization"] = f"Bearer {self.token}"
        yield request


@pytest.mark.parametrize("kind", [Token, PlainToken])
async def test_any_auth_flow_that_httpx_takes_lets_requests_in_seed_000(machine: Machine, kind: Any) -> None:
    person, storage = Clicking(), Storage()
    with authorization_server() as server:
        async with hosting(machine, sdk_provider(server, person, storage), server.mcp_url) as host:
            await host.call("x", "whoami")
        assert storage.tokens is not None
        async with hosting(machine, kind(storage.tokens.access_token), server.mcp_url) as host:
            assert (await host.call("x", "whoami")).text == "ada"
        async with hosting(machine, kind("wrong"), server.mcp_url) as host:
            with pytest.raises((AuthRequired, LoginFailed), match="auth provider"):
                await host.call("x", "whoami")


class FetchedToken(httpx2.Auth):
    """A flow that fetches its token with a request of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        response = yield httpx2.Request("POST", self.url)
        request.headers["Authorization"] = f"Bearer {json.loads(response.content)['access_token']}"
        yield request


class SignedBody(httpx2.Auth):
    """A flow that signs the body of each request."""

    requires_request_body = True

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        yield request


async def answer_in_two_parts(body: bytes, is_read: anyio.Event, stream: SocketStream) -> None:
    """Answer a request over HTTP; the second part once the first has been read."""
    async with stream:
        with suppress(anyio.EndOfStream):  # a connection that its client gave up before it asked for anything
            await stream.receive()
            await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body[:10]))
            await is_read.wait()
            await stream.send(body[10:])


async def test_a_flow_gets_the_whole_of_a_response_that_comes_in_parts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    person, storage, is_read = Clicking(), Storage(), anyio.Event()
    read = aiohttp.StreamReader.read

    async def read_and_tell(self: aiohttp.StreamReader, n: int = -1) -> bytes:
        data = await read(self, n)
        if data == body[:10]:
            is_read.set()
        return data

    with authorization_server() as server:
        async with hosting(machine, sdk_provider(server, person, storage), server.mcp_url) as host:
            await host.call("x", "whoami")
        assert storage.tokens is not None
        body = storage.tokens.model_dump_json().encode()
        monkeypatch.setattr(aiohttp.StreamReader, "read", read_and_tell)
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, partial(answer_in_two_parts, body, is_read))
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with hosting(machine, FetchedToken(f"http://127.0.0.1:{port}/"), server.mcp_url) as host:
                assert (await host.call("x", "whoami")).text == "ada"
            tasks.cancel_scope.cancel()


async def test_a_flow_that_signs_bodies_is_refused_with_the_reason(machine: Machine) -> None:
    with authorization_server() as server:
        async with hosting(machine, SignedBody(), server.mcp_url) as host:
            with pytest.raises(ConnectFailed, match="signs the body of requests"):
                await host.call("x", "whoami")
