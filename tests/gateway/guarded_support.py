"""A tiny application behind the gateway's access control, on a real socket, and raw requests to it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.jwt import JwtAccess
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy, RequestRefused
from fairlead.gateway.access.rate_limit import RateLimit
from fairlead.gateway.access.tokens import TokenFile, Tokens
from fairlead.net.listen import bind, listening

TOKEN = "the-local-token"
DECIDE = "the-token-that-decides"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: str


@dataclass
class Guarded:
    """A running application, and what got through to it."""

    port: int
    client: aiohttp.ClientSession
    seen: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def ask(
        self, path: str = "/mcp", *, method: str = "POST", token: str | None = TOKEN, **rest: Any
    ) -> Reply:
        headers = dict(JSON if method == "POST" else {}) | dict(rest.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if method == "POST":
            rest.setdefault("data", b"{}")
        with anyio.fail_after(20):
            async with self.client.request(method, f"{self.url}{path}", headers=headers, **rest) as response:
                return Reply(response.status, response.headers, await response.text())

    async def raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and return all that comes back until the other side closes."""
        answer = b""
        with anyio.fail_after(20):
            async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
                await stream.send(request)
                async for chunk in stream:
                    answer += chunk
        return answer


@asynccontextmanager
async def guarded(
    *,
    named: TokenFile | None = None,
    jwt: JwtAccess | None = None,
    rate: RateLimit | None = None,
    names: tuple[str, ...] = (),
    host: str = "127.0.0.1",
    auth: bool = True,
) -> AsyncGenerator[Guarded]:
    with bind(host, 0) as listener:
        port: int = listener.getsockname()[1]
        tokens = Tokens(TOKEN, named, decide=DECIDE) if auth else None
        gatekeeper = TokenAuthenticator(OriginPolicy(host, port, names), tokens=tokens, jwt=jwt, rate=rate)
        async with aiohttp.ClientSession() as client:
            served = Guarded(port, client)

            async def endpoint(request: Request) -> Response:
                admitted = await gatekeeper.admit(request.scope)
                if isinstance(admitted, RequestRefused):
                    return Response(admitted.body, admitted.status, dict(admitted.headers))
                body = await request.body()
                served.seen.append(admitted.principal)
                return JSONResponse({"principal": admitted.principal, "bytes": len(body)})

            methods = ["GET", "POST", "DELETE"]
            app = Starlette(routes=[Route("/{path:path}", endpoint, methods=methods)])
            async with listening(GuardedApp(app, gatekeeper), listener):
                yield served
