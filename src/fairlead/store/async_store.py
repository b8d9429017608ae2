"""Store for an event loop, over a database that many processes use at a time.

All its operations run in one worker thread, so that no disk and no network ever blocks the event loop.
"""

import asyncio
import contextlib
import heapq
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Literal, Self, TypeAlias, TypeVar, TypeVarTuple

import anyio

from fairlead.config.store_location import RedisLocation, StoreLocation
from fairlead.errors import LockBusy, LockLost, StoreError
from fairlead.store.opening import open_database, open_database_for_reading
from fairlead.store.protocol import (
    AnyVersion,
    Database,
    Expected,
    Lease,
    LogRecord,
    NewRecord,
    NewRecordValue,
    NewValue,
    PublishedMessage,
    StoredValue,
    TokenGrant,
    lease_now,
)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Chore: TypeAlias = Callable[[Database], float | None]
"""Scheduled work. It returns the seconds until its next run, or None for never."""


class Worker:
    """Thread with a database of its own: runs jobs in order, and chores when they are due."""

    def __init__(self, location: StoreLocation, *, for_reading: bool = False) -> None:
        self._open = open_database_for_reading if for_reading else open_database
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[Database], None] | None] = queue.SimpleQueue()
        self._chores: list[tuple[float, int, Chore]] = []  # a heap that only the thread uses
        self._tie_breaker = itertools.count()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.is_closed = False
        self.is_shared = isinstance(location, RedisLocation)
        # A daemon, so that a program that dies without leaving its `async with` does not hang at exit.
        self._thread = threading.Thread(
            target=self._main, args=(location,), name="fairlead-store", daemon=True
        )

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, location: StoreLocation, *, for_reading: bool = False) -> AsyncGenerator[Self]:
        """Open a worker on a database. Leaving the block waits for the jobs already submitted."""
        worker = cls(location, for_reading=for_reading)
        worker._thread.start()
        try:
            await worker._opened
            yield worker
        finally:
            worker.is_closed = True
            worker._jobs.put(None)
            with anyio.CancelScope(shield=True):
                await worker._ended
            worker._thread.join()

    async def run(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the thread and return its result. It runs even if the caller is cancelled."""
        self.require_open()
        answer: asyncio.Future[T] = self._loop.create_future()

        def job(database: Database) -> None:
            try:
                result = work(database)
            except BaseException as exc:  # noqa: BLE001 - passed on to the caller
                self.tell(_fail, answer, exc)
            else:
                self.tell(_succeed, answer, result)

        self._jobs.put(job)
        return await answer

    def require_open(self) -> None:
        """Raise `StoreError` where the worker is closed."""
        if self.is_closed:
            raise StoreError("the store is closed")

    def schedule(self, delay: float, chore: Chore) -> None:
        """Run a chore in `delay` seconds, unless the worker is closed before."""
        due = time.monotonic() + delay
        self._jobs.put(lambda _: self._push(due, chore))

    def tell(self, callback: Callable[[*Ts], object], *arguments: *Ts) -> None:
        """Call a function in the event loop; for use by jobs and chores."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nothing left to call
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _main(self, location: StoreLocation) -> None:
        try:
            with self._open(location) as database:
                self.tell(_succeed, self._opened, None)
                self._serve(database)
        except BaseException as exc:  # noqa: BLE001 - passed on to the opener
            self.tell(_fail, self._opened, exc)
        finally:
            self.tell(_succeed, self._ended, None)

    def _serve(self, database: Database) -> None:
        while True:
            patience = self._do_chores(database)
            try:
                job = self._jobs.get(timeout=patience)
            except queue.Empty:
                continue
            if job is None:
                return
            job(database)

    def _do_chores(self, database: Database) -> float | None:
        """Run the chores that are due, and return the seconds until the next."""
        while self._chores:
            remaining = self._chores[0][0] - time.monotonic()
            if remaining > 0:
                return remaining
            _, _, chore = heapq.heappop(self._chores)
            try:
                pause = chore(database)
            except Exception:
                logger.exception("a chore of the store failed")
                continue
            if pause is not None:
                self._push(time.monotonic() + pause, chore)
        return None

    def _push(self, due: float, chore: Chore) -> None:
        heapq.heappush(self._chores, (due, next(self._tie_breaker), chore))


def _succeed(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[T], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


_FLUSH_SECONDS = 0.08
UNFLUSHED_RECORDS = 10_000
_LOOK_SECONDS = 0.2
_LOOK_SHARE = 9.0
"""How many times as long as a look at the messages took there is none."""
UNREAD_MESSAGES = 1000
_RETRY_SECONDS = 1.0
_PRUNED_AT_ONCE = 500
"""How many records of a log are deleted in one job: the thread has leases to renew."""
_RENEWED_AFTER = 0.3
"""Which part of a lease passes before it is renewed: two renewals may fail."""
_RENEW_AGAIN_SECONDS = 0.2
"""How soon a renewal that failed is tried again."""

logger = logging.getLogger(__name__)


class AsyncStore:
    """A `Store`. Open one with `AsyncStore.open`, and use it in that event loop."""

    def __init__(self, worker: Worker, *, position: int) -> None:
        self._worker = worker
        self._log = _LogBuffer(worker)
        self._messages = _Messages(worker, position=position)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, location: StoreLocation, *, for_reading: bool = False) -> AsyncGenerator[Self]:
        """Open the store at `location`; a file is created if missing. Leaving the block flushes the logs.

        Args:
            location: Where it is.
            for_reading: Whether nothing will be written: then its folder may be read-only, and the file must
                exist.
        """
        async with Worker.open(location, for_reading=for_reading) as worker:
            store = cls(worker, position=await worker.run(lambda database: database.last_position()))
            try:
                yield store
            finally:
                store._messages.close()
                with anyio.CancelScope(shield=True):
                    await store._log.close()

    @property
    def is_shared(self) -> bool:
        """Whether other machines use it too."""
        return self._worker.is_shared

    async def get(self, namespace: str, key: str) -> StoredValue | None:
        """Value of a key, or None."""
        return await self._worker.run(lambda database: database.get(namespace, key))

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
        """Store a value and return its version. Raises `VersionConflict` or `LockLost`."""

        def work(database: Database) -> int:
            return database.put(
                namespace, key, value, expect=expect, fence=fence, durable=durable, expires_in=expires_in
            )

        return await self._worker.run(work)

    async def put_all(self, values: Sequence[NewValue]) -> None:
        """Store values unconditionally, all of them or none. They may be lost to a power cut."""
        await self._worker.run(lambda database: database.put_all(values))

    async def delete(
        self, namespace: str, key: str, *, expect: int | Literal[AnyVersion.ANY], fence: Lease | None = None
    ) -> bool:
        """Delete a value and return whether there was one. Raises `VersionConflict` or `LockLost`."""
        return await self._worker.run(
            lambda database: database.delete(namespace, key, expect=expect, fence=fence)
        )

    async def scan(self, namespace: str, prefix: str = "") -> list[StoredValue]:
        """All values whose key starts with `prefix`, in the order of their keys."""
        return await self._worker.run(lambda database: database.scan(namespace, prefix))

    @contextlib.asynccontextmanager
    async def lock(
        self,
        name: str,
        *,
        lease_seconds: float = 15.0,
        wait_seconds: float = 30.0,
        on_held: Callable[[float], None] | None = None,
    ) -> AsyncGenerator[Lease]:
        """Hold a lock for the length of a block. Raises `LockBusy` before it, `LockLost` out of it."""
        lease, asked_at = await self._acquire(name, lease_seconds, wait_seconds)
        kept = False
        if on_held is not None:
            on_held(asked_at)
        with anyio.CancelScope() as block:
            renewal = _LeaseRenewal(
                lease,
                lease_seconds,
                on_held=None if on_held is None else lambda at: self._worker.tell(on_held, at),
                on_loss=lambda: self._worker.tell(block.cancel),
            )
            self._worker.schedule(renewal.pause, renewal)
            try:
                yield lease
            finally:
                renewal.stopped = True
                with anyio.CancelScope(shield=True):
                    kept = await self._release(lease)
        if block.cancel_called or not kept:
            raise LockLost(
                f"lock `{name}` was lost: its lease of {lease_seconds:g} s ran out",
                hint="the process or the whole machine was suspended; do it again",
            )

    async def take_tokens(self, bucket: str, *, per_minute: int, wanted: int) -> TokenGrant:
        """Take up to `wanted` tokens from a bucket of `per_minute` tokens that refills in a minute."""
        return await self._worker.run(
            lambda database: database.take_tokens(bucket, per_minute=per_minute, wanted=wanted)
        )

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish to all current subscribers of a topic, in every process."""
        await self._messages.publish(topic, payload)

    @contextlib.asynccontextmanager
    async def subscribe(self, topic: str) -> AsyncGenerator[AsyncIterator[bytes | None]]:
        """Subscribe to a topic: payloads published from now on; None stands for lost messages."""
        subscription = await self._messages.subscribe(topic)
        try:
            yield subscription
        finally:
            self._messages.unsubscribe(topic, subscription)

    def append(self, log: str, record: NewRecordValue) -> bool:
        """Append a record to a log. It is on disk 50 ms later; False where it was dropped."""
        return self._log.append(log, record)

    async def flush(self) -> None:
        """Wait until everything appended so far is on disk."""
        await self._log.flush()

    async def read_log(self, log: str, *, after: int = 0, limit: int = 1000) -> list[LogRecord]:
        """Oldest records with a sequence number above `after`, oldest first; flushes first."""
        await self.flush()
        return await self._worker.run(lambda database: database.read_log(log, after=after, limit=limit))

    async def prune_log(
        self, log: str, *, older_than_seconds: float | None = None, keep: int | None = None
    ) -> int:
        """Delete the records that are too old, and all but the newest `keep`; returns how many."""
        await self.flush()

        def work(database: Database) -> int:
            return database.prune_log(
                log, older_than_seconds=older_than_seconds, keep=keep, limit=_PRUNED_AT_ONCE
            )

        removed = 0
        while count := await self._worker.run(work):
            removed += count
        return removed

    async def _acquire(self, name: str, lease_seconds: float, wait_seconds: float) -> tuple[Lease, float]:
        """Take a lock, and return the time at which the request was made."""
        deadline = anyio.current_time() + wait_seconds
        lease: Lease | None = None
        for pause in itertools.chain((0.005, 0.01, 0.02), itertools.repeat(0.05)):
            asked_at = lease_now()
            # Not to be cancelled: a lock that was taken must reach the caller that releases it.
            with anyio.CancelScope(shield=True):
                lease = await self._worker.run(lambda database: database.acquire(name, lease_seconds))
            if lease is not None:
                return lease, asked_at
            remaining = deadline - anyio.current_time()
            if remaining <= 0:
                break
            await anyio.sleep(min(pause, remaining))
        raise LockBusy(f"lock `{name}` was held elsewhere for {wait_seconds:g} s", hint="try again later")

    async def _release(self, lease: Lease) -> bool:
        try:
            return await self._worker.run(lambda database: database.release(lease))
        except StoreError:
            logger.warning(
                "lock not released, its lease will run out", extra={"lock": lease.name}, exc_info=True
            )
            return True


class _LeaseRenewal:
    """Renewal of a lease, in the worker's thread, which no busy event loop blocks."""

    def __init__(
        self,
        lease: Lease,
        seconds: float,
        *,
        on_held: Callable[[float], None] | None,
        on_loss: Callable[[], None],
    ) -> None:
        self.pause = seconds * _RENEWED_AFTER
        self.stopped = False
        self._lease = lease
        self._seconds = seconds
        self._on_held = on_held
        self._on_loss = on_loss
        self._renewed = time.monotonic()
        self._failing = False

    def __call__(self, database: Database) -> float | None:
        if self.stopped:
            return None
        asked_at = lease_now()
        try:
            kept = database.renew(self._lease)
        except StoreError:
            if not self._failing:  # once per outage
                logger.warning("lock not renewed", extra={"lock": self._lease.name}, exc_info=True)
            self._failing = True
            kept, pause = time.monotonic() - self._renewed < self._seconds, _RENEW_AGAIN_SECONDS
        else:
            self._renewed, self._failing, pause = time.monotonic(), False, self.pause
            if kept and self._on_held is not None:
                self._on_held(asked_at)
        if kept:
            return pause
        self._on_loss()
        return None


class _LogBuffer:
    """Buffer of log records that are written in batches, with one wake-up of the thread per batch."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._records: deque[tuple[str, float, NewRecordValue]] = deque()
        self._flush_is_due = False
        self._failing = False
        self._written = 0

    def append(self, log: str, record: NewRecordValue) -> bool:
        if self._worker.is_closed:  # checked here: every tool call is recorded
            self._worker.require_open()
        if len(self._records) >= UNFLUSHED_RECORDS:
            return False
        self._records.append((log, time.time(), record))
        # After the record is in: a flush that has yet to begin includes it, and clears this first.
        if not self._flush_is_due:
            self._flush_is_due = True
            self._worker.schedule(_FLUSH_SECONDS, self._flush_when_due)
        return True

    async def flush(self) -> None:
        await self._worker.run(self._write)

    async def close(self) -> None:
        try:
            await self.flush()
        except StoreError:
            logger.exception("log records lost", extra={"records": len(self._records)})

    def _flush_when_due(self, database: Database) -> float | None:
        self._flush_is_due = False
        try:
            self._write(database)
        except StoreError:
            if not self._failing:  # once per outage: it is tried every second
                logger.warning("log not flushed", extra={"records": len(self._records)}, exc_info=True)
            self._failing = self._flush_is_due = True
            return _RETRY_SECONDS
        self._failing = False
        return None

    def _write(self, database: Database) -> None:
        waiting = [self._records.popleft() for _ in range(len(self._records))]
        if not waiting:
            return
        batch: list[NewRecord] = [
            (log, at, record if isinstance(record, bytes) else record()) for log, at, record in waiting
        ]
        try:
            database.append_all(batch, number=self._written)
        except StoreError:
            self._records.extendleft(reversed(batch))
            raise
        self._written += len(batch)


class _Messages:
    """Polling for messages of all processes in the worker's thread, delivered in the event loop."""

    def __init__(self, worker: Worker, *, position: int) -> None:
        self._worker = worker
        self._subscriptions: dict[str, set[_Subscription]] = {}
        self._looking = False
        # The following are used by the thread only.
        self._position = position
        self._changed = False
        self._failing = False

    async def publish(self, topic: str, payload: bytes) -> None:
        def work(database: Database) -> None:
            database.publish(topic, payload)
            self._look(database)  # its own writes do not count as a change

        await self._worker.run(work)

    async def subscribe(self, topic: str) -> "_Subscription":
        await self._worker.run(self._look_closely)  # older messages are not for this subscriber
        subscription = _Subscription()
        self._subscriptions.setdefault(topic, set()).add(subscription)
        if not self._looking:
            self._looking = True
            self._worker.schedule(_LOOK_SECONDS, self._look_if_changed)
        return subscription

    def unsubscribe(self, topic: str, subscription: "_Subscription") -> None:
        self._subscriptions[topic].discard(subscription)
        subscription.close()

    def close(self) -> None:
        for subscription in itertools.chain.from_iterable(self._subscriptions.values()):
            subscription.close()

    def _look_if_changed(self, database: Database) -> float:
        try:
            database.require_trusted()
        except StoreError as exc:
            self._worker.tell(self._fail, exc)
            return _RETRY_SECONDS
        began = time.monotonic()
        try:
            self._changed = database.has_changed_elsewhere() or self._changed
            if self._changed:
                self._look(database)
        except StoreError:
            if not self._failing:  # once per outage
                logger.warning("messages not read", exc_info=True)
            self._failing = True
            return _RETRY_SECONDS
        self._changed = self._failing = False
        # Messages are hints: where the store is slow, most of the thread's time is for all else.
        return max(_LOOK_SECONDS, _LOOK_SHARE * (time.monotonic() - began))

    def _look_closely(self, database: Database) -> None:
        database.require_trusted()
        self._look(database)

    def _look(self, database: Database) -> None:
        messages = database.messages(after=self._position)
        if messages:
            if messages[0].position != self._position + 1:
                self._worker.tell(self._announce_loss)
            self._position = messages[-1].position
            self._worker.tell(self._hand_out, messages)

    def _fail(self, error: StoreError) -> None:
        subscriptions = [*itertools.chain.from_iterable(self._subscriptions.values())]
        if subscriptions:
            logger.warning("messages are not read", exc_info=error)
        for subscription in subscriptions:
            subscription.fail(error)

    def _announce_loss(self) -> None:
        for subscription in itertools.chain.from_iterable(self._subscriptions.values()):
            subscription.deliver(None)

    def _hand_out(self, messages: list[PublishedMessage]) -> None:
        for message in messages:
            for subscription in self._subscriptions.get(message.topic, ()):
                subscription.deliver(message.payload)


class _Subscription:
    """Unread messages of one subscriber, up to a limit; beyond that, one None for all of them."""

    def __init__(self) -> None:
        self._unread: deque[bytes | None] = deque()
        self._news = anyio.Event()
        self._closed = False
        self._error: StoreError | None = None

    def fail(self, error: StoreError) -> None:
        """End with an error: later messages may be missed."""
        self._error = error
        self._news.set()

    def deliver(self, payload: bytes | None) -> None:
        if payload is None or len(self._unread) >= UNREAD_MESSAGES:
            self._unread.clear()
            payload = None
        self._unread.append(payload)
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes | None:
        while not self._unread:
            if self._closed:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            if self._news.is_set():
                self._news = anyio.Event()
            await self._news.wait()
        return self._unread.popleft()
