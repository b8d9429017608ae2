"""One request on its way to a page and back: who asks, whether a form is ours, what every answer says.

Dashboard sessions: who gets in, by a token or a one-time link, and which forms are the dashboard's own.

A session has two secrets: the value of its cookie, and its place, a path that all its pages are under and
that is also the path of the cookie. Browsers send cookies to every port of a host. A server on another port
gets none of these, since it has no page under that path. A cookie without its place opens nothing, so that a
stolen one can neither read a page nor send a form. On this machine the dashboard has a name of its own, too:
see `gateway/access/origin.py`.

Sessions and one-time codes grant nothing by themselves. Each holds the token that it was made with, which is
identified again for every request: the session acts as that token's principal, with at most the scopes that
the token had at the start, and ends once the token is removed, replaced or expired.
"""

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.cookies import CookieError, SimpleCookie
from typing import Final, Literal, Protocol
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from fairlead.errors import FairleadError, StoreError, UnknownServer
from fairlead.gateway.access.auth import AuthenticatedRequest, screened_headers, token_in
from fairlead.gateway.access.origin import RequestRefused
from fairlead.net.listen import mark_authenticated
from fairlead.web.html import BASE, with_session_base

SESSION_SECONDS: Final = 12 * 3600.0
CODE_SECONDS: Final = 600.0
MAX_SESSIONS: Final = 1000
COOKIE: Final = "fairlead_session"


class Doorkeeper(Protocol):
    """What the dashboard needs of the gateway's authenticator."""

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        """Say for whom a request goes on, or how it is answered instead."""
        ...

    async def identify(self, token: str) -> AuthenticatedRequest | None:
        """Say whose token this is."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionCookie:
    """What a browser shows of itself: the value of its cookie."""

    value: str
    is_new: bool = False
    """It came without one, and gets this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BrowserSession:
    """A session as its browser is told of it, once."""

    ticket: SessionCookie
    base: str
    """The path that its pages are under."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Grant:
    """The token that a code or a session was made with, and the identity it had then."""

    token: str = field(repr=False)
    principal: str
    scopes: frozenset[str]

    def confirm(self, now: AuthenticatedRequest | None) -> AuthenticatedRequest | None:
        """What the token still grants; None where it is refused by now, or stands for another principal."""
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


class LoginSessions:
    """Lets people in, and remembers whom it let in."""

    def __init__(self, keeper: Doorkeeper, origins: Sequence[str] = ()) -> None:
        """Let in those whom `keeper` lets in. `origins` are where people reach it, the best first."""
        self._keeper = keeper
        self._origins = tuple(origins)
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._codes: OrderedDict[str, _Code] = OrderedDict()

    # Who is there.

    def ticket(self, scope: Scope) -> SessionCookie:
        """The cookie of a request, or a new one."""
        try:
            cookies = SimpleCookie(Headers(scope=scope).get("cookie", ""))
        except CookieError:
            cookies = SimpleCookie()
        morsel = cookies.get(_cookie_name(scope))
        return SessionCookie(value=morsel.value) if morsel and morsel.value else _new_ticket()

    async def admit(
        self, scope: Scope, ticket: SessionCookie, needed: str
    ) -> AuthenticatedRequest | RequestRefused:
        """Say who a request is from: by its session, else as for any other request."""
        admitted = await self._by_session(scope, ticket)
        if admitted is None:
            return await self.admit_token(scope)
        if needed not in admitted.scopes:
            return RequestRefused.saying(403, f"insufficient scope: the token lacks `{needed}`")
        mark_authenticated(scope)
        return admitted

    async def admit_token(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        """Say who a program's request is from: by its token alone."""
        return await self._keeper.admit(scope)

    def is_session(self, scope: Scope, ticket: SessionCookie) -> bool:
        """Does a request have the cookie and the place of a session?"""
        return self._session(scope, ticket) is not None

    def _session(self, scope: Scope, ticket: SessionCookie) -> _Session | None:
        session = self._sessions.get(_digest(ticket.value))
        place = scope.get("path_params", {}).get("place", "")
        if session is None or not hmac.compare_digest(session.place, _digest(place)):
            return None
        return session if session.ends >= time.time() else None

    async def _by_session(self, scope: Scope, ticket: SessionCookie) -> AuthenticatedRequest | None:
        session = self._session(scope, ticket)
        if session is None:
            return None
        admitted = session.grant.confirm(await self._keeper.identify(session.grant.token))
        if admitted is None:
            self.log_out(ticket)  # its token was removed, or has expired
        return admitted

    async def is_admitted(self, scope: Scope, ticket: SessionCookie, needed: str) -> bool:
        """Would a request that was admitted a while ago be admitted now? For responses that last."""
        if self.is_session(scope, ticket):
            admitted = await self._by_session(scope, ticket)
        else:
            token = token_in(scope)
            admitted = await self._keeper.identify(token) if token else None
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
        self._codes[_digest(secret)] = _Code(grant=grant, ends=now + CODE_SECONDS)
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
        """Begin a session for a one-time code, which opens nothing after that."""
        found = self._codes.pop(_digest(code), None)
        if found is None or found.ends < time.time():
            return None
        is_granted = found.grant.confirm(await self._keeper.identify(found.grant.token)) is not None
        return self._begin(found.grant) if is_granted else None

    async def log_in(self, secret: str) -> BrowserSession | None:
        """Begin a session for a token that decides, or a one-time code. The cookie is new in any case."""
        if (redeemed := await self.redeem(secret)) is not None:
            return redeemed
        grant = await self._grant(secret)
        return self._begin(grant) if grant is not None else None

    async def _grant(self, token: str) -> _Grant | None:
        admitted = await self._keeper.identify(token)
        if admitted is None or "decide" not in admitted.scopes:
            return None
        return _Grant(token=token, principal=admitted.principal, scopes=admitted.scopes)

    def _begin(self, grant: _Grant) -> BrowserSession:
        ticket, place = _new_ticket(), secrets.token_urlsafe(24)
        self._sessions[_digest(ticket.value)] = _Session(
            grant=grant,
            place=_digest(place),
            form_token=secrets.token_urlsafe(32),
            ends=time.time() + SESSION_SECONDS,
        )
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return BrowserSession(ticket=ticket, base=base_of(place))

    def log_out(self, ticket: SessionCookie) -> None:
        """End a session."""
        self._sessions.pop(_digest(ticket.value), None)

    # Forms.

    def form_token(self, scope: Scope, ticket: SessionCookie) -> str:
        """What every form of this browser has to carry. A session's cannot be computed from its cookie."""
        session = self._session(scope, ticket)
        if session is not None:
            return session.form_token
        return hmac.new(self._key, ticket.value.encode(), hashlib.sha256).hexdigest()

    def is_own_form(self, scope: Scope, ticket: SessionCookie, given: str) -> bool:
        """Does a form come from a page of ours, in this very browser, and from that page's exact origin?"""
        expected = self.form_token(scope, ticket).encode()
        is_known = not ticket.is_new and hmac.compare_digest(given.encode(errors="replace"), expected)
        return is_known and _is_from_its_origin(scope)


