"""An event loop in a thread of its own, for programs that have none, or one that is busy."""

import atexit
import contextvars
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from inspect import isawaitable
from typing import Any, Final, Generic, TypeVar, cast

import anyio
import anyio.lowlevel
from anyio.from_thread import BlockingPortal

from fairlead.errors import FairleadError, WaitTimedOut, WouldBlock

ResultT = TypeVar("ResultT")

CANCEL_SECONDS: Final = 5.0
"""How long to wait for the end of work that was cancelled, before its caller goes on."""

CLOSE_SECONDS: Final = 15.0
"""How long to wait for the end of the thread."""

_deadline: contextvars.ContextVar[float | None] = contextvars.ContextVar("fairlead_deadline", default=None)


class _RunningWork(Generic[ResultT]):
    """Work that another thread waits for, which can be cancelled from the moment it is handed to the loop."""

    def __init__(self, work: Callable[[], Awaitable[ResultT] | ResultT]) -> None:
        self.is_cancelled = False
        self.ended = threading.Event()
        self._work = work
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> ResultT:
        """Do the work and return its result. Where it is cancelled nothing waits for one."""
        try:
            with anyio.CancelScope() as self._scope:
                if self.is_cancelled:
                    self._scope.cancel()
                    await anyio.lowlevel.checkpoint()
                made = self._work()
                return await cast("Awaitable[ResultT]", made) if isawaitable(made) else cast("ResultT", made)
            raise CancelledError
        finally:
            self.ended.set()

    def cancel(self) -> None:
        """Cancel it where it has begun."""
        if self._scope is not None:
            self._scope.cancel()


class LoopThread:
    """Event loop in a thread of its own that runs work for other threads, until stopped or at exit."""

    def __init__(self) -> None:
        self.at_end: Callable[[], Awaitable[None]] | None = None
        """Awaited in the event loop at the end, however it comes."""
        self._process = os.getpid()
        self._started: Future[BlockingPortal] = Future()
        self._stopping = anyio.Event()
        # Neither this thread nor the workers it starts hold up the end of the program: one of them may wait
        # for the user's input.
        self._thread = threading.Thread(target=self._main, name="fairlead", daemon=True)
        self._thread.start()
        self._portal = self._started.result()
        _RUNNING.add(self)

    @property
    def is_stopped(self) -> bool:
        """Whether it takes no more work."""
        return self._stopping.is_set()

    def run(self, work: Callable[[], Awaitable[ResultT] | ResultT]) -> ResultT:
        """Run a function in the event loop and wait for its result, which is awaited where it can be.

        An exception that ends the wait before that, such as Ctrl-C, cancels the work.

        Raises:
            WaitTimedOut: The time of `fail_after` is over.
            WouldBlock: The caller is in this very event loop, or in a process that was forked from its own.
            FairleadError: The thread was stopped.
        """
        self._require_usable()
        running: _RunningWork[ResultT] = _RunningWork(work)
        future: Future[ResultT] | None = None
        try:
            future = self._portal.start_task_soon(running.run)
            return future.result(_seconds_left())
        except BaseException as exc:
            if future is not None and future.done():
                if isinstance(exc, CancelledError):
                    raise _stop_error() from exc
                raise
            # Ctrl-C may come while the work is started: then it runs, and there is no future of it here.
            if not self._cancel(running) and isinstance(exc, RuntimeError):
                raise _stop_error() from exc
            if isinstance(exc, TimeoutError):
                raise WaitTimedOut("it took longer than `fail_after` allows, and was cancelled") from None
            raise

    def _cancel(self, running: "_RunningWork[Any]") -> bool:
        """Cancel work and wait a moment for its end. False: the loop takes no more work."""
        running.is_cancelled = True
        try:
            self._portal.start_task_soon(running.cancel)
        except RuntimeError:
            return False
        running.ended.wait(CANCEL_SECONDS)
        return True

    def enter(
        self, block: Callable[[], AbstractAsyncContextManager[ResultT]]
    ) -> AbstractContextManager[ResultT]:
        """An asynchronous context manager as a plain one: it begins and ends in one task."""
        self._require_usable()
        return self._portal.wrap_async_context_manager(self.run(block))

    def stop(self, *, wait: bool = True) -> None:
        """Cancel what runs, await `at_end` and end the thread."""
        if self._process != os.getpid():
            return
        if not self.is_stopped:
            with suppress(RuntimeError):  # another thread has stopped it just now
                self._portal.start_task_soon(self._stopping.set)
        if wait and threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _require_usable(self) -> None:
        if self._process != os.getpid():
            raise WouldBlock(
                "this host belongs to the process that this one was forked from",
                hint="open a host in each process",
            )
        if threading.current_thread() is self._thread:
            raise WouldBlock(
                "the synchronous host was used in its own event loop, which would wait for itself",
                hint="use plain functions as callbacks rather than `async def`: they run in threads",
            )
        if self.is_stopped:
            raise _stop_error()

    def _main(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as exc:
            if self._started.done():
                raise
            self._started.set_exception(exc)
        finally:
            _RUNNING.discard(self)

    async def _serve(self) -> None:
        async with BlockingPortal() as portal:
            self._started.set_result(portal)
            await self._stopping.wait()
            try:
                if self.at_end is not None:
                    await self.at_end()
            finally:
                await portal.stop(cancel_remaining=True)


def _stop_error() -> FairleadError:
    return FairleadError("the host is closed", hint="open another one with `fairlead.open()`")


def _seconds_left() -> float | None:
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


@contextmanager
def fail_after(seconds: float) -> Generator[None]:
    """Bound everything that this thread waits for in the block.

    Args:
        seconds: The most that all waits of the block take together, within an outer bound.

    Raises:
        WaitTimedOut: The time is up. The work was cancelled.
    """
    now, outer = time.monotonic(), _deadline.get()
    token = _deadline.set(now + seconds if outer is None else min(outer, now + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


_RUNNING: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    running = [*_RUNNING]
    for thread in running:
        thread.stop(wait=False)
    for thread in running:
        thread.stop()
