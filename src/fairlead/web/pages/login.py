"""Login page, logout, and the choice of a theme."""

from starlette.responses import HTMLResponse, Response

from fairlead.web.html import tag
from fairlead.web.layout import bare_page, form
from fairlead.web.page_request import THEME_COOKIE, THEMES, PageRequest, own_path, see
from fairlead.web.sessions import BrowserSession, delete_cookie, set_cookie


async def show(request: PageRequest) -> Response:
    """Login page; a one-time link logs in at once."""
    code, purpose = request.query("code"), request.http.headers.get("sec-purpose", "")
    # A browser that fetches pages in advance would use the code up.
    if not code or request.http.method != "GET" or "prefetch" in purpose:
        return HTMLResponse(_login_page(request, failed=False))
    return _login_response(request, await request.sessions.redeem(code))


async def log_in(request: PageRequest) -> Response:
    """Begin a session for a token."""
    return _login_response(request, await request.sessions.log_in(request.field("secret").strip()))


async def log_out(request: PageRequest) -> Response:
    """End the session."""
    await request.sessions.log_out(request.cookie)
    response = see("/login")
    delete_cookie(response, request.http.scope, request.base)
    return response


def _login_response(request: PageRequest, session: BrowserSession | None) -> Response:
    if session is None:
        return HTMLResponse(_login_page(request, failed=True), 403)
    response = see(session.base + _next_page(request))
    set_cookie(response, session.cookie, request.http.scope, session.base)
    return response


def _next_page(request: PageRequest) -> str:
    """The page that was requested before the login. Any link can name it, so it is put below the session."""
    return own_path(request.field("next") or request.query("next"), "/")


async def choose_theme(request: PageRequest) -> Response:
    """Store the theme that the visitor chose, in this browser."""
    response = see(own_path(request.field("back"), "/"))
    theme = request.field("theme")
    if theme in THEMES:
        year = 365 * 24 * 3600
        response.set_cookie(THEME_COOKIE, theme, max_age=year, httponly=True, samesite="strict")
    else:
        response.delete_cookie(THEME_COOKIE, httponly=True, samesite="strict")
    return response


def _login_page(request: PageRequest, *, failed: bool) -> str:
    problem = "That token lacks the scope `decide`, or the link was used before." if failed else None
    fields = form(
        request,
        "/login",
        tag("label", "Token", for_="secret"),
        tag(
            "input",
            type="password",
            id="secret",
            name="secret",
            autocomplete="current-password",
            required=True,
            autofocus=True,
            aria_describedby="where",
        ),
        tag(
            "p",
            "`fairlead gateway dashboard` prints a link that logs you in. Or paste the token that decides, "
            "from the file `decide-token` in the gateway's folder. An agent's token does not open this page.",
            id="where",
            class_="dim",
        ),
        tag("button", "Open the dashboard", type="submit", class_="main"),
        next=_next_page(request),
    )
    trouble = tag("p", problem, class_="trouble", role="alert") if problem else None
    return bare_page("Log in", None, trouble, fields)
