"""Interface of a store: values with compare-and-swap, locks with leases, publish/subscribe, and logs.

Values are kept under (namespace, key), each with a version that is never reused. A store is SQLite on one
machine or Redis between many; it does not interpret the bytes. `Database` is a store without an event loop,
for one thread, and what a storage engine implements; `Store` is one for an event loop.
"""

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias

from fairlead.errors import StoreError, VersionConflict

AT_ONCE_BYTES = 256 * 1024
"""A larger value is changed in a thread."""


MAX_VALUE_BYTES = 64 * 1024 * 1024
"""The largest value that is read."""
SERVER_LOCKS = "server "
"""How the locks begin whose holder runs a process, which sees no fencing token."""
MESSAGES_KEPT = 1000


LEASE_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))
"""The clock of leases.

All processes of a machine read the same time from it, so a deadline means the same to host and guardian, and
it is never set. Where there is such a clock, it counts the time that the machine sleeps as well.
"""


def lease_now() -> float:
    """The time of the clock of leases, in seconds."""
    return time.clock_gettime(LEASE_CLOCK) if hasattr(time, "clock_gettime") else time.monotonic()


class AnyVersion(Enum):
    """Type of `ANY`."""

    ANY = "any"


ANY: Final = AnyVersion.ANY
"""Overwrite unconditionally: the last writer wins."""

Expected: TypeAlias = int | Literal[AnyVersion.ANY] | None
"""Expected state of a value: this version, absent (`None`), or anything (`ANY`)."""


NewValue: TypeAlias = tuple[str, str, bytes]
"""A namespace, a key in it, and the value to store there."""


NewRecordValue: TypeAlias = bytes | Callable[[], bytes]
"""A log record, or the function that will return it. The function must not raise."""


