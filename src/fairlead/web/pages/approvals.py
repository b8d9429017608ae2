"""Pending approvals: calls that wait for an answer, those that are alike together, and tools that changed."""

from collections.abc import Sequence
from typing import Final

from starlette.responses import HTMLResponse, Response

from fairlead.actions.approvals import APPROVAL_ANSWERS, PendingCall
from fairlead.actions.context import Notice
from fairlead.errors import ConfigError
from fairlead.host.operator import ApprovalAnswer
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import (
    approve_link,
    as_json,
    block,
    build,
    button,
    code,
    diff_block,
    form,
    live,
    moment,
    page,
    plural,
    prose,
    server_link,
    server_path,
)
from fairlead.web.page_request import Answer, PageRequest, confirm
from fairlead.web.panel import with_notices
from fairlead.wording import end_sentence

WORDS: Final[dict[ApprovalAnswer, str]] = {
    "once": "Allowed",
    "session": "Allowed for this session",
    "always": "Always allowed",
    "no": "Refused",
}
_SHORT: Final = 80
_RISKY: Final = frozenset({"destructive", "modifies data", "open-world"})


def approvals(panel: HostPanel) -> Answer:
    """Page of the pending approvals and reviews."""

    async def answer(request: PageRequest) -> Response:
        waiting = _groups(panel.pending(request.decides_for))
        about = [panel.describe_tool(calls[0].request.server_id, calls[0].request.tool) for calls in waiting]
        asked = await build(
            lambda: (
                [_group(request, text, calls) for text, calls in zip(about, waiting, strict=True)]
                or tag("p", "No call waits for you.", class_="card dim")
            )
        )
        reviews = (*_servers(panel), tag("h2", "Reviews"), _reviews(panel)) if request.is_admin else ()
        content = (
            tag("p", tag("button", "Notify me in this browser", type="button", id="notify", hidden=True)),
            live("approvals", tag("h2", "Calls"), asked, *reviews),
        )
        return HTMLResponse(page(request, panel, "Approvals", *content))

    return answer


def give(panel: HostPanel) -> Answer:
    """Handle the form: answer the pending calls that it names."""

    async def answer(request: PageRequest) -> Response:
        words: dict[str, ApprovalAnswer] = {each: each for each in APPROVAL_ANSWERS}
        word = words.get(request.field("answer"))
        if word is None:
            raise ConfigError("there is no such answer")
        ids, decides_for = request.form.get("id", ()), request.decides_for
        answered = 0
        notices: list[Notice] = []
        for each in ids:
            said = await panel.answer(each, word, principal=request.principal, decides_for=decides_for)
            answered += said is not None
            notices += [notice for notice in said or () if notice not in notices]
        if not answered:
            raise ConfigError("no call waits for that answer any more")
        late = len(ids) - answered
        rest = f" {plural(late, 'call')} did not wait any more." if late else ""
        done = f"{WORDS[word]}: {plural(answered, 'call')}.{rest}"
        return confirm(request, "/approvals", with_notices(done, notices))

    return answer


def _groups(pending: Sequence[PendingCall]) -> list[list[PendingCall]]:
    """Calls of one tool for one principal together, the oldest first."""
    found: dict[tuple[str, str, str], list[PendingCall]] = {}
    for call in pending:
        approval = call.request
        found.setdefault((approval.server_id, approval.tool, approval.principal), []).append(call)
    return [*found.values()]


def _group(request: PageRequest, about: str | None, calls: Sequence[PendingCall]) -> Html:
    approval = calls[0].request
    name = f"{approval.server_id}.{approval.tool}"
    return tag(
        "article",
        tag("h3", code(name)),
        tag("p", about, class_="text") if about else None,
        tag(
            "p",
            tag("strong", approval.principal),
            " asks through ",
            server_link(approval.server_id) if request.is_admin else code(approval.server_id),
            ". Needs approval because ",
            prose(approval.reason),
            ".",
        ),
        _claims(approval.claims),
        [_call(request, call, alone=len(calls) == 1) for call in calls],
        _buttons(request, calls, f"all {len(calls)}") if len(calls) > 1 else None,
        tag("p", "To settle it for good: ", prose(end_sentence(approval.hint)), class_="dim")
        if approval.hint
        else None,
        class_="card attention",
    )


