"""Bundles: selections of servers and tools, each with an endpoint of its own, made and removed."""

from collections.abc import Mapping

from starlette.responses import HTMLResponse, Response

from fairlead.actions.bundles import BundleDraft
from fairlead.config.models import Bundle
from fairlead.errors import ConfigError, FairleadError
from fairlead.web.forms import FormField, checkbox, problem_summary, text_area, text_input
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import button, code, form, page, server_link, table
from fairlead.web.page_request import Answer, PageRequest, confirm
from fairlead.wording import join_clauses

PATH = "/tokens/bundles"


def show(panel: HostPanel) -> Answer:
    """Page of all bundles, with the form for another."""

    async def answer(request: PageRequest) -> Response:
        return HTMLResponse(_page(request, panel))

    return answer


def act(panel: HostPanel) -> Answer:
    """Handle the forms: make a bundle, or remove one after confirmation."""

    async def answer(request: PageRequest) -> Response:
        name = request.field("name").strip()
        match request.field("do"):
            case "make":
                return await _make(request, panel, name)
            case "ask":
                return HTMLResponse(_confirmation(request, panel, name))
            case "remove":
                said = await panel.edits.remove_bundle(name, principal=request.principal)
                return confirm(request, PATH, said)
            case _:
                raise ConfigError("there is no such action")

    return answer


def bundle_table(bundles: Mapping[str, Bundle], actions: Mapping[str, Child] | None = None) -> Child:
    """Table of the bundles and their servers and tools.

    Args:
        bundles: The bundles by name.
        actions: What can be done with each, for a last column.
    """
    if not bundles:
        lead = "None. A bundle is a selection of servers and tools, at a path of its own."
        return tag("p", lead, class_="dim")
    rows = [
        (
            name,
            code(f"/mcp/{name}"),
            tag("ul", [tag("li", server_link(each), _limits(bundle, each)) for each in bundle.servers]),
            bundle.mode,
            bundle.description or "-",
            *((actions[name],) if actions else ()),
        )
        for name, bundle in bundles.items()
    ]
    columns = ("Name", "Path", "Servers", "Mode", "What it is for", *(("Actions",) if actions else ()))
    return table("Bundles", columns, rows)


def _limits(bundle: Bundle, server_id: str) -> str:
    taken = bundle.servers[server_id]
    allowed = f": {', '.join(taken.allow_tools)}" if taken.allow_tools else ""
    denied = f", without {', '.join(taken.deny_tools)}" if taken.deny_tools else ""
    return f"{allowed}{denied}"


async def _make(request: PageRequest, panel: HostPanel, name: str) -> Response:
    named = request.field("tools").split()
    owners = {word.partition(".")[0] for word in named}
    # A server of which tools are named is taken for these alone, ticked or not.
    whole = [server_id for server_id in request.form.get("server", ()) if server_id not in owners]
    draft = BundleDraft(selection=[*whole, *named], description=request.field("description").strip() or None)
    try:
        said = await panel.edits.make_bundle(
            name, draft, "", principal=request.principal, replace=request.field("replace") == "on"
        )
    except FairleadError as exc:
        problem = join_clauses(str(exc), exc.hint)
        return HTMLResponse(_page(request, panel, problem=problem), 422)
    return confirm(request, PATH, said)


def _confirmation(request: PageRequest, panel: HostPanel, name: str) -> str:
    asked = tag("p", "Remove the bundle ", code(name), "? Clients at ", code(f"/mcp/{name}"), " are refused.")
    fields = form(
        request,
        PATH,
        button("Remove it", "do", "remove", key="bundle", kind="danger"),
        " ",
        tag("a", "Keep it", href=PATH, class_="button"),
        name=name,
    )
    return page(request, panel, "Remove a bundle?", tag("div", asked, fields, class_="card"))


def _page(request: PageRequest, panel: HostPanel, problem: str | None = None) -> str:
    bundles = panel.bundles()
    actions = {
        name: form(request, PATH, button("Remove", "do", "ask", key=name, kind="danger"), name=name)
        for name in bundles
    }
    lead = "A selection of servers and tools, at a path of its own. A token can be for bundles alone."
    content = (
        tag("p", lead, class_="dim"),
        bundle_table(bundles, actions),
        tag("h2", "Make a bundle"),
        problem_summary({"": [problem]}, {}) if problem else None,
        tag("div", _form(request, panel), class_="form"),
        tag("p", tag("a", "Tokens", href="/tokens", class_="button")),
    )
    return page(request, panel, "Bundles", *content)


def _form(request: PageRequest, panel: HostPanel) -> Html:
    is_again = request.field("do") == "make"
    ticked = request.form.get("server", ()) if is_again else ()
    servers = [
        checkbox(server_id, "server", value=server_id, checked=server_id in ticked, key=f"server-{number}")
        for number, server_id in enumerate(panel.server_ids())
    ]

    def make_field(label: str, name: str, hint: str, *, required: bool = False) -> FormField:
        value = request.field(name) if is_again else ""
        return FormField(label=label, name=name, value=value, hint=hint, required=required)

    name = make_field("Name", "name", "Part of its path, such as `design` in `/mcp/design`.", required=True)
    tools = make_field(
        "Only these tools", "tools", "Leave it empty for all, else `server.tool`, one per line."
    )
    description = make_field("What it is for", "description", "Shown next to it.")
    return form(
        request,
        PATH,
        text_input(name, maxlength=64),
        tag("fieldset", tag("legend", "Servers"), servers, class_="choice"),
        text_area(tools),
        text_input(description, maxlength=200),
        checkbox("Overwrite a bundle of the same name", "replace", checked=request.field("replace") == "on"),
        tag("div", button("Save it", "do", "make", key="bundle", kind="main"), class_="actions"),
    )
