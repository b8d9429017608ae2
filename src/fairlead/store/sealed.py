"""Store of the processes of one gateway while they run, encrypted with a key of that run.

A gateway of one process keeps dashboard sessions, pending approvals and rate limits in memory. Several share
them in their store, and what grants access must not lie there for other readers of the file, nor outlive the
run: values are sealed with a key that only the running processes have, in namespaces of their own.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Literal

from fairlead.errors import StoreError
from fairlead.store.cluster_key import ClusterKeys
from fairlead.store.protocol import (
    AnyVersion,
    Expected,
    Lease,
    LogRecord,
    NewRecordValue,
    NewValue,
    Store,
    StoredValue,
    TokenGrant,
    read_values,
)

_RUN_ID_BYTES: Final = 8
_LEFTOVER_SECONDS: Final = 400 * 86_400.0
"""When what a run left behind is deleted that has no end of its own."""


class SealedStore:
    """A `Store` over another one, whose values only processes with the same key can read."""

    is_shared = True

    def __init__(self, store: Store, key: str) -> None:
        """Seal with a key, as `new_cluster_key` makes them, what is kept in a store."""
        self._store = store
        self._keys = ClusterKeys([key])
        self._run = self._keys.derive("run")[0][:_RUN_ID_BYTES].hex()

    async def get(self, namespace: str, key: str) -> StoredValue | None:
        """Value of a key, or None."""
        found = await self._store.get(self._own(namespace), key)
        return self._open(namespace, found) if found is not None else None

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
        """Store a value and return its version. It is never durable: nothing of it outlives the run."""
        return await self._store.put(
            self._own(namespace),
            key,
            self._keys.seal(value, _place(namespace, key)),
            expect=expect,
            fence=fence,
            durable=False,
            expires_in=_LEFTOVER_SECONDS if expires_in is None else expires_in,
        )

    async def put_all(self, values: Sequence[NewValue]) -> None:
        """Store values unconditionally, all of them or none."""
        await self._store.put_all(
            [
                (self._own(namespace), key, self._keys.seal(value, _place(namespace, key)))
                for namespace, key, value in values
            ]
        )

    async def delete(
        self, namespace: str, key: str, *, expect: int | Literal[AnyVersion.ANY], fence: Lease | None = None
    ) -> bool:
        """Delete a value and return whether there was one."""
        return await self._store.delete(self._own(namespace), key, expect=expect, fence=fence)

    async def scan(self, namespace: str, prefix: str = "") -> list[StoredValue]:
        """All values whose key starts with `prefix`, in the order of their keys."""
        found = {each.key: each for each in await self._store.scan(self._own(namespace), prefix)}
        return read_values(
            ((key, each.value) for key, each in found.items()),
            lambda key, _: self._open(namespace, found[key]),
        )

    def lock(
        self,
        name: str,
        *,
        lease_seconds: float = 15.0,
        wait_seconds: float = 30.0,
        on_held: Callable[[float], None] | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold a lock of this run for the length of a block."""
        return self._store.lock(
            self._own(name), lease_seconds=lease_seconds, wait_seconds=wait_seconds, on_held=on_held
        )

    async def take_tokens(self, bucket: str, *, per_minute: int, wanted: int) -> TokenGrant:
        """Take tokens from a bucket of this run."""
        return await self._store.take_tokens(self._own(bucket), per_minute=per_minute, wanted=wanted)

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish to the processes of this run."""
        await self._store.publish(self._own(topic), self._keys.seal(payload, _place("topic", topic)))

    @asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[AsyncIterator[bytes | None]]:
        """Subscribe to a topic of this run."""
        async with self._store.subscribe(self._own(topic)) as messages:
            yield _OpenedMessages(messages, self._keys, _place("topic", topic))

    def append(self, log: str, record: NewRecordValue) -> bool:
        """Refuse: records are for longer than a run."""
        raise StoreError("what lasts for a run has no log")

    async def flush(self) -> None:
        """Wait until everything appended so far is on disk."""
        await self._store.flush()

    async def read_log(self, log: str, *, after: int = 0, limit: int = 1000) -> list[LogRecord]:
        """Return nothing: there are no records."""
        return []

    async def prune_log(
        self, log: str, *, older_than_seconds: float | None = None, keep: int | None = None
    ) -> int:
        """Delete nothing: there are no records."""
        return 0

    def _own(self, name: str) -> str:
        return f"{name} of run {self._run}"

    def _open(self, namespace: str, found: StoredValue) -> StoredValue:
        value = self._keys.open(found.value, _place(namespace, found.key))
        return StoredValue(key=found.key, value=value, version=found.version)


class _OpenedMessages:
    """Messages of a topic as they were before they were sealed. No generator: a wait may be cancelled."""

    def __init__(self, messages: AsyncIterator[bytes | None], keys: ClusterKeys, place: bytes) -> None:
        self._messages = messages
        self._keys = keys
        self._place = place

    def __aiter__(self) -> AsyncIterator[bytes | None]:
        return self

    async def __anext__(self) -> bytes | None:
        message = await anext(self._messages)
        return self._keys.open(message, self._place) if message is not None else None


def _place(namespace: str, key: str) -> bytes:
    return f"{namespace}\0{key}".encode("utf-8", "surrogatepass")


def choose_shared_store(store: Store | None, run_key: str | None) -> Store | None:
    """The store that all processes of a gateway share: Redis, or a file that is sealed with the run's key.

    Args:
        store: The store of this process, if it has one.
        run_key: The key of this run; None where the gateway has one process on this machine.

    Returns:
        None for a gateway of one process: what it would keep there is in its memory.
    """
    if store is None or store.is_shared:
        return store
    return SealedStore(store, run_key) if run_key is not None else None