NewRecord: TypeAlias = tuple[str, float, bytes]
"""Name of the log, time of the record, and the record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedMessage:
    """One published message. Positions have no gaps, so a missing one means that messages were lost."""

    position: int
    topic: str
    payload: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenGrant:
    """Tokens taken from a bucket, and what is left in it."""

    granted: int
    left: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredValue:
    """A value as read. Pass `version` as `expect` to change it only if it has not changed since."""

    key: str
    value: bytes
    version: int


class UnreadableValues(StoreError):
    """Some of the values that were asked for cannot be read; the others come with the error.

    It is an error so that no one takes what is left for all there is: a denial may be among the rest.
    """

    def __init__(self, error: StoreError, *, keys: Sequence[str], readable: Sequence[StoredValue]) -> None:
        super().__init__(str(error), hint=error.hint)
        self.keys = tuple(keys)
        self.readable = list(readable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """A held lock. `token` is a fencing token: higher than that of every earlier holder."""

    name: str
    token: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LogRecord:
    """One entry of a log. Sequence numbers grow, and may have gaps; `time` is in seconds since 1970."""

    sequence: int
    time: float
    value: bytes


class Store(Protocol):
    """Durable state shared by processes. Every method may raise `StoreError`, and nothing else.

    Cancelling a caller stops its wait, not its write: the operation may still happen.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other machines use it too. All values of a shared store are encrypted at rest."""
        ...

    async def get(self, namespace: str, key: str) -> StoredValue | None:
        """Value of a key, or None."""
        ...

    async def put(  # noqa: PLR0913 - how a value is kept, each by name
        self,
        namespace: str,
        key: str,
        value: bytes,
        *,
        expect: Expected,
        fence: Lease | None = None,
        durable: bool = True,
        expires_in: float | None = None,
    ) -> int:
        """Store a value if the stored one is as expected.

        Args:
            namespace: The namespace of the key.
            key: The key.
            value: The bytes to store.
            expect: The state that the stored value must have.
            fence: A lock that must still be held.
            durable: Whether the value survives a power cut once this returned. Otherwise it survives only the
                death of the process: enough for what can be recreated.
            expires_in: Seconds after which the value is gone.

        Returns:
            The new version.

        Raises:
            VersionConflict: Something else than `expect` is stored.
            LockLost: The lock of `fence` was released, or taken by another holder.
        """
        ...

    async def put_all(self, values: Sequence[NewValue]) -> None:
        """Store values unconditionally: all of them or none, in one write that is not `durable`."""
        ...

    async def delete(
        self, namespace: str, key: str, *, expect: int | Literal[AnyVersion.ANY], fence: Lease | None = None
    ) -> bool:
        """Delete a value, under the same conditions as `put`, and return whether there was one."""
        ...

    async def scan(self, namespace: str, prefix: str = "") -> list[StoredValue]:
        """All values whose key starts with `prefix`, in the order of their keys, as of one moment."""
        ...

    def lock(
        self,
        name: str,
        *,
        lease_seconds: float = 15.0,
        wait_seconds: float = 30.0,
        on_held: Callable[[float], None] | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold a lock for the length of a block, exclusively among all processes.

        The lease is renewed for as long as the block runs, and ends by itself when the process dies. A holder
        that was suspended past its lease and overtaken has its block cancelled; pass the lease as `fence` to
        every write that must not happen after that.

        Args:
            name: The name of the lock.
            lease_seconds: How long it is held without a renewal. It is renewed after 0.3 of that.
            wait_seconds: How long to wait for another holder; 0 to try once.
            on_held: Called in the event loop whenever the lease was taken or renewed, with the time of
                `lease_now` at which the request was made: it lasts for `lease_seconds` from then, or longer.

        Raises:
            LockBusy: Another holder kept the lock for `wait_seconds`.
            LockLost: The lease ran out, and another holder took the lock.
        """
        ...

    async def take_tokens(self, bucket: str, *, per_minute: int, wanted: int) -> TokenGrant:
        """Take up to `wanted` tokens from a bucket of `per_minute` tokens that refills in a minute."""
        ...

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish to current subscribers of a topic. Messages are small hints; state belongs in `put`."""
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Subscribe to a topic: payloads published from now on, by any process.

        A `None` stands for lost messages (the reader was too slow, or the process suspended): read
        the state again.
        """
        ...

    def append(self, log: str, record: NewRecordValue) -> bool:
        """Append a record to a log. Returns at once; the record is on disk a moment later (see `flush`).

        A function is called when its record is written, once, in another thread, so that the record holds
        what became known in the meantime. Returns False where the record was dropped, because too many
        already wait for the disk.
        """
        ...

    async def flush(self) -> None:
        """Wait until everything appended so far is on disk."""
        ...

    async def read_log(self, log: str, *, after: int = 0, limit: int = 1000) -> list[LogRecord]:
        """Oldest records with a sequence number above `after`, oldest first."""
        ...

    async def prune_log(
        self, log: str, *, older_than_seconds: float | None = None, keep: int | None = None
    ) -> int:
        """Delete the records that are too old, and all but the newest `keep`; returns how many."""
        ...


