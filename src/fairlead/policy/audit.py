"""Audit log: one record per call with caller, decision and outcome, written in batches.

Records are written within a tenth of a second, and a failing store never fails a call. A call that ends
before its record is written takes one record; a longer one has a first record when it is sent, in case this
process dies.
"""

import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import msgspec

from fairlead.catalog.schema.effort import is_flat_and_short
from fairlead.catalog.tools import ToolKey
from fairlead.config.models import AuditSettings
from fairlead.config.principal import LOCAL
from fairlead.config.secrets.masking import SECRETS, Masker
from fairlead.errors import StoreError, VersionConflict
from fairlead.policy.argument_shapes import (
    Fingerprint,
    SafeNames,
    Shape,
    mask_arguments,
    mask_value,
    shape_of,
)
from fairlead.policy.tool_names import means_key
from fairlead.store.protocol import ANY, Database, LogRecord, NewRecordValue, Store

LOG = "audit"
PAGE = 1000
_CLOCK_SLACK = 60.0

Stage = Literal["", "asked", "sent", "refused", "returned"]
"""Progress of a call: waiting for approval, sent to its server, refused, or finished."""


class SharedFields(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """Fields that the records of many calls share: caller, tool and decision."""

    principal: str = ""
    server: str = ""
    tool: str = ""
    definition_digest: str = ""
    verdict: str = ""
    reason: str = ""
    by: str = ""


class AuditRecord(SharedFields, kw_only=True, omit_defaults=True, gc=False):
    """One record. Each record of a call repeats all that is known by then, so the last one is complete."""

    at: float
    """Time when the call was proposed, or the noted event happened."""
    kind: str = "call"
    call: str = ""
    """Id that all records of one call share."""
    stage: Stage = ""
    arguments: dict[str, Any] | None = None
    """Shape of the arguments."""
    arguments_digest: str = ""
    values: Any = None
    asked_at: float | None = None
    sent_at: float | None = None
    seconds: float | None = None
    """From sending to the end."""
    bytes: int | None = None
    """Size of the result as received."""
    delivery: str = ""
    outcome: str = ""
    findings: tuple[str, ...] = ()
    details: dict[str, Any] | None = None


class CallFields(msgspec.Struct, omit_defaults=True, gc=False):
    """Fields of one call's record that are not shared, named as in `AuditRecord`.

    Made for every call: positional arguments take half the time of keyword arguments.
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
    """Encode the shared fields once, for `encode_with`."""
    encoded = encode(shared)
    return b"," + encoded[1:] if len(encoded) > len(b"{}") else b"}"


def encode_with(shared: bytes, fields: CallFields) -> bytes:
    """Encode a call's record, with the shared fields already encoded."""
    return encode(fields)[:-1] + shared


def event_record(
    kind: str, principal: str, server: str, details: Mapping[str, Any] | None, masker: Masker = SECRETS
) -> AuditRecord:
    """Record of an event other than a call. Secrets in the details are masked."""
    kept: Any = mask_value("", dict(details), masker) if details else None
    return AuditRecord(at=time.time(), kind=kind, principal=principal, server=server, details=kept)


def note(
    database: Database,
    settings: AuditSettings,
    kind: str,
    *,
    principal: str = LOCAL,
    server: str = "",
    details: Mapping[str, Any] | None = None,
) -> None:
    """Record what a user did, without a running host: an approval, a review, a restart.

    Args:
        database: The store.
        settings: The section `audit` of the configuration.
        kind: What was done.
        principal: Who did it.
        server: The server that it is about.
        details: Further fields. Secrets in them are masked.
    """
    if settings.enabled:
        database.append(LOG, encode(event_record(kind, principal, server, details)))


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditQuery:
    """Filter of audit records; a field that is None matches everything."""

    since: float | None = None
    until: float | None = None
    server: str | None = None
    tool: str | None = None
    """Its own name, or `server.tool`."""
    principal: str | None = None
    outcome: str | None = None

    def fits(self, record: AuditRecord) -> bool:
        """Whether a record matches."""
        return (
            (self.since is None or record.at >= self.since)
            and (self.until is None or record.at <= self.until)
            and self.server in (None, record.server)
            and (self.tool is None or means_key(self.tool, ToolKey(record.server, record.tool)))
            and self.principal in (None, record.principal)
            and self.outcome in (None, record.outcome)
        )


def decode(record: LogRecord) -> AuditRecord | None:
    """Decode a stored record; None where it is not one, such as one of a newer version."""
    try:
        return _decode(record.value)
    except (msgspec.DecodeError, RecursionError):
        return None


def latest_calls(database: Database, wanted: AuditQuery, limit: int) -> list[AuditRecord]:
    """Latest matching calls and events, each by its last record, in the order they began.

    Args:
        database: The store.
        wanted: Which calls and events.
        limit: How many at most.
    """
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


def latest_records(database: Database, wanted: AuditQuery, limit: int) -> list[AuditRecord]:
    """Latest matching records as stored, oldest first."""
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
            # Several processes write, so records are in order but for a moment.
            if since is not None and stored.time < since - _CLOCK_SLACK:
                return
            if (record := decode(stored)) is not None:
                yield record
        before = page[-1].sequence


NAMESPACE = "audit"
ROTATION_SECONDS = 3600.0
_DAY_SECONDS = 86_400.0
_MAX_SHARED = 4096

logger = logging.getLogger(__name__)


class CallSubject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Fields that the records of all calls of one tool share while its definition stays the same."""

    server: str
    tool: str
    definition_digest: str = ""


class _CallEnd(msgspec.Struct, frozen=True, gc=False):
    """Outcome of a call."""

    outcome: str
    delivery: str
    size: int | None
    findings: Sequence[str]
    at: float
    """By `time.perf_counter`."""


class AuditedCall(msgspec.Struct, gc=False):
    """Audit record of one call under way, updated at each step.

    Calling it returns the bytes of its record. Every call has one, so the event loop only notes what is
    known; names are masked, arguments described and bytes encoded in the store's thread. Not tracked by the
    garbage collector: thousands wait at once under load, and it would visit each again and again.
    """

    _log: "AuditLog"
    _subject: CallSubject
    _principal: str
    _at: float
    _number: int
    _arguments: "dict[str, Any] | _DescribedArguments"
    """Copy of the arguments, to be described with the record; or their description."""
    _verdict: str = ""
    _reason: str = ""
    _by: str = ""
    _stage: Stage = ""
    _asked_at: float | None = None
    _sent_at: float | None = None
    _began: float = 0.0
    _end: _CallEnd | None = None
    _waits: bool = False

    def record_ask(self) -> None:
        """Note that the user is prompted for approval."""
        self._asked_at = time.time()
        self._take(stage="asked")

    def record_decision(self, verdict: str, reason: str, *, by: str = "policy") -> None:
        """Note the verdict, its reason, and who decided."""
        self._verdict, self._reason, self._by = verdict, reason, by

    def record_refusal(self, outcome: str) -> None:
        """Note that the call will not be sent; `outcome` is the code of the error."""
        self._end = _CallEnd(outcome, "not_sent", None, (), 0.0)
        self._take(stage="refused")

    def record_sent(self) -> None:
        """Note that the call is sent to its server."""
        self._began = time.perf_counter()
        self._sent_at = time.time()
        self._take(stage="sent")

    def record_result(
        self, outcome: str, delivery: str, *, size: int | None = None, findings: Sequence[str] = ()
    ) -> None:
        """Note the end: `ok`, `tool_error` or an error code, the delivery, and the size of the result."""
        self._end = _CallEnd(outcome, delivery, size, findings, time.perf_counter())
        self._stage = "returned"
        if not self._waits:
            self._take(stage="returned")

    def _take(self, *, stage: Stage) -> None:
        self._stage = stage
        if not self._waits:  # else the record that waits to be written includes this
            self._waits = True
            self._log.append(self)

    def __call__(self) -> bytes:
        """Encode what is known by now. The store calls this in its own thread when it writes."""
        self._waits = False  # first: a later change is written again, and the last record counts
        log, subject, end = self._log, self._subject, self._end
        described = self._arguments
        if isinstance(described, dict):
            described = log.describe(described)
        fields = CallFields(
            self._at,
            f"{log.run}-{self._number}",
            self._stage,
            described.shape,
            described.digest,
            described.values,
            self._asked_at,
            self._sent_at,
        )
        if end is not None:
            fields.outcome, fields.delivery, fields.bytes = end.outcome, end.delivery, end.size
            if end.findings:
                fields.findings = tuple(end.findings)
            if self._began and end.at:
                fields.seconds = end.at - self._began
        shared = log.encode_shared_fields(subject, self._principal, self._verdict, self._reason, self._by)
        return encode_with(shared, fields)


class _DescribedArguments(msgspec.Struct, frozen=True):
    """Description of a call's arguments in its record."""

    shape: dict[str, Any] | None = None
    digest: str = ""
    values: object = None


class AuditLog:
    """Audit log of one host."""

    def __init__(
        self, store: Store | None, settings: AuditSettings, *, key: bytes, masker: Masker = SECRETS
    ) -> None:
        self._store = store
        self.settings = settings
        self._masker = masker
        self._name = SafeNames(masker)
        # Only the store's thread uses these.
        self._shared: dict[object, bytes] = {}
        self._generation = masker.generation
        self._fingerprint = Fingerprint(key)
        self.run = secrets.token_hex(4)
        """Prefix of the call ids of this run."""
        self._numbers = count(1)
        self.lost = 0
        """Number of records that could not be stored."""
        self._lost_unsaid = 0

    @classmethod
    async def open(
        cls, store: Store | None, settings: AuditSettings, *, masker: Masker = SECRETS
    ) -> "AuditLog":
        """Open the audit log in a store, with its key for digests; without a store nothing is recorded."""
        return cls(store, settings, key=await _key(store), masker=masker)

    def begin_call(
        self,
        *,
        principal: str,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | msgspec.Raw,
        definition_digest: str = "",
    ) -> AuditedCall:
        """Begin the record of a call. Nothing is stored until the user is prompted, or it is refused or sent.

        Args:
            principal: The identity that the call is made for.
            server: The server.
            tool: The tool's own name at the server.
            arguments: The arguments, of which only shape and masked values are recorded, as the settings say.
            definition_digest: The digest of the tool's definition.
        """
        if self._store is None or not self.settings.enabled:
            return _UNRECORDED
        subject = CallSubject(server=server, tool=tool, definition_digest=definition_digest)
        kept = {**arguments} if is_flat_and_short(arguments) else self.describe(arguments)
        return AuditedCall(self, subject, principal, time.time(), next(self._numbers), kept)

    def send(
        self, subject: CallSubject, principal: str, arguments: Mapping[str, Any], reason: str
    ) -> AuditedCall:
        """Record a call that policy allows for this reason and that is sent now.

        The same as `begin_call`, `record_decision` and `record_sent` together, for arguments that are flat
        and short: nearly all are, and one step costs a third of the three.
        """
        if self._store is None or not self.settings.enabled:
            return _UNRECORDED
        now = time.time()
        call = AuditedCall(
            self,
            subject,
            principal,
            now,
            next(self._numbers),
            {**arguments},
            "allow",
            reason,
            "policy",
            "sent",
            None,
            now,
            time.perf_counter(),
            None,
            True,
        )
        self.append(call)
        return call

    def encode_shared_fields(
        self, subject: CallSubject, principal: str, verdict: str, reason: str, by: str
    ) -> bytes:
        """Mask and encode the shared fields; cached until another secret becomes known."""
        if self._generation != self._masker.generation or len(self._shared) >= _MAX_SHARED:
            self._generation = self._masker.generation
            self._shared.clear()
        key = (subject, principal, verdict, reason, by)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = encode_shared(
                SharedFields(
                    principal=self._name(principal),
                    server=subject.server,
                    tool=self._name(subject.tool),
                    definition_digest=subject.definition_digest,
                    verdict=verdict,
                    reason=self._name(reason),
                    by=by,
                )
            )
        return shared

    def describe(self, arguments: Mapping[str, Any] | msgspec.Raw) -> _DescribedArguments:
        """Describe arguments for a record."""
        shape, values = self.outline(arguments)
        return _DescribedArguments(shape, self._fingerprint(arguments), values)

    def outline(self, arguments: Mapping[str, Any] | msgspec.Raw) -> tuple[Shape, object]:
        """Shape of arguments for an event, and their masked values where the settings record these."""
        values = mask_arguments(arguments, self._masker) if self.settings.values else None
        return shape_of(arguments, self._name), values

    def record_event(
        self, kind: str, *, principal: str, server: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        """Record an event other than a call: a consent, a remembered approval, a login.

        Args:
            kind: What happened.
            principal: Who did it, or for whom it was done.
            server: The server that it is about.
            details: Further fields. Secrets in them are masked.
        """
        if self._store is not None and self.settings.enabled:
            self.append(encode(event_record(kind, principal, server, details, self._masker)))

    async def rotate(self) -> None:
        """Delete records beyond the age or size limit, now and every hour, until cancelled."""
        import anyio  # commands that only read the audit log need no event loop

        while self._store is not None:
            try:
                await self.prune()
            except StoreError:
                logger.warning("the audit could not be rotated", exc_info=True)
            await anyio.sleep(ROTATION_SECONDS)

    async def prune(self) -> None:
        """Delete records beyond the age or size limit, unless another process did so lately."""
        store = self._store
        if store is None:
            return
        days, records = self.settings.keep_days, self.settings.keep_records
        limits = f"{days} {records}".encode()
        rotated, before = await store.get(NAMESPACE, "rotated"), await store.get(NAMESPACE, "limits")
        is_recent = rotated is not None and abs(time.time() - float(rotated.value)) < ROTATION_SECONDS / 2
        if is_recent and before is not None and before.value == limits:
            return  # limits that were changed apply at once
        await store.put(NAMESPACE, "rotated", str(time.time()).encode(), expect=ANY, durable=False)
        await store.put(NAMESPACE, "limits", limits, expect=ANY, durable=False)
        await store.prune_log(LOG, older_than_seconds=days * _DAY_SECONDS, keep=records)

    def append(self, record: NewRecordValue) -> None:
        """Queue a record to be written soon. One that the store refuses is counted."""
        assert self._store is not None, "only what can be kept is recorded"
        try:
            if self._lost_unsaid:
                lost_record = encode(event_record("lost", "", "", {"records": self._lost_unsaid}))
                if self._store.append(LOG, lost_record):
                    self._lost_unsaid = 0
            kept = self._store.append(LOG, record)
        except StoreError:  # it is closed: the host is ending
            kept = False
        if not kept:
            if not self.lost:
                logger.warning("audit records are lost: the store does not take them")
            self.lost += 1
            self._lost_unsaid += 1


class _Unrecorded(AuditedCall):
    """Call of which nothing is recorded."""

    def _take(self, *, stage: Stage) -> None:
        pass


_UNRECORDED = _Unrecorded(
    AuditLog(None, AuditSettings(), key=b"", masker=Masker()),
    CallSubject(server="", tool=""),
    "",
    0.0,
    0,
    _DescribedArguments(),
)


async def _key(store: Store | None) -> bytes:
    """Key of the store for digests, created if missing. One that cannot be stored serves this run only."""
    key = secrets.token_bytes(32)
    if store is None:
        return key
    try:
        stored = await store.get(NAMESPACE, "key")
        if stored is None:
            await store.put(NAMESPACE, "key", key, expect=None)
            return key
        return stored.value
    except VersionConflict:  # another process was first
        return await _key(store)
    except StoreError:
        logger.warning("the audit's key cannot be kept, so digests of other runs differ", exc_info=True)
        return key
