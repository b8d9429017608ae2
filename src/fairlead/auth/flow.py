"""Log in: find the issuer, be known to it, send a person (or go ourselves), come back with a token."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from yarl import URL

from fairlead.auth import machine
from fairlead.auth.authorization import AuthorizationRequest
from fairlead.auth.challenge import Challenge
from fairlead.auth.discovery import find_issuer, find_resource
from fairlead.auth.dpop import ALGORITHM
from fairlead.auth.guard import read_url, shown
from fairlead.auth.metadata import NO_LOGIN_HINT, Issuer, Resource
from fairlead.auth.registration import client_for, known_client
from fairlead.auth.scopes import granted_before, scope_to_ask, with_offline_access
from fairlead.auth.signing import new_key
from fairlead.auth.target import Target
from fairlead.auth.token_requests import TokenEndpoint
from fairlead.auth.tokens import Client, Login, Redirect, Token
from fairlead.auth.web import Errand, Web
from fairlead.config.command_lines import command_line
from fairlead.errors import LoginFailed, TokenRefused


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginTerms:
    """Where the tokens of a login will come from: its token endpoint, which the login stays bound to."""

    issuer: str
    token_endpoint: URL
    previous: str | None = None
    """The token endpoint of the last login with this issuer."""

    @property
    def words(self) -> str:
        """What a person is told of it before they consent."""
        host = self.token_endpoint.host or ""
        said = f"Its tokens are issued and renewed by {shown(host)}"
        issuer = read_url(self.issuer)
        if issuer is not None and issuer.host != host:
            said += f", for {shown(self.issuer)}"
        before = read_url(self.previous) if self.previous else None
        if before is not None and before.host != host:
            said += f"; at your last login that was {shown(before.host or '')}"
        return f"{said}."


Announce: TypeAlias = Callable[[LoginTerms], None]


async def log_in(  # noqa: PLR0913 - all that a login can depend on
    target: Target,
    redirect: Redirect,
    web: Web,
    *,
    challenge: Challenge | None = None,
    previous: Login | None = None,
    scopes: str | None = None,
    announce: Announce = lambda _terms: None,
) -> Login:
    """Have a person log in. `previous` is their last login here, of which what still fits is used again.

    `challenge` is what the server said when it refused, and `scopes` what the person asks for this time.
    `announce` is told where the tokens will come from before the person is asked to open a page.
    No browser opens before the issuer has been found to be one that codes are safe with.
    """
    errand = await web.errand(target.server_id, target.url, target.chosen_hosts)
    resource, issuer = await _find(errand, target, challenge, previous)
    _check_codes_are_safe(target, issuer)
    asked = scope_to_ask(target, resource, challenge, granted_before(previous, issuer), scopes)
    asked = with_offline_access(asked, issuer)
    client = await client_for(errand, target, issuer, redirect.redirect_uri, scope=asked, previous=previous)
    request = AuthorizationRequest(
        server_id=target.server_id,
        issuer=issuer,
        client_id=client.client_id,
        redirect_uri=redirect.redirect_uri,
        audience=resource.audience,
        scope=asked,
    )
    before = previous.token_endpoint if previous is not None and previous.issuer == issuer.name else None
    announce(LoginTerms(issuer=issuer.name, token_endpoint=issuer.token_endpoint, previous=before))
    code = request.code_in(await redirect.visit(request.url))
    endpoint = _endpoint(errand, target, issuer, client, resource)
    token = await endpoint.exchange(code, request.pkce, request.redirect_uri)
    return _login(endpoint, token, asked)


async def machine_login(
    target: Target,
    web: Web,
    *,
    challenge: Challenge | None = None,
    previous: Login | None = None,
) -> Login:
    """Log in without a person, as `oauth.grant` says."""
    errand = await web.errand(target.server_id, target.url, target.chosen_hosts)
    resource, issuer = await _find(errand, target, challenge, previous)
    client = known_client(target, issuer, previous)
    if client is None:
        raise LoginFailed(
            target.server_id,
            f"`oauth.grant` is `{target.oauth.grant}`, which needs a client that the issuer knows",
            hint="set `oauth.client_id`, and `oauth.client_secret` or `oauth.private_key`",
        )
    asked = scope_to_ask(target, resource, challenge, granted_before(previous, issuer), None)
    endpoint = _endpoint(errand, target, issuer, client, resource)
    return _login(endpoint, await machine.obtain(endpoint, asked), asked)


async def renew(target: Target, login: Login, web: Web) -> Token:
    """Get a new token for a login, from the token endpoint it was made with and from no other.

    Metadata is not asked again: an issuer that names another endpoint later gets nothing without a new login.

    `TokenRefused` says that only a new login helps; after `IssuerUnavailable` the old tokens are still good.
    """
    errand = await web.errand(target.server_id, target.url, target.chosen_hosts)
    endpoint = TokenEndpoint(
        errand=errand,
        target=target,
        url=errand.checked(login.token_endpoint, "the token endpoint"),
        issuer=login.issuer,
        client=login.client,
        audience=login.audience or login.resource,
        dpop_key=login.dpop_key,
    )
    if target.oauth.grant != "authorization_code":
        return await machine.obtain(endpoint, login.token.scope)
    if login.token.refresh_token is None:
        raise TokenRefused(
            target.server_id,
            "the login has run out, and its issuer gave nothing to renew it with",
            hint=f"run `{command_line('login', target.server_id)}`",
        )
    return await endpoint.refresh(login.token.refresh_token)


async def _find(
    errand: Errand, target: Target, challenge: Challenge | None, previous: Login | None
) -> tuple[Resource, Issuer]:
    resource = await find_resource(errand, target, challenge)
    known = previous.issuer if previous is not None else None
    return resource, await find_issuer(errand, target, resource, known)


def _check_codes_are_safe(target: Target, issuer: Issuer) -> None:
    if issuer.authorization_endpoint is None:
        raise LoginFailed(
            target.server_id, f"{shown(issuer.name)} has no page to log in on", hint=NO_LOGIN_HINT
        )
    if not issuer.has_pkce:
        raise LoginFailed(
            target.server_id,
            f"{shown(issuer.name)} does not say that it supports PKCE with S256, without which a login could "
            "be stolen on its way back; no browser was opened",
        )


def _endpoint(
    errand: Errand, target: Target, issuer: Issuer, client: Client, resource: Resource
) -> TokenEndpoint:
    is_bound = resource.needs_dpop and ALGORITHM in issuer.dpop_algorithms
    return TokenEndpoint(
        errand=errand,
        target=target,
        url=issuer.token_endpoint,
        issuer=issuer.name,
        client=client,
        audience=resource.audience,
        dpop_key=new_key() if is_bound else None,
    )


def _login(endpoint: TokenEndpoint, token: Token, asked: str | None) -> Login:
    """Keep what it takes to renew the token. A scope that the answer leaves out is the one asked for."""
    target = endpoint.target
    return Login(
        principal=target.principal,
        account=target.account,
        issuer=endpoint.issuer,
        resource=target.resource,
        audience=endpoint.audience if endpoint.audience != target.resource else None,
        token_endpoint=str(endpoint.url),
        client=endpoint.client,
        token=msgspec.structs.replace(token, scope=token.scope or asked),
        dpop_key=endpoint.dpop_key if token.token_type == "DPoP" else None,  # noqa: S105 - a kind of token
    )
