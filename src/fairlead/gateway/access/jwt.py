"""Bearer tokens of an OAuth issuer: JWTs checked with the issuer's JWKS.

Keys are found by the issuer's metadata, kept for a few minutes, and fetched again for an unknown key id.
"""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from yarl import URL

from fairlead.auth.http import HttpContext, OAuthHttp
from fairlead.auth.url_guard import escape_text, read_url
from fairlead.config.models import GatewayOAuth
from fairlead.config.principal import GroupedPrincipal, bundles_granted, oauth_principal
from fairlead.config.untyped import as_list, is_list, is_object
from fairlead.errors import ConfigError, FairleadError, IssuerUnavailable, LoginFailed

ALGORITHMS: Final = ("RS256", "ES256")
FRESH_SECONDS: Final = 180.0
"""How long fetched keys are used: a key that its issuer retired is refused after that.

Where the issuer cannot be reached any more they are kept for `STALE_SECONDS` at most, and then none is left.
"""
STALE_SECONDS: Final = 200.0
PATIENCE_SECONDS: Final = 30.0
"""How often keys are fetched at most, however many tokens name unknown keys."""
RETRY_SECONDS: Final = 5.0
"""The same, while none are known at all."""

_NAME = "gateway"
_MIN_RSA_BITS = 2048


