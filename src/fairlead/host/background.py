"""Run work whose size servers choose off the event loop, in one thread at a time.

The work is plain Python, beside which an event loop has to ask for the interpreter again after every system
call, and gets it after Python's switch interval. By default that is 5 ms, so that a turn of the loop with ten
sockets would take 50 ms; while work runs here, it is `SWITCH_SECONDS`. Several threads would be in each
other's way, and the loop last in their queue.
"""

import sys
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.entries import Listing, ToolEntry

AT_ONCE: Final = 100
"""So many tools, or as many other definitions, are handled on the event loop: each may take 100 µs."""

USUAL_BYTES: Final = 1024
"""Of a definition; what takes long about it grows with its size."""

SWITCH_SECONDS: Final = 0.0005
"""How long the event loop waits at most for the interpreter, each time it needs it."""

ResultT = TypeVar("ResultT")

_loaded: set[str] = set()
"""The modules that `load_off_loop` has imported. `sys.modules` has those, too, that are only half loaded."""
_one_thread: RunVar[CapacityLimiter] = RunVar("fairlead_background_thread")


def size_of(listing: Listing) -> int:
    """How much there is to do about a listing, in definitions of a usual size."""
    parts = (listing.resources, listing.templates, listing.prompts)
    return size_of_tools(listing.tools) + sum(map(size_of_definitions, parts))


def size_of_tools(tools: Collection[ToolEntry]) -> int:
    """How much there is to do about tools, in definitions of a usual size."""
    if len(tools) > AT_ONCE:
        return len(tools)
    return max(len(tools), sum(len(entry.definition) for entry in tools) // USUAL_BYTES)


def size_of_catalog(catalog: Catalog) -> int:
    """How much there is to do about the tools of a catalog, in definitions of a usual size."""
    is_long = len(catalog) > AT_ONCE
    return len(catalog) if is_long else size_of_tools([tool.entry for tool in catalog.tools])


def size_of_definitions(definitions: Collection[bytes]) -> int:
    """How much there is to do about other definitions, in those of a usual size."""
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
    """Import a module in the background thread: some take a second, the first time they are needed.

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
        with _switches.made_soon():
            return work()

    return await to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)


class _Switches:
    """The interpreter's switch interval, which is one for the process: shorter while any work runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._before = 0.0

    @contextmanager
    def made_soon(self) -> Generator[None]:
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
