"""Requests to a token endpoint, and what their answers mean."""

import math
import re
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
from yarl import URL

from fairlead.auth.client_auth import credentials
from fairlead.auth.dpop import proof
from fairlead.auth.guard import named, shown
from fairlead.auth.pkce import Pkce
from fairlead.auth.target import Target
from fairlead.auth.tokens import Client, Token
from fairlead.auth.web import Answer, Errand
from fairlead.config.command_lines import command_line
from fairlead.errors import FairleadError, IssuerUnavailable, LoginFailed, TokenRefused

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TRY_LATER = (408, 425, 429)
_TEMPORARY = ("temporarily_unavailable", "server_error", "slow_down")
_MAX_LIFETIME = 10 * 365 * 86_400
# What may stand in a header. Anything else is no token, but an attempt at another header.
_HEADER_SAFE = re.compile(r"[!-~]+")


class TokenDocument(msgspec.Struct, frozen=True):
    """What a token endpoint says, before anything of it is believed."""

    access_token: str | None = None
    token_type: str | None = None
    expires_in: int | float | str | None = None
    refresh_token: str | None = None
    scope: Any = None
    error: str | None = None
    error_description: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenEndpoint:
    """Where one client of one issuer gets its tokens.

    Each request raises `TokenRefused` for `invalid_grant`, `LoginFailed` for every other refusal, and
    `IssuerUnavailable` where the answer says nothing about the grant: then what is known is kept.
    """

    errand: Errand
    target: Target
    url: URL
    issuer: str
    client: Client
    audience: str
    """What the tokens are for: sent as `resource` (RFC 8707) with every request."""
    dpop_key: str | None = field(default=None, repr=False)

    async def exchange(self, code: str, pkce: Pkce, redirect_uri: str) -> Token:
        """Redeem the code that the browser came back with."""
        form = {"code": code, "code_verifier": pkce.verifier, "redirect_uri": redirect_uri}
        return await self._request("authorization_code", form)

    async def refresh(self, refresh_token: str) -> Token:
        """Renew a login. What the answer leaves out (refresh token, scope) is as it was."""
        return await self._request("refresh_token", {"refresh_token": refresh_token})

    async def client_credentials(self, scope: str | None) -> Token:
        """Ask for a token for the client itself."""
        return await self._request("client_credentials", _scoped(scope))

    async def jwt_bearer(self, assertion: str, scope: str | None) -> Token:
        """Ask for a token for whom `assertion` vouches (RFC 7523)."""
        return await self._request(_JWT_BEARER, {"assertion": assertion, **_scoped(scope)})

    async def _request(self, grant_type: str, form: dict[str, str]) -> Token:
        form = {"grant_type": grant_type, **form, "resource": self.audience}
        answer = await self._post(form, None)
        nonce = answer.headers.get("DPoP-Nonce")
        if self.dpop_key is not None and nonce is not None and _wants_nonce(answer):
            answer = await self._post(form, nonce)
        return self._token(answer)

    async def _post(self, form: dict[str, str], nonce: str | None) -> Answer:
        known = credentials(self.target, self.client, self.issuer)
        headers = dict(known.headers)
        if self.dpop_key is not None:
            headers["DPoP"] = proof(self.dpop_key, "POST", self.url, nonce=nonce)
        return await self.errand.post(self.url, form={**form, **known.form}, headers=headers)

    def _token(self, answer: Answer) -> Token:
        document = read_answer(self.target.server_id, answer)
        kind = (document.token_type or "Bearer").lower()
        if kind not in ("bearer", "dpop") or (kind == "dpop" and self.dpop_key is None):
            raise LoginFailed(
                self.target.server_id, f"it got a token of a kind unknown here: {shown(kind, 40)}"
            )
        return Token(
            access_token=_safe(self.target.server_id, document.access_token or ""),
            token_type="DPoP" if kind == "dpop" else "Bearer",
            refresh_token=document.refresh_token or None,
            expires_at=expiry(document.expires_in),
            issued_at=int(time.time() * 1000),
            scope=_scope(document.scope),
        )


def read_answer(server_id: str, answer: Answer) -> TokenDocument:
    """Return an answer that holds a token; any other is raised as what it means."""
    where = named(answer.url)
    document = answer.read(TokenDocument)
    if answer.status >= 500 or answer.status in _TRY_LATER:
        raise IssuerUnavailable(server_id, f"{where} answers with status {answer.status}")
    if document is None:
        raise IssuerUnavailable(server_id, f"{where} answers with status {answer.status} and nothing of use")
    if document.error is not None:
        raise _refusal(server_id, document.error, document.error_description, where)
    if answer.status not in (200, 201) or not document.access_token:
        raise IssuerUnavailable(server_id, f"{where} answers with status {answer.status} and no token")
    return document


def _refusal(server_id: str, error: str, description: object, where: str) -> FairleadError:
    words = f"{where} says `{shown(error, 60)}`"
    if isinstance(description, str) and description:
        words += f": {shown(description)}"
    if error in _TEMPORARY:
        return IssuerUnavailable(server_id, words)
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
    """Return when a lifetime in seconds is over, in milliseconds since 1970; None if it makes no sense."""
    try:
        seconds = float(expires_in) if expires_in is not None else math.nan
    except (ValueError, OverflowError):
        return None
    if math.isnan(seconds):
        return None
    return int((time.time() + min(max(seconds, 0.0), _MAX_LIFETIME)) * 1000)


def _scoped(scope: str | None) -> dict[str, str]:
    return {"scope": scope} if scope else {}


def _scope(value: object) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _safe(server_id: str, access_token: str) -> str:
    if not _HEADER_SAFE.fullmatch(access_token):
        raise LoginFailed(server_id, "it got a token with characters that no token has")
    return access_token


def _wants_nonce(answer: Answer) -> bool:
    document = answer.read(TokenDocument)
    return document is not None and document.error == "use_dpop_nonce"
