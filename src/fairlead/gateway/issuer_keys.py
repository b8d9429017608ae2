"""The keys an issuer signs with: found by its metadata, kept for a while, looked up again for new ones."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import anyio
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from yarl import URL

from fairlead.auth.guard import read_url, shown
from fairlead.auth.web import Errand, Web
from fairlead.config.models import GatewayOAuth
from fairlead.errors import ConfigError, FairleadError, IssuerUnavailable, LoginFailed

ALGORITHMS: Final = ("RS256", "ES256")
FRESH_SECONDS: Final = 180.0
"""How long fetched keys are believed: a key that its issuer retired opens nothing after that.

Where the issuer cannot be asked any more they are kept for `STALE_SECONDS` at most, and then none is left.
"""
STALE_SECONDS: Final = 200.0
PATIENCE_SECONDS: Final = 30.0
"""How often it is asked at most, however many strangers come with keys that nobody knows."""
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
    """The keys of one issuer. Nothing is asked before the first token comes."""

    def __init__(self, oauth: GatewayOAuth, web: Web, *, clock: Callable[[], float] = time.monotonic) -> None:
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
                return  # whoever was first did it for all
            if self._is_older(self._asked_at, PATIENCE_SECONDS if self._keys else RETRY_SECONDS):
                await self._ask()
            if self._trouble is not None and not self._keys:
                raise self._trouble

    async def _ask(self) -> None:
        """Fetch the keys. Where that fails, those known hold for a little longer."""
        self._asked_at = self._clock()
        try:
            self._keys = await self._fetch()
        except FairleadError as exc:
            self._trouble = exc
            if self._is_older(self._fetched_at, STALE_SECONDS):
                self._keys = []  # whether they are still the issuer's is anybody's guess by now
        else:
            self._trouble, self._fetched_at = None, self._clock()

    async def _fetch(self) -> list[jwt.PyJWK]:
        named = (self._oauth.issuer, self._oauth.jwks_url)
        chosen = {url.host for text in named if text and (url := read_url(text)) and url.host}
        errand = await self._web.errand(_NAME, self._oauth.issuer, chosen)
        answer = await errand.get(await self._place(errand))
        document = answer.read(_KeySet) if answer.status == 200 else None
        keys = [key for entry in document.keys if (key := _usable(entry))] if document else []
        if not keys:
            raise IssuerUnavailable(_NAME, f"{shown(self._oauth.issuer)} publishes no keys that can be used")
        return keys

    async def _place(self, errand: Errand) -> URL:
        if self._oauth.jwks_url:
            own = read_url(self._oauth.jwks_url)
            if own is None:
                raise ConfigError("`gateway.oauth.jwks_url` is no URL")
            return errand.checked(self._oauth.jwks_url, "`gateway.oauth.jwks_url`", own=own.origin())
        for url in _documents(errand.checked_metadata(self._oauth.issuer, "`gateway.oauth.issuer`")):
            answer = await errand.get(url)
            document = answer.read(_Metadata) if answer.status == 200 else None
            if document is None:
                continue
            if document.issuer != self._oauth.issuer:
                message = f"the metadata of {shown(self._oauth.issuer)} is that of {shown(document.issuer)}"
                raise LoginFailed(_NAME, message, hint="write `gateway.oauth.issuer` as it does")
            return errand.checked_metadata(document.jwks_uri, "the issuer's `jwks_uri`")
        raise IssuerUnavailable(_NAME, f"no metadata of {shown(self._oauth.issuer)} can be found")


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
