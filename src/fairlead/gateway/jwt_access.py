"""Tokens of a team's own issuer: signed, made out to this gateway, and checked with the issuer's keys."""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from fairlead.auth.guard import read_url
from fairlead.config.models import GatewayOAuth
from fairlead.config.principal import Caller, bundles_granted, oauth_principal
from fairlead.config.shapes import as_list, is_list, is_object
from fairlead.errors import FairleadError
from fairlead.gateway.issuer_keys import ALGORITHMS, IssuerKeys

LEEWAY_SECONDS: Final = 30
MAX_TOKEN_BYTES: Final = 16 * 1024
TRUST_SECONDS: Final = 60.0
"""How long a token counts as checked before its signature is checked with the keys known then.

Added to the time that keys are believed (see `issuer_keys`), it bounds how long a retired key opens anything:
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
class Verified:
    """Whom a token stands for, and what it is for."""

    principal: str
    scopes: frozenset[str]
    groups: frozenset[str] = frozenset()
    says_groups: bool = True
    """Does the token say which groups its bearer is in, even if those are none?"""
    bundles: frozenset[str] | None = None
    """The only bundles it may use; None for all, and for what is in no bundle."""


@dataclass(frozen=True, slots=True)
class Invalid:
    """A token that opens nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A sound token that is not for this."""

    reason: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unverifiable:
    """A token that cannot be checked right now."""

    reason: str


class JwtAccess:
    """Checks the tokens of one issuer."""

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
        self._known: OrderedDict[bytes, tuple[float, Verified]] = OrderedDict()

    @property
    def required_scopes(self) -> tuple[str, ...]:
        """What every token must be for."""
        return self._oauth.required_scopes

    @property
    def resource_metadata(self) -> dict[str, object]:
        """What the gateway says about itself to clients that look for a way to log in (RFC 9728)."""
        scopes = {"scopes_supported": list(self.required_scopes)} if self.required_scopes else {}
        return {
            "resource": self._oauth.audience,
            "authorization_servers": [self._oauth.issuer],
            "bearer_methods_supported": ["header"],
            **scopes,
        }

    @property
    def metadata_url(self) -> str:
        """Where that is published; only its path where the audience is no URL."""
        audience = read_url(self._oauth.audience)
        if audience is None:
            return _WELL_KNOWN
        return f"{audience.origin()}{_WELL_KNOWN}{audience.raw_path.rstrip('/')}"

    async def verify(self, token: str) -> Verified | Invalid | Forbidden | Unverifiable:
        """Check a token, or remember that it was checked a moment ago."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is not None and self._clock() < known[0]:
            return self._require_groups(known[1])
        self._known.pop(digest, None)
        try:
            claims = await self._claims(token)
        except FairleadError as exc:
            return Unverifiable(f"tokens cannot be checked right now: {exc}")
        if isinstance(claims, Invalid):
            return claims
        found = self._judged(claims)
        if isinstance(found, Verified):
            self._remember(digest, float(claims["exp"]), found)
            return self._require_groups(found)
        return found

    def _require_groups(self, found: Verified) -> Verified | Forbidden:
        """Refuse a token without the groups claim where groups count, so that no rule about one lapses.

        Asked for each request: a rule may have come after the token was checked.
        """
        required = self._oauth.groups_required
        if found.says_groups or not (self._names_groups() if required is None else required):
            return found
        claim = self._oauth.groups_claim
        return Forbidden(
            f"the token has no claim `{claim}`, and rules or bundles of this gateway name groups: have the"
            " issuer add it (an empty list for no group), or name another in `gateway.oauth.groups_claim`",
            self.required_scopes,
        )

    async def _claims(self, token: str) -> dict[str, Any] | Invalid:
        if len(token) > MAX_TOKEN_BYTES:
            return Invalid("it is too long")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return Invalid("it is no token of this gateway, nor a signed one of its issuer")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            return Invalid(f"it must be signed with {' or '.join(ALGORITHMS)}")
        if "crit" in header:
            return Invalid("it wants something understood that nobody here knows")
        key = await self._keys.key(kid if isinstance(kid, str) else None, algorithm)
        if key is None:
            return Invalid("its issuer has no such key")
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
            return Invalid(_reason(exc))

    def _judged(self, claims: Mapping[str, Any]) -> Verified | Invalid | Forbidden:
        claim = self._oauth.principal_claim
        who = claims.get(claim)
        if not isinstance(who, str) or not who:
            return Invalid(f"its `{claim}` says nobody")
        if len(who) > MAX_SUBJECT or not _is_plain_name(who):
            return Invalid(f"its `{claim}` is too long, or has characters that do not show")
        granted = _scopes(claims)
        missing = [scope for scope in self.required_scopes if scope not in granted]
        if missing:
            return Forbidden(f"the token lacks the scope `{missing[0]}`", self.required_scopes)
        own = {"mcp"}
        if _STATUS_SCOPE in granted:
            own.add("status")
        # What an issuer calls a scope decides nothing here: only the configuration says which one does.
        if self._oauth.decide_scope is not None and self._oauth.decide_scope in granted:
            own.add("decide")
        groups = self._groups(claims)
        if groups is None:
            # Rules that deny something to a group must not lapse for a token whose groups cannot be told.
            claim = self._oauth.groups_claim
            return Invalid(f"its `{claim}` is not one name, nor a list of at most {MAX_GROUPS} names")
        caller = Caller(oauth_principal(self._oauth.issuer, who), groups)
        bundles = bundles_granted(self._oauth.bundles, self._oauth.issuer, caller)
        if bundles is not None and not bundles:
            return Forbidden("no bundle of this gateway is for its bearer", self.required_scopes)
        return Verified(
            principal=caller.principal,
            scopes=frozenset(own),
            groups=groups,
            says_groups=_claim_at(claims, self._oauth.groups_claim) is not None,
            bundles=bundles,
        )

    def _groups(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """The groups that a token names; None where they cannot be told.

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

    def _remember(self, digest: bytes, expires: float, found: Verified) -> None:
        self._known[digest] = min(expires + LEEWAY_SECONDS, self._clock() + TRUST_SECONDS), found
        while len(self._known) > _MAX_KEPT:
            self._known.popitem(last=False)


def _is_left_out(claims: Mapping[str, Any], claim: str) -> bool:
    """Does a token say that its groups are elsewhere? Some issuers leave out a list that is too long.

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
    """Can a name be told apart from others by reading it? Not with characters that do not show."""
    return bool(name) and name.isprintable() and name == name.strip()


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    """What a token is for, in either of the ways issuers say it."""
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
            return "it is made out to somebody else"
        case jwt.InvalidIssuerError():
            return "it is from another issuer"
        case jwt.MissingRequiredClaimError():
            return f"it lacks `{exc.claim}`"
        case _:
            return "its signature or its claims are not right"
