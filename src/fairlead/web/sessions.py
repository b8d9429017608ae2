"""Dashboard sessions: login by a token or a one-time link, cookies, and CSRF tokens of forms.

A session has two secrets: the value of its cookie, and its place, a path that all its pages are under and
that is also the path of the cookie. Browsers send cookies to every port of a host. A server on another port
gets none of these, since it has no page under that path. A cookie without its place opens nothing, so that a
stolen one can neither read a page nor send a form. On this machine the dashboard has a name of its own, too:
see `gateway/access/origin.py`.

Sessions and one-time codes grant nothing by themselves. Each holds the token that it was made with, which is
identified again for every request: the session acts as that token's principal, with at most the scopes that
the token had at the start, and ends once the token is removed, replaced or expired.

With a shared store, sessions and codes are those of all replicas: they are in the store, encrypted, and read
again for each request, so that a session that ended at one replica is over at all.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from fairlead.errors import StoreError, VersionConflict
from fairlead.gateway.access.auth import AuthenticatedRequest, token_in
from fairlead.gateway.access.origin import RequestRefused
from fairlead.net.listen import mark_authenticated
from fairlead.store.protocol import ANY, Store

SESSION_SECONDS: Final = 12 * 3600.0
CODE_SECONDS: Final = 600.0
MAX_SESSIONS: Final = 1000
COOKIE: Final = "fairlead_session"
SESSIONS: Final = "dashboard sessions"
CODES: Final = "dashboard codes"
KEYS: Final = "dashboard keys"
"""Namespaces of a shared store."""


class Authenticator(Protocol):
    """The part of the gateway's authenticator that the dashboard uses."""

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        """Return the authenticated request, or the response that refuses it."""
        ...

    async def identify(self, token: str) -> AuthenticatedRequest | None:
        """Return the owner of a token."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionCookie:
    """The session cookie of a browser, sent by it or new."""

    value: str
    is_new: bool = False
    """It came without one, and gets this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BrowserSession:
    """A new session with its secrets, which its browser gets once."""

    cookie: SessionCookie
    base: str
    """The path that its pages are under."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Grant:
    """The token that a code or a session was made with, and the identity it had then."""

    token: str = field(repr=False)
    principal: str
    scopes: frozenset[str]

    def confirm(self, now: AuthenticatedRequest | None) -> AuthenticatedRequest | None:
        """Scopes that the token still grants; None where it is refused by now, or has another principal."""
        if now is None or now.principal != self.principal:
            return None
        return msgspec.structs.replace(now, scopes=now.scopes & self.scopes)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Code:
    grant: _Grant
    ends: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Session:
    grant: _Grant
    place: str
    """The digest of the secret in its path."""
    form_token: str
    ends: float


_Kept = TypeVar("_Kept")


class LoginSessions:
    """Sessions of browsers: login, authentication of their requests, and logout."""

    def __init__(
        self,
        authenticator: Authenticator,
        origins: Sequence[str] = (),
        shared: Store | None = None,
        *,
        name_keys: Sequence[bytes] = (),
        id_prefix: str = "",
    ) -> None:
        """Let in those whom `authenticator` lets in.

        Args:
            authenticator: The gateway's authenticator.
            origins: Where people reach it, the best first.
            shared: The store that all replicas share, if they do.
            name_keys: The keys of all replicas for names in it: the first one names, all find.
            id_prefix: What the paths of sessions begin with: it says which process has their logins and
                confirmations.
        """
        self._authenticator = authenticator
        self._id_prefix = id_prefix
        self._store = _SessionStore(shared, name_keys) if shared is not None else None
        self._origins = tuple(origins)
        self._key = secrets.token_bytes(32)
        self._has_shared_key = False
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._codes: OrderedDict[str, _Code] = OrderedDict()
        self._messages: dict[str, str] = {}
        """What the next page of a session confirms. Kept here: an address may be seen by others."""

    # Who is there.

    async def recall(self, cookie: SessionCookie) -> None:
        """Read a session from a shared store: it may have begun, or ended, at another replica.

        Raises:
            StoreError: The store does not answer.
        """
        store, digest = self._store, _digest(cookie.value)
        if store is None:
            return
        found = await store.find(SESSIONS, cookie.value)
        session = _decode(found, _Session)
        if session is None:
            self._sessions.pop(digest, None)
        else:
            self._keep(digest, session)
        if not self._has_shared_key:
            self._key = await store.form_key(self._key)
            self._has_shared_key = True

    def cookie(self, scope: Scope) -> SessionCookie:
        """The cookie of a request, or a new one."""
        try:
            cookies = SimpleCookie(Headers(scope=scope).get("cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        morsel = cookies.get(_cookie_name(scope))
        return SessionCookie(value=morsel.value) if morsel and morsel.value else _new_cookie()

    async def admit(
        self, scope: Scope, cookie: SessionCookie, needed: str
    ) -> AuthenticatedRequest | RequestRefused:
        """Authenticate a request: by its session, else as any other request."""
        admitted = await self._by_session(scope, cookie)
        if admitted is None:
            return await self.admit_token(scope)
        if needed not in admitted.scopes:
            return RequestRefused.saying(403, f"insufficient scope: the token lacks `{needed}`")
        mark_authenticated(scope)
        return admitted

    async def admit_token(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        """Authenticate a program's request: by its token alone."""
        return await self._authenticator.admit(scope)

    def is_session(self, scope: Scope, cookie: SessionCookie) -> bool:
        """Whether a request has the cookie and the path of a session."""
        return self._session(scope, cookie) is not None

    def _session(self, scope: Scope, cookie: SessionCookie) -> _Session | None:
        session = self._sessions.get(_digest(cookie.value))
        place = scope.get("path_params", {}).get("place", "")
        if session is None or not hmac.compare_digest(session.place, _digest(place)):
            return None
        return session if session.ends >= time.time() else None

    async def _by_session(self, scope: Scope, cookie: SessionCookie) -> AuthenticatedRequest | None:
        session = self._session(scope, cookie)
        if session is None:
            return None
        admitted = session.grant.confirm(await self._authenticator.identify(session.grant.token))
        if admitted is None:
            await self.log_out(cookie)  # its token was removed, or has expired
        return admitted

    async def is_admitted(self, scope: Scope, cookie: SessionCookie, needed: str) -> bool:
        """Whether a request that was admitted earlier would be admitted now: for responses that last."""
        try:
            await self.recall(cookie)
        except StoreError:
            return False  # the browser asks again
        if self.is_session(scope, cookie):
            admitted = await self._by_session(scope, cookie)
        else:
            token = token_in(scope)
            admitted = await self._authenticator.identify(token) if token else None
        return admitted is not None and needed in admitted.scopes

    # Coming and going.

    async def one_time_code(self, token: str) -> str | None:
        """Make a code that logs in once, within some minutes, for `/login?code=…`.

        Args:
            token: The token that asks for it. The session has its principal and scopes, and ends with it.

        Returns:
            The code; None where the token does not decide, or is refused.
        """
        grant = await self._grant(token)
        if grant is None:
            return None
        now = time.time()
        for digest in [digest for digest, code in self._codes.items() if code.ends < now]:
            del self._codes[digest]
        secret = secrets.token_urlsafe(24)
        code = _Code(grant=grant, ends=now + CODE_SECONDS)
        if self._store is not None:
            await self._store.keep(CODES, secret, msgspec.json.encode(code), CODE_SECONDS)
            return secret
        self._codes[_digest(secret)] = code
        if len(self._codes) > MAX_SESSIONS:
            self._codes.popitem(last=False)
        return secret

    async def links(self, token: str) -> list[str]:
        """Links with one code that log the opener in, the best first; it can be used at one of them.

        The code is made with `token`, as by `one_time_code`. Without a code there are no links.
        """
        code = await self.one_time_code(token)
        return [f"{origin}/login?code={code}" for origin in self._origins] if code is not None else []

    async def redeem(self, code: str) -> BrowserSession | None:
        """Begin a session for a one-time code, which is used up by that."""
        found = self._codes.pop(_digest(code), None)
        if self._store is not None:
            found = _decode(await self._store.take(CODES, code), _Code)
        if found is None or found.ends < time.time():
            return None
        is_granted = found.grant.confirm(await self._authenticator.identify(found.grant.token)) is not None
        return await self._begin(found.grant) if is_granted else None

    async def log_in(self, secret: str) -> BrowserSession | None:
        """Begin a session, with a new cookie, for a token with the scope `decide` or a one-time code."""
        if (redeemed := await self.redeem(secret)) is not None:
            return redeemed
        grant = await self._grant(secret)
        return await self._begin(grant) if grant is not None else None

    async def _grant(self, token: str) -> _Grant | None:
        admitted = await self._authenticator.identify(token)
        if admitted is None or "decide" not in admitted.scopes:
            return None
        return _Grant(token=token, principal=admitted.principal, scopes=admitted.scopes)

    async def _begin(self, grant: _Grant) -> BrowserSession:
        cookie, place = _new_cookie(), f"{self._id_prefix}{secrets.token_urlsafe(24)}"
        session = _Session(
            grant=grant,
            place=_digest(place),
            form_token=secrets.token_urlsafe(32),
            ends=time.time() + SESSION_SECONDS,
        )
        digest = _digest(cookie.value)
        if self._store is not None:
            await self._store.keep(SESSIONS, cookie.value, msgspec.json.encode(session), SESSION_SECONDS)
        self._keep(digest, session)
        return BrowserSession(cookie=cookie, base=base_of(place))

    def _keep(self, digest: str, session: _Session) -> None:
        self._sessions[digest] = session
        if len(self._sessions) > MAX_SESSIONS:
            self._forget(next(iter(self._sessions)))

    async def log_out(self, cookie: SessionCookie) -> None:
        """End a session, at all replicas."""
        self._forget(_digest(cookie.value))
        if self._store is not None:
            await self._store.delete(SESSIONS, cookie.value)

    def _forget(self, digest: str) -> None:
        self._sessions.pop(digest, None)
        self._messages.pop(digest, None)

    # Confirmations.

    def leave_message(self, scope: Scope, cookie: SessionCookie, message: str) -> None:
        """Keep a message for the next page that the session opens."""
        if self.is_session(scope, cookie):
            self._messages[_digest(cookie.value)] = message

    def has_message(self, cookie: SessionCookie) -> bool:
        """Whether there is a message for the next page."""
        return _digest(cookie.value) in self._messages

    def take_message(self, scope: Scope, cookie: SessionCookie) -> str | None:
        """The message for this page, once."""
        return self._messages.pop(_digest(cookie.value), None) if self.is_session(scope, cookie) else None

    # Forms.

    def form_token(self, scope: Scope, cookie: SessionCookie) -> str:
        """CSRF token for the forms of this browser. A session's cannot be computed from its cookie."""
        session = self._session(scope, cookie)
        if session is not None:
            return session.form_token
        return hmac.new(self._key, cookie.value.encode(), hashlib.sha256).hexdigest()

    def is_own_form(self, scope: Scope, cookie: SessionCookie, given: str) -> bool:
        """Whether a form comes from a page of the dashboard, in this browser, and from its exact origin."""
        expected = self.form_token(scope, cookie).encode()
        is_known = not cookie.is_new and hmac.compare_digest(given.encode(errors="replace"), expected)
        return is_known and _is_from_its_origin(scope)


