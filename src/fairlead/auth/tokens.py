"""Values of a login: tokens, clients, stored logins and targets. Secrets are left out of their `repr`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from fairlead.auth.url_guard import read_url
from fairlead.config.oauth_models import OAuthSettings
from fairlead.config.principal import LOCAL

ClientAuth = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginKey:
    """The key of a login. Credentials of one issuer are never sent to another."""

    principal: str
    account: str
    """Empty where there is one account only."""
    issuer: str
    resource: str


class RedactedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value that prints only some of its fields, also with `rich`, which ignores `__repr__`."""

    shown: ClassVar[tuple[str, ...]] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.shown]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({fields})"


class Token(RedactedValue, frozen=True, kw_only=True):
    """An access token with its type, lifetime, scope and refresh token."""

    shown = ("token_type", "expires_at", "scope")

    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - a kind of token
    refresh_token: str | None = None
    expires_at: int | None = None
    """In milliseconds since 1970; None where the issuer did not say."""
    issued_at: int | None = None
    """In milliseconds since 1970; the broker fills it in where it is not known."""
    scope: str | None = None


class OAuthClient(RedactedValue, frozen=True, kw_only=True):
    """An OAuth client as one issuer knows it."""

    shown = ("client_id", "auth", "origin")

    client_id: str
    client_secret: str | None = None
    auth: ClientAuth = "none"
    origin: Literal["configured", "metadata_url", "registered"] = "configured"
    secret_expires_at: int | None = None
    """In milliseconds since 1970; None where it does not expire."""
    redirect_uri: str | None = None
    """The redirect URI it is registered with, if it was registered dynamically."""


class Login(RedactedValue, frozen=True, kw_only=True):
    """A stored login: enough to refresh its token after a restart without the user."""

    shown = ("key", "client", "token")

    principal: str
    account: str
    issuer: str
    resource: str
    token_endpoint: str
    client: OAuthClient
    token: Token
    audience: str | None = None
    """The issuer's name of the resource, if it is not the one the login is stored under."""
    dpop_key: str | None = None
    """The private key (PEM) that tokens are bound to, where they are."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Its secrets, for masking."""
        held = (self.token.access_token, self.token.refresh_token, self.client.client_secret)
        return tuple(secret for secret in held if secret)

    @property
    def is_over(self) -> bool:
        """The issuer ended it: only the client is left, and the scope, for the next login."""
        return not self.token.access_token

    @property
    def key(self) -> LoginKey:
        """Its key."""
        return LoginKey(
            principal=self.principal, account=self.account, issuer=self.issuer, resource=self.resource
        )


class LoginRedirect(Protocol):
    """Sends the user's browser to the authorization server and receives the redirect."""

    @property
    def redirect_uri(self) -> str:
        """The redirect URI."""
        ...

    async def visit(self, url: str) -> str:
        """Have the user log in at `url`. Returns the whole URL the browser was redirected to.

        Raises `LoginFailed` if the user declines, or no redirect comes in time.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginTarget:
    """One MCP server, for one account of one principal. References in `oauth` are resolved."""

    server_id: str
    url: str
    principal: str = LOCAL
    account: str = ""
    oauth: OAuthSettings = field(default_factory=OAuthSettings, repr=False)

    @property
    def resource(self) -> str:
        """The name that logins to it are kept under: its URL, in canonical form."""
        return canonical(self.url)

    @property
    def chosen_hosts(self) -> frozenset[str]:
        """Hosts from the user's own configuration, which need no address check."""
        oauth = self.oauth
        identity = oauth.identity.token_url if oauth.identity is not None else None
        named = (oauth.authorization_url, oauth.token_url, oauth.registration_url, identity)
        urls = map(read_url, filter(None, named))
        return frozenset(url.host for url in urls if url is not None and url.host is not None)


def canonical(url: str) -> str:
    """Return a server's URL in canonical form (RFC 8707): lower-case host, no query, no fragment."""
    read = read_url(url)
    if read is None:
        return url
    bare = read.with_query(None)
    return str(bare.origin() if bare.path == "/" else bare)