class Database(Protocol):
    """A store without an event loop, for one thread: an open SQLite file, or a connection to Redis.

    Every method may raise `StoreError`, and nothing else; those of `Store` mean the same here.
    """

    @property
    def is_shared(self) -> bool:
        """Whether other machines use it too."""
        ...

    def get(self, namespace: str, key: str) -> StoredValue | None:
        """Value of a key, or None."""
        ...

    def put(  # noqa: PLR0913 - how a value is kept, each by name
        self,
        namespace: str,
        key: str,
        value: bytes,
        *,
        expect: Expected,
        fence: Lease | None = None,
        durable: bool = True,
        expires_in: float | None = None,
    ) -> int:
        """Store a value and return its version. Raises `VersionConflict` or `LockLost`."""
        ...

    def put_all(self, values: Sequence[NewValue]) -> None:
        """Store values unconditionally, all of them or none."""
        ...

    def delete(
        self, namespace: str, key: str, *, expect: int | Literal[AnyVersion.ANY], fence: Lease | None = None
    ) -> bool:
        """Delete a value and return whether there was one. Raises `VersionConflict` or `LockLost`."""
        ...

    def scan(self, namespace: str, prefix: str = "") -> list[StoredValue]:
        """All values whose key starts with `prefix`, in the order of their keys."""
        ...

    def acquire(self, name: str, lease_seconds: float) -> Lease | None:
        """Take a lock for that long; None where it is held."""
        ...

    def renew(self, lease: Lease) -> bool:
        """Restart the lease; False where another holder has taken the lock since."""
        ...

    def release(self, lease: Lease) -> bool:
        """Release the lock; False where another holder has taken it since."""
        ...

    def take_tokens(self, bucket: str, *, per_minute: int, wanted: int) -> TokenGrant:
        """Take up to `wanted` tokens from a bucket of `per_minute` tokens that refills in a minute."""
        ...

    def publish(self, topic: str, payload: bytes) -> None:
        """Store a message for subscribers that poll within a minute."""
        ...

    def last_position(self) -> int:
        """Position of the newest message, 0 where there was never one."""
        ...

    def messages(self, *, after: int) -> list[PublishedMessage]:
        """Messages published since, as far as they are kept, oldest first."""
        ...

    def require_trusted(self) -> None:
        """Raise `StoreError` where the store was replaced, or others could have written it."""
        ...

    def has_changed_elsewhere(self) -> bool:
        """Whether there may be new messages of others since the last call. Cheap."""
        ...

    def append(self, log: str, record: bytes) -> None:
        """Append a record to a log."""
        ...

    def append_all(self, records: Sequence[NewRecord], *, number: int | None = None) -> None:
        """Append records, of any logs.

        Args:
            records: The records.
            number: Number of the first among all records of this object: where an attempt failed without an
                answer, the next one with the same numbers adds only those that are not there.
        """
        ...

    def read_log(self, log: str, *, after: int = 0, limit: int = 1000) -> list[LogRecord]:
        """Oldest records with a sequence number above `after`, oldest first."""
        ...

    def last_records(self, log: str, *, before: int | None = None, limit: int = 1000) -> list[LogRecord]:
        """Newest records with a sequence number below `before`, newest first."""
        ...

    def prune_log(
        self,
        log: str,
        *,
        older_than_seconds: float | None = None,
        keep: int | None = None,
        limit: int | None = None,
    ) -> int:
        """Delete the records that are too old, and all but the newest `keep`; returns how many.

        With a limit, about so many at most: then there may be more, until none was deleted.
        """
        ...

    def delete_records(self, log: str, sequences: Iterable[int]) -> int:
        """Delete records of a log by their sequence numbers; returns how many."""
        ...

    def read_all(self) -> tuple[list[NewValue], list[NewRecord]]:
        """All values and all records of logs."""
        ...

    def replacing_all(
        self,
        values: Sequence[NewValue],
        records: Sequence[NewRecord],
        *,
        keep: Collection[tuple[str, str]] = (),
    ) -> AbstractContextManager[None]:
        """Replace all values and logs at the end of the block; an error in the block changes nothing."""
        ...


async def scan_readable(store: Store, namespace: str) -> tuple[list[StoredValue], tuple[str, ...]]:
    """Return the values of a namespace that can be read, and the keys of the others.

    For what each process writes for itself: a value that one of them sealed with a key that the others no
    longer have is not to cost them the rest.
    """
    try:
        return await store.scan(namespace), ()
    except UnreadableValues as exc:
        return exc.readable, exc.keys


def read_values(
    stored: Iterable[tuple[str, bytes]], read: Callable[[str, bytes], StoredValue]
) -> list[StoredValue]:
    """Return values as `read` makes them of what is stored. Raises `UnreadableValues` where it cannot."""
    found: list[StoredValue] = []
    failed: dict[str, StoreError] = {}
    for key, value in stored:
        try:
            found.append(read(key, value))
        except StoreError as exc:
            failed[key] = exc
    if failed:
        error = next(iter(failed.values()))
        raise UnreadableValues(error, keys=[*failed], readable=found) from error
    return found


async def update(
    store: Store, namespace: str, key: str, change: Callable[[bytes | None], bytes]
) -> StoredValue:
    """Change a value by compare-and-swap.

    Args:
        store: The store.
        namespace: The namespace of the key.
        key: The key.
        change: Returns the new value for the stored one, or for None. It is called again after each
            conflict, and in another thread for a large value.

    Returns:
        What is stored now.
    """
    while True:
        found = await store.get(namespace, key)
        if found is not None and len(found.value) > AT_ONCE_BYTES:
            import asyncio  # not needed by callers without an event loop

            value = await asyncio.to_thread(change, found.value)
        else:
            value = change(found.value if found else None)
        try:
            version = await store.put(namespace, key, value, expect=found.version if found else None)
        except VersionConflict:
            continue  # every conflict is another writer's success, so all of them succeed in the end
        return StoredValue(key=key, value=value, version=version)
