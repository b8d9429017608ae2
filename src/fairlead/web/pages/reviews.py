"""The reviews of all servers at once: the risky tools first, an answer for each, one button a page."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlencode

from anyio import to_thread
from starlette.responses import HTMLResponse, Response

from fairlead.catalog.sanitize import gate
from fairlead.errors import ConfigError, FairleadError
from fairlead.policy.decision import claims_of
from fairlead.policy.findings import findings_of, words_of
from fairlead.policy.review import ReviewedTool, diff, whole
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import (
    block,
    code,
    diff_block,
    form,
    page,
    page_links,
    page_start,
    plural,
    server_link,
    server_path,
)
from fairlead.web.page_request import Answer, PageRequest, confirm
from fairlead.web.panel import OpenReviews, PanelVerdict, with_notices

PAGE: Final = 50
"""How many tools are shown at once: each has its whole definition, a page of 100 takes too long to make."""
ANSWERS: Final = {"allow": "Allow", "ask": "Ask each time", "deny": "Deny", "": "Later"}
_FIELD: Final = "answer:"


def show(panel: HostPanel) -> Answer:
    """Page of all open reviews, the riskiest first, page by page."""

    async def answer(request: PageRequest) -> Response:
        found = await panel.reviews()
        start = page_start(request)
        if start >= len(found.tools):  # what was on that page is decided by now
            start = max(0, len(found.tools) - 1) // PAGE * PAGE
        # In a thread, because definitions may be long.
        made = await to_thread.run_sync(partial(_form, request, found, start)) if found.tools else None
        content = (
            tag("p", _lead(found), class_="dim"),
            tag("h2", "Tools", class_="hidden") if found.tools else None,
            made,
            page_links("tools to review", "/reviews", start, len(found.tools), PAGE),
            _instructions(found.instructions),
        )
        return HTMLResponse(page(request, panel, "Reviews", *content))

    return answer


def decide(panel: HostPanel) -> Answer:
    """Handle the form: record the answers, server by server."""

    async def answer(request: PageRequest) -> Response:
        given: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for server_id, digest, word in _answers(request):
            given[server_id][word].append(digest)
        if not given:
            raise ConfigError("no answer was given", hint="choose one for a tool at least")
        said: list[str] = []
        for server_id, words in given.items():
            verdict = PanelVerdict(allow=words["allow"], ask=words["ask"], deny=words["deny"])
            counts = ", ".join(f"{len(digests)} {word}" for word, digests in words.items() if digests)
            try:
                notices = await panel.decide(server_id, verdict, principal=request.principal)
                said.append(with_notices(f"`{server_id}`: {counts}.", notices))
            except FairleadError as exc:
                said.append(f"`{server_id}` was not decided: {gate.error_text(exc)}.")
        return confirm(request, _path(page_start(request)), f"Reviewed. {' '.join(said)}")

    return answer


def _answers(request: PageRequest) -> Iterator[tuple[str, str, str]]:
    for name, values in request.form.items():
        server_id, colon, digest = name.removeprefix(_FIELD).partition(":")
        if name.startswith(_FIELD) and colon and values[0] in ("allow", "ask", "deny"):
            yield server_id, digest, values[0]


def _path(start: int, **query: str) -> str:
    """The address of a page of the tools."""
    words = {**query, **({"start": str(start)} if start else {})}
    return f"/reviews?{urlencode(words)}" if words else "/reviews"


def _lead(found: OpenReviews) -> str:
    if not found.tools:
        return "No open reviews: every known tool was reviewed and is unchanged."
    return (
        f"{plural(len(found.tools), 'tool')} of {plural(found.servers, 'server')} to decide about,"
        f" {found.waiting} held back. Risky ones come first; nothing in what follows is hidden."
    )


def _form(request: PageRequest, found: OpenReviews, start: int) -> Html:
    """The tools of one page. Answers are sent with the digests of what is shown, and of nothing else."""
    preselect = request.query("preselect") == "yes"
    shown = found.tools[start : start + PAGE]
    cards = [_card(server_id, tool, preselect=preselect) for server_id, tool in shown]
    buttons = (
        tag("button", "Record the answers", type="submit", class_="main"),
        " ",
        tag("a", "Choose what is suggested", href=_path(start, preselect="yes"), class_="button"),
    )
    return form(request, _path(start), cards, tag("p", buttons, class_="toolbar"))


def _card(server_id: str, tool: ReviewedTool, *, preselect: bool) -> Html:
    before, now = tool.before(), tool.definition()
    if before is None:
        shown = tag("details", tag("summary", "Definition"), block(whole(now), "Definition"))
    else:
        shown = diff_block(diff(before, now), "What changed")
    claims = claims_of(tool.entry.definition)
    return tag(
        "article",
        tag(
            "h3",
            server_link(server_id),
            " ",
            code(tool.name),
            " ",
            tag("span", f"{tool.state}, {tool.standing}", class_="note"),
        ),
        [tag("p", f"Warning: {words_of(finding)}", class_="trouble") for finding in findings_of(tool.entry)],
        tag("p", f"It claims (not verified): {'; '.join(claims)}.", class_="dim") if claims else None,
        shown,
        _choice(server_id, tool, tool.suggested if preselect else ""),
        class_="card",
    )


def _choice(server_id: str, tool: ReviewedTool, chosen: str) -> Html:
    name, key = f"{_FIELD}{server_id}:{tool.digest}", f"{server_id}-{tool.digest[:12]}"
    boxes = [
        tag(
            "span",
            tag(
                "input",
                type="radio",
                name=name,
                id=f"{word or 'later'}-{key}",
                value=word,
                checked=word == chosen,
            ),
            tag("label", label, for_=f"{word or 'later'}-{key}"),
            class_="tick",
        )
        for word, label in ANSWERS.items()
    ]
    return tag(
        "fieldset", tag("legend", f"What {tool.name} may do", class_="hidden"), boxes, class_="answers"
    )


def _instructions(changed: Sequence[str]) -> Child:
    """Links to the servers whose instructions need a decision."""
    if not changed:
        return None
    links = [
        tag("li", tag("a", f"Look at those of {server_id}", href=server_path(server_id, "review")))
        for server_id in changed
    ]
    return (tag("h2", "Instructions for models"), tag("ul", links))
