"""Calls: those under way, those of the last day as a timeline, and charts of them."""

import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final
from urllib.parse import urlencode

from anyio import to_thread
from starlette.responses import HTMLResponse, Response

from fairlead.catalog.tools import ToolKey
from fairlead.errors import ConfigError
from fairlead.gateway.client_session import SessionInfo
from fairlead.web.call_history import (
    CallCount,
    CallFilter,
    CallHistory,
    CallSummary,
    FinishedCall,
    summarize,
)
from fairlead.web.charts import calls_chart, duration, latency_chart, share_bar, time_bar
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import (
    choice,
    code,
    form,
    live,
    moment,
    outcome,
    page,
    plural,
    table,
)
from fairlead.web.live import RunningCall
from fairlead.web.page_request import Answer, PageRequest, confirm, own_path
from fairlead.web.pages.tool import tool_path
from fairlead.web.panel import with_notices

LIMIT: Final = 100
WINDOWS: Final = {"15m": 900.0, "1h": 3600.0, "6h": 21_600.0, "24h": 86_400.0}
FATES: Final = ("ok", "failed", "refused")


def calls(panel: HostPanel) -> Answer:
    """Page of the calls that match the filter."""

    async def answer(request: PageRequest) -> Response:
        history = await panel.watch.history()
        wanted = CallFilter(
            server=request.query("server"),
            principal=request.query("principal").strip(),
            outcome=request.query("outcome").strip(),
        )
        window = request.query("window") if request.query("window") in WINDOWS else "1h"
        known, now = history.calls, time.time()

        def count() -> tuple[list[FinishedCall], CallSummary]:
            fitting = [call for call in known if wanted.fits(call)]
            return fitting, summarize(fitting, now=now, seconds=WINDOWS[window])

        # In a thread: agents choose how many calls there are, up to 50,000.
        fitting, found = await to_thread.run_sync(count)
        since = now - WINDOWS[window]
        recent = list(islice((call for call in reversed(fitting) if call.at >= since), LIMIT))
        content = (
            live("running", _running(request, panel.activity.running)),
            _filter(panel, history, wanted, window),
            live(
                "charts",
                tag(
                    "div", calls_chart(found, key="calls"), latency_chart(found, key="latency"), class_="grid"
                ),
                _counts("By server", "Server", found.by_server, "server", wanted, window),
                _counts("By principal", "Principal", found.by_principal, "principal", wanted, window),
            ),
            live(
                "timeline",
                tag("h2", "Timeline"),
                _timeline(recent, found.all.total),
                _describe_history(history),
            ),
            live("clients", _clients(panel.sessions())),
        )
        return HTMLResponse(page(request, panel, "Calls", *content))

    return answer


def act(panel: HostPanel) -> Answer:
    """Handle the form: cancel a call."""

    async def answer(request: PageRequest) -> Response:
        given = request.field("cancel")
        if not (given.isascii() and given.isdigit()) or len(given) > 15:
            raise ConfigError("there is no such call")
        name, notices = await panel.cancel(int(given), principal=request.principal)
        path = own_path(request.field("back"), "/calls")
        return confirm(request, path, with_notices(f"Cancelled {name}.", notices))

    return answer


def _running(request: PageRequest, running: Sequence[RunningCall]) -> Child:
    if not running:
        return tag("p", "No call is under way.", class_="dim")
    rows = [
        (
            code(ToolKey(call.server_id, call.tool).qualified),
            call.principal or "-",
            moment(call.since),
            call.progress or "-",
            tag(
                "div",
                form(
                    request,
                    "/calls",
                    tag(
                        "button",
                        "Cancel",
                        tag("span", f" {ToolKey(call.server_id, call.tool).qualified}", class_="hidden"),
                        type="submit",
                        name="cancel",
                        value=call.call_id,
                        id=f"cancel-{call.call_id}",
                        class_="danger",
                    ),
                    back=request.address,
                ),
                class_="actions",
            ),
        )
        for call in running[:LIMIT]
    ]
    more = tag("p", f"The {LIMIT} oldest of {len(running):,}.", class_="dim")
    return (
        tag("h2", f"{plural(len(running), 'call')} under way"),
        table("Calls under way", ("Call", "For", "Since", "Progress", "Action"), rows),
        more if len(running) > LIMIT else None,
    )


