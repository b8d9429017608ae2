"""A request to a page: its session and principal, CSRF checks, and the headers of every response."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from fairlead.errors import FairleadError, StoreError, UnknownServer
from fairlead.gateway.access.auth import AuthenticatedRequest, require_screened_headers
from fairlead.gateway.access.origin import RequestRefused
from fairlead.web.html import BASE, THEME, with_session_base
from fairlead.web.sessions import LoginSessions, SessionCookie, base_of, set_cookie
from fairlead.wording import join_clauses

Audience = Literal["people", "strangers", "programs", "public"]
"""Who a page is for: people without a session are redirected to the login, programs without a token get an
error; public pages need neither."""

LOGIN: Final = "/login"
MAX_FORM_BYTES: Final = 64 * 1024
MAX_ARGUMENTS_FORM_BYTES: Final = 8 * 1024 * 1024
"""The largest form with arguments of a tool. Each of their bytes may be encoded as three."""
MAX_FIELDS: Final = 2000
THEME_COOKIE: Final = "fairlead_theme"
THEMES: Final = ("light", "dark")
LIVE_HEADER: Final = "fairlead-live"
"""Sent by the script that keeps an open page fresh: its requests count as no use of the session."""

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
    """A request to a page, with its session and form."""

    http: Request
    sessions: LoginSessions
    cookie: SessionCookie
    form: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    admitted: AuthenticatedRequest | None = None
    """Who asks; None on pages that are open to strangers."""

    @property
    def form_token(self) -> str:
        """The CSRF token that every form on the page carries."""
        return self.sessions.form_token(self.http.scope, self.cookie)

    @property
    def base(self) -> str:
        """The path prefix of this session's pages."""
        return base_of(self.http.path_params.get("place", ""))

    @property
    def path(self) -> str:
        """The path of the page, below that of its session."""
        return self.http.url.path.removeprefix(self.base) or "/"

    @property
    def address(self) -> str:
        """The path of the page with its query, below that of its session."""
        query = self.http.url.query
        return f"{self.path}?{query}" if query else self.path

    @property
    def theme(self) -> str:
        """The theme that the visitor chose; empty where the system's applies."""
        chosen = self.http.cookies.get(THEME_COOKIE, "")
        return chosen if chosen in THEMES else ""

    @property
    def is_live(self) -> bool:
        """Whether an open page requests its own updated parts."""
        return LIVE_HEADER in self.http.headers

    def take_message(self) -> str | None:
        """The confirmation to show on this page, once."""
        return None if self.is_live else self.sessions.take_message(self.http.scope, self.cookie)

    @property
    def is_known(self) -> bool:
        """Whether it comes from a browser that is logged in."""
        return self.sessions.is_session(self.http.scope, self.cookie)

    @property
    def is_admin(self) -> bool:
        """Whether the visitor may decide for every principal."""
        return self.admitted is not None and self.admitted.decides_for is None

    @property
    def principal(self) -> str:
        """The principal that the visitor acts as."""
        assert self.admitted is not None, "strangers act for no one"
        return self.admitted.principal

    @property
    def decides_for(self) -> str | None:
        """The principal whose approvals may be seen and answered; None for all principals."""
        assert self.admitted is not None, "strangers decide nothing"
        return self.admitted.decides_for

    def step(self, name: str) -> str:
        """A path parameter."""
        return str(self.http.path_params[name])

    def query(self, name: str) -> str:
        """A query parameter, empty where it is missing."""
        return self.http.query_params.get(name, "")[:1000]

    def field(self, name: str) -> str:
        """A field of the form, empty where it is missing."""
        return next(iter(self.form.get(name, ())), "")


Answer = Callable[[PageRequest], Awaitable[Response]]
ErrorPage = Callable[[PageRequest, FairleadError], str]

logger = logging.getLogger(__name__)


