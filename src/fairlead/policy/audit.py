"""Keeps the record of every call: written within a tenth of a second, and never a reason for a call to fail.

A call that is over before its record is written takes one record; one that lasts has a first record that says
it was sent, should this process not live to see its end.
"""

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import anyio
import msgspec

from fairlead.config.masking import SECRETS, Masker
from fairlead.config.models import Audit
from fairlead.errors import StoreError, VersionConflict
from fairlead.policy.argument_shapes import Fingerprint, SafeNames, is_flat_and_short, masked_values, shape_of
from fairlead.policy.audit_records import LOG, AuditRecord, Stage, encode, noted
from fairlead.store.store import ANY, NewRecordValue, Store

NAMESPACE = "audit"
ROTATION_SECONDS = 3600.0
_DAY_SECONDS = 86_400.0

logger = logging.getLogger(__name__)


class AuditedCall(msgspec.Struct, gc=False):
    """One call on its way. Each step is told here as it is taken.

    Called, it gives the bytes of its record. Thousands wait at once under load, and the garbage collector
    would visit each of them again and again; none is ever part of a cycle for longer than that.
    """

    _record: AuditRecord
    _name: SafeNames
    _append: Callable[[NewRecordValue], None]
    _fingerprint: Fingerprint | None = None
    _arguments: dict[str, Any] | None = None
    """A copy of arguments that are described when the record is written, off the event loop."""
    _began: float = 0.0
    _waits: bool = False

    def asked(self) -> None:
        """A person is asked."""
        self._record.asked_at = time.time()
        self._take(stage="asked")

    def decided(self, verdict: str, reason: str, *, by: str = "policy") -> None:
        """It was decided, and by whom."""
        record = self._record
        record.verdict, record.reason, record.by = verdict, self._name(reason), by

    def refused(self, outcome: str) -> None:
        """It will not be sent; `outcome` is the code of the error that says so."""
        self._record.outcome = outcome
        self._record.delivery = "not_sent"
        self._take(stage="refused")

    def sent(self) -> None:
        """It goes to its server."""
        self._began = time.perf_counter()
        self._record.sent_at = time.time()
        self._take(stage="sent")

    def returned(
        self, outcome: str, delivery: str, *, size: int | None = None, findings: Sequence[str] = ()
    ) -> None:
        """It is over: `ok`, `tool_error` or the code of an error, how far it got, and how much came back."""
        record = self._record
        record.seconds = time.perf_counter() - self._began if self._began else None
        record.outcome, record.delivery, record.bytes = outcome, delivery, size
        if findings:
            record.findings = tuple(findings)
        self._take(stage="returned")

    def _take(self, *, stage: Stage) -> None:
        self._record.stage = stage
        if not self._waits:  # else what waits to be written will say this too
            self._waits = True
            self._append(self)

    def __call__(self) -> bytes:
        """What is known by now. The store asks in its own thread, when it writes."""
        self._waits = False  # first: what changes from here on is written again, and the last record counts
        arguments, self._arguments = self._arguments, None
        if arguments is not None and self._fingerprint is not None:
            self._record.arguments = shape_of(arguments, self._name)
            self._record.arguments_digest = self._fingerprint(arguments)
        return encode(self._record)


class AuditLog:
    """The audit of one host."""

    def __init__(self, store: Store | None, settings: Audit, *, key: bytes, masker: Masker = SECRETS) -> None:
        self._store = store
        self.settings = settings
        self._masker = masker
        self._name = SafeNames(masker)
        self._fingerprint = Fingerprint(key)
        self._run = secrets.token_hex(4)
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
        """Somebody wants a tool called. Nothing is kept until it is asked about, refused or sent."""
        if self._store is None or not self.settings.enabled:
            return _UNRECORDED
        record = AuditRecord(
            at=time.time(),
            principal=self._name(principal),
            server=server,
            tool=self._name(tool),
            call=f"{self._run}-{next(self._numbers)}",
            definition_digest=definition_digest,
        )
        if self.settings.values:
            record.values = masked_values(arguments, self._masker)
        if is_flat_and_short(arguments):
            return AuditedCall(record, self._name, self._append, self._fingerprint, {**arguments})
        record.arguments = shape_of(arguments, self._name)
        record.arguments_digest = self._fingerprint(arguments)
        return AuditedCall(record, self._name, self._append)

    def noted(
        self, kind: str, *, principal: str, server: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        """Something else happened that matters: a consent, an approval to be remembered, a login."""
        if self._store is not None and self.settings.enabled:
            self._append(encode(noted(kind, principal, server, details, self._masker)))

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

    def _append(self, record: NewRecordValue) -> None:
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


_UNRECORDED = AuditedCall(AuditRecord(at=0.0), SafeNames(Masker()), lambda _: None)


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
