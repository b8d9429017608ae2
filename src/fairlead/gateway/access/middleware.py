"""ASGI middleware in front of the gateway: `Host` and `Origin` checks, body limit, resource metadata.

`authenticator_for` makes the authenticator of a configuration.
"""

from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.auth.http import HttpContext
from fairlead.auth.url_guard import read_url
from fairlead.config.models import GatewaySettings
from fairlead.gateway.access.auth import SCREENED, TokenAuthenticator
from fairlead.gateway.access.jwt import IssuerKeys, JwtAccess
from fairlead.gateway.access.origin import OriginPolicy, RequestRefused
from fairlead.gateway.access.rate_limit import RateLimit, SharedRateLimit
from fairlead.gateway.access.tokens import SharedOwners, Tokens, decide_token, local_token, token_file
from fairlead.gateway.registry import dashboard_name, decide_token_file, local_token_file
from fairlead.net.listen import MAX_BODY_BYTES
from fairlead.net.ssrf import is_loopback_host
from fairlead.store.protocol import Store

RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"
# The rest of the body is not waited for.
_TOO_LARGE: Final = RequestRefused.saying(
    413, f"the request body is larger than {MAX_BODY_BYTES:,} bytes", {"Connection": "close"}
)


class GuardedApp:
    """ASGI middleware that screens requests and limits their bodies.

    It also serves the protected resource metadata (RFC 9728), where tokens come from an issuer.
    """

    def __init__(self, app: ASGIApp, authenticator: TokenAuthenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif refused := self._authenticator.screen(scope):
            await refused(scope, receive, send)
        elif scope["path"].startswith(RESOURCE_METADATA) and self._authenticator.resource_metadata:
            await JSONResponse(self._authenticator.resource_metadata)(scope, receive, send)
        elif (length := scope[SCREENED].get(b"content-length")) is None:
            await self._count_body(scope, receive, send)
        elif int(length) > MAX_BODY_BYTES:
            await _TOO_LARGE(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _count_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request that does not say how long its body is, and count it."""
        exchange = _LimitedBody(receive, send)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.is_cut_off:  # the application met a disconnect, which is no error of its own
                raise
        if exchange.is_cut_off and not exchange.has_begun:
            await _TOO_LARGE(scope, receive, send)


class _LimitedBody:
    """A request body up to the limit. To the application, one past it is a client that disconnected."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._left = MAX_BODY_BYTES
        self.is_cut_off = False
        self.has_begun = False

    async def receive(self) -> Message:
        """Hand on the next part."""
        if self.is_cut_off:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        self.is_cut_off = self._left < 0
        return {"type": "http.disconnect"} if self.is_cut_off else message

    async def send(self, message: Message) -> None:
        """Pass the response on, unless the request was cut off before it began."""
        if self.is_cut_off and not self.has_begun:
            return
        self.has_begun = True
        await self._send(message)


def authenticator_for(  # noqa: PLR0913 - what decides about requests, each by name
    settings: GatewaySettings,
    host: str,
    port: int,
    env: Mapping[str, str],
    *,
    with_tokens: bool = True,
    names_groups: Callable[[], bool] = lambda: False,
    shared: Store | None = None,
    shared_tokens: SharedOwners | None = None,
) -> TokenAuthenticator:
    """Make the authenticator of a gateway that listens at an address.

    Without tokens every client that can reach it may call; approvals take the user's token even then.

    Args:
        settings: The section `gateway` of the configuration.
        host: The address it listens at.
        port: The port.
        env: The environment, which says where tokens are kept.
        with_tokens: Whether calls take a token.
        names_groups: Returns whether any rule names groups, so that they are read from tokens.
        shared: The store that all replicas share, if they do.
        shared_tokens: The named tokens in it.
    """
    own_name = dashboard_name(env) if is_loopback_host(host) else None
    names = (*settings.names, *_public_names(settings))
    origins = OriginPolicy(host, port, names, dashboard_name=own_name)
    limit = settings.requests_per_minute
    rate = RateLimit(limit) if limit is None or shared is None else SharedRateLimit(limit, shared)
    decide_token(env)  # created where it is missing
    if not with_tokens:
        tokens = Tokens(None, decide=decide_token_file(env))
        return TokenAuthenticator(origins, tokens=tokens, rate=rate, open_to_all=True)
    local_token(env)
    oauth = settings.oauth
    jwt = None
    if oauth:
        jwt = JwtAccess(oauth, IssuerKeys(oauth, HttpContext(environment=env)), names_groups=names_groups)
    tokens = Tokens(
        local_token_file(env), token_file(env), decide=decide_token_file(env), shared=shared_tokens
    )
    return TokenAuthenticator(origins, tokens=tokens, jwt=jwt, rate=rate)


def _public_names(settings: GatewaySettings) -> tuple[str, ...]:
    """The host names in what clients connect to: the public URL, and the audience of tokens, if it is one."""
    urls = [settings.public_url, settings.oauth.audience if settings.oauth else None]
    found = [read_url(url) for url in urls if url]
    return tuple(url.host_port_subcomponent for url in found if url and url.host_port_subcomponent)
