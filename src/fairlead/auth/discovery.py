"""Discovery of the authorization server of an MCP server: challenges and published metadata.

Reads `WWW-Authenticate` (RFC 9110, 6750), protected resource metadata (RFC 9728) and authorization server
metadata (RFC 8414, OpenID Connect Discovery). What the user configured takes precedence.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec
from yarl import URL

from fairlead.auth.http import OAuthHttp
from fairlead.auth.tokens import LoginTarget
from fairlead.auth.url_guard import escape_text, read_url
from fairlead.errors import IssuerUnavailable, LoginFailed

Names = tuple[str, ...]

NO_METADATA = "it has no login: no OAuth metadata was found"
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
class ProtectedResource:
    """An MCP server as it describes itself."""

    audience: str
    """The resource that tokens are requested for: the server's URL, or a prefix of it."""
    servers: Names = ()
    """The authorization servers it names. May be empty."""
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
    """Whether `name` is the issuer identifier itself; else it is a URL of the issuer, such as an endpoint."""
    has_pkce: bool = True
    advertises_iss: bool = False
    takes_metadata_urls: bool = False
    scopes: Names = ()
    auth_methods: Names | None = None
    signing_algorithms: Names | None = None
    dpop_algorithms: Names = ()


MAX_HEADER = 4 * 1024
"""How much is read of all `WWW-Authenticate` headers of a response together."""

# Possessive, and what fits nothing is passed over as a whole: no character is looked at over and over.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]++")
_EQUALS = re.compile(r"\s*+=\s*+")
_QUOTED = re.compile(r'"((?:[^"\\]++|\\.)*+)(")?')
_PLAIN = re.compile(r'[^\s,"]++')
_SCHEME_END = re.compile(r"[\s,]|$")
_NO_TOKEN = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]++")
_ESCAPED = re.compile(r"\\(.)")
_OURS = ("bearer", "dpop")


@dataclass(frozen=True, kw_only=True, slots=True)
class AuthChallenge:
    """One authentication challenge of a server. Its text is untrusted: escape it before showing it."""

    scheme: str
    """In lower case."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """By name in lower case; of a name that comes twice the first counts."""

    @property
    def resource_metadata(self) -> str | None:
        """The URL of the protected resource metadata."""
        return self.parameters.get("resource_metadata") or None

    @property
    def scope(self) -> str | None:
        """The OAuth scopes that a token must have."""
        return " ".join(self.parameters.get("scope", "").split()) or None

    @property
    def error(self) -> str | None:
        """The error code for the token that was sent, if one was."""
        return self.parameters.get("error") or None

    @property
    def error_description(self) -> str | None:
        """The same in words."""
        return self.parameters.get("error_description") or None

    @property
    def realm(self) -> str | None:
        """The protection realm."""
        return self.parameters.get("realm") or None

    @property
    def wants_more_scope(self) -> bool:
        """Whether the token is valid, but lacks a scope."""
        return self.error == "insufficient_scope"


def parse_challenges(values: Iterable[str]) -> list[AuthChallenge]:
    """Parse the challenges of a response, in order. Malformed ones are skipped."""
    challenges: list[AuthChallenge] = []
    left = MAX_HEADER
    for value in values:
        challenges += _parse(value[:left])
        left -= len(value)
        if left <= 0:
            break
    return challenges


def login_challenge(values: Iterable[str]) -> AuthChallenge | None:
    """Return the challenge that OAuth can answer; of several, one that names metadata or a scope."""
    ours = [challenge for challenge in parse_challenges(values) if challenge.scheme in _OURS]
    return max(ours, key=lambda challenge: bool(challenge.resource_metadata or challenge.scope), default=None)


def _parse(text: str) -> list[AuthChallenge]:
    challenges: list[AuthChallenge] = []
    position = 0
    while position < len(text):
        if gap := _NO_TOKEN.match(text, position):
            position = gap.end()
        token = _TOKEN.match(text, position)
        if token is None:
            break  # nothing is left
        position = token.end()
        equals = _EQUALS.match(text, position)
        if equals is None:
            if _SCHEME_END.match(text, position):
                challenges.append(AuthChallenge(scheme=token[0].lower()))
            continue
        position = equals.end()
        quoted = _QUOTED.match(text, position)
        if quoted is not None and quoted[2] is None:
            break  # never closed: what it would have ended with is not known
        value = quoted or _PLAIN.match(text, position)
        if value is None:
            continue
        position = value.end()
        if challenges:
            unquoted = value[0] if quoted is None else _ESCAPED.sub(r"\1", quoted[1])
            challenges[-1].parameters.setdefault(token[0].lower(), unquoted)
    return challenges


_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"

MAX_ISSUERS = 5


async def find_resource(
    http: OAuthHttp, target: LoginTarget, challenge: AuthChallenge | None
) -> ProtectedResource:
    """Return the server's protected resource metadata; without any, what its URL implies."""
    trouble: IssuerUnavailable | None = None
    for url in _resource_documents(http, target, challenge):
        try:
            answer = await http.get(url)
        except IssuerUnavailable as exc:
            trouble = exc
            continue
        document = answer.read(ResourceDocument) if answer.status == 200 else None
        if document is not None:
            return _resource_from_metadata(target, document, challenge)
    if trouble is not None:
        raise trouble
    return ProtectedResource(audience=target.resource, needs_dpop=_names_dpop(challenge))


