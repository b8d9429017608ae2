"""Review of one server: every tool with nothing hidden, its changes, and the answers."""

from anyio import to_thread
from starlette.responses import HTMLResponse, Response

from fairlead.errors import ConfigError
from fairlead.policy.decision import claims_of
from fairlead.policy.findings import findings_of, words_of
from fairlead.policy.review import ReviewedTool, diff, whole
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import (
    block,
    button,
    code,
    diff_block,
    file_choice,
    form,
    live,
    page,
    plural,
    server_link,
    server_path,
)
from fairlead.web.page_request import Answer, PageRequest, confirm, see
from fairlead.web.panel import PanelReview, PanelVerdict, with_notices

MOST = 100
"""How many tools are shown at once. Those that wait come first, and the rest follows as they are decided."""


def review(panel: HostPanel) -> Answer:
    """Page of a server's review."""

    async def answer(request: PageRequest) -> Response:
        found = await panel.review(request.step("server"))
        title = f"Review {found.server_id}"
        # In a thread, because definitions may be long.
        made = await to_thread.run_sync(lambda: tag("div", _content(request, found)))
        content = live("review", tag("p", "Back to ", server_link(found.server_id)), made)
        return HTMLResponse(page(request, panel, title, content))

    return answer


def decide(panel: HostPanel) -> Answer:
    """Handle the form: record the answers."""

    async def answer(request: PageRequest) -> Response:
        server_id = request.step("server")
        digests = request.form.get("digest", ())
        match request.field("verdict"):
            case "allow" if digests:
                verdict = PanelVerdict(allow=digests)
            case "ask" if digests:
                verdict = PanelVerdict(ask=digests)
            case "deny" if digests:
                verdict = PanelVerdict(deny=digests)
            case "instructions" if digests:
                verdict = PanelVerdict(instructions=digests[0])
            case "reading" if digests and digests[0]:
                verdict = PanelVerdict(reading=digests[0])
            case _:
                raise ConfigError("there is no such verdict")
        scope = request.field("scope") or None
        notices = await panel.decide(server_id, verdict, scope, principal=request.principal)
        path = server_path(server_id, "review")
        return confirm(request, path, with_notices("Done.", notices)) if notices else see(path)

    return answer


def _content(request: PageRequest, found: PanelReview) -> Child:
    if found.problem:
        return tag("p", f"There is nothing to review: {found.problem}.")
    shown = [tool for tool in found.tools if tool.is_open][:MOST]
    settled = [tool for tool in found.tools if not tool.is_open]
    lead = f"{plural(found.waiting, 'decision')} to make. Nothing in what follows is hidden."
    return (
        tag("p", lead, class_="dim"),
        tag("h2", "What it says and offers", class_="hidden"),
        _instructions(request, found) if found.instructions else None,
        _reading(request, found) if found.unread else None,
        [_tool(request, found, tool) for tool in shown],
        _all(request, found, [tool for tool in shown if tool.waits]),
        tag("p", f"{plural(len(settled), 'tool')} denied, or reviewed and as it was.", class_="dim")
        if settled
        else None,
        [_tool(request, found, tool) for tool in settled[: MOST - len(shown)]],
    )


def _all(request: PageRequest, found: PanelReview, waiting: list[ReviewedTool]) -> Child:
    """One button for all that is shown and waits; what was not shown is not in it."""
    if len(waiting) < 2:
        return None
    digests = [tag("input", type="hidden", name="digest", value=tool.digest) for tool in waiting]
    label = f"Allow all {len(waiting)} that wait, as they are shown above"
    allow = button(label, "verdict", "allow", key=f"{found.server_id}-all")
    where = file_choice(found.files, key=f"{found.server_id}-all")
    path = server_path(found.server_id, "review")
    return tag("div", form(request, path, digests, allow, where), class_="actions")


def _instructions(request: PageRequest, found: PanelReview) -> Html:
    path = server_path(found.server_id, "review")
    accept = button("Models may see these", "verdict", "instructions", key=found.server_id, kind="main")
    return tag(
        "article",
        tag("h3", "Instructions for models"),
        diff_block(found.instructions, "What changed in the instructions"),
        tag("div", form(request, path, accept, digest=found.instructions_digest), class_="actions"),
        class_="card",
    )


def _reading(request: PageRequest, found: PanelReview) -> Html:
    path, key = server_path(found.server_id, "review"), f"{found.server_id}-reading"
    accept = button("Models may read them", "verdict", "reading", key=key, kind="main")
    where = file_choice(found.files, key=key)
    return tag(
        "article",
        tag("h3", f"It offers {found.unread}"),
        tag("div", form(request, path, accept, where, digest=found.unread), class_="actions"),
        class_="card",
    )


def _tool(request: PageRequest, found: PanelReview, tool: ReviewedTool) -> Html:
    before, now = tool.before(), tool.definition()
    shown = (
        block(whole(now), "Definition") if before is None else diff_block(diff(before, now), "What changed")
    )
    claims = claims_of(tool.entry.definition)
    key = f"{found.server_id}-{tool.digest[:12]}"
    buttons: list[Child] = [
        button("Allow as it is", "verdict", "allow", key=key, kind="main" if tool.waits else ""),
        button("Ask each time", "verdict", "ask", key=key),
        button("Deny", "verdict", "deny", key=key, kind="danger"),
        file_choice(found.files, key=key),
    ]
    path = server_path(found.server_id, "review")
    return tag(
        "article",
        tag("h3", code(tool.name), " ", tag("span", f"{tool.state}, {tool.standing}", class_="note")),
        shown if tool.is_open else tag("details", tag("summary", "Definition"), shown),
        tag("p", f"It claims (not verified): {'; '.join(claims)}.", class_="dim") if claims else None,
        [tag("p", f"Warning: {words_of(finding)}", class_="trouble") for finding in findings_of(tool.entry)],
        tag("div", form(request, path, *buttons, digest=tool.digest), class_="actions"),
        class_="card",
    )
