"""Interface of a store: values with compare-and-swap, locks with leases, publish/subscribe, and logs.

Values are kept under (namespace, key), each with a version that is never reused. A store may be SQLite on one
machine or Redis between many; it does not interpret the bytes.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias

from fairlead.errors import VersionConflict

AT_ONCE_BYTES = 256 * 1024
"""A larger value is changed in a thread."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredValue:
    """A value as read. Pass `version` as `expect` to change it only if it has not changed since."""

    key: str
    value: bytes
    version: int


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

    async def get(self, namespace: str, key: str) -> StoredValue | None:
        """Value of a key, or None."""
        ...

    async def put(
        self,
        namespace: str,
        key: str,
        value: bytes,
        *,
        expect: Expected,
        fence: Lease | None = None,
        durable: bool = True,
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
        self, name: str, *, lease_seconds: float = 15.0, wait_seconds: float = 30.0
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold a lock for the length of a block, exclusively among all processes.

        The lease is renewed for as long as the block runs, and ends by itself when the process dies. A holder
        that was suspended past its lease and overtaken has its block cancelled; pass the lease as `fence` to
        every write that must not happen after that.

        Raises:
            LockBusy: Another holder kept the lock for `wait_seconds`.
            LockLost: The lease ran out, and another holder took the lock.
        """
        ...

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish to current subscribers of a topic. Messages are small hints; state belongs in `put`."""
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """Subscribe to a topic: payloads published from now on, by any process.

        A `None` stands for lost messages (the reader was too slow, or the process suspended): read again
        whatever they were about.
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
