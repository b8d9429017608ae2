"""Find who issues tokens for an MCP server: by what it says, what the issuer says, what the user says."""

from collections.abc import Iterator

from yarl import URL

from fairlead.auth.challenge import Challenge
from fairlead.auth.guard import read_url, shown
from fairlead.auth.metadata import NO_LOGIN_HINT, Issuer, IssuerDocument, Resource, ResourceDocument
from fairlead.auth.target import Target
from fairlead.auth.web import Errand
from fairlead.errors import IssuerUnavailable, LoginFailed

_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"

MAX_ISSUERS = 5


async def find_resource(errand: Errand, target: Target, challenge: Challenge | None) -> Resource:
    """Return what the server says about itself, or the little its URL says where it says nothing."""
    trouble: IssuerUnavailable | None = None
    for url in _resource_documents(errand, target, challenge):
        try:
            answer = await errand.get(url)
        except IssuerUnavailable as exc:
            trouble = exc
            continue
        document = answer.read(ResourceDocument) if answer.status == 200 else None
        if document is not None:
            return _described(target, document, challenge)
    if trouble is not None:
        raise trouble
    return Resource(audience=target.resource, needs_dpop=_names_dpop(challenge))


def _resource_documents(errand: Errand, target: Target, challenge: Challenge | None) -> Iterator[URL]:
    if challenge is not None and challenge.resource_metadata:
        yield errand.checked_metadata(challenge.resource_metadata, "the server's `resource_metadata`")
    path = errand.own.raw_path.rstrip("/")
    if path:
        yield _at(errand.own, _RESOURCE + path)
    yield _at(errand.own, _RESOURCE)


def _described(target: Target, document: ResourceDocument, challenge: Challenge | None) -> Resource:
    if not covers(document.resource, target.url):
        raise LoginFailed(
            target.server_id,
            f"its metadata is about {shown(document.resource)}, and not about {shown(target.resource)}",
            hint="correct the server's `url`, if that is what its provider calls it",
        )
    return Resource(
        audience=document.resource,
        servers=document.authorization_servers or (),
        scopes=document.scopes_supported,
        needs_dpop=bool(document.dpop_bound_access_tokens_required) or _names_dpop(challenge),
    )


def _names_dpop(challenge: Challenge | None) -> bool:
    return challenge is not None and challenge.scheme == "dpop"


def covers(resource: str, server_url: str) -> bool:
    """Tell whether a token for `resource` is one for the server: same origin, and a path that leads to it."""
    broad, narrow = read_url(resource), read_url(server_url)
    if broad is None or narrow is None or "#" in resource or broad.origin() != narrow.origin():
        return False
    return f"{narrow.raw_path.rstrip('/')}/".startswith(f"{broad.raw_path.rstrip('/')}/")


async def find_issuer(errand: Errand, target: Target, resource: Resource, known: str | None) -> Issuer:
    """Return who issues tokens for the server; of several, the one that is `known` from the last login."""
    oauth = target.oauth
    if oauth.token_url and (oauth.authorization_url or oauth.grant != "authorization_code"):
        return _configured(errand, target, oauth.token_url)
    for name in sorted(resource.servers, key=lambda name: name != known)[:MAX_ISSUERS]:
        issuer = await issuer_called(errand, target, name)
        if issuer is not None:
            return issuer
    if not resource.servers:
        # Before 2025-06 the MCP server's origin was the issuer, with or without metadata.
        origin = str(errand.own.origin())
        return await issuer_called(errand, target, origin) or _conventional(errand, target, origin)
    raise LoginFailed(
        target.server_id,
        f"no metadata of its authorization server {shown(resource.servers[0])} can be found",
        hint=NO_LOGIN_HINT,
    )


async def issuer_called(errand: Errand, target: Target, name: str) -> Issuer | None:
    """Return the issuer of that name, if metadata is found and is about it."""
    stranger: str | None = None
    for url in _issuer_documents(errand, errand.checked_metadata(name, "the authorization server")):
        answer = await errand.get(url)
        document = answer.read(IssuerDocument) if answer.status == 200 else None
        if document is None:
            continue
        if _same_issuer(document.issuer, name):
            return _checked(errand, target, document)
        stranger = document.issuer
    if stranger is not None:
        raise LoginFailed(
            target.server_id, f"the metadata of {shown(name)} is that of {shown(stranger)}; it is not used"
        )
    return None


def _issuer_documents(errand: Errand, issuer: URL) -> Iterator[URL]:
    path = issuer.raw_path.rstrip("/")
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


def _checked(errand: Errand, target: Target, document: IssuerDocument) -> Issuer:
    oauth = target.oauth
    token = oauth.token_url or document.token_endpoint
    if not token:
        raise LoginFailed(target.server_id, f"{shown(document.issuer)} names no token endpoint")
    methods = document.code_challenge_methods_supported or ()
    return Issuer(
        name=document.issuer,
        token_endpoint=errand.checked(token, "the token endpoint"),
        authorization_endpoint=_endpoint(
            errand, oauth.authorization_url or document.authorization_endpoint, "the authorization endpoint"
        ),
        registration_endpoint=_endpoint(
            errand, oauth.registration_url or document.registration_endpoint, "the registration endpoint"
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


def _configured(errand: Errand, target: Target, token_url: str) -> Issuer:
    """Take the endpoints as the user wrote them; the token endpoint then stands for the issuer."""
    oauth = target.oauth
    return Issuer(
        name=token_url,
        token_endpoint=errand.checked(token_url, "`oauth.token_url`"),
        authorization_endpoint=_endpoint(errand, oauth.authorization_url, "`oauth.authorization_url`"),
        registration_endpoint=_endpoint(errand, oauth.registration_url, "`oauth.registration_url`"),
        is_named=False,
    )


def _conventional(errand: Errand, target: Target, origin: str) -> Issuer:
    """Take the endpoints that servers of 2025-03-26 without metadata have."""
    oauth = target.oauth
    return Issuer(
        name=origin,
        is_described=False,
        token_endpoint=errand.checked(oauth.token_url or f"{origin}/token", "the token endpoint"),
        authorization_endpoint=errand.checked(
            oauth.authorization_url or f"{origin}/authorize", "the authorization endpoint"
        ),
        registration_endpoint=errand.checked(
            oauth.registration_url or f"{origin}/register", "the registration endpoint"
        ),
    )


def _endpoint(errand: Errand, text: str | None, what: str) -> URL | None:
    return errand.checked(text, what) if text else None


def _at(url: URL, path: str) -> URL:
    return url.origin().with_path(path, encoded=True)