class _Metadata(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class IssuerKeys:
    """The keys of one issuer, fetched when the first token comes."""

    def __init__(
        self, oauth: GatewayOAuth, web: HttpContext, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._oauth = oauth
        self._web = web
        self._clock = clock
        self._keys: list[jwt.PyJWK] = []
        self._fetched_at: float | None = None
        self._asked_at: float | None = None
        self._trouble: FairleadError | None = None
        self._fetching = anyio.Lock()

    async def key(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        """The key of that id; of tokens that name none, the only one there is for what they are signed with.

        Raises what kept it from being looked up, if nothing is known.
        """
        if self._is_older(self._fetched_at, FRESH_SECONDS):
            await self._refresh()
        found = self._find(kid, algorithm)
        if found is None and self._is_older(self._fetched_at, PATIENCE_SECONDS):
            await self._refresh()
            found = self._find(kid, algorithm)
        return found

    def _find(self, kid: str | None, algorithm: str) -> jwt.PyJWK | None:
        fitting = [key for key in self._keys if key.algorithm_name == algorithm]
        if kid is not None:
            fitting = [key for key in fitting if key.key_id == kid]
        return fitting[0] if len(fitting) == 1 else None

    def _is_older(self, at: float | None, seconds: float) -> bool:
        return at is None or self._clock() - at >= seconds

    async def _refresh(self) -> None:
        before = self._fetched_at
        async with self._fetching:
            if self._fetched_at != before:
                return  # fetched by another task while this one waited
            if self._is_older(self._asked_at, PATIENCE_SECONDS if self._keys else RETRY_SECONDS):
                await self._fetch_keys()
            if self._trouble is not None and not self._keys:
                raise self._trouble

    async def _fetch_keys(self) -> None:
        """Fetch the keys. Where that fails, those known hold for a little longer."""
        self._asked_at = self._clock()
        try:
            self._keys = await self._fetch()
        except FairleadError as exc:
            self._trouble = exc
            if self._is_older(self._fetched_at, STALE_SECONDS):
                self._keys = []  # too old to be believed
        else:
            self._trouble, self._fetched_at = None, self._clock()

    async def _fetch(self) -> list[jwt.PyJWK]:
        named = (self._oauth.issuer, self._oauth.jwks_url)
        chosen = {url.host for text in named if text and (url := read_url(text)) and url.host}
        http = await self._web.client_for(_NAME, self._oauth.issuer, chosen)
        answer = await http.get(await self._place(http))
        document = answer.read(_KeySet) if answer.status == 200 else None
        keys = [key for entry in document.keys if (key := _usable(entry))] if document else []
        if not keys:
            raise IssuerUnavailable(
                _NAME, f"{escape_text(self._oauth.issuer)} publishes no keys that can be used"
            )
        return keys

    async def _place(self, http: OAuthHttp) -> URL:
        if self._oauth.jwks_url:
            own = read_url(self._oauth.jwks_url)
            if own is None:
                raise ConfigError("`gateway.oauth.jwks_url` is no URL")
            return http.require_url(self._oauth.jwks_url, "`gateway.oauth.jwks_url`", own=own.origin())
        for url in _documents(http.check_metadata_url(self._oauth.issuer, "`gateway.oauth.issuer`")):
            answer = await http.get(url)
            document = answer.read(_Metadata) if answer.status == 200 else None
            if document is None:
                continue
            # RFC 8414, 3.3: keys of another issuer would let its tokens in.
            if document.issuer != self._oauth.issuer:
                names = escape_text(self._oauth.issuer), escape_text(document.issuer)
                message = "the metadata of {} is that of {}".format(*names)
                raise LoginFailed(_NAME, message, hint="write `gateway.oauth.issuer` as it does")
            return http.check_metadata_url(document.jwks_uri, "the issuer's `jwks_uri`")
        raise IssuerUnavailable(_NAME, f"no metadata of {escape_text(self._oauth.issuer)} can be found")


def _documents(issuer: URL) -> Iterator[URL]:
    path = issuer.raw_path.rstrip("/")
    for place in (
        f"/.well-known/oauth-authorization-server{path}",
        f"/.well-known/openid-configuration{path}",
        f"{path}/.well-known/openid-configuration",
    ):
        yield issuer.origin().with_path(place, encoded=True)


def _usable(entry: dict[str, Any]) -> jwt.PyJWK | None:
    """A key that signatures can be checked with, by a way that counts as safe."""
    if entry.get("use", "sig") != "sig":
        return None
    # The key decides about the algorithm, never the token: `none`, or HMAC with a public key, would pass.
    algorithm = "RS256" if entry.get("kty") == "RSA" else "ES256"
    if entry.get("alg", algorithm) != algorithm:
        return None
    try:
        key = jwt.PyJWK(entry, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    public = key.key
    if isinstance(public, rsa.RSAPublicKey):
        return key if public.key_size >= _MIN_RSA_BITS else None
    is_p256 = isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1)
    return key if is_p256 else None


LEEWAY_SECONDS: Final = 30
MAX_TOKEN_BYTES: Final = 16 * 1024
TRUST_SECONDS: Final = 60.0
"""How long a token counts as checked before its signature is checked with the keys known then.

Added to the time that keys are believed (`FRESH_SECONDS`), it bounds how long a retired key opens anything:
five minutes.
"""
MAX_SUBJECT: Final = 255
MAX_GROUPS: Final = 512

_MAX_KEPT = 1024
_ONE_NAME: Final = re.compile(r"[\w.@:/-]+")
"""The texts that can be one group's name only. Any other character may separate several names."""
_STATUS_SCOPE = "fairlead:status"
_WELL_KNOWN = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifiedToken:
    """The principal, scopes, groups and bundles of a valid token."""

    principal: str
    scopes: frozenset[str]
    groups: frozenset[str] = frozenset()
    says_groups: bool = True
    """Whether the token has the groups claim, even an empty one."""
    bundles: frozenset[str] | None = None
    """The only bundles it may use; None for all, and for what is in no bundle."""


@dataclass(frozen=True, slots=True)
class TokenInvalid:
    """A token that is refused: 401."""

    reason: str


@dataclass(frozen=True, slots=True)
class TokenForbidden:
    """A valid token without a required scope, group claim or bundle: 403."""

    reason: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenUnverifiable:
    """A token that cannot be checked while its issuer is unavailable: 503."""

    reason: str


class JwtAccess:
    """Verifies the JWTs of one issuer."""

    def __init__(
        self,
        oauth: GatewayOAuth,
        keys: IssuerKeys,
        *,
        names_groups: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Check the tokens of an issuer.

        Args:
            oauth: What the configuration says about the issuer.
            keys: The issuer's keys.
            names_groups: Does any rule or bundle name a group now? Then tokens must say their groups, unless
                `groups_required` says otherwise.
            clock: The seconds since 1970.
        """
        self._oauth = oauth
        self._keys = keys
        self._names_groups = names_groups
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, VerifiedToken]] = OrderedDict()

    @property
    def required_scopes(self) -> tuple[str, ...]:
        """The scopes that every token must have."""
        return self._oauth.required_scopes

    @property
    def resource_metadata(self) -> dict[str, object]:
        """The protected resource metadata (RFC 9728)."""
        scopes = {"scopes_supported": list(self.required_scopes)} if self.required_scopes else {}
        return {
            "resource": self._oauth.audience,
            "authorization_servers": [self._oauth.issuer],
            "bearer_methods_supported": ["header"],
            **scopes,
        }

    @property
    def metadata_url(self) -> str:
        """URL of the metadata; only its path where the audience is no URL."""
        audience = read_url(self._oauth.audience)
        if audience is None:
            return _WELL_KNOWN
        return f"{audience.origin()}{_WELL_KNOWN}{audience.raw_path.rstrip('/')}"

    async def verify(self, token: str) -> VerifiedToken | TokenInvalid | TokenForbidden | TokenUnverifiable:
        """Check a token, or remember that it was checked a moment ago."""
        # By digest, so that no token is kept in memory for longer than its request.
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is not None and self._clock() < known[0]:
            return self._require_groups(known[1])
        self._known.pop(digest, None)
        try:
            claims = await self._claims(token)
        except FairleadError as exc:
            return TokenUnverifiable(f"tokens cannot be checked right now: {exc}")
        if isinstance(claims, TokenInvalid):
            return claims
        found = self._verify_claims(claims)
        if isinstance(found, VerifiedToken):
            self._remember(digest, float(claims["exp"]), found)
            return self._require_groups(found)
        return found

    def _require_groups(self, found: VerifiedToken) -> VerifiedToken | TokenForbidden:
        """Refuse a token without the groups claim where groups count, so that no rule about one lapses.

        Checked for each request: a rule may have come after the token was verified.
        """
        required = self._oauth.groups_required
        if found.says_groups or not (self._names_groups() if required is None else required):
            return found
        claim = self._oauth.groups_claim
        return TokenForbidden(
            f"the token has no claim `{claim}`, and rules or bundles of this gateway name groups: have the"
            " issuer add it (an empty list for no group), or name another in `gateway.oauth.groups_claim`",
            self.required_scopes,
        )

    async def _claims(self, token: str) -> dict[str, Any] | TokenInvalid:
        if len(token) > MAX_TOKEN_BYTES:
            return TokenInvalid("it is too long")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return TokenInvalid("it is no token of this gateway, nor a signed one of its issuer")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            return TokenInvalid(f"it must be signed with {' or '.join(ALGORITHMS)}")
        # RFC 7515, 4.1.11: what must be understood and is not makes the token invalid.
        if "crit" in header:
            return TokenInvalid("it has a critical header (`crit`) that is not supported")
        key = await self._keys.key(kid if isinstance(kid, str) else None, algorithm)
        if key is None:
            return TokenInvalid("its issuer publishes no matching key")
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._oauth.audience,
                issuer=self._oauth.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", self._oauth.principal_claim]},
            )
        except jwt.PyJWTError as exc:
            return TokenInvalid(_reason(exc))

    def _verify_claims(self, claims: Mapping[str, Any]) -> VerifiedToken | TokenInvalid | TokenForbidden:
        claim = self._oauth.principal_claim
        who = claims.get(claim)
        if not isinstance(who, str) or not who:
            return TokenInvalid(f"its `{claim}` is not a non-empty string")
        if len(who) > MAX_SUBJECT or not _is_plain_name(who):
            return TokenInvalid(f"its `{claim}` is too long, or has characters that do not show")
        granted = _scopes(claims)
        missing = [scope for scope in self.required_scopes if scope not in granted]
        if missing:
            return TokenForbidden(f"the token lacks the scope `{missing[0]}`", self.required_scopes)
        own = {"mcp"}
        if _STATUS_SCOPE in granted:
            own.add("status")
        # What an issuer calls a scope decides nothing here: only the configuration says which one does.
        if self._oauth.decide_scope is not None and self._oauth.decide_scope in granted:
            own.add("decide")
        groups = self._groups(claims)
        if groups is None:
            # Rules that deny something to a group must not lapse for a token whose groups are ambiguous.
            claim = self._oauth.groups_claim
            return TokenInvalid(f"its `{claim}` is not one name, nor a list of at most {MAX_GROUPS} names")
        caller = GroupedPrincipal(oauth_principal(self._oauth.issuer, who), groups)
        bundles = bundles_granted(self._oauth.bundles, self._oauth.issuer, caller)
        if bundles is not None and not bundles:
            return TokenForbidden("no bundle of this gateway is granted to its bearer", self.required_scopes)
        return VerifiedToken(
            principal=caller.principal,
            scopes=frozenset(own),
            groups=groups,
            says_groups=_claim_at(claims, self._oauth.groups_claim) is not None,
            bundles=bundles,
        )

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """Return the groups that a token names; None where the claim is ambiguous.

        One text is one name; a text that could be several (`interns, data`) is in doubt.
        """
        claim = self._oauth.groups_claim
        if _is_left_out(claims, claim):
            return None
        try:
            said = _claim_at(claims, claim)
        except ValueError:
            return None
        if said is None or said == "":
            return frozenset()
        if isinstance(said, str):
            return frozenset({said}) if _ONE_NAME.fullmatch(said) else None
        if not is_list(said) or len(said) > MAX_GROUPS:
            return None
        groups = [name for name in said if isinstance(name, str) and _is_plain_name(name)]
        return frozenset(groups) if len(groups) == len(said) else None

    def _remember(self, digest: bytes, expires: float, found: VerifiedToken) -> None:
        self._known[digest] = min(expires + LEEWAY_SECONDS, self._clock() + TRUST_SECONDS), found
        while len(self._known) > _MAX_KEPT:
            self._known.popitem(last=False)


def _is_left_out(claims: Mapping[str, Any], claim: str) -> bool:
    """Whether a token refers to its groups instead of listing them, as some issuers do with long lists.

    They say so in `_claim_names` (OpenID Connect Core, 5.6.2), `hasgroups` or a claim such as `groups:src1`.
    """
    elsewhere = claims.get("_claim_names")
    if elsewhere is not None and (not is_object(elsewhere) or claim in elsewhere):
        return True
    return claims.get("hasgroups") not in (None, False) or any(
        name.startswith(f"{claim}:") for name in claims
    )


def _claim_at(claims: Mapping[str, Any], path: str) -> object:
    """A claim by its name, or by a path with dots into objects (`realm_access.roles`); None where missing.

    Raises:
        ValueError: The path leads through something that is no object.
    """
    if path in claims:
        return claims[path]
    first, _, rest = path.partition(".")
    if not rest or (inner := claims.get(first)) is None:
        return None
    if not is_object(inner):
        raise ValueError(path)
    return _claim_at(inner, rest)


def _is_plain_name(name: str) -> bool:
    """Return whether a name has no invisible characters, by which it could look like another."""
    return bool(name) and name.isprintable() and name == name.strip()


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    """Return the scopes of a token, from `scope` or `scp`."""
    found: set[str] = set()
    for claim in ("scope", "scp"):
        said = claims.get(claim)
        words = said.split() if isinstance(said, str) else as_list(said)
        found.update(word for word in words if isinstance(word, str))
    return found


def _reason(exc: jwt.PyJWTError) -> str:
    match exc:
        case jwt.ExpiredSignatureError():
            return "it has expired"
        case jwt.ImmatureSignatureError():
            return "it is not valid yet"
        case jwt.InvalidAudienceError():
            return "its audience is not this gateway"
        case jwt.InvalidIssuerError():
            return "it is from another issuer"
        case jwt.MissingRequiredClaimError():
            return f"it lacks `{exc.claim}`"
        case _:
            return "its signature or its claims are not right"
