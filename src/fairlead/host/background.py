"""Background work of a host: one thread for work whose size servers choose, and an owner of tasks.

CPU-bound Python in a thread delays the event loop by the interpreter's switch interval (5 ms by default)
after every system call, so it is shortened to `SWITCH_SECONDS` while work runs, in one thread at a time.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from typing import Final, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import RunVar

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.tools import Listing, ToolEntry

AT_ONCE: Final = 100
"""So many tools, or as many other definitions, are handled on the event loop: each may take 100 µs."""

USUAL_BYTES: Final = 1024
"""Of a definition; what takes long about it grows with its size."""

SWITCH_SECONDS: Final = 0.0005
"""The switch interval while work runs: how long the event loop waits for the interpreter at most."""

ResultT = TypeVar("ResultT")

_loaded: set[str] = set()
"""The modules that `load_off_loop` has imported. `sys.modules` has those, too, that are only half loaded."""
_one_thread: RunVar[CapacityLimiter] = RunVar("fairlead_background_thread")


def size_of(listing: Listing) -> int:
    """Size of a listing, in definitions of a usual size."""
    parts = (listing.resources, listing.templates, listing.prompts)
    return size_of_tools(listing.tools) + sum(map(size_of_definitions, parts))


def size_of_tools(tools: Collection[ToolEntry]) -> int:
    """Size of tools, in definitions of a usual size."""
    if len(tools) > AT_ONCE:
        return len(tools)
    return max(len(tools), sum(len(entry.definition) for entry in tools) // USUAL_BYTES)


def size_of_catalog(catalog: Catalog) -> int:
    """Size of the tools of a catalog, in definitions of a usual size."""
    is_long = len(catalog) > AT_ONCE
    return len(catalog) if is_long else size_of_tools([tool.entry for tool in catalog.tools])


def size_of_definitions(definitions: Collection[bytes]) -> int:
    """Size of other definitions, in those of a usual size."""
    return max(len(definitions), sum(map(len, definitions)) // USUAL_BYTES)


async def run_off_loop(work: Callable[[], ResultT], size: int) -> ResultT:
    """Run a function: at once where there is little to do, else in the background thread.

    A caller that is cancelled does not wait for it: the work ends by itself, and its result is dropped.

    Args:
        work: A pure function.
        size: How many definitions it goes through.

    Returns:
        What the function returns.
    """
    return work() if size <= AT_ONCE else await run_in_background(work)


async def load_off_loop(module: str) -> None:
    """Import a module in the background thread: the first import of some takes a second.

    Raises:
        ImportError: It is not there.
    """
    if module not in _loaded:
        await run_in_background(partial(import_module, module))
        _loaded.add(module)


async def run_in_background(work: Callable[[], ResultT]) -> ResultT:
    """Run a function in the background thread, as `run_off_loop` does where there is much to do."""
    try:
        limiter = _one_thread.get()
    except LookupError:
        limiter = CapacityLimiter(1)
        _one_thread.set(limiter)

    def run() -> ResultT:
        with _switches.shorten_switch_interval():
            return work()

    return await to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)


class _Switches:
    """The interpreter's switch interval, which is one for the process: shorter while any work runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._before = 0.0

    @contextmanager
    def shorten_switch_interval(self) -> Generator[None]:
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SWITCH_SECONDS))
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    sys.setswitchinterval(self._before)


_switches = _Switches()


@asynccontextmanager
async def task_owner(name: str) -> AsyncGenerator[TaskGroup]:
    """Run a task group for the length of the block, which may end in any task. Its tasks end with it.

    An anyio task group must be closed by the task that opened it, but test fixtures, lifespans of web
    frameworks and exit stacks leave a block in another task. So the group lives in a task of its own.

    Args:
        name: What shows in lists of tasks.

    Raises:
        ExceptionGroup: At the end of the block, if one of its tasks failed.
    """
    opened: asyncio.Future[TaskGroup] = asyncio.get_running_loop().create_future()

    async def own() -> None:
        async with anyio.create_task_group() as tasks:
            if not opened.cancelled():
                opened.set_result(tasks)
            await anyio.sleep_forever()

    owner = asyncio.create_task(own(), name=name)  # noqa: TID251 - this is the owner of the others
    try:
        tasks = await opened
        yield tasks
    finally:
        if opened.done() and not opened.cancelled():
            opened.result().cancel_scope.cancel()
        else:
            owner.cancel()
        with anyio.CancelScope(shield=True):
            await _wait_for_task(owner)


async def _wait_for_task(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])
    if not task.cancelled() and (failure := task.exception()) is not None:
        raise failure
