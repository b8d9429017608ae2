"""Calls of a gateway that wait until the user decides in the dashboard or with `fairlead approvals`.

With a shared store, the calls of all replicas are seen and answered at each of them. An answer is written by
compare-and-swap, so that there is one and no more; messages are hints, and the store is read in any case.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import msgspec

from fairlead.errors import ApprovalRequired, ReplicaFailed, StoreError, VersionConflict
from fairlead.host.operator import ApprovalAnswer, ApprovalRequest
from fairlead.store.protocol import ANY, Store, StoredValue, scan_readable
from fairlead.wording import join_clauses

PATIENCE_SECONDS = 120.0
"""How long a call waits for the user's decision."""
NAMESPACE: Final = "pending approvals"
TOPIC: Final = "pending approvals"
LOOK_SECONDS: Final = 2.0
"""How often the store is read without a hint."""
TAKE_SECONDS: Final = 2.0
"""How long the replica that a call waits at may take to take an answer: less than commands wait."""
_TAKE_LOOK_SECONDS: Final = 0.2
_SPARE_SECONDS: Final = 30.0
"""How much longer than its wait a call is in the store, where the replica that it waits at died."""

logger = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True, slots=True)
class PendingApproval:
    """A call that waits for the user's decision."""

    id: str
    request: ApprovalRequest
    created: float
    """In seconds since 1970."""
    answer: ApprovalAnswer | None = None
    answered: anyio.Event = field(default_factory=anyio.Event, repr=False)


