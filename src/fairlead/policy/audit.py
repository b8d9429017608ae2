"""Keeps the record of every call: written within a tenth of a second, and never a reason for a call to fail.

A call that is over before its record is written takes one record; one that lasts has a first record that says
it was sent, should this process not live to see its end.
"""

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import anyio
import msgspec

from fairlead.catalog.effort import is_flat_and_short
from fairlead.config.masking import SECRETS, Masker
from fairlead.config.models import Audit
from fairlead.errors import StoreError, VersionConflict
from fairlead.policy.argument_shapes import Fingerprint, SafeNames, masked_values, shape_of
from fairlead.policy.audit_records import (
    LOG,
    CallFields,
    SharedFields,
    Stage,
    encode,
    encode_shared,
    encode_with,
    noted,
)
from fairlead.store.store import ANY, NewRecordValue, Store

NAMESPACE = "audit"
ROTATION_SECONDS = 3600.0
_DAY_SECONDS = 86_400.0
_MAX_SHARED = 4096

logger = logging.getLogger(__name__)


class CallSubject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the records of all calls of one tool have in common, as long as its definition is the same."""

    server: str
    tool: str
    definition_digest: str = ""


class _End(msgspec.Struct, frozen=True, gc=False):
    """How a call ended."""

    outcome: str
    delivery: str
    size: int | None
    findings: Sequence[str]
    at: float
    """By `time.perf_counter`."""


class AuditedCall(msgspec.Struct, gc=False):
    """One call on its way. Each step is told here as it is taken.

    Called, it gives the bytes of its record. Every call has one, so all that the event loop does is to note
    what is known: names are masked, arguments described and bytes made in the store's thread. Thousands wait
    at once under load, and the garbage collector would visit each of them again and again; none is part of a
    cycle for longer than that.
    """

    _log: "AuditLog"
    _subject: CallSubject
    _principal: str
    _at: float
    _number: int
    _arguments: "dict[str, Any] | _Described"
    """A copy of arguments that stay as they are, to be described with the record; or their description."""
    _verdict: str = ""
    _reason: str = ""
    _by: str = ""
    _stage: Stage = ""
    _asked_at: float | None = None
    _sent_at: float | None = None
    _began: float = 0.0
    _end: _End | None = None
    _waits: bool = False

    def asked(self) -> None:
        """A person is asked."""
        self._asked_at = time.time()
        self._take(stage="asked")

    def decided(self, verdict: str, reason: str, *, by: str = "policy") -> None:
        """It was decided, and by whom."""
        self._verdict, self._reason, self._by = verdict, reason, by

    def refused(self, outcome: str) -> None:
        """It will not be sent; `outcome` is the code of the error that says so."""
        self._end = _End(outcome, "not_sent", None, (), 0.0)
        self._take(stage="refused")

    def sent(self) -> None:
        """It goes to its server."""
        self._began = time.perf_counter()
        self._sent_at = time.time()
        self._take(stage="sent")

    def returned(
        self, outcome: str, delivery: str, *, size: int | None = None, findings: Sequence[str] = ()
    ) -> None:
        """It is over: `ok`, `tool_error` or the code of an error, how far it got, and how much came back."""
        self._end = _End(outcome, delivery, size, findings, time.perf_counter())
        self._stage = "returned"
        if not self._waits:
            self._take(stage="returned")

    def _take(self, *, stage: Stage) -> None:
        self._stage = stage
        if not self._waits:  # else what waits to be written will say this too
            self._waits = True
            self._log.append(self)

    def __call__(self) -> bytes:
        """What is known by now. The store asks in its own thread, when it writes."""
        self._waits = False  # first: what changes from here on is written again, and the last record counts
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
        shared = log.shared_fields(subject, self._principal, self._verdict, self._reason, self._by)
        return encode_with(shared, fields)


class _Described(msgspec.Struct, frozen=True):
    """What a record says of a call's arguments."""

    shape: dict[str, Any] | None = None
    digest: str = ""
    values: object = None


