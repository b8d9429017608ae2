"""Login of one principal to one server, opened by a link that its client was given."""

from starlette.responses import HTMLResponse, Response

from fairlead.errors import ConfigError
from fairlead.gateway.login_links import LoginLink, LoginLinks
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import bare_page, button, code, form
from fairlead.web.page_request import Answer, PageRequest, see
from fairlead.web.pages.servers import done_login, login_link
from fairlead.web.panel import PendingLogin


def show(panel: HostPanel, links: LoginLinks) -> Answer:
    """Page that names the principal and the server, and the state of the login."""

    async def answer(request: PageRequest) -> Response:
        link = links.find(request.step("code"), request.cookie.value)
        if link is None:
            text = (
                "This link was used in another browser, or is too old. Have your agent try again for another."
            )
            return HTMLResponse(bare_page("Log in to a server", None, tag("p", text, class_="trouble")), 404)
        login = panel.login(link.server_id, link.principal) if link.is_begun else None
        content = _state(request, link, login)
        return HTMLResponse(bare_page("Log in to a server", None, _about(link), content))

    return answer


def act(panel: HostPanel, links: LoginLinks) -> Answer:
    """Handle the forms: begin the login, or complete it with the URL it was redirected to."""

    async def answer(request: PageRequest) -> Response:
        code, cookie = request.step("code"), request.cookie.value
        before = links.find(code, cookie)
        login = panel.login(before.server_id, before.principal) if before and before.is_begun else None
        if login is not None and login.is_done:
            raise ConfigError("this link was used: you are logged in", hint="have your agent try again")
        link = links.claim(code, cookie)
        if link is None:
            raise ConfigError("this link was used in another browser, or is too old")
        if request.field("do") == "finish_login":
            address = request.field("address").strip()
            if problem := panel.finish_login(link.server_id, address, link.principal):
                raise ConfigError(f"that is not the address: {problem}")
        else:
            await panel.begin_login(link.server_id, link.principal, principal=link.principal)
        return see(request.path)

    return answer


def _about(link: LoginLink) -> Child:
    return (
        tag("p", tag("strong", link.principal), " wants to use the server ", code(link.server_id), "."),
        tag(
            "p",
            "Once you have logged in, every program of ",
            tag("strong", link.principal),
            " acts there as you. If that is not you, close this page.",
            class_="trouble",
        ),
    )


def _state(request: PageRequest, link: LoginLink, login: PendingLogin | None) -> Child:
    def begin(label: str) -> Html:
        return form(request, request.path, button(label, "do", "log_in", key="connect", kind="main"))

    if login is None:
        return begin(f"I am {link.principal}: log in")
    if login.is_done:
        return done_login(login, "You are logged in. Have your agent try again.")
    if login.error:
        return (tag("p", login.error, class_="trouble", role="alert"), begin("Try again"))
    if login.offer is None:
        return (tag("p", "Asking the server how to log in. Load this page again.", role="status"),)
    return login_link(request, login, request.path)
