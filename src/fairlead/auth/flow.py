"""The OAuth login flow: discovery, client, authorization request with PKCE, validated redirect, tokens.

Machine grants log in without the user. OAuth scopes are chosen here, too.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from yarl import URL

from fairlead.auth import token_endpoint as machine
from fairlead.auth.clients import client_for, find_existing_client, require_registration
from fairlead.auth.discovery import (
    NO_LOGIN_HINT,
    NO_METADATA,
    AuthChallenge,
    Issuer,
    ProtectedResource,
    find_issuer,
    find_resource,
    no_document_url,
)
from fairlead.auth.http import HttpContext, OAuthHttp
from fairlead.auth.proofs import ALGORITHM, Pkce, new_key, new_pkce, new_state
from fairlead.auth.token_endpoint import TokenEndpoint
from fairlead.auth.tokens import Login, LoginRedirect, LoginTarget, OAuthClient, Token
from fairlead.auth.url_guard import escape_text, read_url
from fairlead.config.command_lines import command_line
from fairlead.errors import LoginFailed, TokenRefused

OFFLINE = "offline_access"


def scope_to_ask(
    target: LoginTarget,
    resource: ProtectedResource,
    challenge: AuthChallenge | None,
    granted: str | None,
    wanted: str | None,
) -> str | None:
    """Return the scope to request, or None to leave it to the issuer.

    What the user says (`wanted` now, `oauth.scope` for good) counts as it is. Else it is what the server's
    challenge demands, or what its metadata lists; and what was `granted` before stays. A token that does not
    allow enough gets what it has and what is demanded, from whichever source.
    """
    demanded = challenge.scope if challenge is not None else None
    if challenge is not None and challenge.wants_more_scope:
        return merge_scopes(wanted or target.oauth.scope, granted, demanded)
    if wanted or target.oauth.scope:
        return merge_scopes(wanted or target.oauth.scope)
    return merge_scopes(granted, demanded or " ".join(resource.scopes or ()))


def with_offline_access(scope: str | None, issuer: Issuer) -> str | None:
    """Add `offline_access`, for a refresh token, where the issuer lists it. No scope stays no scope."""
    return merge_scopes(scope, OFFLINE) if scope and OFFLINE in issuer.scopes else scope


def previous_scope(previous: Login | None, issuer: Issuer) -> str | None:
    """Return the scope of the last login with this issuer."""
    return previous.token.scope if previous is not None and previous.issuer == issuer.name else None


def merge_scopes(*scopes: str | None) -> str | None:
    """Merge scopes in order, without repetition."""
    names = (name for scope in scopes for name in (scope or "").split())
    return " ".join(dict.fromkeys(names)) or None


_MAX_FIELDS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class AuthorizationRequest:
    """One request. Its state is its own, so that the answer to another one is none to it."""

    server_id: str
    issuer: Issuer
    client_id: str
    redirect_uri: str
    audience: str
    scope: str | None
    pkce: Pkce = field(default_factory=new_pkce)
    state: str = field(default_factory=new_state, repr=False)

    @property
    def url(self) -> str:
        """The URL of the authorization request. Untrusted parts are percent-encoded."""
        endpoint = self.issuer.authorization_endpoint
        assert endpoint is not None
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "code_challenge": self.pkce.challenge,
            "code_challenge_method": "S256",
            "state": self.state,
            # RFC 8707: a token for this server only, of no use to another one that is sent it.
            "resource": self.audience,
        }
        if self.scope:
            query["scope"] = self.scope
            if OFFLINE in self.scope.split():
                # OpenID Connect gives refresh tokens only where consent is requested (`prompt=consent`).
                query["prompt"] = "consent"
        # An endpoint may have a query of its own (RFC 6749, 3.1); it must not replace our `state`, say.
        theirs = [(name, value) for name, value in endpoint.query.items() if name not in query]
        return f"{endpoint.with_query(None)}?{urlencode([*theirs, *query.items()])}"

    def code_in(self, answer: str) -> str:
        """Return the code in a redirect URL, if it answers this request.

        Until state and issuer are known to be right, nothing of the answer is believed or shown.
        """
        fields = self._fields_of(answer)
        if not hmac.compare_digest(fields.get("state", "").encode(), self.state.encode()):
            raise LoginFailed(
                self.server_id,
                "the redirect does not belong to this login (wrong or missing `state`)",
                hint=f"run `{command_line('login', self.server_id)}` again, and use only the page it opens",
            )
        self._check_issuer(fields.get("iss"))
        name = escape_text(self.issuer.name)
        if "error" in fields:
            words = f"{name} says `{escape_text(fields['error'], 60)}`"
            if fields.get("error_description"):
                words += f": {escape_text(fields['error_description'])}"
            raise LoginFailed(self.server_id, words)
        if not fields.get("code"):
            raise LoginFailed(self.server_id, f"{name} redirected the browser without a code")
        return fields["code"]

    def _check_issuer(self, iss: str | None) -> None:
        """Refuse what comes from another issuer (RFC 9207), whose code would go to the wrong place."""
        if iss is None:
            if self.issuer.advertises_iss:
                raise LoginFailed(self.server_id, "the redirect has no `iss` parameter; refused")
        elif self.issuer.is_named and iss != self.issuer.name:
            raise LoginFailed(
                self.server_id, f"the redirect is not from {escape_text(self.issuer.name)}; refused"
            )

    def _fields_of(self, answer: str) -> dict[str, str]:
        try:
            query = urlsplit(answer).query
            pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError as exc:
            raise LoginFailed(self.server_id, "the redirect cannot be parsed") from exc
        fields = dict(pairs)
        if len(fields) != len(pairs):
            raise LoginFailed(self.server_id, "the redirect has a parameter twice; refused")
        return fields


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginTerms:
    """The issuer of a login and its token endpoint, which the login stays bound to."""

    issuer: str
    token_endpoint: URL
    previous: str | None = None
    """The token endpoint of the last login with this issuer."""

    @property
    def words(self) -> str:
        """A description for the user before the login."""
        host = self.token_endpoint.host or ""
        text = f"Its tokens are issued and renewed by {escape_text(host)}"
        issuer = read_url(self.issuer)
        if issuer is not None and issuer.host != host:
            text += f", for {escape_text(self.issuer)}"
        before = read_url(self.previous) if self.previous else None
        if before is not None and before.host != host:
            text += f"; at your last login that was {escape_text(before.host or '')}"
        return f"{text}."


Announce: TypeAlias = Callable[[LoginTerms], None]


async def log_in(  # noqa: PLR0913 - all that a login can depend on
    target: LoginTarget,
    redirect: LoginRedirect,
    web: HttpContext,
    *,
    challenge: AuthChallenge | None = None,
    previous: Login | None = None,
    scopes: str | None = None,
    announce: Announce = lambda _terms: None,
) -> Login:
    """Have the user log in with the authorization code grant (RFC 6749, 4.1) and PKCE.

    No browser opens before the issuer has been found to be one that codes are safe with.

    Args:
        target: The server, account and OAuth settings.
        redirect: Shows the login page and returns the URL that the browser is redirected to.
        web: Makes the HTTP client that may reach what the server names, and nothing else.
        challenge: The server's `WWW-Authenticate` challenge.
        previous: The last login here; its client is reused if it still fits.
        scopes: The OAuth scopes that the user wants.
        announce: Called with the issuer before the user is prompted to open a page.

    Raises:
        LoginFailed: There is no way to log in, or the user or the issuer refused.
        IssuerUnavailable: The issuer cannot be reached now.
    """
    http = await web.client_for(target.server_id, target.url, target.chosen_hosts)
    resource, issuer = await _find(http, target, challenge, previous)
    # Before registration and browser: a code without PKCE is worth a token to any program that sees it.
    _check_codes_are_safe(target, issuer)
    if not issuer.is_described and not await _has_usual_endpoint(http, issuer):
        raise LoginFailed(target.server_id, NO_METADATA, hint=NO_LOGIN_HINT)
    scope = scope_to_ask(target, resource, challenge, previous_scope(previous, issuer), scopes)
    scope = with_offline_access(scope, issuer)
    client = await client_for(http, target, issuer, redirect.redirect_uri, scope=scope, previous=previous)
    request = AuthorizationRequest(
        server_id=target.server_id,
        issuer=issuer,
        client_id=client.client_id,
        redirect_uri=redirect.redirect_uri,
        audience=resource.audience,
        scope=scope,
    )
    before = previous.token_endpoint if previous is not None and previous.issuer == issuer.name else None
    announce(LoginTerms(issuer=issuer.name, token_endpoint=issuer.token_endpoint, previous=before))
    code = request.code_in(await redirect.visit(request.url))
    endpoint = _endpoint(http, target, issuer, client, resource)
    token = await endpoint.exchange(code, request.pkce, request.redirect_uri)
    return _login(endpoint, token, scope)


async def has_login(
    target: LoginTarget,
    web: HttpContext,
    *,
    challenge: AuthChallenge | None = None,
    previous: Login | None = None,
) -> bool:
    """Whether a server offers a login, found out without the user and without registering a client.

    Args:
        target: The server, account and OAuth settings.
        web: Makes the HTTP client.
        challenge: The server's `WWW-Authenticate` challenge.
        previous: The last login here, with its client.

    Returns:
        False where neither the server nor its authorization server publishes metadata, nor the server has the
        endpoints that were usual before there was any.

    Raises:
        ClientRegistrationRequired: It has one, for clients that the user registers.
        IssuerUnavailable: It cannot be found out now.
        LoginFailed: What its metadata says is refused.
    """
    http = await web.client_for(target.server_id, target.url, target.chosen_hosts)
    try:
        _, issuer = await _find(http, target, challenge, previous)
    except LoginFailed as exc:
        if exc.hint is NO_LOGIN_HINT:
            return False
        raise
    if not issuer.is_described:
        return await _has_usual_endpoint(http, issuer)
    require_registration(target, issuer, previous)
    return True


_NO_SUCH_PAGE: Final = frozenset({401, 403, 404, 405, 410, 501})


async def _has_usual_endpoint(http: OAuthHttp, issuer: Issuer) -> bool:
    """Whether a server of 2025-03-26 without metadata has a login page.

    Without parameters it may answer anything, a server error included. Only what servers say that
    have no such page, or ask for a key everywhere, tells that there is none; and an answer that the server
    gives at an address without a document as well, such as a web page for everything.
    """
    assert issuer.authorization_endpoint is not None, "it is the usual one"
    answer = await http.get(issuer.authorization_endpoint)
    if answer.status in _NO_SUCH_PAGE:
        return False
    elsewhere = await http.get(no_document_url(http))
    return (answer.status, answer.fault) != (elsewhere.status, elsewhere.fault)


async def machine_login(
    target: LoginTarget,
    web: HttpContext,
    *,
    challenge: AuthChallenge | None = None,
    previous: Login | None = None,
) -> Login:
    """Log in without the user, with the grant of `oauth.grant`.

    Args:
        target: The server, account and OAuth settings.
        web: Makes the HTTP client.
        challenge: The server's `WWW-Authenticate` challenge.
        previous: The last login here, whose scopes are kept.

    Raises:
        LoginFailed: No client is configured, or the issuer refused it.
    """
    http = await web.client_for(target.server_id, target.url, target.chosen_hosts)
    resource, issuer = await _find(http, target, challenge, previous)
    client = find_existing_client(target, issuer, previous)
    if client is None:
        raise LoginFailed(
            target.server_id,
            f"`oauth.grant` is `{target.oauth.grant}`, which needs a client that the issuer knows",
            hint="set `oauth.client_id`, and `oauth.client_secret` or `oauth.private_key`",
        )
    scope = scope_to_ask(target, resource, challenge, previous_scope(previous, issuer), None)
    endpoint = _endpoint(http, target, issuer, client, resource)
    return _login(endpoint, await machine.obtain(endpoint, scope), scope)


async def renew(target: LoginTarget, login: Login, web: HttpContext) -> Token:
    """Get a new token for a login, from the token endpoint it was made with and from no other.

    Metadata is not fetched again: an issuer that names another endpoint later gets nothing without a new
    login.

    Args:
        target: The server, account and OAuth settings.
        login: The login to refresh; for a machine grant, the one to repeat.
        web: Makes the HTTP client.

    Raises:
        TokenRefused: Only a new login helps.
        IssuerUnavailable: The issuer cannot be reached now; the old tokens are still good.
    """
    http = await web.client_for(target.server_id, target.url, target.chosen_hosts)
    endpoint = TokenEndpoint(
        http=http,
        target=target,
        url=http.require_url(login.token_endpoint, "the token endpoint"),
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
            "the login has expired, and its issuer gave no refresh token",
            hint=f"run `{command_line('login', target.server_id)}`",
        )
    return await endpoint.refresh(login.token.refresh_token)


async def _find(
    http: OAuthHttp, target: LoginTarget, challenge: AuthChallenge | None, previous: Login | None
) -> tuple[ProtectedResource, Issuer]:
    resource = await find_resource(http, target, challenge)
    known = previous.issuer if previous is not None else None
    return resource, await find_issuer(http, target, resource, known)


def _check_codes_are_safe(target: LoginTarget, issuer: Issuer) -> None:
    if issuer.authorization_endpoint is None:
        raise LoginFailed(
            target.server_id,
            f"{escape_text(issuer.name)} has no authorization endpoint",
            hint=NO_LOGIN_HINT,
        )
    # The MCP specification: no statement about S256 in the metadata counts as no support.
    if not issuer.has_pkce:
        raise LoginFailed(
            target.server_id,
            f"{escape_text(issuer.name)} does not say that it supports PKCE with S256, without which a login "
            "could be stolen on its way back; no browser was opened",
        )


def _endpoint(
    http: OAuthHttp, target: LoginTarget, issuer: Issuer, client: OAuthClient, resource: ProtectedResource
) -> TokenEndpoint:
    # Only where the resource demands it: servers that know no DPoP reject the scheme `DPoP`.
    is_bound = resource.needs_dpop and ALGORITHM in issuer.dpop_algorithms
    return TokenEndpoint(
        http=http,
        target=target,
        url=issuer.token_endpoint,
        issuer=issuer.name,
        client=client,
        audience=resource.audience,
        dpop_key=new_key() if is_bound else None,
    )


def _login(endpoint: TokenEndpoint, token: Token, scope: str | None) -> Login:
    """Build the login to store. A scope that the response omits is the requested one (RFC 6749, 5.1)."""
    target = endpoint.target
    return Login(
        principal=target.principal,
        account=target.account,
        issuer=endpoint.issuer,
        resource=target.resource,
        audience=endpoint.audience if endpoint.audience != target.resource else None,
        token_endpoint=str(endpoint.url),
        client=endpoint.client,
        token=msgspec.structs.replace(token, scope=token.scope or scope),
        dpop_key=endpoint.dpop_key if token.token_type == "DPoP" else None,  # noqa: S105 - a kind of token
    )
