"""A thread with a database of its own, so that no disk ever holds up the event loop."""

import asyncio
import contextlib
import heapq
import itertools
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Self, TypeAlias, TypeVar, TypeVarTuple

import anyio

from fairlead.errors import StoreError
from fairlead.store.database import Database

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Chore: TypeAlias = Callable[[Database], float | None]
"""Work that is due at some time. It returns the seconds until it wants to run again, or None for never."""

logger = logging.getLogger(__name__)


class Worker:
    """Runs work on a database in one thread: what is asked for in order, and chores when they are due."""

    def __init__(self, path: Path, *, for_reading: bool = False) -> None:
        self._open = Database.open_for_reading if for_reading else Database.open
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Callable[[Database], None] | None] = queue.SimpleQueue()
        self._chores: list[tuple[float, int, Chore]] = []  # a heap that only the thread touches
        self._tie_breaker = itertools.count()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.is_closed = False
        # A daemon, so that a program that dies without leaving its `async with` does not hang at its end.
        self._thread = threading.Thread(target=self._main, args=(path,), name="fairlead-store", daemon=True)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, path: Path, *, for_reading: bool = False) -> AsyncGenerator[Self]:
        """A worker on the database at `path`. Leaving the block waits for the work already asked for."""
        worker = cls(path, for_reading=for_reading)
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
        """What `work` returns or raises. It is done even if the caller does not wait for it any more."""
        self.require_open()
        answer: asyncio.Future[T] = self._loop.create_future()

        def job(database: Database) -> None:
            try:
                result = work(database)
            except BaseException as exc:  # noqa: BLE001 - whatever it is, it belongs to the caller
                self.tell(_fail, answer, exc)
            else:
                self.tell(_succeed, answer, result)

        self._jobs.put(job)
        return await answer

    def require_open(self) -> None:
        """Raise `StoreError` where the worker takes no work any more."""
        if self.is_closed:
            raise StoreError("the store is closed")

    def schedule(self, delay: float, chore: Chore) -> None:
        """Have a chore done in `delay` seconds, unless the worker is closed before."""
        due = time.monotonic() + delay
        self._jobs.put(lambda _: self._push(due, chore))

    def tell(self, callback: Callable[[*Ts], object], *arguments: *Ts) -> None:
        """Call something in the event loop; for use by work and chores."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody is left to be told
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _main(self, path: Path) -> None:
        try:
            with self._open(path) as database:
                self.tell(_succeed, self._opened, None)
                self._serve(database)
        except BaseException as exc:  # noqa: BLE001 - whatever it is, it belongs to the one who opens
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
        """Do what is due, and say how long nothing else will be."""
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
