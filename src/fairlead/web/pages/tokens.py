"""Tokens of the gateway's clients, and the bundles that they can be limited to."""

from typing import Final

from starlette.responses import HTMLResponse, Response

from fairlead.config.models import Bundle
from fairlead.errors import ConfigError, FairleadError
from fairlead.web.forms import FormField, checkbox, problem_summary, text_input
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import button, code, form, moment, page, prose, table
from fairlead.web.page_request import Answer, PageRequest, confirm
from fairlead.web.pages.bundles import bundle_table
from fairlead.web.panel import with_notices
from fairlead.wording import join_clauses

SCOPES: Final = {
    "mcp": "call tools",
    "status": "read the status and metrics",
    "decide": "approve the calls of its principal",
    "admin": "approve all calls, and change the gateway: a person's token",
}


def show(panel: HostPanel) -> Answer:
    """Page of all tokens and bundles."""

    async def answer(request: PageRequest) -> Response:
        return HTMLResponse(await _page(request, panel))

    return answer


def act(panel: HostPanel) -> Answer:
    """Handle the forms: make a token and show it once, or revoke one after confirmation."""

    async def answer(request: PageRequest) -> Response:
        name = request.field("name").strip()
        match request.field("do"):
            case "make":
                return await _make(request, panel, name)
            case "ask":
                return HTMLResponse(_confirmation(request, panel, name))
            case "revoke":
                notices = await panel.edits.revoke_token(name, principal=request.principal)
                done = f"Token `{name}` revoked. What used it is refused from now on."
                return confirm(request, "/tokens", with_notices(done, notices))
            case _:
                raise ConfigError("there is no such action")

    return answer


async def _make(request: PageRequest, panel: HostPanel, name: str) -> Response:
    try:
        made = await panel.edits.make_token(
            name,
            bundles=request.form.get("bundle", ()),
            scopes=request.form.get("scope", ()),
            principal=request.field("principal").strip() or None,
            by=request.principal,
        )
    except FairleadError as exc:
        problem = join_clauses(str(exc), exc.hint)
        return HTMLResponse(await _page(request, panel, problem=problem), 422)
    shown = text_input(
        FormField(
            label=f"Token `{name}`",
            name="token",
            value=made.token,
            hint=(
                "This is the only time it is shown. Copy it to where the client reads it; ",
                *_places(request),
            ),
        ),
        readonly=True,
    )
    back = tag("p", tag("a", "Done", href="/tokens", class_="button main"))
    warned = tag("p", prose(with_notices("", made.notices).strip()), class_="trouble")
    content = tag("div", warned if made.notices else None, shown, back, class_="form")
    return HTMLResponse(page(request, panel, "A new token", content))


def _places(request: PageRequest) -> list[Child]:
    """Endpoints for a client with the new token: the gateway, or the bundles that the token is for."""
    paths = [f"/mcp/{name}" for name in request.form.get("bundle", ())] or ["/mcp"]
    shown: list[Child] = ["it connects to "]
    for number, path in enumerate(paths):
        shown += [" or " if number else "", code(path)]
    return [*shown, " of this gateway."]


def _confirmation(request: PageRequest, panel: HostPanel, name: str) -> str:
    asked = tag("p", "Revoke the token ", code(name), "? The client that has it is refused at once.")
    fields = form(
        request,
        "/tokens",
        button("Revoke it", "do", "revoke", key="token", kind="danger"),
        " ",
        tag("a", "Keep it", href="/tokens", class_="button"),
        name=name,
    )
    return page(request, panel, "Revoke a token?", tag("div", asked, fields, class_="card"))


async def _page(request: PageRequest, panel: HostPanel, problem: str | None = None) -> str:
    tokens, bundles = await panel.edits.tokens(), panel.bundles()
    rows = [
        (
            token.name,
            ", ".join(token.bundles) if token.bundles else "all",
            ", ".join(token.scopes),
            token.owner.principal,
            moment(token.created_at),
            form(
                request,
                "/tokens",
                button("Revoke", "do", "ask", key=token.name, kind="danger"),
                name=token.name,
            ),
        )
        for token in tokens
    ]
    columns = ("Name", "Bundles", "For", "Principal", "Made", "Actions")
    listed = table("Tokens", columns, rows) if rows else tag("p", "There are no named tokens.", class_="dim")
    lead = "One for each program or person that uses the gateway. Only their digests are kept."
    content = (
        tag("p", lead, class_="dim"),
        listed,
        tag("h2", "Make a token"),
        problem_summary({"": [problem]}, {}) if problem else None,
        tag("div", _form(request, bundles), class_="form"),
        tag("h2", "Bundles"),
        bundle_table(bundles),
        tag("p", tag("a", "Make or remove bundles", href="/tokens/bundles", class_="button")),
    )
    return page(request, panel, "Tokens", *content)


def _form(request: PageRequest, bundles: dict[str, Bundle]) -> Html:
    chosen = request.form.get("scope", ("mcp",))
    scopes = [
        checkbox(f"{scope}: {words}", "scope", value=scope, checked=scope in chosen, key=f"scope-{scope}")
        for scope, words in SCOPES.items()
    ]
    wanted = request.form.get("bundle", ())
    limits = [
        checkbox(name, "bundle", value=name, checked=name in wanted, key=f"bundle-{number}")
        for number, name in enumerate(bundles)
    ]
    name = FormField(
        label="Name",
        name="name",
        value=request.field("name") if request.field("do") == "make" else "",
        hint="Which client has it, such as `ci` or `anna`.",
        required=True,
    )
    principal = FormField(
        label="Principal",
        name="principal",
        value=request.field("principal"),
        hint="`local` for another agent of yours, which shares your logins; else one of its own.",
    )
    return form(
        request,
        "/tokens",
        text_input(name, maxlength=64),
        tag("fieldset", tag("legend", "It may"), scopes, class_="choice"),
        tag("fieldset", tag("legend", "For these bundles alone"), limits, class_="choice")
        if limits
        else None,
        text_input(principal, maxlength=64),
        tag("div", button("Make it", "do", "make", key="token", kind="main"), class_="actions"),
    )
