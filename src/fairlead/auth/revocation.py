"""Have an issuer end a login's tokens before they run out (RFC 7009), where it offers that."""

from dataclasses import dataclass
from typing import Literal

from yarl import URL

from fairlead.auth.client_auth import credentials
from fairlead.auth.discovery import issuer_called
from fairlead.auth.guard import named, read_url, shown
from fairlead.auth.target import Target
from fairlead.auth.token_requests import TokenDocument
from fairlead.auth.tokens import Login
from fairlead.auth.web import Errand, Web
from fairlead.errors import FairleadError, LoginFailed

_UNKNOWN_KIND = "unsupported_token_type"


@dataclass(frozen=True, kw_only=True, slots=True)
class Revocation:
    """What became of a login's tokens at their issuer."""

    outcome: Literal["revoked", "not_offered", "failed", "nothing_to_revoke"]
    reason: str | None = None
    """Why it failed."""


async def revoke(target: Target, login: Login, web: Web) -> Revocation:
    """Ask the issuer of a login, and nobody else, to end its tokens. Whatever goes wrong is in the result."""
    if login.is_over:
        return Revocation(outcome="nothing_to_revoke")
    try:
        errand = await web.errand(target.server_id, target.url, target.chosen_hosts)
        issuer = await issuer_called(errand, target, login.issuer)
        if issuer is None or not issuer.revocation_endpoint:
            return Revocation(outcome="not_offered")
        url = errand.checked(issuer.revocation_endpoint, "the revocation endpoint")
        _require_bound(target, login, url)
        # The refresh token first: most issuers end with it all that came of it.
        if login.token.refresh_token is not None:
            await _revoke(errand, target, login, url, "refresh_token")
        await _revoke(errand, target, login, url, "access_token")
    except FairleadError as exc:
        return Revocation(outcome="failed", reason=str(exc))
    return Revocation(outcome="revoked")


def _require_bound(target: Target, login: Login, url: URL) -> None:
    """Refuse to send tokens to an origin that was not part of the login: on one machine, ports differ too."""
    bound = {read.origin() for text in (login.issuer, login.token_endpoint) if (read := read_url(text))}
    if url.origin() not in bound:
        raise LoginFailed(target.server_id, f"{named(url)} had no part in the login, and is sent no token")


async def _revoke(
    errand: Errand, target: Target, login: Login, url: URL, kind: Literal["refresh_token", "access_token"]
) -> None:
    known = credentials(target, login.client, login.issuer)
    token = login.token.refresh_token if kind == "refresh_token" else login.token.access_token
    form = {"token": token or "", "token_type_hint": kind, **known.form}
    answer = await errand.post(url, form=form, headers=known.headers)
    document = answer.read(TokenDocument)
    error = document.error if document is not None else None
    ended_with_the_other = kind == "access_token" and login.token.refresh_token is not None
    if answer.status == 200 or (error == _UNKNOWN_KIND and ended_with_the_other):
        return
    said = f"`{shown(error, 60)}`" if error else f"status {answer.status}"
    raise LoginFailed(target.server_id, f"{named(url)} answers with {said}")