def base_of(place: str) -> str:
    """The path that the pages of a session are under."""
    return f"/~{place}" if place else ""


def keep_ticket(response: Response, ticket: SessionCookie, scope: Scope, path: str) -> None:
    """Have the browser keep its cookie, for this host and below this path only."""
    response.set_cookie(
        _cookie_name(scope),
        ticket.value,
        max_age=int(SESSION_SECONDS),
        path=quote(path, safe="/~"),  # it came with a request, and goes into a header
        httponly=True,
        samesite="strict",
        secure=scope["scheme"] == "https",
    )


def drop_ticket(response: Response, scope: Scope, path: str) -> None:
    """Have the browser forget its cookie."""
    response.delete_cookie(_cookie_name(scope), path=path, httponly=True, samesite="strict")


def _is_from_its_origin(scope: Scope) -> bool:
    """Is the one `Origin` of a request that of the address it was sent to? Ports count."""
    headers = Headers(scope=scope)
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if len(origins) != 1 or len(hosts) != 1:
        return False
    # Browsers write an origin in lower case: to compare it as it came lets nothing else through.
    scheme, _, authority = origins[0].partition("://")
    return scheme in ("http", "https") and authority == hosts[0].lower()


def _new_ticket() -> SessionCookie:
    return SessionCookie(value=secrets.token_urlsafe(32), is_new=True)