class AuditLog:
    """The audit of one host."""

    def __init__(self, store: Store | None, settings: Audit, *, key: bytes, masker: Masker = SECRETS) -> None:
        self._store = store
        self.settings = settings
        self._masker = masker
        self._name = SafeNames(masker)
        # Only the store's thread uses these.
        self._shared: dict[object, bytes] = {}
        self._generation = masker.generation
        self._fingerprint = Fingerprint(key)
        self.run = secrets.token_hex(4)
        """What the names of this run's calls begin with."""
        self._numbers = count(1)
        self.lost = 0
        """How many records could not be kept."""
        self._lost_unsaid = 0

    @classmethod
    async def open(cls, store: Store | None, settings: Audit, *, masker: Masker = SECRETS) -> "AuditLog":
        """The audit in a store, with the store's own key for digests; without a store, nothing is kept."""
        return cls(store, settings, key=await _key(store), masker=masker)

    def proposed(
        self,
        *,
        principal: str,
        server: str,
        tool: str,
        arguments: Mapping[str, Any] | msgspec.Raw,
        definition_digest: str = "",
    ) -> AuditedCall:
        """A call is wanted. Nothing is kept until a person is asked about it, or it is refused or sent."""
        if self._store is None or not self.settings.enabled:
            return _UNRECORDED
        subject = CallSubject(server=server, tool=tool, definition_digest=definition_digest)
        kept = {**arguments} if is_flat_and_short(arguments) else self.describe(arguments)
        return AuditedCall(self, subject, principal, time.time(), next(self._numbers), kept)

    def send(
        self, subject: CallSubject, principal: str, arguments: Mapping[str, Any], reason: str
    ) -> AuditedCall:
        """Record a call that policy allows for this reason, and that goes to its server now.

        The same as `proposed`, `decided` and `sent` together, for arguments that are flat and short: nearly
        all calls are such, and one step costs a third of what the three do.
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

    def shared_fields(
        self, subject: CallSubject, principal: str, verdict: str, reason: str, by: str
    ) -> bytes:
        """What many records say alike, masked and encoded: once, as long as no more secrets are known."""
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

    def describe(self, arguments: Mapping[str, Any] | msgspec.Raw) -> _Described:
        """What a record says of these arguments."""
        values = masked_values(arguments, self._masker) if self.settings.values else None
        return _Described(shape_of(arguments, self._name), self._fingerprint(arguments), values)

    def noted(
        self, kind: str, *, principal: str, server: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        """Something else happened that matters: a consent, an approval to be remembered, a login."""
        if self._store is not None and self.settings.enabled:
            self.append(encode(noted(kind, principal, server, details, self._masker)))

    async def rotate(self) -> None:
        """Drop what is too old or too much, now and every hour, until cancelled."""
        while self._store is not None:
            try:
                await self.prune()
            except StoreError:
                logger.warning("the audit could not be rotated", exc_info=True)
            await anyio.sleep(ROTATION_SECONDS)

    async def prune(self) -> None:
        """Drop what is too old or too much, unless any process has done so lately."""
        store = self._store
        if store is None:
            return
        rotated = await store.get(NAMESPACE, "rotated")
        if rotated is not None and abs(time.time() - float(rotated.value)) < ROTATION_SECONDS / 2:
            return
        await store.put(NAMESPACE, "rotated", str(time.time()).encode(), expect=ANY, durable=False)
        days, records = self.settings.keep_days, self.settings.keep_records
        await store.prune_log(LOG, older_than_seconds=days * _DAY_SECONDS, keep=records)

    def append(self, record: NewRecordValue) -> None:
        """Have a record written soon. One that the store does not take is counted."""
        assert self._store is not None, "only what can be kept is recorded"
        try:
            if self._lost_unsaid:
                said = encode(noted("lost", "", "", {"records": self._lost_unsaid}))
                if self._store.append(LOG, said):
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
    """A call of which nothing is kept."""

    def _take(self, *, stage: Stage) -> None:
        pass


_UNRECORDED = _Unrecorded(
    AuditLog(None, Audit(), key=b"", masker=Masker()),
    CallSubject(server="", tool=""),
    "",
    0.0,
    0,
    _Described(),
)


async def _key(store: Store | None) -> bytes:
    """The store's key for digests, made where it is missing. One that cannot be kept is good for this run."""
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
