"""What every store can do, whatever keeps the bytes: SQLite on one machine, Redis between many.

A store holds values under (namespace, key), each with a version that is never used twice; locks with a lease;
messages for whoever listens right now; and logs that only grow. It knows nothing of what the bytes mean.
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
    """The type of `ANY`."""

    ANY = "any"


ANY: Final = AnyVersion.ANY
"""Write whatever is there now: the last writer wins."""

Expected: TypeAlias = int | Literal[AnyVersion.ANY] | None
"""What a writer believes is stored: this version, nothing at all (`None`), or it does not care (`ANY`)."""


NewValue: TypeAlias = tuple[str, str, bytes]
"""A namespace, a key in it, and the value to store there."""


NewRecordValue: TypeAlias = bytes | Callable[[], bytes]
"""A record for a log, or the function that will give it. The function must not raise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredValue:
    """A value as it was read. Hand `version` back as `expect` to change it only if nobody else did."""

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """A lock that is held. `token` is higher than that of every earlier holder."""

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

    Cancelling a caller stops its wait, not its write: what was asked for may still happen.
    """

    async def get(self, namespace: str, key: str) -> StoredValue | None:
        """The value, or None where there is none."""
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
        """Store a value and return its version. Once this returned, the value survives a power cut.

        One that is not `durable` may be lost to a power cut, but not to the death of the process: right for
        what can be had again.

        Writes nothing and raises `VersionConflict` where something else than `expect` is stored, `LockLost`
        where the lock of `fence` was released or taken by somebody else.
        """
        ...

    async def put_all(self, values: Sequence[NewValue]) -> None:
        """Store values, whatever is there: all of them or none, in one write that is not `durable`."""
        ...

    async def delete(
        self, namespace: str, key: str, *, expect: int | Literal[AnyVersion.ANY], fence: Lease | None = None
    ) -> bool:
        """Remove a value, as carefully as `put` writes one, and say whether there was any."""
        ...

    async def scan(self, namespace: str, prefix: str = "") -> list[StoredValue]:
        """All values whose key starts with `prefix`, in the order of their keys, as of one moment."""
        ...

    def lock(
        self, name: str, *, lease_seconds: float = 15.0, wait_seconds: float = 30.0
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold a lock for the length of a block; nobody else, in any process, holds it meanwhile.

        The lease is renewed for as long as the block runs, and ends by itself when the process dies. Raises
        `LockBusy` where others kept the lock for `wait_seconds`. A holder that was suspended past its lease
        and overtaken has its block cancelled and gets `LockLost`; give the lease as `fence` to every write
        that must not happen after that.
        """
        ...

    async def publish(self, topic: str, payload: bytes) -> None:
        """Tell all current subscribers of a topic. Messages are hints and small; what matters is in `put`."""
        ...

    def subscribe(self, topic: str) -> AbstractAsyncContextManager[AsyncIterator[bytes | None]]:
        """The payloads published to a topic from now on, by any process.

        A `None` stands for messages that were lost (the reader was too slow, or the process suspended): read
        again whatever they told about.
        """
        ...

    def append(self, log: str, record: NewRecordValue) -> bool:
        """Add a record to a log. Returns at once; the record is on disk a moment later (see `flush`).

        A function is called when its record is written, once, in another thread: so the record holds what
        became known in the meantime. False says that the record was dropped, because too many already wait
        for a disk that does not take them.
        """
        ...

    async def flush(self) -> None:
        """Wait until everything appended so far is on disk."""
        ...

    async def read_log(self, log: str, *, after: int = 0, limit: int = 1000) -> list[LogRecord]:
        """The oldest records with a sequence number above `after`, oldest first."""
        ...

    async def prune_log(
        self, log: str, *, older_than_seconds: float | None = None, keep: int | None = None
    ) -> int:
        """Drop the records that are too old, and all but the newest `keep`; return how many went."""
        ...


async def update(
    store: Store, namespace: str, key: str, change: Callable[[bytes | None], bytes]
) -> StoredValue:
    """Change a value without losing anybody else's change. `change` is called again after each conflict."""
    while True:
        found = await store.get(namespace, key)
        if found is not None and len(found.value) > AT_ONCE_BYTES:
            import asyncio  # which those who use the file without an event loop do not load

            value = await asyncio.to_thread(change, found.value)
        else:
            value = change(found.value if found else None)
        try:
            version = await store.put(namespace, key, value, expect=found.version if found else None)
        except VersionConflict:
            continue  # every conflict is another writer's success, so all of them get there
        return StoredValue(key=key, value=value, version=version)
