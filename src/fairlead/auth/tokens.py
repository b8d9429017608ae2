"""What a login is made of, as values that are safe to compare and never show their secrets.

What somebody logs in to, and how the user said it is to be done.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import msgspec

from fairlead.auth.url_guard import read_url
from fairlead.config.models import OAuthSettings
from fairlead.config.principal import LOCAL

ClientAuth = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoginKey:
    """Whose login it is, and with whom. Credentials of one issuer are never sent to another."""

    principal: str
    account: str
    """Empty where there is one account only."""
    issuer: str
    resource: str


class RedactedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of which only some fields show, whoever prints it: `rich` would look past a `__repr__`."""

    shown: ClassVar[tuple[str, ...]] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name)) for name in self.shown]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({fields})"


class Token(RedactedValue, frozen=True, kw_only=True):
    """What a server accepts in place of a person, until it runs out."""

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
    """Who we are to one issuer."""

    shown = ("client_id", "auth", "origin")

    client_id: str
    client_secret: str | None = None
    auth: ClientAuth = "none"
    origin: Literal["configured", "metadata_url", "registered"] = "configured"
    secret_expires_at: int | None = None
    """In milliseconds since 1970; None where it does not expire."""
    redirect_uri: str | None = None
    """The one it is registered with, where we registered it."""


class Login(RedactedValue, frozen=True, kw_only=True):
    """A login as it is kept: enough to renew it after a restart without asking anybody anything."""

    shown = ("key", "client", "token")

    principal: str
    account: str
    issuer: str
    resource: str
    token_endpoint: str
    client: OAuthClient
    token: Token
    audience: str | None = None
    """What the issuer calls the resource, where that is not what it is kept under here."""
    dpop_key: str | None = None
    """The private key (PEM) that tokens are bound to, where they are."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What of it nobody may see."""
        held = (self.token.access_token, self.token.refresh_token, self.client.client_secret)
        return tuple(secret for secret in held if secret)

    @property
    def is_over(self) -> bool:
        """The issuer ended it: only the client is left, and the scope, for the next login."""
        return not self.token.access_token

    @property
    def key(self) -> LoginKey:
        """Whose it is, and with whom."""
        return LoginKey(
            principal=self.principal, account=self.account, issuer=self.issuer, resource=self.resource
        )


class LoginRedirect(Protocol):
    """The way to a person's browser and back."""

    @property
    def redirect_uri(self) -> str:
        """Where the authorization server sends the browser in the end."""
        ...

    async def visit(self, url: str) -> str:
        """Have the person log in at `url`. Returns the whole URL the browser was sent back to.

        Raises `LoginFailed` where the person says no, or nothing comes back in time.
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
        """The hosts the user wrote down, which need no vetting."""
        oauth = self.oauth
        identity = oauth.identity.token_url if oauth.identity is not None else None
        named = (oauth.authorization_url, oauth.token_url, oauth.registration_url, identity)
        urls = map(read_url, filter(None, named))
        return frozenset(url.host for url in urls if url is not None and url.host is not None)


def canonical(url: str) -> str:
    """Return a server's URL as RFC 8707 wants it: lower case where it may be; no query, no fragment."""
    read = read_url(url)
    if read is None:
        return url
    bare = read.with_query(None)
    return str(bare.origin() if bare.path == "/" else bare)
