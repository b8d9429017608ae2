"""Tokens without a person: for the client itself, for a workload, or by a company's identity provider."""

from fairlead.auth.token_requests import TokenEndpoint, read_answer
from fairlead.auth.tokens import Token
from fairlead.config.models import Identity
from fairlead.errors import LoginFailed

_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"  # noqa: S105 - a name
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


async def obtain(endpoint: TokenEndpoint, scope: str | None) -> Token:
    """Get a token as `oauth.grant` says. A refusal is final: no other grant is tried."""
    oauth = endpoint.target.oauth
    if oauth.grant == "client_credentials":
        return await endpoint.client_credentials(scope)
    if oauth.identity is not None:
        return await endpoint.jwt_bearer(await _vouched(endpoint, oauth.identity, scope), scope)
    if oauth.assertion is not None:
        return await endpoint.jwt_bearer(oauth.assertion, scope)
    raise LoginFailed(
        endpoint.target.server_id,
        f"`oauth.grant` is `{oauth.grant}`, and nothing says who vouches for us",
        hint="set `oauth.assertion`, best as a reference such as `${file:token}`, or `oauth.identity`",
    )


async def _vouched(endpoint: TokenEndpoint, identity: Identity, scope: str | None) -> str:
    """Have the identity provider vouch for its person towards the issuer (RFC 8693)."""
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
    url = endpoint.errand.checked(identity.token_url, "`oauth.identity.token_url`")
    answer = await endpoint.errand.post(url, form=form)
    document = read_answer(endpoint.target.server_id, answer)
    assert document.access_token is not None
    return document.access_token
