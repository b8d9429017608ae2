"""Records of the audit, for people: a row of a table each."""

from datetime import datetime
from typing import Final

from fairlead.policy.audit_records import AuditRecord

COLUMNS: Final = ("time", "who", "what", "decision", "outcome", "ms", "bytes")


def audit_row(record: AuditRecord) -> tuple[str, ...]:
    """Who did what, who let it, and how it went."""
    return (
        f"{datetime.fromtimestamp(record.at).astimezone():%Y-%m-%d %H:%M:%S}",
        record.principal or "-",
        _what(record),
        _decision(record),
        _outcome(record),
        "-" if record.seconds is None else f"{record.seconds * 1000:.1f}",
        "-" if record.bytes is None else str(record.bytes),
    )


def _what(record: AuditRecord) -> str:
    if record.kind == "call":
        return f"{record.server}/{record.tool}"
    details = " ".join(f"{name}={value}" for name, value in (record.details or {}).items())
    return " ".join(filter(None, (record.kind, record.server, details)))


def _decision(record: AuditRecord) -> str:
    if not record.verdict:
        return "-"
    whose = "" if record.by in ("", "policy") else f" by {record.by}"
    return f"{record.verdict}{whose}" + (f": {record.reason}" if record.reason else "")


def _outcome(record: AuditRecord) -> str:
    match record.stage:
        case "asked":
            return "not answered"
        case "sent":
            return "not finished"  # under way, or its host died
        case _:
            unsure = record.delivery == "unknown"
            found = f" ({', '.join(record.findings)})" if record.findings else ""
            return f"{record.outcome or '-'}{', may have been done' if unsure else ''}{found}"
