"""A real browser, for journeys that are no coroutines."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.web.browsing import Browser, browsing


class Visitor:
    """Takes steps in a browser, one after the other: see `tests/web/browser_process.py`."""

    def __init__(self, portal: BlockingPortal, steps: Browser) -> None:
        self._portal = portal
        self._steps = steps

    def __call__(self, step: str, *words: str) -> Any:
        """Do one thing, and return what was seen."""
        return self._portal.call(self._steps, step, *words)


@contextmanager
def browser(*options: str) -> Generator[Visitor]:
    """Run a browser for the length of the block, with these options of Chromium."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(browsing(*options)) as steps:
        yield Visitor(portal, steps)
