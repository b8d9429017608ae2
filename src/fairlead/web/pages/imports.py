"""Import of servers from other agents' files: what was found where, with a choice."""

from collections.abc import Sequence
from itertools import groupby

from starlette.responses import HTMLResponse, Response

from fairlead.actions.imports import Candidate, ImportPlan
from fairlead.catalog.sanitize import gate
from fairlead.web.forms import checkbox
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import code, form, page, plural, table
from fairlead.web.page_request import Answer, PageRequest, confirm


def show(panel: HostPanel) -> Answer:
    """Page of the servers that were found."""

    async def answer(request: PageRequest) -> Response:
        replace = request.query("replace") == "yes"
        plan = await panel.edits.plan_import(request.principal, replace=replace)
        content = (_lead(plan), _form(request, plan, replace=replace), _notes(plan))
        return HTMLResponse(page(request, panel, "Import servers", *content))

    return answer


def take(panel: HostPanel) -> Answer:
    """Handle the form: import the servers that were ticked."""

    async def answer(request: PageRequest) -> Response:
        said = await panel.edits.import_servers(
            request.form.get("take", ()),
            request.form.get("native", ()),
            principal=request.principal,
            replace=request.field("replace") == "yes",
        )
        return confirm(request, "/", " ".join((*said, "They are being connected; review their tools next.")))

    return answer


def _lead(plan: ImportPlan) -> Child:
    wanted = sum(each.action != "skip" for each in plan.candidates)
    found = (
        f"{plural(len(plan.candidates), 'server')} found in other agents' files, {wanted} to be taken over."
    )
    text = found if plan.candidates else "No other agent's servers were found on this machine."
    failures = [
        tag("p", f"{title}: {gate.error_text(failure)}", class_="trouble") for title, failure in plan.failures
    ]
    return (tag("p", text, class_="dim"), failures)


def _form(request: PageRequest, plan: ImportPlan, *, replace: bool) -> Child:
    if not plan.candidates:
        return tag("p", tag("a", "Add a server", href="/add", class_="button main"))
    files = [
        (tag("h2", code(str(source))), _table([*found]))
        for source, found in groupby(plan.candidates, key=lambda each: each.source)
    ]
    other = "/import" if replace else "/import?replace=yes"
    label = "Keep servers that are there already" if replace else "Offer to overwrite those that are there"
    buttons = (
        tag("button", "Import the ticked servers", type="submit", class_="main"),
        " ",
        tag("a", label, href=other, class_="button"),
    )
    hidden = {"replace": "yes"} if replace else {}
    return form(request, "/import", files, tag("p", buttons, class_="toolbar"), **hidden)


def _table(candidates: Sequence[Candidate]) -> Html:
    rows = [(_tick(each), code(each.shown_target), _outcome(each)) for each in candidates]
    return table("Servers of this file", ("Server", "What it is", "What becomes of it"), rows)


def _tick(candidate: Candidate) -> Child:
    if candidate.action == "skip":
        return code(candidate.server_id)
    # What would replace something is not ticked beforehand.
    checked = candidate.action == "add"
    return checkbox(
        candidate.server_id, "take", value=candidate.digest, checked=checked, key=candidate.digest[:16]
    )


def _outcome(candidate: Candidate) -> Child:
    if candidate.action == "skip":
        return tag("span", f"left out: {candidate.reason}", class_="dim")
    verb = "overwrites the one in" if candidate.action == "replace" else "goes to"
    where = (f"{verb} ", code(str(candidate.target.path)))
    better = candidate.native
    if better is None:
        return where
    label = f"connect to {better.shown_target} directly, without mcp-remote"
    key = f"native-{candidate.digest[:16]}"
    return (where, checkbox(label, "native", value=candidate.digest, checked=True, key=key))


def _notes(plan: ImportPlan) -> Child:
    if not plan.notes:
        return None
    lines = [
        tag("li", f"{note.server_id}.{note.field}: {note.message}" if note.server_id else note.message)
        for note in plan.notes
    ]
    return (tag("h2", "To know"), tag("ul", lines))
