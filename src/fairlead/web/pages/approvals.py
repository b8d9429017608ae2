"""Pending approvals: calls that wait for an answer, and tools that changed."""

from starlette.responses import HTMLResponse, Response

from fairlead.actions.approvals import APPROVAL_ANSWERS, PendingCall
from fairlead.errors import ConfigError
from fairlead.host.operator import ApprovalAnswer
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import as_json, block, button, code, form, live, moment, page, plural, server_path
from fairlead.web.page_request import Answer, PageRequest, see


def approvals(panel: HostPanel) -> Answer:
    """All that waits."""

    async def answer(visit: PageRequest) -> Response:
        waiting = panel.pending(visit.decides_for)
        asked = [_call(visit, call) for call in waiting] or tag("p", "No call waits for you.", class_="dim")
        reviews = (tag("h2", "Reviews"), _reviews(panel)) if visit.is_admin else ()
        content = live("approvals", tag("h2", "Calls"), asked, *reviews)
        return HTMLResponse(page(visit, panel, "Approvals", content))

    return answer


def give(panel: HostPanel) -> Answer:
    """Answer a call that waits."""

    async def answer(visit: PageRequest) -> Response:
        words: dict[str, ApprovalAnswer] = {each: each for each in APPROVAL_ANSWERS}
        word = words.get(visit.field("answer"))
        if word is None:
            raise ConfigError("there is no such answer")
        call_id, decides_for = visit.field("id"), visit.decides_for
        if not await panel.answer(call_id, word, principal=visit.principal, decides_for=decides_for):
            raise ConfigError("no call waits for that answer any more")
        return see("/approvals")

    return answer


def _call(visit: PageRequest, call: PendingCall) -> Html:
    request = call.request
    claims = f"Its server claims (not verified): {'; '.join(request.claims)}." if request.claims else None
    buttons = [button("Allow once", "answer", "once", key=call.id, kind="main")]
    if request.remember:
        buttons.append(button("Allow in this session", "answer", "session", key=call.id))
        buttons.append(button("Always allow", "answer", "always", key=call.id))
    buttons.append(button("Refuse", "answer", "no", key=call.id, kind="danger"))
    return tag(
        "article",
        tag("h3", code(request.server_id), " ", code(request.tool)),
        tag(
            "p",
            "For ",
            tag("strong", request.principal),
            ", since ",
            moment(call.created),
            ". Asked because ",
            request.reason,
            ".",
        ),
        tag("p", claims, class_="dim") if claims else None,
        block(as_json(request.arguments), f"Arguments of {request.tool}"),
        tag("div", form(visit, "/approvals", buttons, id=call.id), class_="actions"),
        class_="card",
    )


def _reviews(panel: HostPanel) -> Child:
    held = panel.held_back()
    if not held:
        return tag("p", "No tool definition changed since it was reviewed.", class_="dim")
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
                class_="note",
            )
            for server_id, count in held.items()
        ],
    )
