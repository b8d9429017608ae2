"""Audit log: calls and events with principal, decision and outcome; with export."""

import csv
import io
import time
from collections.abc import Mapping, Sequence
from typing import Final, cast
from urllib.parse import urlencode

from anyio import to_thread
from starlette.responses import HTMLResponse, Response

from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import ToolKey
from fairlead.policy.audit import AuditQuery, AuditRecord, encode
from fairlead.web.charts import duration
from fairlead.web.host_panel import HostPanel
from fairlead.web.html import Child, Html, tag
from fairlead.web.layout import choice, code, field, first_line, live, moment, outcome, page, prose, table
from fairlead.web.page_request import Answer, PageRequest

LIMIT: Final = 100
MOST_EXPORTED: Final = 100_000
COLUMNS: Final = ("Time", "What", "For", "Decision", "Outcome", "Took", "Size")
SPANS: Final = {"1h": 3600.0, "24h": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0}
EXPORTED: Final = (
    "time", "kind", "call", "principal", "server", "tool", "verdict", "by", "reason", "stage", "outcome",
    "delivery", "seconds", "bytes", "details",
)  # fmt: skip
_FIELDS: Final = ("server", "tool", "principal", "outcome")


def records(panel: HostPanel) -> Answer:
    """Page of the latest records that match the filter, or of those before one of them."""

    async def answer(request: PageRequest) -> Response:
        found = await panel.watch.audit(_read_query(request), LIMIT)
        servers = sorted(status.server_id for status in panel.status())
        content = (
            _filter(request, servers),
            live("audit", _table(found), _older(request, found)),
            _exports(request),
        )
        return HTMLResponse(page(request, panel, "Audit", *content))

    return answer


def export_json(panel: HostPanel) -> Answer:
    """Every record that fits the filter, one JSON object on each line, as `fairlead audit --json` prints."""

    async def answer(request: PageRequest) -> Response:
        found = await panel.watch.audit(_read_query(request), MOST_EXPORTED, every=True)

        def write() -> bytes:
            return b"".join(encode(record) + b"\n" for record in reversed(found))

        return _attachment(await to_thread.run_sync(write), "application/jsonl", "jsonl")

    return answer


def export_csv(panel: HostPanel) -> Answer:
    """Every call and event that fits the filter, as a table for spreadsheets."""

    async def answer(request: PageRequest) -> Response:
        found = await panel.watch.audit(_read_query(request), MOST_EXPORTED)

        def write() -> bytes:
            text = io.StringIO()
            rows = csv.writer(text)
            rows.writerow(EXPORTED)
            rows.writerows(_csv_row(record) for record in reversed(found))
            return text.getvalue().encode()

        # In a thread: a hundred thousand records take seconds.
        return _attachment(await to_thread.run_sync(write), "text/csv", "csv")

    return answer


def _read_query(request: PageRequest) -> AuditQuery:
    span, until = SPANS.get(request.query("span")), request.query("until")
    fields = {name: request.query(name).strip() or None for name in _FIELDS}
    is_number = until.replace(".", "", 1).isdigit() and until.isascii() and len(until) < 20
    return AuditQuery(
        since=time.time() - span if span else None, until=float(until) if is_number else None, **fields
    )


def _filter(request: PageRequest, servers: Sequence[str]) -> Html:
    known = ({request.query("server")} - {"", *servers}, servers)
    spans = {
        "": "all time",
        "1h": "last hour",
        "24h": "last 24 hours",
        "7d": "last 7 days",
        "30d": "last 30 days",
    }
    return tag(
        "form",
        choice("When", "span", request.query("span"), *spans.items()),
        choice(
            "Server",
            "server",
            request.query("server"),
            ("", "all servers"),
            *((name, name) for some in known for name in some),
        ),
        field("Tool", "tool", request.query("tool")),
        field("For", "principal", request.query("principal"), placeholder="principal"),
        field("Outcome", "outcome", request.query("outcome"), placeholder="ok, tool_error, call_denied …"),
        tag("button", "Show", type="submit"),
        method="get",
        action="/audit",
        class_="search",
    )


def _query(request: PageRequest, **more: str) -> str:
    given = {name: request.query(name) for name in ("span", *_FIELDS)}
    return urlencode({name: value for name, value in {**given, **more}.items() if value})


def _exports(request: PageRequest) -> Html:
    query = _query(request)
    return tag(
        "p",
        tag("a", "Export as CSV", href=f"/audit.csv?{query}", class_="button", download=True),
        tag("a", "Export as JSON lines", href=f"/audit.jsonl?{query}", class_="button", download=True),
        class_="row",
    )


def _older(request: PageRequest, found: Sequence[AuditRecord]) -> Child:
    if len(found) < LIMIT:
        return None
    older = f"/audit?{_query(request, until=f'{found[-1].at:.6f}')}"
    return tag(
        "nav",
        tag("a", "Older", href=older, class_="button"),
        aria_label="Pages of the audit log",
        class_="pages",
    )


def _table(found: Sequence[AuditRecord]) -> Html:
    if not found:
        return tag("p", "No record fits.", class_="dim")
    return table("Audit", COLUMNS, [_row(record) for record in found])


def _row(record: AuditRecord) -> tuple[Child, ...]:
    whose = "" if record.by in ("", "policy") else f" by {record.by}"
    decision = f"{record.verdict}{whose}" if record.verdict else "-"
    return (
        moment(record.at),
        _what(record),
        record.principal or "-",
        (decision, tag("span", prose(first_line(record.reason)), class_="note") if record.reason else None),
        _outcome(record),
        duration(record.seconds),
        "-" if record.bytes is None else f"{record.bytes:,} B",
    )


def _what(record: AuditRecord) -> Child:
    if record.kind == "call":
        return code(ToolKey(record.server, record.tool).qualified)
    details = _in_words(record.details or {})
    return (
        tag("strong", record.kind.replace("_", " ")),
        " ",
        record.server,
        tag("span", first_line(details), class_="note") if details else None,
    )


def _in_words(details: Mapping[str, object]) -> str:
    """Other fields of a record that are not empty, as text: `in command line, allowed: echo, add`."""
    said: list[str] = []
    for name, value in details.items():
        if isinstance(value, list | tuple):
            shown = ", ".join(str(each) for each in cast("Sequence[object]", value))
            said += [f"{name}: {shown}"] if shown else []
        elif value not in (None, ""):
            said.append(f"in {value}" if name == "in" else f"{name.replace('_', ' ')}: {value}")
    return "; ".join(said)


def _outcome(record: AuditRecord) -> Child:
    if record.kind != "call":
        return "-"
    words = {"asked": "waits for approval", "sent": "under way"}
    if not record.outcome:
        return words.get(record.stage, record.stage or "-")
    fate = "refused" if record.stage == "refused" else "ok" if record.outcome in ("ok", "begun") else "failed"
    doubt = tag("span", "delivery unknown", class_="note") if record.delivery == "unknown" else None
    return (outcome(record.outcome, fate), doubt)


def _csv_row(record: AuditRecord) -> list[str]:
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.at))
    values: list[object] = [then]
    values += [getattr(record, name) for name in EXPORTED[1:-1]]
    values.append(" ".join(f"{name}={value}" for name, value in (record.details or {}).items()))
    return [_cell("" if value is None else str(value)) for value in values]


def _cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    shown = gate.mask_secrets(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@", "\t", "\r")) else shown


def _attachment(content: bytes, media_type: str, ending: str) -> Response:
    name = f"fairlead-audit-{time.strftime('%Y%m%d-%H%M%S')}.{ending}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=media_type, headers=headers)