def _decode(value: bytes | None, kind: type[_Kept]) -> _Kept | None:
    """Decode what is kept of a secret; None where there is nothing, or what another version wrote."""
    try:
        return msgspec.json.decode(value, type=kind) if value is not None else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class _SessionStore:
    """Sessions and codes in a shared store, under names that tell nothing of their secrets.

    Names are readable in the store. A plain digest would let its readers test which cookie or code is a valid
    one; these are keyed with what the replicas share and the store has not.
    """

    def __init__(self, store: Store, keys: Sequence[bytes]) -> None:
        self._store = store
        self._keys = tuple(keys) or (secrets.token_bytes(32),)

    def _names(self, secret: str) -> list[str]:
        """The names that a secret may have: while keys are changed, each replica may name by another one."""
        text = secret.encode(errors="replace")
        return [hmac.new(key, text, hashlib.sha256).hexdigest() for key in self._keys]

    async def keep(self, namespace: str, secret: str, value: bytes, seconds: float) -> None:
        """Keep a value for so long."""
        await self._store.put(namespace, self._names(secret)[0], value, expect=None, expires_in=seconds)

    async def find(self, namespace: str, secret: str) -> bytes | None:
        """Return the value of a secret."""
        for name in self._names(secret):
            if (found := await self._store.get(namespace, name)) is not None:
                return found.value
        return None

    async def take(self, namespace: str, secret: str) -> bytes | None:
        """Take the value of a secret out of the store: of all who try, one gets it."""
        for name in self._names(secret):
            if (found := await self._store.get(namespace, name)) is None:
                continue
            with suppress(VersionConflict):
                if await self._store.delete(namespace, name, expect=found.version):
                    return found.value
        return None

    async def delete(self, namespace: str, secret: str) -> None:
        """Delete the value of a secret."""
        for name in self._names(secret):
            await self._store.delete(namespace, name, expect=ANY)

    async def form_key(self, own: bytes) -> bytes:
        """Return the key of form tokens that all replicas have: this one's, where it is the first to ask."""
        with suppress(VersionConflict):  # another replica was first
            await self._store.put(KEYS, "forms", own, expect=None)
        key = await self._store.get(KEYS, "forms")
        return key.value if key is not None else own