def _digest(secret: str) -> str:
    """What secrets are kept and found by, so that neither memory nor timing tells them."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _cookie_name(scope: Scope) -> str:
    """A name for each port: several gateways may run on one host."""
    port = (scope.get("server") or ("", 0))[1]
    return f"{COOKIE}_{port}"


Audience = Literal["people", "strangers", "programs", "public"]
"""Who a door is for: people are sent to the login, where they are strangers; programs are told that they need
a token; what is public needs nothing."""

LOGIN: Final = "/login"
MAX_FORM_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 2000

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without any, browsers send our own forms with `Origin: null`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """A request, as pages see it."""

    request: Request
    entrance: LoginSessions
    ticket: SessionCookie
    form: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    admitted: AuthenticatedRequest | None = None
    """Who asks; None at doors that are open to strangers."""

    @property
    def form_token(self) -> str:
        """What every form on the page has to carry."""
        return self.entrance.form_token(self.request.scope, self.ticket)

    @property
    def base(self) -> str:
        """The path that the pages of this session are under."""
        return base_of(self.request.path_params.get("place", ""))

    @property
    def path(self) -> str:
        """The path of the page, below that of its session."""
        return self.request.url.path.removeprefix(self.base) or "/"

    @property
    def is_known(self) -> bool:
        """Does it come from a browser that is logged in?"""
        return self.entrance.is_session(self.request.scope, self.ticket)

    @property
    def is_admin(self) -> bool:
        """May the visitor decide for every principal?"""
        return self.admitted is not None and self.admitted.decides_for is None

    @property
    def principal(self) -> str:
        """The principal that the visitor acts as."""
        assert self.admitted is not None, "strangers act for no one"
        return self.admitted.principal

    @property
    def decides_for(self) -> str | None:
        """Whose approvals may be seen and answered; None for those of all principals."""
        assert self.admitted is not None, "strangers decide nothing"
        return self.admitted.decides_for

    def step(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str:
        """A field of the address, empty where it is not there."""
        return self.request.query_params.get(name, "")[:1000]

    def field(self, name: str) -> str:
        """A field of the form, empty where it is not there."""
        return next(iter(self.form.get(name, ())), "")


Answer = Callable[[PageRequest], Awaitable[Response]]
ErrorPage = Callable[[PageRequest, FairleadError], str]


class AccessCheck:
    """The way to one page. An ASGI application, so that every answer of its path goes through here."""

    def __init__(
        self,
        entrance: LoginSessions,
        *,
        get: Answer | None = None,
        post: Answer | None = None,
        audience: Audience = "people",
        needed: str = "admin",
        error_page: ErrorPage | None = None,
    ) -> None:
        self._needed = needed
        self._entrance = entrance
        self._answers = {"GET": get, "HEAD": get, "POST": post}
        self._audience: Audience = audience
        self._error_page = error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        visit = PageRequest(request=request, entrance=self._entrance, ticket=self._entrance.ticket(scope))
        base = BASE.set(visit.base)
        try:
            response = await self._respond(visit)
        except ClientDisconnect:
            return
        finally:
            BASE.reset(base)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if visit.ticket.is_new and self._audience == "strangers" and "set-cookie" not in response.headers:
            keep_ticket(response, visit.ticket, scope, request.url.path)
        await response(scope, receive, send)

    async def _respond(self, visit: PageRequest) -> Response:
        answer = self._answers.get(visit.request.method)
        if answer is None:
            allowed = ", ".join(method for method, known in self._answers.items() if known)
            return _plain(405, "this is not used so", {"Allow": allowed})
        screened_headers(visit.request.scope)  # raises where the guard was left out
        admitted = await self._admit(visit)
        if isinstance(admitted, RequestRefused):
            return _refusal(visit, admitted, self._audience)
        visit = replace(visit, admitted=admitted)
        if visit.request.method == "POST":
            form = await _read_form(visit.request)
            if form is None:
                return _plain(400, "that is no form of this page, or too large a one")
            visit = replace(visit, form=form)
            if not self._entrance.is_own_form(visit.request.scope, visit.ticket, visit.field("form_token")):
                return _plain(403, "this form was not sent from the dashboard; load the page again")
        try:
            return await answer(visit)
        except FairleadError as exc:
            return self._error_response(visit, exc)

    async def _admit(self, visit: PageRequest) -> AuthenticatedRequest | RequestRefused | None:
        if self._audience in ("strangers", "public"):
            return None
        needed = self._needed if self._audience == "people" else "status"
        return await self._entrance.admit(visit.request.scope, visit.ticket, needed)

    def _error_response(self, visit: PageRequest, error: FairleadError) -> Response:
        status = 404 if isinstance(error, UnknownServer) else 503 if isinstance(error, StoreError) else 409
        if self._error_page is None:
            return _plain(status, str(error))
        return Response(self._error_page(visit, error), status, media_type="text/html")


def see(path: str) -> Response:
    """Send the browser on after a form was dealt with."""
    return RedirectResponse(with_session_base(path), status_code=303)


def _refusal(visit: PageRequest, refused: RequestRefused, audience: Audience) -> Response:
    is_person = audience == "people" and "authorization" not in visit.request.headers
    if is_person and refused.status in (401, 403) and visit.request.method != "POST" and not visit.is_known:
        return see(LOGIN)
    return Response(refused.body, refused.status, dict(refused.headers))


def _plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status, dict(headers or {}))


async def _read_form(request: Request) -> Mapping[str, tuple[str, ...]] | None:
    """The fields of a form; None where it is none, or too large."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            return None
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:
        return None
    if any("\0" in name or "\0" in value for name, value in pairs):
        return None  # which no browser sends, and no file name or database takes
    fields: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        fields[name] = (*fields.get(name, ()), value)
    return fields


def own_path(text: str, fallback: str) -> str:
    """A path of this very site that a form wants to go back to, or another."""
    parts = urlsplit(text)
    is_own = (
        not parts.scheme and not parts.netloc and text.startswith("/") and not text.startswith(("//", "/\\"))
    )
    return text if is_own and text.isprintable() else fallback