def _resource_documents(
    http: OAuthHttp, target: LoginTarget, challenge: AuthChallenge | None
) -> Iterator[URL]:
    if challenge is not None and challenge.resource_metadata:
        yield http.check_metadata_url(challenge.resource_metadata, "the server's `resource_metadata`")
    path = http.own.raw_path.rstrip("/")
    if path:
        yield _at(http.own, _RESOURCE + path)
    yield _at(http.own, _RESOURCE)


def _resource_from_metadata(
    target: LoginTarget, document: ResourceDocument, challenge: AuthChallenge | None
) -> ProtectedResource:
    # RFC 9728, 3.3: otherwise a server could have us fetch tokens for another one, and hand them over.
    if not covers(document.resource, target.url):
        raise LoginFailed(
            target.server_id,
            f"its metadata is about {escape_text(document.resource)}, "
            f"and not about {escape_text(target.resource)}",
            hint="correct the server's `url`, if that is what its provider calls it",
        )
    return ProtectedResource(
        audience=document.resource,
        servers=document.authorization_servers or (),
        scopes=document.scopes_supported,
        needs_dpop=bool(document.dpop_bound_access_tokens_required) or _names_dpop(challenge),
    )


def _names_dpop(challenge: AuthChallenge | None) -> bool:
    return challenge is not None and challenge.scheme == "dpop"


def covers(resource: str, server_url: str) -> bool:
    """Whether a token for `resource` is valid for the server: same origin, and a prefix of its path."""
    broad, narrow = read_url(resource), read_url(server_url)
    if broad is None or narrow is None or "#" in resource or broad.origin() != narrow.origin():
        return False
    return f"{narrow.raw_path.rstrip('/')}/".startswith(f"{broad.raw_path.rstrip('/')}/")


async def find_issuer(
    http: OAuthHttp, target: LoginTarget, resource: ProtectedResource, known: str | None
) -> Issuer:
    """Return the authorization server for an MCP server; of several, the one `known` from the last login."""
    oauth = target.oauth
    if oauth.token_url and (oauth.authorization_url or oauth.grant != "authorization_code"):
        return _issuer_from_config(http, target, oauth.token_url)
    # The issuer of the last login first, so that its client and consent are used again.
    for name in sorted(resource.servers, key=lambda name: name != known)[:MAX_ISSUERS]:
        issuer = await fetch_issuer(http, target, name)
        if issuer is not None:
            return issuer
    if not resource.servers:
        # Before 2025-06 the MCP server's origin was the issuer, with or without metadata.
        origin = str(http.own.origin())
        return await fetch_issuer(http, target, origin) or _conventional(http, target, origin)
    raise LoginFailed(
        target.server_id,
        f"no metadata of its authorization server {escape_text(resource.servers[0])} was found",
        hint=NO_LOGIN_HINT,
    )


