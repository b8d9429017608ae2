"""Token endpoint requests: code exchange, token refresh, machine grants, and revocation (RFC 7009)."""

import math
import re
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from yarl import URL

from fairlead.auth.clients import credentials
from fairlead.auth.discovery import fetch_issuer
from fairlead.auth.http import HttpAnswer, HttpContext, OAuthHttp
from fairlead.auth.proofs import Pkce, proof
from fairlead.auth.tokens import Login, LoginTarget, OAuthClient, Token
from fairlead.auth.url_guard import escape_text, read_url, without_query
from fairlead.config.command_lines import command_line
from fairlead.config.oauth_models import IdentityProvider
from fairlead.errors import FairleadError, IssuerUnavailable, LoginFailed, TokenRefused

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TRY_LATER = (408, 425, 429)
_TEMPORARY = ("temporarily_unavailable", "server_error", "slow_down")
_MAX_LIFETIME = 10 * 365 * 86_400
# What may stand in a header. Anything else is no token, but an attempt at another header.
_HEADER_SAFE = re.compile(r"[!-~]+")


class TokenDocument(msgspec.Struct, frozen=True):
    """A token response (RFC 6749), not validated yet."""

    access_token: str | None = None
    token_type: str | None = None
    expires_in: int | float | str | None = None
    refresh_token: str | None = None
    scope: Any = None
    error: str | None = None
    error_description: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenEndpoint:
    """The token endpoint of one issuer for one client.

    Each request raises `TokenRefused` for `invalid_grant`, `LoginFailed` for every other refusal, and
    `IssuerUnavailable` where the answer says nothing about the grant: then what is known is kept.
    """

    http: OAuthHttp
    target: LoginTarget
    url: URL
    issuer: str
    client: OAuthClient
    audience: str
    """The resource of the tokens: sent as `resource` (RFC 8707) with every request."""
    dpop_key: str | None = field(default=None, repr=False)

    async def exchange(self, code: str, pkce: Pkce, redirect_uri: str) -> Token:
        """Exchange an authorization code for tokens."""
        form = {"code": code, "code_verifier": pkce.verifier, "redirect_uri": redirect_uri}
        return await self._request("authorization_code", form)

    async def refresh(self, refresh_token: str) -> Token:
        """Renew a login. What the answer leaves out (refresh token, scope) is as it was."""
        return await self._request("refresh_token", {"refresh_token": refresh_token})

    async def client_credentials(self, scope: str | None) -> Token:
        """Request a token with the client credentials grant."""
        return await self._request("client_credentials", _scope_parameter(scope))

    async def jwt_bearer(self, assertion: str, scope: str | None) -> Token:
        """Request a token with a JWT bearer `assertion` (RFC 7523)."""
        return await self._request(_JWT_BEARER, {"assertion": assertion, **_scope_parameter(scope)})

    async def _request(self, grant_type: str, form: dict[str, str]) -> Token:
        form = {"grant_type": grant_type, **form, "resource": self.audience}
        answer = await self._post(form, None)
        nonce = answer.headers.get("DPoP-Nonce")
        if self.dpop_key is not None and nonce is not None and _wants_nonce(answer):
            answer = await self._post(form, nonce)
        return self._token(answer)

    async def _post(self, form: dict[str, str], nonce: str | None) -> HttpAnswer:
        known = credentials(self.target, self.client, self.issuer)
        headers = dict(known.headers)
        if self.dpop_key is not None:
            headers["DPoP"] = proof(self.dpop_key, "POST", self.url, nonce=nonce)
        return await self.http.post(self.url, form={**form, **known.form}, headers=headers)

    def _token(self, answer: HttpAnswer) -> Token:
        document = read_answer(self.target.server_id, answer)
        kind = (document.token_type or "Bearer").lower()
        if kind not in ("bearer", "dpop") or (kind == "dpop" and self.dpop_key is None):
            raise LoginFailed(
                self.target.server_id, f"it got a token of an unknown type: {escape_text(kind, 40)}"
            )
        return Token(
            access_token=_safe(self.target.server_id, document.access_token or ""),
            token_type="DPoP" if kind == "dpop" else "Bearer",
            refresh_token=document.refresh_token or None,
            expires_at=expiry(document.expires_in),
            issued_at=int(time.time() * 1000),
            scope=_scope(document.scope),
        )


def read_answer(server_id: str, answer: HttpAnswer) -> TokenDocument:
    """Parse a token response. Raises `TokenRefused`, `LoginFailed` or `IssuerUnavailable` for an error."""
    where = without_query(answer.url)
    document = answer.read(TokenDocument)
    if answer.status >= 500 or answer.status in _TRY_LATER:
        raise IssuerUnavailable(server_id, f"{where} answers with status {answer.status}")
    # HTML of a proxy, say. The refresh token may be good still, so it is not thrown away for this.
    if document is None:
        raise IssuerUnavailable(server_id, f"{where} answers with status {answer.status} and no usable body")
    if document.error is not None:
        raise _refusal(server_id, document.error, document.error_description, where)
    if answer.status not in (200, 201) or not document.access_token:
        raise IssuerUnavailable(server_id, f"{where} answers with status {answer.status} and no token")
    return document


def _refusal(server_id: str, error: str, description: object, where: str) -> FairleadError:
    words = f"{where} says `{escape_text(error, 60)}`"
    if isinstance(description, str) and description:
        words += f": {escape_text(description)}"
    if error in _TEMPORARY:
        return IssuerUnavailable(server_id, words)
    # The one answer that says that a refresh token is over (RFC 6749, 5.2); for all others it is kept.
    if error == "invalid_grant":
        return TokenRefused(server_id, words, hint=f"run `{command_line('login', server_id)}`")
    if error in ("invalid_client", "unauthorized_client"):
        return LoginFailed(
            server_id,
            words,
            hint="check `oauth.client_id` and `oauth.client_secret` if they are set; "
            f"else run `{command_line('logout', server_id)}`, then `{command_line('login', server_id)}`",
        )
    return LoginFailed(server_id, words)


