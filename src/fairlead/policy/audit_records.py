"""The audit as it is kept and read back: who called what, who decided, and how it went."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from fairlead.config.masking import SECRETS, Masker
from fairlead.config.models import Audit
from fairlead.config.principal import LOCAL
from fairlead.policy.argument_shapes import masked_value
from fairlead.store.database import Database
from fairlead.store.store import Record

LOG = "audit"
PAGE = 1000
_CLOCK_SLACK = 60.0

Stage = Literal["", "asked", "sent", "refused", "returned"]
"""How far a call is: a person is asked, it went to its server, it never will, it is over."""


class SharedFields(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What the records of many calls have in common: who called which tool, and what policy said."""

    principal: str = ""
    server: str = ""
    tool: str = ""
    definition_digest: str = ""
    verdict: str = ""
    reason: str = ""
    by: str = ""


class AuditRecord(SharedFields, kw_only=True, omit_defaults=True, gc=False):
    """One record. Each of a call says all that is known by then, so the last one of a call tells it whole."""

    at: float
    """When the call was proposed, or what is noted happened."""
    kind: str = "call"
    call: str = ""
    """What all records of one call share."""
    stage: Stage = ""
    arguments: dict[str, Any] | None = None
    """Their shape."""
    arguments_digest: str = ""
    values: Any = None
    asked_at: float | None = None
    sent_at: float | None = None
    seconds: float | None = None
    """From sending to the end."""
    bytes: int | None = None
    """The size of the result as it came."""
    delivery: str = ""
    outcome: str = ""
    findings: tuple[str, ...] = ()
    details: dict[str, Any] | None = None


class CallFields(msgspec.Struct, omit_defaults=True, gc=False):
    """What a call's record says of this call alone, in the words of `AuditRecord`.

    Every call makes one: given by position, it takes half of the time that it takes by name.
    """

    at: float
    call: str
    stage: Stage
    arguments: dict[str, Any] | None = None
    arguments_digest: str = ""
    values: Any = None
    asked_at: float | None = None
    sent_at: float | None = None
    seconds: float | None = None
    bytes: int | None = None
    delivery: str = ""
    outcome: str = ""
    findings: tuple[str, ...] = ()


encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(AuditRecord).decode


def encode_shared(shared: SharedFields) -> bytes:
    """The end of records that have these fields in common, for `encode_with`."""
    encoded = encode(shared)
    return b"," + encoded[1:] if len(encoded) > len(b"{}") else b"}"


def encode_with(shared: bytes, fields: CallFields) -> bytes:
    """A call's record, with the shared fields as they are encoded already."""
    return encode(fields)[:-1] + shared


def noted(
    kind: str, principal: str, server: str, details: Mapping[str, Any] | None, masker: Masker = SECRETS
) -> AuditRecord:
    """A record of something else than a call. Details are kept less secrets."""
    kept: Any = masked_value("", dict(details), masker) if details else None
    return AuditRecord(at=time.time(), kind=kind, principal=principal, server=server, details=kept)


def note(
    database: Database,
    settings: Audit,
    kind: str,
    *,
    server: str = "",
    details: Mapping[str, Any] | None = None,
) -> None:
    """Record what a person did on the command line: an approval, a review, a login."""
    if settings.enabled:
        database.append(LOG, encode(noted(kind, LOCAL, server, details)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which records somebody wants to see; what is None does not matter."""

    since: float | None = None
    until: float | None = None
    server: str | None = None
    tool: str | None = None
    principal: str | None = None
    outcome: str | None = None

    def fits(self, record: AuditRecord) -> bool:
        """Is it one of them?"""
        return (
            (self.since is None or record.at >= self.since)
            and (self.until is None or record.at <= self.until)
            and self.server in (None, record.server)
            and self.tool in (None, record.tool)
            and self.principal in (None, record.principal)
            and self.outcome in (None, record.outcome)
        )


def decode(record: Record) -> AuditRecord | None:
    """Read a stored record; None where it is none, as one of a newer version may be."""
    try:
        return _decode(record.value)
    except (msgspec.DecodeError, RecursionError):
        return None


def latest_calls(database: Database, wanted: Wanted, limit: int) -> list[AuditRecord]:
    """The last calls and notes that are wanted, each as its last record tells it, in the order they began."""
    found: list[AuditRecord] = []
    seen: set[str] = set()
    for record in _backwards(database, wanted.since):
        if record.call:
            if record.call in seen:
                continue
            seen.add(record.call)
        if wanted.fits(record):
            found.append(record)
            if len(found) == limit:
                break
    return sorted(found, key=lambda record: record.at)


def latest_records(database: Database, wanted: Wanted, limit: int) -> list[AuditRecord]:
    """The last records that are wanted, as they were kept, oldest first."""
    found: list[AuditRecord] = []
    for record in _backwards(database, wanted.since):
        if wanted.fits(record):
            found.append(record)
            if len(found) == limit:
                break
    return found[::-1]


def _backwards(database: Database, since: float | None) -> Iterator[AuditRecord]:
    before: int | None = None
    while page := database.last_records(LOG, before=before, limit=PAGE):
        for stored in page:
            # Processes write in turn, so that records are in order but for a moment.
            if since is not None and stored.time < since - _CLOCK_SLACK:
                return
            if (record := decode(stored)) is not None:
                yield record
        before = page[-1].sequence
