"""OAuth clients: configured, described at a client metadata URL, or registered dynamically (RFC 7591).

Also client authentication at the token endpoint (RFC 6749, 7523).
"""

import base64
import time
from dataclasses import dataclass, field
from typing import Any, get_args
from urllib.parse import quote_plus, urlsplit

import msgspec

from fairlead.auth.discovery import NO_LOGIN_HINT, Issuer
from fairlead.auth.http import HttpAnswer, OAuthHttp
from fairlead.auth.proofs import algorithm_of, read_key, sign_claims
from fairlead.auth.redirect import CALLBACK_PATH, HOST, REGISTERED_PORT
from fairlead.auth.tokens import ClientAuth, Login, LoginTarget, OAuthClient
from fairlead.auth.url_guard import escape_text, read_url, without_query
from fairlead.config.command_lines import command_line
from fairlead.errors import ClientRegistrationRequired, IssuerUnavailable, LoginFailed

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS = 120
KNOWN: tuple[ClientAuth, ...] = get_args(ClientAuth)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCredentials:
    """Client authentication of a request: headers and form fields. Left out of its `repr`."""

    form: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    headers: dict[str, str] = field(default_factory=dict[str, str], repr=False)


def choose_configured_auth(target: LoginTarget, issuer: Issuer) -> ClientAuth:
    """Return the authentication method of a configured client: the user's choice, else the issuer's."""
    oauth = target.oauth
    if oauth.auth_method is not None:
        return oauth.auth_method
    if oauth.private_key is not None:
        return "private_key_jwt"
    if oauth.client_secret is None:
        return "none"
    return first_supported_auth(target, issuer, ("client_secret_basic", "client_secret_post"))


def first_supported_auth(target: LoginTarget, issuer: Issuer, choices: tuple[ClientAuth, ...]) -> ClientAuth:
    """Return the first choice that the issuer supports. One that does not say supports the first."""
    supported = issuer.auth_methods
    if supported is None:
        return choices[0]
    for choice in choices:
        if choice in supported:
            return choice
    raise LoginFailed(
        target.server_id,
        f"{escape_text(issuer.name)} lets clients authenticate by "
        f"{escape_text(' or '.join(supported) or 'nothing')}, "
        f"and this one knows {' or '.join(choices)}",
    )


def credentials(target: LoginTarget, client: OAuthClient, audience: str) -> ClientCredentials:
    """Make the client authentication of a request to the issuer `audience`.

    Secrets of configured clients are taken from the configuration each time, so that they are kept once.
    """
    is_ours = client.origin == "configured" and client.client_id == target.oauth.client_id
    secret = target.oauth.client_secret if is_ours else client.client_secret
    match client.auth:
        case "none":
            return ClientCredentials(form={"client_id": client.client_id})
        case "private_key_jwt":
            return ClientCredentials(form=_assertion(target, client.client_id, audience))
        case "client_secret_post":
            return ClientCredentials(
                form={"client_id": client.client_id, "client_secret": _require_secret(target, secret)}
            )
        case "client_secret_basic":
            pair = f"{quote_plus(client.client_id)}:{quote_plus(_require_secret(target, secret))}"
            encoded = base64.b64encode(pair.encode()).decode()
            return ClientCredentials(headers={"Authorization": f"Basic {encoded}"})


def _require_secret(target: LoginTarget, secret: str | None) -> str:
    if secret is None:
        raise LoginFailed(
            target.server_id,
            "the client must authenticate with a secret, and has none",
            hint="set `oauth.client_secret`, best as a reference such as `${NAME}`",
        )
    return secret


def _assertion(target: LoginTarget, client_id: str, audience: str) -> dict[str, str]:
    oauth = target.oauth
    if oauth.private_key is None:
        raise LoginFailed(
            target.server_id,
            "the client must authenticate with a signature, and has no key",
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
        "client_assertion": sign_claims(claims, key, algorithm),
    }


