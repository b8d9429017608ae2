"""Tokens stay on their side of the gateway, in either direction, whatever the era."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import anyio
import pytest
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.access.tokens import Tokens
from fairlead.gateway.gateway import open_gateway
from fairlead.net.listen import bind, listening, url_of
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import ToolContext, ToolDefinition, ToolModel
from tests.conftest import Machine
from tests.gateway.support import Raw

DOWNSTREAM = "the-token-of-the-client"
UPSTREAM = "the-token-of-the-server"


class Nothing(ToolModel):
    """No arguments."""


class Greeting(ToolModel):
    """What is said."""

    words: str


@dataclass
class Upstream:
    """A server that writes down all it is sent, and can refuse to know anybody."""

    url: str
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list[tuple[dict[str, str], bytes]])
    closed: bool = False


class Recorder:
    def __init__(self, upstream: Upstream, app: StreamableHTTPASGIApp) -> None:
        self._upstream = upstream
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self._upstream.received.append((headers, b""))

        async def recorded() -> Message:
            message = await receive()
            self._upstream.received.append((headers, message.get("body", b"")))
            return message

        if self._upstream.closed:
            challenge = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": challenge})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, recorded, send)


@asynccontextmanager
async def recording() -> AsyncGenerator[Upstream]:
    async def hello(_: ToolContext, __: Nothing) -> Greeting:
        return Greeting(words="hello")

    tool = ToolDefinition(name="hello", description="Hello.", input=Nothing, output=Greeting, handler=hello)
    server = McpServer("upstream", tools=[tool])
    manager = StreamableHTTPSessionManager(server.sdk_server())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with manager.run():
            yield

    with bind("127.0.0.1", 0) as listener:
        upstream = Upstream(f"{url_of(listener)}/mcp")
        routes = [Route("/mcp", Recorder(upstream, StreamableHTTPASGIApp(manager)))]
        async with listening(Starlette(routes=routes, lifespan=lifespan), listener):
            yield upstream


@asynccontextmanager
async def gateway_to(machine: Machine, upstream: Upstream) -> AsyncGenerator[str]:
    common = {"url": upstream.url, "trust": "trusted", "approval": "allow", "oauth": False}
    own = {**common, "headers": {"Authorization": f"Bearer {UPSTREAM}"}}
    machine.write_user(json.dumps({"servers": {"own": own, "none": common}}))
    with anyio.fail_after(60):
        async with open_gateway(machine.load(), env=machine.env) as gateway:
            with bind("127.0.0.1", 0) as listener:
                perimeter = OriginPolicy("127.0.0.1", listener.getsockname()[1])
                keeper = TokenAuthenticator(perimeter, tokens=Tokens(DOWNSTREAM, None))
                async with listening(GuardedApp(gateway.app(keeper), keeper), listener):
                    yield f"{url_of(listener)}/mcp"


@pytest.mark.requirement("HARD-51")
@pytest.mark.parametrize("era", ["older", "modern"])
async def test_no_token_goes_through_in_either_direction(machine: Machine, era: str) -> None:
    async with (
        recording() as upstream,
        gateway_to(machine, upstream) as url,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, url, DOWNSTREAM)
        if era == "older":
            await client.begin()
        ask = client.older if era == "older" else client.modern
        answers = [await ask("tools/list")]
        for number, name in enumerate(("own_hello", "none_hello"), start=2):
            answer = await ask("tools/call", number, name=name, arguments={})
            assert "hello" in json.dumps(answer)
            answers.append(answer)
        upstream.closed = True
        refused = ("own_hello", "none_hello")
        answers += [await ask("tools/call", 9, name=name, arguments={}) for name in refused]
    assert {headers.get("authorization") for headers, _ in upstream.received} == {f"Bearer {UPSTREAM}", None}
    for headers, body in upstream.received:
        assert DOWNSTREAM not in json.dumps(headers)
        assert DOWNSTREAM.encode() not in body
    assert UPSTREAM not in json.dumps(answers)
