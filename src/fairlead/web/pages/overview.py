"""Start page: what waits for the user, then the state of servers and calls."""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from anyio import to_thread
from starlette.responses import HTMLResponse, Response

from fairlead.catalog.tools import ToolKey
from fairlead.config.models import CHILD_TRANSPORTS
from fairlead.events import DOWN
from fairlead.host.server_status import ServerStatus
from fairlead.web.call_history import CallSummary, summarize
from fairlead.web.charts import calls_chart, duration, latency_chart
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import (
    approve_link,
    button,
    code,
    form,
    hint,
    live,
    moment,
    page,
    plural,
    prose,
    server_link,
    server_path,
    state,
)
from fairlead.web.page_request import Answer, PageRequest
from fairlead.web.panel import PendingCall
from fairlead.wording import end_sentence, without_server

T = TypeVar("T")

HOUR: Final = 3600.0
MOST_CARDS: Final = 20
"""How many cards of a kind are shown. The rest is counted."""


def overview(panel: HostPanel) -> Answer:
    """Page of what waits for the user, and the state of everything else."""

    async def answer(request: PageRequest) -> Response:
        history = await panel.watch.history()
        known, now = history.calls, time.time()
        found = await to_thread.run_sync(lambda: summarize(known, now=now, seconds=HOUR))
        servers = panel.status()
        content = (
            live("attention", _attention(request, panel, servers)),
            live("figures", tag("h2", "Now and in the last hour"), _figures(panel, servers, found)),
            live(
                "charts",
                tag(
                    "div", calls_chart(found, key="calls"), latency_chart(found, key="latency"), class_="grid"
                ),
                tag("p", tag("a", "All calls", href="/calls", class_="button")),
            ),
        )
        return HTMLResponse(page(request, panel, "Overview", *content))

    return answer


def _attention(request: PageRequest, panel: HostPanel, servers: Sequence[ServerStatus]) -> Child:
    broken = [status for status in servers if status.enabled and status.state in DOWN]
    unapproved = panel.unapproved()
    cards: list[Child] = []
    if pending := panel.pending(request.decides_for):
        cards.append(_pending(pending))
    cards += _first(
        [status for status in broken if status.server_id not in unapproved],
        lambda status: _broken(request, status),
        "not working",
    )
    cards += _first([*panel.held_back().items()], lambda held: _render_changed(*held), "with changed tools")
    cards += _first([*unapproved], _render_unapproved, "to approve")
    unreviewed = [each for each in panel.unreviewed().items() if each[0] not in unapproved]
    cards += _first(unreviewed, lambda each: _render_unreviewed(*each), "to review")
    if not servers:
        return _first_steps()
    if not cards:
        dot = tag("span", class_="dot", aria_hidden="true")
        agents = tag("a", "Connect an agent", href="/agents", class_="button main", id="connect-agent")
        words = tag("span", dot, "Nothing needs you now.", class_="good")
        return tag("div", words, None if panel.sessions() else agents, class_="card row spread")
    return (tag("h2", "Needs you"), cards)


def _first(items: Sequence[T], card: Callable[[T], Html], what: str) -> list[Child]:
    """Cards of the first items, and how many servers more there are."""
    cards: list[Child] = [card(item) for item in items[:MOST_CARDS]]
    if len(items) > MOST_CARDS:
        more = f"{plural(len(items) - MOST_CARDS, 'more server')} {what}"
        cards.append(tag("p", tag("a", more, href="/servers"), class_="card"))
    return cards


def _first_steps() -> Html:
    return tag(
        "div",
        tag("h2", "No MCP servers configured."),
        tag("p", "Add one, or import those of another agent."),
        tag(
            "p",
            tag("a", "Add a server", href="/add", class_="button main"),
            tag("a", "Import servers", href="/import", class_="button"),
            class_="row",
        ),
        class_="card",
    )


def _pending(pending: Sequence[PendingCall]) -> Html:
    first = pending[0].request
    verb = "waits" if len(pending) == 1 else "wait"
    return tag(
        "article",
        tag("h3", f"{plural(len(pending), 'call')} {verb} for your approval"),
        tag(
            "p",
            tag("strong", first.principal),
            " wants to call ",
            code(ToolKey(first.server_id, first.tool).qualified),
            " since ",
            moment(pending[0].created),
        ),
        tag("p", tag("a", "Decide", href="/approvals", class_="button main", id="decide")),
        class_="card attention",
    )


def _broken(request: PageRequest, status: ServerStatus) -> Html:
    server_id = status.server_id
    path = server_path(server_id)
    log_in = tag("a", "Log in", href=path, class_="button main") if status.state == "auth_required" else None
    logs = tag(
        "a", "Log", href=f"/logs?server={server_id}", class_="button", aria_label=f"Log of {server_id}"
    )
    return tag(
        "article",
        tag("h3", server_link(server_id), " ", state(status.state)),
        tag(
            "div",
            without_server(status.last_error or "No reason is known.", server_id),
            class_="trouble text",
        ),
        hint(status.hint),
        tag(
            "div",
            log_in,
            form(request, path, button("Restart", "do", "restart", key=server_id), back="/"),
            logs if status.transport in CHILD_TRANSPORTS else None,
            class_="row",
        ),
        class_="card bad",
    )


def _render_changed(server_id: str, count: int) -> Html:
    verb, them = ("is", "it") if count == 1 else ("are", "them")
    return tag(
        "article",
        tag("h3", f"{plural(count, 'tool')} of {server_id} {verb} not what was reviewed"),
        tag("p", f"Agents get {them} once you have looked at what changed."),
        tag(
            "p",
            tag(
                "a",
                f"Review {server_id}",
                href=server_path(server_id, "review"),
                class_="button main",
                id=f"review-{server_id}",
            ),
        ),
        class_="card attention",
    )


def _render_unapproved(server_id: str) -> Html:
    return tag(
        "article",
        tag("h3", server_link(server_id), " waits for your consent"),
        tag(
            "p", "It comes from a project's file, so it does not start before you have approved what it runs."
        ),
        tag("p", approve_link(server_id)),
        class_="card attention",
    )


def _render_unreviewed(server_id: str, why: str) -> Html:
    link = tag("a", f"Review {server_id}", href=server_path(server_id, "review"), class_="button")
    return tag(
        "article",
        tag("h3", server_link(server_id), " needs a review"),
        tag("p", prose(end_sentence(why[:1].upper() + why[1:]))),
        tag("p", link),
        class_="card",
    )


def _figures(panel: HostPanel, servers: Sequence[ServerStatus], found: CallSummary) -> Html:
    enabled = [status for status in servers if status.enabled]
    working = sum(status.state not in DOWN for status in enabled)
    every = found.all
    share = f"{every.failed / every.total:.1%}" if every.total else "-"
    figures = (
        # One that is idle starts at its first use, and lacks nothing.
        (f"{working} of {len(enabled)}", "servers without trouble"),
        (f"{sum(status.tools or 0 for status in enabled):,}", "tools"),
        (f"{every.total:,}", "calls in an hour"),
        (share, "of them failed"),
        (duration(every.percentile(95)), "95th percentile"),
        (f"{len(panel.activity.running):,}", "calls under way"),
        (f"{len(panel.sessions()):,}", "clients"),
    )
    return tag(
        "ul", [tag("li", tag("b", number), tag("span", what)) for number, what in figures], class_="figures"
    )