_PUBLIC_FIRST: tuple[ClientAuth, ...] = ("none", "client_secret_basic", "client_secret_post")
_SECRET_FIRST: tuple[ClientAuth, ...] = ("client_secret_basic", "client_secret_post", "none")


class RegistrationDocument(msgspec.Struct, frozen=True):
    """A registration response (RFC 7591), as far as it is used."""

    client_id: str | None = None
    client_secret: str | None = None
    client_secret_expires_at: int | float | None = None
    token_endpoint_auth_method: str | None = None
    error: str | None = None
    error_description: Any = None


async def client_for(
    http: OAuthHttp,
    target: LoginTarget,
    issuer: Issuer,
    redirect_uri: str,
    *,
    scope: str | None,
    previous: Login | None,
) -> OAuthClient:
    """The OAuth client to log in as; registers one where there is none yet and the issuer allows it.

    Args:
        http: Sends the registration.
        target: The server, with a configured client if it has one.
        issuer: The issuer's metadata.
        redirect_uri: Where the browser is to be redirected to.
        scope: The scopes to register for.
        previous: The last login here, whose client is used again if it still fits.

    Raises:
        ClientRegistrationRequired: There is no client, and the issuer registers none.
    """
    client = find_existing_client(target, issuer, previous)
    if client is not None:
        return client
    if previous is not None and _still_fits(previous, issuer, redirect_uri):
        return previous.client
    if issuer.registration_endpoint is None:
        raise _no_client(target, issuer, redirect_uri, "does not let clients register themselves")
    return await _register(http, target, issuer, redirect_uri, scope)


def find_existing_client(target: LoginTarget, issuer: Issuer, previous: Login | None) -> OAuthClient | None:
    """Return the client that needs no registration, if there is one."""
    oauth = target.oauth
    if oauth.client_id is not None:
        _check_same_issuer(target, oauth.client_id, issuer, previous)
        auth = choose_configured_auth(target, issuer)
        return OAuthClient(client_id=oauth.client_id, auth=auth, origin="configured")
    if oauth.client_metadata_url is None or not issuer.takes_metadata_urls:
        return None
    url = read_url(oauth.client_metadata_url)
    if url is None or url.scheme != "https" or url.path == "/":
        raise LoginFailed(target.server_id, "`oauth.client_metadata_url` must be an https URL with a path")
    auth = "private_key_jwt" if oauth.private_key is not None else "none"
    return OAuthClient(client_id=oauth.client_metadata_url, auth=auth, origin="metadata_url")


def _check_same_issuer(target: LoginTarget, client_id: str, issuer: Issuer, previous: Login | None) -> None:
    """Refuse to show one issuer the client that the user has with another."""
    if previous is None or previous.issuer == issuer.name:
        return
    if previous.client.origin == "configured" and previous.client.client_id == client_id:
        raise LoginFailed(
            target.server_id,
            f"its authorization server is now {escape_text(issuer.name)}, and the configured client is known "
            f"to {escape_text(previous.issuer)}",
            hint=f"if that is right, run `{command_line('logout', target.server_id)}` and set "
            "`oauth.client_id` anew",
        )


def _still_fits(previous: Login, issuer: Issuer, redirect_uri: str) -> bool:
    client = previous.client
    return (
        client.origin == "registered"
        and previous.issuer == issuer.name
        # Issuers compare the redirect URI with the registered one, port included.
        and client.redirect_uri == redirect_uri
        and (client.secret_expires_at is None or client.secret_expires_at > time.time() * 1000)
    )