class _SharedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A pending call as the store has it."""

    request: ApprovalRequest
    created: float
    answer: ApprovalAnswer | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SharedCall).decode


class PendingApprovals:
    """The calls of a gateway, and of its replicas, that wait for the user's decision."""

    def __init__(
        self, seconds: float = PATIENCE_SECONDS, *, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.seconds = seconds
        self.on_change = on_change
        """Called whenever a call begins or ends to wait."""
        self.is_watched = True
        """Whether users can see pending approvals: in a dashboard, or with `fairlead approvals`."""
        self.store: Store | None = None
        """The store that replicas share, if they do."""
        self._waiting: dict[str, PendingApproval] = {}
        self._elsewhere: dict[str, PendingApproval] = {}

    def pending(self, principal: str | None = None) -> Sequence[PendingApproval]:
        """Return the pending approvals, the oldest first: all, or those of one principal."""
        calls = sorted((self._elsewhere | self._waiting).values(), key=lambda call: call.created)
        return [call for call in calls if principal in (None, call.request.principal)]

    async def answer(self, id: str, answer: ApprovalAnswer, *, principal: str | None = None) -> bool:  # noqa: A002 - what it is called everywhere
        """Answer a pending approval. False where it is gone, or belongs to another principal.

        Raises:
            StoreError: Replicas share a store, and it cannot tell whether another answer was first.
            ReplicaFailed: The replica that it waits at did not take the answer, which was withdrawn.
        """
        call = self._waiting.get(id) or self._elsewhere.get(id)
        if call is None or principal not in (None, call.request.principal):
            return False
        if self.store is None:
            _settle(call, answer)
            return True
        decided = await self._decide(self.store, id, answer)
        if decided is None:
            return False
        if id in self._waiting:
            _settle(call, answer)
        else:
            await self._see_taken(self.store, decided)
        return True

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Wait for the user's decision. Raises `ApprovalRequired` without one."""
        if not self.is_watched:
            message = f"must be approved, and there is no one to ask: {request.reason}"
            raise ApprovalRequired(f"`{request.name}` {message}", hint=request.hint)
        call = PendingApproval(id=secrets.token_hex(8), request=request, created=time.time())
        self._waiting[call.id] = call
        version = 0
        try:
            if self.store is not None:
                version = await self._announce(self.store, call)
            self.on_change()
            with anyio.move_on_after(self.seconds):
                await call.answered.wait()
        finally:
            del self._waiting[call.id]
            if self.store is not None:
                await self._withdraw(self.store, call, version)
            self.on_change()
        if call.answer is None:
            message = (
                f"`{request.name}` was not called: no one approved it in {self.seconds:g} s: {request.reason}"
            )
            raise ApprovalRequired(message, hint=_hint(request))
        return call.answer

    # Replicas.

    async def follow(self, store: Store) -> None:
        """Follow the pending calls of all replicas, until cancelled."""
        while True:
            try:
                async with store.subscribe(TOPIC) as hints:
                    while True:
                        await self._look(store)
                        with anyio.move_on_after(LOOK_SECONDS):
                            await anext(hints)
            except StopAsyncIteration:
                return  # the store is closed
            except StoreError:
                logger.warning("pending approvals of other replicas are not known", exc_info=True)
                await anyio.sleep(LOOK_SECONDS * random.uniform(0.5, 1))  # noqa: S311 - not all at once

    async def _look(self, store: Store) -> None:
        elsewhere: dict[str, PendingApproval] = {}
        values, _ = await scan_readable(store, NAMESPACE)
        for stored in values:
            shared = _read(stored)
            own = self._waiting.get(stored.key)
            if own is not None and shared is not None and shared.answer is not None:
                _settle(own, shared.answer)
            elif own is None and shared is not None and shared.answer is None:
                elsewhere[stored.key] = PendingApproval(
                    id=stored.key, request=shared.request, created=shared.created
                )
        changed = elsewhere.keys() != self._elsewhere.keys()
        self._elsewhere = elsewhere
        if changed:
            self.on_change()

    async def _announce(self, store: Store, call: PendingApproval) -> int:
        value = _encode(_SharedCall(request=call.request, created=call.created))
        ends = self.seconds + _SPARE_SECONDS
        version = await store.put(NAMESPACE, call.id, value, expect=None, durable=False, expires_in=ends)
        await store.publish(TOPIC, call.id.encode())
        return version

    async def _decide(self, store: Store, call_id: str, answer: ApprovalAnswer) -> StoredValue | None:
        """Write an answer, unless there is one. Returns the call without it; None where it is too late."""
        found = await store.get(NAMESPACE, call_id)
        shared = _read(found) if found is not None else None
        if found is None or shared is None or shared.answer is not None:
            return None
        value = _encode(msgspec.structs.replace(shared, answer=answer))
        try:
            await store.put(NAMESPACE, call_id, value, expect=found.version, expires_in=_SPARE_SECONDS)
        except VersionConflict:
            return None
        await store.publish(TOPIC, call_id.encode())
        return found

    async def _see_taken(self, store: Store, unanswered: StoredValue) -> None:
        """Wait until the replica that a call waits at took its answer: then the call is not in the store.

        One that was killed never takes it, and nothing would be called or remembered.
        """
        answered: StoredValue | None = None
        is_taken = False
        with anyio.move_on_after(TAKE_SECONDS):
            async with store.subscribe(TOPIC) as hints:
                while (answered := await store.get(NAMESPACE, unanswered.key)) is not None:
                    with anyio.move_on_after(_TAKE_LOOK_SECONDS):
                        await anext(hints, None)
            is_taken = True
        if not is_taken and answered is None:  # the store did not say in time
            answered = await store.get(NAMESPACE, unanswered.key)
        if answered is None:
            return
        shared = _read(unanswered)
        rest = shared.created + self.seconds - time.time() if shared is not None else 0.0
        try:
            # It may live after all: then the call waits on, and can be answered, until its time ends.
            await store.put(
                NAMESPACE,
                unanswered.key,
                unanswered.value,
                expect=answered.version,
                durable=False,
                expires_in=max(0.0, rest) + _SPARE_SECONDS,
            )
        except VersionConflict:
            return  # it took it at the last moment
        raise ReplicaFailed(
            "the replica of the gateway that the call waits at did not take the answer: it ended, or hangs",
            delivery="not_sent",
            hint="the answer was withdrawn, and nothing is remembered; the call ends by itself",
        )

    async def _withdraw(self, store: Store, call: PendingApproval, version: int) -> None:
        """Take a call out of the store. An answer that came at the last moment counts."""
        with anyio.CancelScope(shield=True), suppress(StoreError):  # else it expires
            if call.answer is None and version:
                try:
                    await store.delete(NAMESPACE, call.id, expect=version)
                except VersionConflict:
                    found = await store.get(NAMESPACE, call.id)
                    shared = _read(found) if found is not None else None
                    call.answer = shared.answer if shared is not None else None
            await store.delete(NAMESPACE, call.id, expect=ANY)
            await store.publish(TOPIC, call.id.encode())


def _settle(call: PendingApproval, answer: ApprovalAnswer) -> None:
    call.answer = answer
    call.answered.set()


def _read(stored: StoredValue) -> _SharedCall | None:
    try:
        return _decode(stored.value)
    except msgspec.DecodeError:
        return None  # of another version of Fairlead


def _hint(request: ApprovalRequest) -> str:
    """Return how the user approves the next such call, and what settles it for good."""
    ways = "its user can approve it in the gateway's dashboard, or with `fairlead approvals`"
    return join_clauses(ways, request.hint)