def expiry(expires_in: float | str | None) -> int | None:
    """Expiry of a lifetime in seconds, in milliseconds since 1970; None for an invalid lifetime."""
    try:
        seconds = float(expires_in) if expires_in is not None else math.nan
    except (ValueError, OverflowError):
        return None
    if math.isnan(seconds):
        return None
    return int((time.time() + min(max(seconds, 0.0), _MAX_LIFETIME)) * 1000)


def _scope_parameter(scope: str | None) -> dict[str, str]:
    return {"scope": scope} if scope else {}


def _scope(value: object) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _safe(server_id: str, access_token: str) -> str:
    # A line break in it would be a header of its own in every request.
    if not _HEADER_SAFE.fullmatch(access_token):
        raise LoginFailed(server_id, "it got a token with invalid characters")
    return access_token


def _wants_nonce(answer: HttpAnswer) -> bool:
    document = answer.read(TokenDocument)
    return document is not None and document.error == "use_dpop_nonce"


_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"  # noqa: S105 - a name
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


async def obtain(endpoint: TokenEndpoint, scope: str | None) -> Token:
    """Get a token as `oauth.grant` says. A refusal is final: no other grant is tried."""
    oauth = endpoint.target.oauth
    if oauth.grant == "client_credentials":
        return await endpoint.client_credentials(scope)
    if oauth.identity is not None:
        return await endpoint.jwt_bearer(
            await _exchange_identity_token(endpoint, oauth.identity, scope), scope
        )
    if oauth.assertion is not None:
        return await endpoint.jwt_bearer(oauth.assertion, scope)
    raise LoginFailed(
        endpoint.target.server_id,
        f"`oauth.grant` is `{oauth.grant}`, and no assertion is configured",
        hint="set `oauth.assertion`, best as a reference such as `${file:token}`, or `oauth.identity`",
    )


async def _exchange_identity_token(
    endpoint: TokenEndpoint, identity: IdentityProvider, scope: str | None
) -> str:
    """Exchange a token of the identity provider for an assertion to the issuer (RFC 8693)."""
    form = {
        "grant_type": _EXCHANGE,
        "requested_token_type": f"{_TOKEN_TYPE}id-jag",
        "subject_token": identity.token,
        "subject_token_type": f"{_TOKEN_TYPE}id_token",
        "audience": endpoint.issuer,
        "resource": endpoint.audience,
    }
    if identity.client_id is not None:
        form["client_id"] = identity.client_id
    if scope:
        form["scope"] = scope
    url = endpoint.http.require_url(identity.token_url, "`oauth.identity.token_url`")
    answer = await endpoint.http.post(url, form=form)
    document = read_answer(endpoint.target.server_id, answer)
    assert document.access_token is not None
    return document.access_token


_UNKNOWN_KIND = "unsupported_token_type"


@dataclass(frozen=True, kw_only=True, slots=True)
class Revocation:
    """The outcome of revoking a login's tokens."""

    outcome: Literal["revoked", "not_offered", "failed", "nothing_to_revoke"]
    reason: str | None = None
    """Why it failed."""


async def revoke(target: LoginTarget, login: Login, web: HttpContext) -> Revocation:
    """Revoke the tokens of a login at its own issuer. Failures are in the result."""
    if login.is_over:
        return Revocation(outcome="nothing_to_revoke")
    try:
        http = await web.client_for(target.server_id, target.url, target.chosen_hosts)
        issuer = await fetch_issuer(http, target, login.issuer)
        if issuer is None or not issuer.revocation_endpoint:
            return Revocation(outcome="not_offered")
        url = http.require_url(issuer.revocation_endpoint, "the revocation endpoint")
        # Metadata was fetched anew and may name any endpoint by now; tokens go only where they came from.
        _require_bound(target, login, url)
        # The refresh token first: most issuers end with it all that came of it.
        if login.token.refresh_token is not None:
            await _revoke(http, target, login, url, "refresh_token")
        await _revoke(http, target, login, url, "access_token")
    except FairleadError as exc:
        return Revocation(outcome="failed", reason=str(exc))
    return Revocation(outcome="revoked")


def _require_bound(target: LoginTarget, login: Login, url: URL) -> None:
    """Refuse to send tokens to an origin that was not part of the login: on one machine, ports differ too."""
    bound = {read.origin() for text in (login.issuer, login.token_endpoint) if (read := read_url(text))}
    if url.origin() not in bound:
        raise LoginFailed(
            target.server_id,
            f"{without_query(url)} is not an endpoint of the login's issuer, and is sent no token",
        )


async def _revoke(
    http: OAuthHttp,
    target: LoginTarget,
    login: Login,
    url: URL,
    kind: Literal["refresh_token", "access_token"],
) -> None:
    known = credentials(target, login.client, login.issuer)
    token = login.token.refresh_token if kind == "refresh_token" else login.token.access_token
    form = {"token": token or "", "token_type_hint": kind, **known.form}
    answer = await http.post(url, form=form, headers=known.headers)
    document = answer.read(TokenDocument)
    error = document.error if document is not None else None
    ended_with_the_other = kind == "access_token" and login.token.refresh_token is not None
    if answer.status == 200 or (error == _UNKNOWN_KIND and ended_with_the_other):
        return
    reason = f"`{escape_text(error, 60)}`" if error else f"status {answer.status}"
    raise LoginFailed(target.server_id, f"{without_query(url)} answers with {reason}")