def _filter(panel: HostPanel, history: CallHistory, wanted: CallFilter, window: str) -> Html:
    known = history.calls
    servers = {status.server_id for status in panel.status()} | {call.server for call in known}
    principals = {call.principal for call in known} | ({wanted.principal} - {""})
    outcomes = {call.outcome for call in known} - {*FATES, ""} | ({wanted.outcome} - {"", *FATES})
    windows = {"15m": "15 minutes", "1h": "hour", "6h": "6 hours", "24h": "24 hours"}
    return tag(
        "form",
        choice(
            "Server",
            "server",
            wanted.server,
            ("", "all servers"),
            *((name, name) for name in sorted(servers)),
        ),
        choice(
            "For",
            "principal",
            wanted.principal,
            ("", "everyone"),
            *((name, name) for name in sorted(principals)),
        ),
        choice(
            "Outcome",
            "outcome",
            wanted.outcome,
            ("", "any"),
            *((name, name) for name in (*FATES, *sorted(outcomes))),
        ),
        choice("In the last", "window", window, *windows.items()),
        tag("button", "Show", type="submit"),
        method="get",
        action="/calls",
        class_="search",
    )


def _counts(
    title: str,
    column: str,
    counts: Mapping[str, CallCount],
    field: str,
    wanted: CallFilter,
    window: str,
) -> Child:
    if len(counts) < 2:
        return None
    most = max(count.total for count in counts.values())
    about = {
        "server": wanted.server,
        "principal": wanted.principal,
        "outcome": wanted.outcome,
        "window": window,
    }

    def link(name: str) -> Html:
        return tag("a", name or "-", href="/calls?" + urlencode({**about, field: name}), id=f"{field}-{name}")

    rows = [
        (
            link(name),
            (f"{count.total:,}", share_bar(count, most)),
            tag("span", f"{count.failed:,}", class_="trouble" if count.failed else "dim"),
            f"{count.refused:,}",
            duration(count.percentile(50)),
            duration(count.percentile(95)),
        )
        for name, count in islice(counts.items(), LIMIT)
    ]
    columns = (column, "Calls", "Failed", "Refused", "p50", "p95")
    return (tag("h2", title), table(title, columns, rows))


def _timeline(recent: Sequence[FinishedCall], total: int) -> Child:
    if not recent:
        return tag("p", "No call fits.", class_="dim")
    slowest = max(call.seconds or 0.0 for call in recent)
    rows = [
        (
            moment(call.at),
            tag("a", code(ToolKey(call.server, call.tool).qualified), href=tool_path(call.server, call.tool)),
            call.principal or "-",
            outcome(call.outcome, call.fate),
            (duration(call.seconds), time_bar(call.seconds, slowest)),
        )
        for call in recent
    ]
    more = tag("p", f"The latest {len(recent)} of {total:,}.", class_="dim")
    return (
        table("Timeline", ("Time", "Call", "For", "Outcome", "Took"), rows),
        more if total > len(recent) else None,
    )


def _describe_history(history: CallHistory) -> Html:
    what = f"the last {len(history.calls):,} calls" if history.is_full else "the calls of the last 24 hours"
    return tag(
        "p",
        f"This page counts {what}. Decisions, reasons and older calls are in the ",
        tag("a", "audit log", href="/audit"),
        ".",
        class_="dim",
    )


def _clients(sessions: Sequence[SessionInfo]) -> Child:
    if not sessions:
        return None
    rows = [
        (
            session.client or "unnamed",
            session.principal,
            session.bundle or "everything",
            session.family,
            ", ".join(session.upstreams) or "-",
            moment(session.since),
        )
        for session in sessions[:LIMIT]
    ]
    columns = ("Client", "For", "Gets", "Protocol", "Servers of its own", "Since")
    return (tag("h2", "Clients"), table("Clients", columns, rows))