async def _register(
    http: OAuthHttp, target: LoginTarget, issuer: Issuer, redirect_uri: str, scope: str | None
) -> OAuthClient:
    assert issuer.registration_endpoint is not None
    choices = _SECRET_FIRST if issuer.auth_methods is None else _PUBLIC_FIRST
    wanted = first_supported_auth(target, issuer, choices)
    request = {
        "client_name": "Fairlead",
        # The default is `web`, for which issuers refuse http redirects (OpenID Connect Registration, 2).
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
        **({"scope": scope} if scope else {}),
    }
    answer = await http.post(issuer.registration_endpoint, json=request)
    document = _read_registration(target, issuer, redirect_uri, answer)
    expires = document.client_secret_expires_at or 0
    return OAuthClient(
        client_id=document.client_id or "",
        client_secret=document.client_secret or None,
        auth=_choose_auth_method(target, document, wanted),
        origin="registered",
        secret_expires_at=int(expires * 1000) if document.client_secret and expires > 0 else None,
        redirect_uri=redirect_uri,
    )


def _read_registration(
    target: LoginTarget, issuer: Issuer, redirect_uri: str, answer: HttpAnswer
) -> RegistrationDocument:
    document = answer.read(RegistrationDocument)
    if answer.status in (200, 201) and document is not None and document.client_id:
        return document
    # Nothing is wrong with the request: the hint to create a client by hand would mislead.
    if answer.status >= 500 or answer.status == 429:
        raise IssuerUnavailable(
            target.server_id, f"{without_query(answer.url)} answers with status {answer.status}"
        )
    if not issuer.is_described:
        raise LoginFailed(
            target.server_id,
            f"found no way to log in ({without_query(answer.url)} answers with status {answer.status})",
            hint=NO_LOGIN_HINT,
        )
    reason = f"did not register this client (status {answer.status}"
    if document is not None and document.error:
        reason += f", `{escape_text(document.error, 60)}`"
        if isinstance(document.error_description, str) and document.error_description:
            reason += f": {escape_text(document.error_description)}"
    raise _no_client(target, issuer, redirect_uri, f"{reason})")


def _choose_auth_method(
    target: LoginTarget, document: RegistrationDocument, wanted: ClientAuth
) -> ClientAuth:
    """Return how the client authenticates: as the answer says, else as having a secret or none suggests."""
    named_method = document.token_endpoint_auth_method
    if named_method is None:
        if not document.client_secret:
            return "none"
        return wanted if wanted != "none" else "client_secret_basic"
    for method in KNOWN:
        if method == named_method:
            # Some always answer `client_secret_…`, and then give no secret to authenticate with.
            is_secret = method in ("client_secret_basic", "client_secret_post")
            return "none" if is_secret and not document.client_secret else method
    raise LoginFailed(
        target.server_id,
        f"clients are to authenticate by {escape_text(named_method, 60)}, unknown here",
    )


def require_registration(target: LoginTarget, issuer: Issuer, previous: Login | None) -> None:
    """Check that there is a client, or that the issuer registers one. Contacts nothing.

    Raises:
        ClientRegistrationRequired: The user has to register one.
    """
    if find_existing_client(target, issuer, previous) is not None or issuer.registration_endpoint is not None:
        return
    registered = previous.client.redirect_uri if previous is not None else None
    if previous is not None and registered is not None and _still_fits(previous, issuer, registered):
        return
    port = target.oauth.callback_port or REGISTERED_PORT
    redirect_uri = f"http://{HOST}:{port}{CALLBACK_PATH}"
    raise _no_client(target, issuer, redirect_uri, "does not let clients register themselves")


def _no_client(
    target: LoginTarget, issuer: Issuer, redirect_uri: str, reason: str
) -> ClientRegistrationRequired:
    # A redirect URI is registered with its port, so the next login must come back to the same one.
    port = urlsplit(redirect_uri).port
    fixed = ("--callback-port", str(port)) if port and target.oauth.callback_port is None else ()
    command = command_line("login", target.server_id, options=("--client-id", "ID", *fixed))
    fields = "`oauth.client_id` and `oauth.callback_port`" if fixed else "`oauth.client_id`"
    return ClientRegistrationRequired(
        target.server_id,
        f"{escape_text(issuer.name)} {reason}",
        hint=f"create an OAuth client in its provider's developer settings (a native app: authorization code "
        f"with PKCE), with the redirect URI {redirect_uri}, then run `{command}`, which writes {fields}",
    )
