"""Review of one server: every tool with nothing hidden, its changes, and the answers."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from anyio import to_thread
from starlette.responses import HTMLResponse, Response

from fairlead.errors import ConfigError
from fairlead.policy.decision import claims_of
from fairlead.policy.findings import findings_of, words_of
from fairlead.policy.review import ReviewAnswer, ReviewedTool, diff, whole
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

MOST_LIVE = 100
"""With more tools the page is not updated while it is open: making it takes a second for 1,000 tools."""
_ANSWERS: Final[Mapping[str, ReviewAnswer]] = {"allow-all": "allow", "ask-all": "ask", "deny-all": "deny"}
"""Answers about all open tools, with one digest of them all: a thousand would be too long for a form."""


def review(panel: HostPanel) -> Answer:
    """Page of a server's review."""

    async def answer(request: PageRequest) -> Response:
        found = await panel.review(request.step("server"))
        title = f"Review {found.server_id}"
        # In a thread, because definitions may be long.
        made = await to_thread.run_sync(lambda: tag("div", _content(request, found)))
        parts = (tag("p", "Back to ", server_link(found.server_id)), made)
        content = live("review", *parts) if len(found.tools) <= MOST_LIVE else tag("div", *parts)
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
            case "instructions" | "no-instructions" as answered if digests:
                verdict = PanelVerdict(instructions=digests[0], are_accepted=answered == "instructions")
            case "allow-all" | "ask-all" | "deny-all" as answered if digests:
                shown = await panel.review(server_id)
                verdict = _verdict_about_all(shown.tools, _ANSWERS[answered], digests[0])
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
    shown = [tool for tool in found.tools if tool.is_open]
    settled = [tool for tool in found.tools if not tool.is_open]
    lead = f"{plural(found.waiting, 'decision')} to make. Nothing in what follows is hidden."
    return (
        tag("p", lead, class_="dim"),
        tag("h2", "What it says and offers", class_="hidden"),
        _instructions(request, found) if found.instructions else None,
        _reading(request, found) if found.unread else None,
        [_tool(request, found, tool) for tool in shown],
        _all(request, found, shown),
        tag("p", f"{plural(len(settled), 'tool')} denied, or reviewed and as it was.", class_="dim")
        if settled
        else None,
        [_tool(request, found, tool) for tool in settled],
    )


def _all(request: PageRequest, found: PanelReview, waiting: list[ReviewedTool]) -> Child:
    """Buttons for all that is open. They send what was shown: nothing else is answered."""
    if len(waiting) < 2:
        return None
    count, key = len(waiting), f"{found.server_id}-all"
    buttons: list[Child] = [
        button(f"Allow all {count}, as they are shown above", "verdict", "allow-all", key=key),
        button(f"Ask each time for all {count}", "verdict", "ask-all", key=key),
        button(f"Deny all {count}", "verdict", "deny-all", key=key, kind="danger"),
        file_choice(found.files, key=key),
    ]
    path = server_path(found.server_id, "review")
    return tag("div", form(request, path, *buttons, digest=_digest_of(waiting)), class_="actions")


def _digest_of(tools: Iterable[ReviewedTool]) -> str:
    """One digest of several definitions."""
    return hashlib.sha256(" ".join(sorted(tool.digest for tool in tools)).encode()).hexdigest()


def _verdict_about_all(tools: Sequence[ReviewedTool], answer: ReviewAnswer, digest: str) -> PanelVerdict:
    """The answers about all open tools. Raises `ConfigError` where others were shown."""
    waiting = [tool for tool in tools if tool.is_open]
    if _digest_of(waiting) != digest:
        raise ConfigError("the server changed this while you looked at it", hint="look at it again")
    digests = [tool.digest for tool in waiting]
    match answer:
        case "allow":
            return PanelVerdict(allow=digests)
        case "ask":
            return PanelVerdict(ask=digests)
        case "deny":
            return PanelVerdict(deny=digests)


def _instructions(request: PageRequest, found: PanelReview) -> Html:
    path = server_path(found.server_id, "review")
    accept = button("Models may see these", "verdict", "instructions", key=found.server_id, kind="main")
    refuse = button("Keep them from models", "verdict", "no-instructions", key=found.server_id)
    buttons = (accept,) if found.are_refused else (accept, refuse)
    refused = (" ", tag("span", "refused", class_="note")) if found.are_refused else ()
    return tag(
        "article",
        tag("h3", "Instructions for models", *refused),
        diff_block(found.instructions, "What changed in the instructions"),
        tag("div", form(request, path, *buttons, digest=found.instructions_digest), class_="actions"),
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