def _claims(claims: Sequence[str]) -> Child:
    if not claims:
        return None
    tags = [tag("span", claim, class_="tag warn" if claim in _RISKY else "tag") for claim in claims]
    return tag("p", "Its server claims (not verified): ", tags, class_="row")


def _call(request: PageRequest, call: PendingCall, *, alone: bool) -> Html:
    arguments = call.request.arguments
    return tag(
        "section",
        tag("p", "Waits since ", moment(call.created), class_="dim"),
        _preview(call),
        _arguments(arguments, call.id),
        _buttons(request, [call], ""),
        aria_label=f"Call of {call.request.tool}" if alone else f"Call of {call.request.tool}, {call.id[:6]}",
        class_="asked",
    )


def _preview(call: PendingCall) -> Child:
    """Change that a call would make, where its server has a preview."""
    if call.request.preview is None:
        return None
    lines = [f"  {line}" for line in call.request.preview.split("\n")]
    return (tag("p", "It would change:"), diff_block(lines, f"Change, {call.id[:6]}"))


def _arguments(arguments: dict[str, object], key: str) -> Child:
    """The arguments whole: one by one to be read, and as they are sent."""
    if not arguments:
        return tag("p", "Without arguments.")
    readable = [(tag("dt", name), tag("dd", _value(name, value))) for name, value in arguments.items()]
    exact = tag(
        "details",
        tag("summary", "As JSON"),
        block(as_json(arguments), f"Arguments as JSON, {key[:6]}"),
        id=f"json-{key}",
    )
    return (tag("dl", readable), exact)


def _value(name: str, value: object) -> Html:
    """A value: text as it is, everything else as JSON."""
    lines = value.split("\n") if isinstance(value, str) else as_json(value)
    if len(lines) == 1 and len(lines[0]) <= _SHORT:
        return code(lines[0]) if lines[0] else tag("span", "(empty)", class_="dim")
    return block(lines, name)


def _buttons(request: PageRequest, calls: Sequence[PendingCall], what: str) -> Html:
    """The answers to one call, or to all of a group."""
    key = calls[0].id + ("-all" if what else "")
    ids = [tag("input", type="hidden", name="id", value=call.id) for call in calls]
    some = f" {what}" if what else ""
    buttons = [button(f"Allow{some} once", "answer", "once", key=key, kind="main")]
    if all(call.request.remember for call in calls):
        buttons.append(button(f"Allow{some} in this session", "answer", "session", key=key))
        buttons.append(button(f"Always allow{some}", "answer", "always", key=key))
    buttons.append(button(f"Refuse{some}", "answer", "no", key=key, kind="danger"))
    return tag("div", form(request, "/approvals", ids, buttons), class_="actions")


def _servers(panel: HostPanel) -> Sequence[Child]:
    """The servers of a project that do not run before the user approves them."""
    waiting = panel.unapproved()
    links = [tag("li", server_link(server_id), " ", approve_link(server_id)) for server_id in waiting]
    return (tag("h2", "Servers"), tag("ul", links, class_="card plain")) if waiting else ()


def _reviews(panel: HostPanel) -> Child:
    held = panel.held_back()
    if not held:
        return tag("p", "No tool definition changed since it was reviewed.", class_="card dim")
    return tag(
        "ul",
        [
            tag(
                "li",
                tag(
                    "a",
                    f"Review {plural(count, 'tool')} of {server_id}",
                    href=server_path(server_id, "review"),
                    id=f"review-{server_id}",
                ),
            )
            for server_id, count in held.items()
        ],
        class_="card plain",
    )
