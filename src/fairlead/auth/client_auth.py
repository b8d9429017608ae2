"""How a client shows a token endpoint that it is who it says (RFC 6749, 7523)."""

import base64
import time
from dataclasses import dataclass, field
from typing import get_args
from urllib.parse import quote_plus

from fairlead.auth.guard import shown
from fairlead.auth.metadata import Issuer
from fairlead.auth.signing import algorithm_of, read_key, signed
from fairlead.auth.target import Target
from fairlead.auth.tokens import Client, ClientAuth
from fairlead.errors import LoginFailed

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS = 120
KNOWN: tuple[ClientAuth, ...] = get_args(ClientAuth)


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """What a request has to carry so that the issuer knows the client. Never shown."""

    form: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)


def configured_auth(target: Target, issuer: Issuer) -> ClientAuth:
    """Return how a configured client authenticates: as the user says, else as the issuer likes."""
    oauth = target.oauth
    if oauth.auth_method is not None:
        return oauth.auth_method
    if oauth.private_key is not None:
        return "private_key_jwt"
    if oauth.client_secret is None:
        return "none"
    return preferred(target, issuer, ("client_secret_basic", "client_secret_post"))


def preferred(target: Target, issuer: Issuer, choices: tuple[ClientAuth, ...]) -> ClientAuth:
    """Return the first choice that the issuer supports. One that does not say supports the first."""
    supported = issuer.auth_methods
    if supported is None:
        return choices[0]
    for choice in choices:
        if choice in supported:
            return choice
    raise LoginFailed(
        target.server_id,
        f"{shown(issuer.name)} lets clients authenticate by {shown(' or '.join(supported) or 'nothing')}, "
        f"and this one knows {' or '.join(choices)}",
    )


def credentials(target: Target, client: Client, audience: str) -> Credentials:
    """Return what proves to the issuer called `audience` that we are this client.

    Secrets of configured clients are taken from the configuration each time, so that they are kept once.
    """
    is_ours = client.origin == "configured" and client.client_id == target.oauth.client_id
    secret = target.oauth.client_secret if is_ours else client.client_secret
    match client.auth:
        case "none":
            return Credentials(form={"client_id": client.client_id})
        case "private_key_jwt":
            return Credentials(form=_assertion(target, client.client_id, audience))
        case "client_secret_post":
            return Credentials(form={"client_id": client.client_id, "client_secret": _needed(target, secret)})
        case "client_secret_basic":
            pair = f"{quote_plus(client.client_id)}:{quote_plus(_needed(target, secret))}"
            encoded = base64.b64encode(pair.encode()).decode()
            return Credentials(headers={"Authorization": f"Basic {encoded}"})


def _needed(target: Target, secret: str | None) -> str:
    if secret is None:
        raise LoginFailed(
            target.server_id,
            "the client has to authenticate with a secret, and has none",
            hint="set `oauth.client_secret`, best as a reference such as `${NAME}`",
        )
    return secret


def _assertion(target: Target, client_id: str, audience: str) -> dict[str, str]:
    oauth = target.oauth
    if oauth.private_key is None:
        raise LoginFailed(
            target.server_id,
            "the client has to authenticate with a signature, and has no key",
            hint="set `oauth.private_key`, best as a reference such as `${file:key.pem}`",
        )
    try:
        key = read_key(oauth.private_key)
    except ValueError as exc:
        raise LoginFailed(target.server_id, f"`oauth.private_key` cannot be used: {exc}") from exc
    algorithm = oauth.key_algorithm or algorithm_of(key)
    if algorithm != algorithm_of(key):
        raise LoginFailed(target.server_id, f"`oauth.private_key` is no key for {algorithm}")
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "exp": int(time.time()) + _ASSERTION_SECONDS,
    }
    return {
        "client_id": client_id,
        "client_assertion_type": _ASSERTION,
        "client_assertion": signed(claims, key, algorithm),
    }
