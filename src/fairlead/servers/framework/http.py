"""First-party servers over Streamable HTTP, for all protocol versions, behind a bearer token."""

import hmac
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.config.document.files import read_text, write_atomic
from fairlead.config.paths import STATE_HINT
from fairlead.errors import ConfigUnwritable
from fairlead.net.listen import MAX_BODY_BYTES, bind, listening, url_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedEndpoint:
    """The URL of a served server, and its bearer token."""

    url: str
    """Where clients connect."""
    token: str | None = field(repr=False)
    """The token they send; None where none is needed."""


def own_token(path: Path) -> str:
    """Bearer token in this file, which is created the first time, readable by its owner alone."""
    if path.exists() and (kept := read_text(path).strip()):
        return kept
    token = secrets.token_urlsafe(32)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, token + "\n", mode=0o600)
    except (OSError, ConfigUnwritable) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise ConfigUnwritable(f"no token can be kept at `{path}`: {reason}", hint=STATE_HINT) from exc
    return token


@asynccontextmanager
async def serving_http(
    servers: Mapping[str, Server[Any]], *, token: str | None, host: str = "127.0.0.1", port: int = 0
) -> AsyncGenerator[ServedEndpoint]:
    """Serve each server at its path for the length of the block. Without a token, any local process calls."""
    with bind(host, port) as listener:
        url = url_of(listener)
        authority = url.removeprefix("http://")
        trusted = TransportSecuritySettings(
            allowed_hosts=[authority, f"localhost:{listener.getsockname()[1]}"], allowed_origins=[url]
        )
        managers = {
            path: StreamableHTTPSessionManager(
                server, security_settings=trusted, max_request_body_size=MAX_BODY_BYTES
            )
            for path, server in servers.items()
        }

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncGenerator[None]:
            async with AsyncExitStack() as stack:
                for manager in managers.values():
                    await stack.enter_async_context(manager.run())
                yield

        routes = [
            Route(path, endpoint=_require_token(StreamableHTTPASGIApp(manager), token))
            for path, manager in managers.items()
        ]
        async with listening(Starlette(routes=routes, lifespan=lifespan), listener):
            yield ServedEndpoint(url=url, token=token)


def _require_token(app: ASGIApp, token: str | None) -> ASGIApp:
    return app if token is None else TokenGuard(app, token)


class TokenGuard:
    """ASGI middleware that requires the bearer token. A class, since Starlette wraps plain functions."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        given = Headers(scope=scope).get("authorization", "").encode()
        if hmac.compare_digest(given, self._expected):
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse(
            "this server wants its token: `Authorization: Bearer …`, as printed where it was started\n",
            status_code=401,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)
