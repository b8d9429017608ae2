"""Authentication and authorization of HTTP requests: token, scope, bundles and rate limit."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, Protocol, runtime_checkable

import anyio
import msgspec
from starlette.types import Scope

from fairlead.config.principal import LOCAL, GroupedPrincipal
from fairlead.gateway.access.jwt import JwtAccess, TokenForbidden, TokenInvalid, TokenUnverifiable
from fairlead.gateway.access.origin import OriginPolicy, RequestRefused, deciding_headers, is_protocol_path
from fairlead.gateway.access.rate_limit import RateLimit
from fairlead.gateway.access.tokens import AGENT_SCOPES, TokenOwner, Tokens
from fairlead.gateway.registry import APPROVALS_PATH, STATUS_PATH
from fairlead.net.listen import mark_authenticated

SCREENED: Final = "fairlead.screened"
"""Where a scope that was screened has the headers that decide about it."""
FORWARDED: Final = "fairlead.forwarded"
"""Where a scope says that another replica forwarded the request, after it had checked and counted it."""
RATE: Final = "fairlead.rate"
"""Where a scope has the rate limit that it was counted by: a batch is counted message by message."""

_NEEDED: Final = {STATUS_PATH: "status", "/metrics": "status", APPROVALS_PATH: "decide"}
"""The scope that a path needs, where that is neither `mcp` (the protocol's) nor `admin` (all others)."""


class AuthenticatedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated request: its principal, token, scopes, bundles and groups."""

    principal: str
    credential: str | None = None
    """The digest of the token it came with: when that token is removed, what is under way for it ends."""
    label: str | None = None
    """Which of the principal's clients it is, where its token says so."""
    bundles: frozenset[str] | None = None
    """The only bundles it may use; None for all, and for what is in no bundle."""
    scopes: frozenset[str] = AGENT_SCOPES
    is_of_machine: bool = False
    """Whether its token is one that other replicas of the gateway do not know: it is never sent to them."""
    groups: frozenset[str] = frozenset()
    """The groups that its token says the principal is a member of."""

    @property
    def caller(self) -> GroupedPrincipal:
        """The caller that its calls are made for."""
        return GroupedPrincipal(self.principal, self.groups)

    @property
    def decides_for(self) -> str | None:
        """The principal whose approvals it may see and answer; None for all, with the scope `admin`."""
        return None if "admin" in self.scopes else self.principal


class RequestAuthenticator(Protocol):
    """Authenticates HTTP requests."""

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        """Return the authenticated request, or the response that refuses it."""
        ...


@runtime_checkable
class TokenRevocations(Protocol):
    """Checks whether tokens were revoked."""

    async def identify(self, token: str) -> AuthenticatedRequest | None:
        """Return whose token this is; None where it is refused by now."""
        ...

    def is_revoked(self, credential: str) -> bool:
        """Return whether the token with this digest was removed."""
        ...


class OpenStreams:
    """The requests of a gateway that may outlast the token they were authenticated with."""

    def __init__(self) -> None:
        self._open: dict[anyio.CancelScope, str] = {}

    @contextmanager
    def bind_to_token(self, token: str | None) -> Generator[None]:
        """Cancel the block once the token is refused. Without a token it ends by itself."""
        with anyio.CancelScope() as scope:
            if token:
                self._open[scope] = token
            try:
                yield
            finally:
                self._open.pop(scope, None)

    async def end_revoked(self, access: TokenRevocations) -> None:
        """Cancel the blocks whose token is refused by now."""
        refused = {token for token in {*self._open.values()} if await access.identify(token) is None}
        for scope in [scope for scope, token in self._open.items() if token in refused]:
            scope.cancel()


def require_screened_headers(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the headers that access depends on, of a request which `GuardedApp` has screened.

    Raises:
        KeyError: It was not screened: nothing is admitted without that, even where the guard was left out.
    """
    return scope[SCREENED]


def token_in(scope: Scope) -> str | None:
    """The bearer token of a request that was admitted, if it has one."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return value.decode("latin-1").partition(" ")[2].strip()
    return None


class TokenAuthenticator:
    """Authenticates requests by bearer token, and checks scope, bundles and rate limit.

    With `open_to_all`, every client that comes from the right place without a token is an agent of the local
    user. Deciding takes a token even then.
    """

    def __init__(
        self,
        origins: OriginPolicy,
        *,
        tokens: Tokens | None,
        jwt: JwtAccess | None = None,
        rate: RateLimit | None = None,
        open_to_all: bool = False,
    ) -> None:
        self._open_to_all = open_to_all or (tokens is None and jwt is None)
        self._origins = origins
        self._tokens = tokens
        self._jwt = jwt
        self._rate = rate or RateLimit(None)
        self._latest: tuple[TokenOwner, AuthenticatedRequest] | None = None

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        """Check token, scope, bundle and rate limit, in this order."""
        admitted = await self._who(require_screened_headers(scope))
        if isinstance(admitted, RequestRefused):
            return admitted
        # Before the rate limit: requests that are refused anyway do not use up the principal's share.
        if refused := _outside(admitted, scope["path"]):
            return refused
        # What another replica forwards was counted there.
        if FORWARDED not in scope and (wait := await self._rate.take(admitted.principal)):
            text = f"too many requests for `{admitted.principal}`: try again in {wait} s"
            return RequestRefused.saying(429, text, {"Retry-After": str(wait)})
        mark_authenticated(scope)
        scope[RATE] = self._rate
        return admitted

    async def identify(self, token: str) -> AuthenticatedRequest | None:
        """Return whose token this is, where it did not come in a header."""
        found = await self._owner(token)
        return found if isinstance(found, AuthenticatedRequest) else None

    def screen(self, scope: Scope) -> RequestRefused | None:
        """Check `Host`, `Origin`, method and content type of a request, for `GuardedApp`."""
        headers = deciding_headers(scope)
        refused = self._origins.screen(scope, headers)
        if refused is None:
            scope[SCREENED] = headers
        return refused

    @property
    def resource_metadata(self) -> Mapping[str, object] | None:
        """Protected resource metadata (RFC 9728), where clients get their tokens by a login."""
        return self._jwt.resource_metadata if self._jwt else None

    async def _who(self, headers: Mapping[bytes, bytes]) -> AuthenticatedRequest | RequestRefused:
        # A token that is sent is checked even here: one that was removed is refused, rather than ignored.
        if self._open_to_all and b"authorization" not in headers:
            return AuthenticatedRequest(principal=LOCAL)
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            text = "bearer token required: `Authorization: Bearer …`; see `fairlead gateway token`"
            return self._refuse_unauthorized(text)
        found = await self._owner(token)
        match found:
            case AuthenticatedRequest():
                return found
            case TokenForbidden():
                challenge = self._challenge('error="insufficient_scope"', scopes=found.scopes)
                return RequestRefused.saying(403, found.reason, {"WWW-Authenticate": challenge})
            case TokenUnverifiable():
                return RequestRefused.saying(503, found.reason, {"Retry-After": "10"})
            case _:
                reason = found.reason if found else "unknown token"
                return self._refuse_unauthorized(
                    f"this token is not accepted: {reason}", 'error="invalid_token"'
                )

    async def _owner(
        self, token: str
    ) -> AuthenticatedRequest | TokenInvalid | TokenForbidden | TokenUnverifiable | None:
        # The gateway's own tokens first: they are compared by digest, without a request to the issuer.
        if self._tokens and (owner := await self._tokens.look_up(token)):
            if self._latest is not None and self._latest[0] is owner:
                return self._latest[1]  # the very same values
            admitted = AuthenticatedRequest(
                principal=owner.principal,
                credential=owner.credential,
                label=owner.label,
                bundles=owner.bundles,
                scopes=owner.scopes,
                is_of_machine=owner.is_of_machine,
            )
            self._latest = owner, admitted
            return admitted
        if self._jwt is None:
            return None
        found = await self._jwt.verify(token)
        if isinstance(found, TokenInvalid | TokenForbidden | TokenUnverifiable):
            return found
        return AuthenticatedRequest(
            principal=found.principal, scopes=found.scopes, groups=found.groups, bundles=found.bundles
        )

    def is_revoked(self, credential: str) -> bool:
        """Return whether the token with this digest was removed."""
        return self._tokens is None or not self._tokens.is_valid(credential)

    def _refuse_unauthorized(self, text: str, error: str = "") -> RequestRefused:
        return RequestRefused.saying(401, text, {"WWW-Authenticate": self._challenge(error)})

    def _challenge(self, error: str = "", scopes: tuple[str, ...] = ()) -> str:
        parts = [error]
        if self._jwt:
            wanted = scopes or self._jwt.required_scopes
            parts.append(f'scope="{" ".join(wanted)}"' if wanted else "")
            parts.append(f'resource_metadata="{self._jwt.metadata_url}"')
        return f"Bearer {', '.join(filter(None, parts))}".rstrip()


def bundle_of(path: str) -> str | None:
    """The bundle that a path leads to; None for the plain endpoints, which have all servers."""
    steps = path.strip("/").split("/")
    return steps[1] if len(steps) > 1 and is_protocol_path(path) else None


@lru_cache(maxsize=256)
def scope_of(path: str) -> str:
    """The scope that a token needs for a path."""
    if is_protocol_path(path):
        return "mcp"
    return _NEEDED.get(path, "admin")


def _outside(admitted: AuthenticatedRequest, path: str) -> RequestRefused | None:
    """Refuse a token that is for something else."""
    needed = scope_of(path)
    if needed not in admitted.scopes:
        return RequestRefused.saying(403, f"insufficient scope: the token lacks `{needed}`")
    if admitted.bundles is not None and bundle_of(path) not in admitted.bundles:
        places = ", ".join(f"/mcp/{name}" for name in sorted(admitted.bundles))
        return RequestRefused.saying(403, f"this token is only for {places}")
    return None
