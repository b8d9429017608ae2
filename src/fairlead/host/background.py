"""Run work whose size servers choose off the event loop, in one thread at a time.

The work is plain Python, which gives up the interpreter every few milliseconds: an event loop beside one such
thread is late by that much. Several threads would be in each other's way, and the loop last in their queue.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from fairlead.catalog.entries import Listing

AT_ONCE: Final = 500
"""So many tools, or as many other definitions, are handled on the event loop: it takes a few milliseconds."""

USUAL_BYTES: Final = 1024
"""Of a definition; what takes long about it grows with its size."""

ResultT = TypeVar("ResultT")

_one_thread: RunVar[CapacityLimiter] = RunVar("fairlead_background_thread")


def size_of(listing: Listing) -> int:
    """How much there is to do about a listing, in definitions of a usual size."""
    parts = (listing.resources, listing.templates, listing.prompts)
    entries = len(listing.tools) + sum(map(len, parts))
    if entries > AT_ONCE:
        return entries
    size = sum(len(entry.definition) for entry in listing.tools)
    size += sum(len(definition) for part in parts for definition in part)
    return max(entries, size // USUAL_BYTES)


async def run_off_loop(work: Callable[[], ResultT], size: int) -> ResultT:
    """Run a function: at once where there is little to do, else in the background thread.

    A caller that is cancelled does not wait for it: the work ends by itself, and its result is dropped.

    Args:
        work: A pure function.
        size: How many definitions it goes through.

    Returns:
        What the function returns.
    """
    if size <= AT_ONCE:
        return work()
    try:
        limiter = _one_thread.get()
    except LookupError:
        limiter = CapacityLimiter(1)
        _one_thread.set(limiter)
    return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
