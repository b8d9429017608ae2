"""What MCP servers and authorization servers publish about themselves, and what of it we go by."""

from dataclasses import dataclass

import msgspec
from yarl import URL

Names = tuple[str, ...]

NO_LOGIN_HINT = (
    "if the server takes a key or token instead, set `headers.Authorization`; "
    "else name its endpoints: `oauth.authorization_url` and `oauth.token_url`"
)


class ResourceDocument(msgspec.Struct, frozen=True):
    """Protected resource metadata (RFC 9728), as far as it matters here."""

    resource: str
    authorization_servers: Names | None = None
    scopes_supported: Names | None = None
    dpop_bound_access_tokens_required: bool | None = None


class IssuerDocument(msgspec.Struct, frozen=True):
    """Authorization server metadata (RFC 8414, OpenID Connect Discovery), as far as it matters here."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: Names | None = None
    code_challenge_methods_supported: Names | None = None
    token_endpoint_auth_methods_supported: Names | None = None
    token_endpoint_auth_signing_alg_values_supported: Names | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None
    dpop_signing_alg_values_supported: Names | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """An MCP server as it describes itself."""

    audience: str
    """What tokens are asked for: the server's URL, or a part of it that stands for more."""
    servers: Names = ()
    """Who may issue tokens for it. Empty where it does not say."""
    scopes: Names | None = None
    needs_dpop: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Issuer:
    """An authorization server whose endpoints were checked."""

    name: str
    """Its issuer identifier, letter by letter."""
    token_endpoint: URL
    authorization_endpoint: URL | None = None
    registration_endpoint: URL | None = None
    revocation_endpoint: str | None = None
    """As it was written: a fault in it is no reason to refuse a login."""
    is_described: bool = True
    """Whether it published metadata, or the user did; else its endpoints are a guess."""
    is_named: bool = True
    """Whether `name` is that; else nobody knows it, and something else of the issuer stands there."""
    has_pkce: bool = True
    advertises_iss: bool = False
    takes_metadata_urls: bool = False
    scopes: Names = ()
    auth_methods: Names | None = None
    signing_algorithms: Names | None = None
    dpop_algorithms: Names = ()
