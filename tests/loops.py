"""The event loops that tests run on: `asyncio.run`, `anyio.run` and `uvloop.run`.

anyio asks `sniffio` what it runs on, where that is installed. Under `anyio.run` a context variable tells, in
callbacks of the event loop too. Under plain `asyncio.run` and `uvloop.run` only the current task does: in a
callback there is none, and anyio raises `NoEventLoopError`. `sniffio` is a development dependency so that
this holds wherever the tests run.

`FAIRLEAD_TEST_LOOPS` is one of the names below or `all`; without it tests run as under `asyncio.run`.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import sniffio
import uvloop

LOOPS = ("asyncio", "anyio", "uvloop")


def chosen_loops() -> list[str]:
    """Return the loops that `FAIRLEAD_TEST_LOOPS` names."""
    chosen = os.environ.get("FAIRLEAD_TEST_LOOPS") or "asyncio"
    if chosen != "all" and chosen not in LOOPS:
        raise ValueError(f"FAIRLEAD_TEST_LOOPS is {chosen!r}: use `all` or one of {', '.join(LOOPS)}")
    return [*LOOPS] if chosen == "all" else [chosen]


def backend_of(loop: str) -> tuple[str, dict[str, Any]]:
    """Return the backend and its options for anyio's test runner."""
    match loop:
        case "asyncio":
            return "asyncio", {"loop_factory": _without_context(asyncio.new_event_loop)}
        case "uvloop":
            return "asyncio", {"loop_factory": _without_context(uvloop.new_event_loop)}
        case _:
            return "asyncio", {}


def _without_context(
    new_event_loop: Callable[[], asyncio.AbstractEventLoop],
) -> Callable[[], asyncio.AbstractEventLoop]:
    def factory() -> asyncio.AbstractEventLoop:
        # The test runner has just set this as `anyio.run` does, and restores it after the test.
        sniffio.current_async_library_cvar.set(None)
        return new_event_loop()

    return factory
