"""Run the event loop of a command, and show that something slow is under way."""

import gc
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec

import anyio

from fairlead.terminal.log_output import shorten_warnings
from fairlead.terminal.output import is_watched, showing


def run_async(main: Callable[[], Awaitable[int]]) -> int:
    """Run an asynchronous command. Ctrl-C cancels what is under way and lets servers be told and stopped."""
    collect_garbage()
    shorten_warnings()
    return anyio.run(main, backend_options={"use_uvloop": find_spec("uvloop") is not None})


def collect_garbage() -> None:
    """Have garbage collected from now on, which a start is too short for."""
    gc.freeze()  # what is loaded by now stays, so the collector need not look at it
    gc.enable()
    gc.set_threshold(20_000, 20, 50)  # calls make much that is gone at once, and little to look for


@contextmanager
def stoppable() -> Generator[Callable[[], Awaitable[None]]]:
    """Have Ctrl-C and a polite kill end the program where it waits for that, and nowhere else."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def wait_for_stop() -> None:
            async for _ in signals:
                return

        yield wait_for_stop


@asynccontextmanager
async def spinning(words: str) -> AsyncGenerator[None]:
    """Show on a terminal that something slow is under way."""
    if not is_watched():
        yield
        return
    from rich.console import Console

    with showing(Console(stderr=True).status(words)):
        yield