async def fetch_issuer(http: OAuthHttp, target: LoginTarget, name: str) -> Issuer | None:
    """Return the issuer of that name, if its metadata is found and names it."""
    stranger: str | None = None
    for url in _issuer_documents(http.check_metadata_url(name, "the authorization server")):
        answer = await http.get(url)
        document = answer.read(IssuerDocument) if answer.status == 200 else None
        if document is None:
            continue
        # RFC 8414, 3.3: metadata about another issuer would lead the code to that one's endpoints (mix-up).
        if _same_issuer(document.issuer, name):
            return _issuer_from_metadata(http, target, document)
        stranger = document.issuer
    if stranger is not None:
        raise LoginFailed(
            target.server_id,
            f"the metadata of {escape_text(name)} is that of {escape_text(stranger)}; it is not used",
        )
    return None


def _issuer_documents(issuer: URL) -> Iterator[URL]:
    path = issuer.raw_path.rstrip("/")
    # In the order of the MCP specification: RFC 8414 with the path inserted, then OpenID in both forms.
    yield _at(issuer, _OAUTH + path)
    yield _at(issuer, _OPENID + path)
    if path:
        yield _at(issuer, path + _OPENID)


def _same_issuer(one: str, other: str) -> bool:
    """Compare letter by letter (RFC 8414, 3.3).

    But a bare origin is the same with and without its slash (RFC 3986, 6.2.3): both lead to one document.
    """
    if one == other:
        return True
    bare = one.removesuffix("/")
    return bare == other.removesuffix("/") and bare.count("/") == 2


def _issuer_from_metadata(http: OAuthHttp, target: LoginTarget, document: IssuerDocument) -> Issuer:
    oauth = target.oauth
    token = oauth.token_url or document.token_endpoint
    if not token:
        raise LoginFailed(target.server_id, f"{escape_text(document.issuer)} names no token endpoint")
    methods = document.code_challenge_methods_supported or ()
    return Issuer(
        name=document.issuer,
        token_endpoint=http.require_url(token, "the token endpoint"),
        authorization_endpoint=_endpoint(
            http, oauth.authorization_url or document.authorization_endpoint, "the authorization endpoint"
        ),
        registration_endpoint=_endpoint(
            http, oauth.registration_url or document.registration_endpoint, "the registration endpoint"
        ),
        revocation_endpoint=document.revocation_endpoint,
        has_pkce="S256" in methods,
        advertises_iss=bool(document.authorization_response_iss_parameter_supported),
        takes_metadata_urls=bool(document.client_id_metadata_document_supported),
        scopes=document.scopes_supported or (),
        auth_methods=document.token_endpoint_auth_methods_supported,
        signing_algorithms=document.token_endpoint_auth_signing_alg_values_supported,
        dpop_algorithms=document.dpop_signing_alg_values_supported or (),
    )


def _issuer_from_config(http: OAuthHttp, target: LoginTarget, token_url: str) -> Issuer:
    """Take the endpoints as the user wrote them; the token endpoint then stands for the issuer."""
    oauth = target.oauth
    return Issuer(
        name=token_url,
        token_endpoint=http.require_url(token_url, "`oauth.token_url`"),
        authorization_endpoint=_endpoint(http, oauth.authorization_url, "`oauth.authorization_url`"),
        registration_endpoint=_endpoint(http, oauth.registration_url, "`oauth.registration_url`"),
        is_named=False,
    )


def _conventional(http: OAuthHttp, target: LoginTarget, origin: str) -> Issuer:
    """Take the endpoints that servers of 2025-03-26 without metadata have."""
    oauth = target.oauth
    return Issuer(
        name=origin,
        is_described=False,
        token_endpoint=http.require_url(oauth.token_url or f"{origin}/token", "the token endpoint"),
        authorization_endpoint=http.require_url(
            oauth.authorization_url or f"{origin}/authorize", "the authorization endpoint"
        ),
        registration_endpoint=http.require_url(
            oauth.registration_url or f"{origin}/register", "the registration endpoint"
        ),
    )


def no_document_url(http: OAuthHttp) -> URL:
    """URL where a server without metadata has no document, as an example for a message."""
    return next(_issuer_documents(http.own.origin()))


def _endpoint(http: OAuthHttp, text: str | None, what: str) -> URL | None:
    return http.require_url(text, what) if text else None


def _at(url: URL, path: str) -> URL:
    return url.origin().with_path(path, encoded=True)
