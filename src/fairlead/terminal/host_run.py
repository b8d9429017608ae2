"""Event loop of a command: Ctrl-C, garbage collection, and a progress display on the terminal."""

import gc
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import anyio

from fairlead.terminal.log_output import shorten_warnings
from fairlead.terminal.output import is_watched, printable, say, showing

if TYPE_CHECKING:
    from fairlead.events import Event
    from fairlead.host.events import EventBus

T = TypeVar("T")


def run_async(main: Callable[[], Awaitable[T]]) -> T:
    """Run an asynchronous command. Ctrl-C cancels what is under way; servers are notified and stopped."""
    collect_garbage()
    shorten_warnings()
    return anyio.run(main, backend_options={"use_uvloop": find_spec("uvloop") is not None})


def collect_garbage() -> None:
    """Turn on garbage collection, which would slow down a start."""
    gc.freeze()  # what is loaded by now stays, so the collector need not look at it
    gc.enable()
    gc.set_threshold(20_000, 20, 50)  # calls make much that is gone at once, and little to look for


@contextmanager
def stoppable() -> Generator[Callable[[], Awaitable[None]]]:
    """Let Ctrl-C and SIGTERM end the program where it waits for that, and nowhere else."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def wait_for_stop() -> None:
            async for _ in signals:
                return

        yield wait_for_stop


@asynccontextmanager
async def spinning(words: str, bus: "EventBus | None" = None) -> AsyncGenerator[None]:
    """Show a spinner on a terminal for the length of the block.

    Args:
        words: What it is.
        bus: The events of the host that does it: what is downloaded for its servers is shown too, in a pipe
            line by line.
    """
    if not is_watched():
        with _report_downloads(bus, lambda line: say(line) if line else None):
            yield
        return
    from rich.console import Console
    from rich.text import Text

    status = Console(stderr=True).status(words)

    def update(line: str | None) -> None:
        status.update(Text(f"{words} {line}" if line else words, overflow="ellipsis", no_wrap=True))

    with showing(status), _report_downloads(bus, update):
        yield


@contextmanager
def _report_downloads(bus: "EventBus | None", tell: Callable[[str | None], None]) -> Generator[None]:
    """Call a function with what is downloaded for a server, and with None once that is over."""
    if bus is None:
        yield
        return
    from fairlead.events import StateChanged
    from fairlead.host.events import Subscriber

    class Downloads(Subscriber):
        def put(self, event: "Event") -> None:
            if isinstance(event, StateChanged) and event.state == "connecting":
                tell(f"{event.server_id}: {printable(event.reason)}" if event.reason else None)

    with bus.listening(Downloads()):
        yield
