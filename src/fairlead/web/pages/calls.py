"""Calls: those under way, and those that were."""

from collections.abc import Sequence

from starlette.responses import HTMLResponse, Response

from fairlead.gateway.client_session import SessionInfo
from fairlead.policy.audit import AuditQuery, AuditRecord
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import code, first_line, live, moment, page, server_link, table
from fairlead.web.live import RunningCall
from fairlead.web.page_request import Answer, PageRequest

LIMIT = 100
COLUMNS = ("Time", "Call", "For", "Decision", "Outcome", "Took", "Size")


def calls(panel: HostPanel) -> Answer:
    """Both."""

    async def answer(visit: PageRequest) -> Response:
        server, outcome = visit.query("server"), visit.query("outcome").strip()
        wanted = AuditQuery(server=server or None, outcome=outcome or None)
        records = await panel.audit(wanted, LIMIT)
        servers = [status.server_id for status in panel.status()]
        content = (
            live("running", tag("h2", "Under way"), _running(panel.activity.running)),
            live("clients", _clients(panel.sessions())),
            tag("h2", "Audit"),
            _filter(server, outcome, servers),
            live("audit", _audit([*records])),
        )
        return HTMLResponse(page(visit, panel, "Calls", *content))

    return answer


def _running(running: tuple[RunningCall, ...]) -> Html:
    if not running:
        return tag("p", "None.", class_="dim")
    rows = [
        (moment(call.since), (server_link(call.server_id), " ", code(call.tool)), call.progress or "-")
        for call in running[:LIMIT]
    ]
    return table("Calls under way", ("Since", "Call", "Progress"), rows)


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


def _filter(server: str, outcome: str, servers: list[str]) -> Html:
    options = [
        tag("option", "all servers", value=""),
        *(tag("option", name, value=name, selected=name == server) for name in servers),
    ]
    return tag(
        "form",
        tag("label", "Server", for_="server"),
        tag("select", options, id="server", name="server"),
        tag("label", "Outcome", for_="outcome"),
        tag(
            "input", id="outcome", name="outcome", value=outcome, placeholder="ok, tool_error, call_denied …"
        ),
        tag("button", "Show", type="submit"),
        method="get",
        action="/calls",
        class_="search",
    )


def _audit(records: list[AuditRecord]) -> Html:
    if not records:
        return tag("p", "Nothing was recorded yet.", class_="dim")
    return table("Audit", COLUMNS, [_row(record) for record in records])


def _row(record: AuditRecord) -> tuple[Child, ...]:
    whose = "" if record.by in ("", "policy") else f" by {record.by}"
    decision = f"{record.verdict}{whose}" if record.verdict else "-"
    return (
        moment(record.at),
        _what(record),
        record.principal or "-",
        (decision, tag("span", first_line(record.reason), class_="note") if record.reason else None),
        _outcome(record),
        "-" if record.seconds is None else f"{record.seconds * 1000:,.1f} ms",
        "-" if record.bytes is None else f"{record.bytes:,} B",
    )


def _what(record: AuditRecord) -> Child:
    if record.kind == "call":
        return (code(f"{record.server}/{record.tool}"),)
    details = " ".join(f"{name}={value}" for name, value in (record.details or {}).items())
    return (
        record.kind,
        " ",
        record.server,
        tag("span", first_line(details), class_="note") if details else None,
    )


def _outcome(record: AuditRecord) -> Child:
    word = record.outcome or {"asked": "waits for a person", "sent": "under way"}.get(
        record.stage, record.stage
    )
    return tag("span", word or "-", class_="good" if word == "ok" else "trouble" if record.outcome else None)