def base_of(place: str) -> str:
    """The path prefix of a session's pages."""
    return f"/~{place}" if place else ""


def set_cookie(response: Response, cookie: SessionCookie, scope: Scope, path: str) -> None:
    """Set the session cookie, for this host and below this path only."""
    response.set_cookie(
        _cookie_name(scope),
        cookie.value,
        max_age=int(SESSION_SECONDS),
        path=quote(path, safe="/~"),  # it came with a request, and goes into a header
        httponly=True,
        samesite="strict",
        secure=scope["scheme"] == "https",
    )


def delete_cookie(response: Response, scope: Scope, path: str) -> None:
    """Delete the session cookie."""
    response.delete_cookie(_cookie_name(scope), path=path, httponly=True, samesite="strict")


def _is_from_its_origin(scope: Scope) -> bool:
    """Whether the one `Origin` of a request is that of the address it was sent to, port included."""
    headers = Headers(scope=scope)
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if len(origins) != 1 or len(hosts) != 1:
        return False
    # Browsers write an origin in lower case: to compare it as it came lets nothing else through.
    scheme, _, authority = origins[0].partition("://")
    return scheme in ("http", "https") and authority == hosts[0].lower()


def _new_cookie() -> SessionCookie:
    return SessionCookie(value=secrets.token_urlsafe(32), is_new=True)


def _digest(secret: str) -> str:
    """Digest by which secrets are stored and looked up, so that neither memory nor timing reveals them."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _cookie_name(scope: Scope) -> str:
    """A name for each port that browsers see: several gateways may run on one host, one behind many ports."""
    _, colon, port = Headers(scope=scope).get("host", "").rpartition(":")
    if not colon or not port.isdecimal():
        port = str((scope.get("server") or ("", 0))[1])
    return f"{COOKIE}_{port}"
