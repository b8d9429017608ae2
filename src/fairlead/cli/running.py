"""Run a host for the length of a command."""

import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec

import anyio

from fairlead.cli.output import is_watched, warn
from fairlead.host.host import Host


def run_with_host(main: Callable[[], Awaitable[int]]) -> int:
    """Run an asynchronous command. Ctrl-C cancels what is under way and lets servers be told and stopped."""
    gc.freeze()  # what is loaded by now stays, so the collector need not look at it
    gc.enable()
    return anyio.run(main, backend_options={"use_uvloop": find_spec("uvloop") is not None})


@asynccontextmanager
async def spinning(words: str) -> AsyncGenerator[None]:
    """Show on a terminal that something slow is under way."""
    if not is_watched():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield


async def connect_with_words(host: Host, server_ids: list[str]) -> bool:
    """Connect servers, say what went wrong with each, and tell whether all are there."""
    async with spinning(f"connecting {', '.join(server_ids)} …"):
        failures = await host.connect(*server_ids)
    for failure in failures.values():
        warn(str(failure), failure.hint)
    return not failures
