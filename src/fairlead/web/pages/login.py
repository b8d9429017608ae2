"""Getting in and out."""

from starlette.responses import HTMLResponse, Response

from fairlead.web.door import Visit, see
from fairlead.web.entrance import keep_ticket
from fairlead.web.html import tag
from fairlead.web.layout import bare_page, form


async def show(visit: Visit) -> Response:
    """Ask for the token."""
    return HTMLResponse(_login_page(visit, failed=False))


async def log_in(visit: Visit) -> Response:
    """Let in who has the token, with a new cookie."""
    ticket = await visit.entrance.log_in(visit.field("secret").strip())
    if ticket is None:
        return HTMLResponse(_login_page(visit, failed=True), 403)
    response = see("/")
    keep_ticket(response, ticket, visit.request.scope)
    return response


async def log_out(visit: Visit) -> Response:
    """Forget who it was."""
    visit.entrance.log_out(visit.ticket)
    return see("/login")


def _login_page(visit: Visit, *, failed: bool) -> str:
    problem = "That is no token of this gateway, or its link was used before." if failed else None
    fields = form(
        visit,
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
        tag("p", "It was printed where the gateway was started.", id="where", class_="dim"),
        tag("button", "Open the dashboard", type="submit", class_="main"),
    )
    return bare_page(
        "Log in", "login.js", tag("p", problem, class_="trouble", role="alert") if problem else None, fields
    )