class AccessCheck:
    """Access check of one page. An ASGI application, so that every response of its path passes through it."""

    def __init__(  # noqa: PLR0913 - one for each property of a page
        self,
        sessions: LoginSessions,
        *,
        get: Answer | None = None,
        post: Answer | None = None,
        audience: Audience = "people",
        needed: str = "admin",
        error_page: ErrorPage | None = None,
        confirms: bool = True,
        has_arguments: bool = False,
    ) -> None:
        """Make the way to a page.

        Args:
            sessions: Decides who is logged in.
            get: Shows the page.
            post: Does what its forms say.
            audience: Who the page is for.
            needed: The scope that people need.
            error_page: Shows what went wrong, in place of plain text.
            confirms: Does the page after a form say that it was done, where `post` says nothing of it?
            has_arguments: Does a form there have arguments of a tool, and so may be large?
        """
        self._has_arguments = has_arguments
        self._needed = needed
        self._confirms = confirms
        self._sessions = sessions
        self._answers = {"GET": get, "HEAD": get, "POST": post}
        self._audience: Audience = audience
        self._error_page = error_page

    @property
    def is_for_people(self) -> bool:
        """Whether it is a page for people with a login."""
        return self._audience == "people"

    @property
    def is_shown(self) -> bool:
        """Whether it has a page for GET, rather than only forms that are sent there."""
        return self._answers["GET"] is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = PageRequest(
            http=Request(scope, receive), sessions=self._sessions, cookie=self._sessions.cookie(scope)
        )
        base, theme = BASE.set(request.base), THEME.set(request.theme)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        finally:
            BASE.reset(base)
            THEME.reset(theme)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if request.cookie.is_new and self._audience == "strangers" and "set-cookie" not in response.headers:
            set_cookie(response, request.cookie, scope, request.http.url.path)
        await response(scope, receive, send)

    async def _respond(self, request: PageRequest) -> Response:
        answer = self._answers.get(request.http.method)
        if answer is None:
            allowed = ", ".join(method for method, known in self._answers.items() if known)
            return _plain(405, f"method {request.http.method} is not allowed", {"Allow": allowed})
        require_screened_headers(request.http.scope)  # raises where the guard was left out
        try:
            admitted = await self._admit(request)
        except StoreError as exc:  # who it is from is not known while the shared store does not answer
            return _plain(503, join_clauses(str(exc), exc.hint))
        if isinstance(admitted, RequestRefused):
            return _refusal(request, admitted, self._audience)
        request = replace(request, admitted=admitted)
        if request.http.method == "POST":
            form = await self._read_own_form(request)
            if isinstance(form, Response):
                return form
            request = replace(request, form=form)
            # The cookie alone does not tell: a page at another port of this host counts as the same site.
            if not self._sessions.is_own_form(
                request.http.scope, request.cookie, request.field("form_token")
            ):
                return _plain(403, "this form was not sent from the dashboard; load the page again")
        try:
            response = await answer(request)
        except FairleadError as exc:
            return self._error_response(request, exc, _status_of(exc))
        except Exception:
            logger.exception("a page of the dashboard failed", extra={"page": request.path})
            unexpected = FairleadError(
                "The gateway failed to answer. This is a fault of Fairlead, and its log says more.",
                hint="look at the end of the gateway's log, and report it",
            )
            return self._error_response(request, unexpected, 500)
        is_done = request.http.method == "POST" and response.status_code == 303
        if is_done and self._confirms and not self._sessions.has_message(request.cookie):
            self._sessions.leave_message(request.http.scope, request.cookie, "Done.")
        return response

    async def _read_own_form(self, request: PageRequest) -> Mapping[str, tuple[str, ...]] | Response:
        limit = MAX_ARGUMENTS_FORM_BYTES if self._has_arguments else MAX_FORM_BYTES
        try:
            form = await _read_form(request.http, limit)
        except _FormTooLarge as exc:
            return self._error_response(request, exc, 413)
        return _plain(400, "the body is not a form") if form is None else form

    async def _admit(self, request: PageRequest) -> AuthenticatedRequest | RequestRefused | None:
        if self._audience == "public":
            return None
        await self._sessions.recall(request.cookie)
        if self._audience == "strangers":
            return None
        needed = self._needed if self._audience == "people" else "status"
        return await self._sessions.admit(request.http.scope, request.cookie, needed)

    def _error_response(self, request: PageRequest, error: FairleadError, status: int) -> Response:
        if self._error_page is None:
            return _plain(status, str(error))
        return Response(self._error_page(request, error), status, media_type="text/html")


def _status_of(error: FairleadError) -> int:
    if isinstance(error, UnknownServer):
        return 404
    return 503 if isinstance(error, StoreError) else 409


def see(path: str) -> Response:
    """Redirect the browser after a form was handled."""
    return RedirectResponse(with_session_base(path), status_code=303)


def confirm(request: PageRequest, path: str, message: str) -> Response:
    """Redirect the browser after a form was handled, with a confirmation for the next page."""
    request.sessions.leave_message(request.http.scope, request.cookie, message)
    return see(path)


def login_path(request: PageRequest) -> str:
    """The login page, which leads back to the requested page."""
    address = request.address
    return LOGIN if address == "/" else f"{LOGIN}?next={quote(address, safe='/')}"


def _refusal(request: PageRequest, refused: RequestRefused, audience: Audience) -> Response:
    is_person = audience == "people" and "authorization" not in request.http.headers
    if is_person and refused.status in (401, 403) and request.http.method != "POST" and not request.is_known:
        return see(login_path(request))
    return Response(refused.body, refused.status, dict(refused.headers))


def _plain(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status, dict(headers or {}))


class _FormTooLarge(FairleadError):
    """The body has more bytes than are read."""

    def __init__(self, limit: int) -> None:
        hint = (
            "go back: the browser has what you typed; `fairlead call` takes larger arguments with `--input`"
        )
        super().__init__(f"this form has more than {limit // 1024:,} KiB", hint=hint)


async def _read_form(request: Request, limit: int) -> Mapping[str, tuple[str, ...]] | None:
    """The fields of a form; None where it is none. Raises `_FormTooLarge`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise _FormTooLarge(limit)
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
    """Path of this site that a form wants to return to, or the default for any other URL."""
    # Browsers read `//host` and `/\host` as another site, which would make this an open redirect.
    parts = urlsplit(text)
    is_own = (
        not parts.scheme and not parts.netloc and text.startswith("/") and not text.startswith(("//", "/\\"))
    )
    return text if is_own and text.isprintable() else fallback
