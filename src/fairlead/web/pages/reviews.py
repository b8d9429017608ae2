"""The reviews of all servers at once: the risky tools first, an answer for each, one button."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from starlette.responses import HTMLResponse, Response

from fairlead.catalog.sanitize import gate
from fairlead.errors import ConfigError, FairleadError
from fairlead.policy.decision import claims_of
from fairlead.policy.review import ReviewedTool, diff, findings_of, whole, words_of
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import block, code, diff_block, form, page, plural, server_link, server_path
from fairlead.web.page_request import Answer, PageRequest, confirm
from fairlead.web.panel import PanelReview, PanelVerdict

MOST: Final = 100
"""How many tools are shown at once."""
ANSWERS: Final = {"allow": "Allow", "ask": "Ask each time", "deny": "Deny", "": "Later"}
_FIELD: Final = "answer:"


def show(panel: HostPanel) -> Answer:
    """All that is open, the riskiest first."""

    async def answer(visit: PageRequest) -> Response:
        reviews = await panel.reviews()
        shown = _risky_first(reviews)
        waiting = sum(tool.waits for review in reviews for tool in review.tools)
        content = (
            tag("p", _lead(reviews, shown, waiting), class_="dim"),
            tag("h2", "Tools", class_="hidden") if shown else None,
            _form(visit, shown[:MOST], preselect=visit.query("preselect") == "yes") if shown else None,
            _instructions(reviews),
        )
        return HTMLResponse(page(visit, panel, "Reviews", *content))

    return answer


def decide(panel: HostPanel) -> Answer:
    """Record the answers, server by server."""

    async def answer(visit: PageRequest) -> Response:
        given: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for server_id, digest, word in _answers(visit):
            given[server_id][word].append(digest)
        if not given:
            raise ConfigError("no answer was given", hint="choose one for a tool at least")
        said: list[str] = []
        for server_id, words in given.items():
            verdict = PanelVerdict(allow=words["allow"], ask=words["ask"], deny=words["deny"])
            counts = ", ".join(f"{len(digests)} {word}" for word, digests in words.items() if digests)
            try:
                await panel.decide(server_id, verdict, principal=visit.principal)
                said.append(f"`{server_id}`: {counts}.")
            except FairleadError as exc:
                said.append(f"`{server_id}` was not decided: {gate.error_text(exc)}.")
        return confirm(visit, "/reviews", f"Reviewed. {' '.join(said)}")

    return answer


def _answers(visit: PageRequest) -> Iterator[tuple[str, str, str]]:
    for name, values in visit.form.items():
        server_id, colon, digest = name.removeprefix(_FIELD).partition(":")
        if name.startswith(_FIELD) and colon and values[0] in ("allow", "ask", "deny"):
            yield server_id, digest, values[0]


def _risky_first(reviews: Sequence[PanelReview]) -> list[tuple[str, ReviewedTool]]:
    opened = [(review.server_id, tool) for review in reviews for tool in review.tools if tool.is_open]
    return sorted(opened, key=lambda each: (-each[1].risk, not each[1].waits))


def _lead(reviews: Sequence[PanelReview], shown: Sequence[object], waiting: int) -> str:
    if not shown:
        return "Nothing is open: every tool that is known was reviewed, and is as it was."
    servers = sum(any(tool.is_open for tool in review.tools) for review in reviews)
    first = f" The first {MOST} are shown." if len(shown) > MOST else ""
    return (
        f"{plural(len(shown), 'tool')} of {plural(servers, 'server')} to decide about, {waiting} held back."
        f" Risky ones come first; nothing in what follows is hidden.{first}"
    )


def _form(visit: PageRequest, shown: Sequence[tuple[str, ReviewedTool]], *, preselect: bool) -> Html:
    cards = [_card(server_id, tool, preselect=preselect) for server_id, tool in shown]
    buttons = (
        tag("button", "Record the answers", type="submit", class_="main"),
        " ",
        tag("a", "Choose what is suggested", href="/reviews?preselect=yes", class_="button"),
    )
    return form(visit, "/reviews", cards, tag("p", buttons, class_="toolbar"))


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


def _instructions(reviews: Sequence[PanelReview]) -> Child:
    changed = [review.server_id for review in reviews if review.instructions]
    if not changed:
        return None
    links = [
        tag("li", tag("a", f"Look at those of {server_id}", href=server_path(server_id, "review")))
        for server_id in changed
    ]
    return (tag("h2", "Changed instructions for models"), tag("ul", links))
