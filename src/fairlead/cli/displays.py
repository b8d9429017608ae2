"""What moves on the terminal, such as a spinner or a bar: it gives way while a person is asked."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol


class Display(Protocol):
    """Something that draws by itself between `start` and `stop`."""

    def start(self) -> None:
        """Draw."""
        ...

    def stop(self) -> None:
        """Draw no more."""
        ...


class _Terminal:
    """The terminal, of which a program has but one."""

    def __init__(self) -> None:
        self.shown: list[Display] = []
        self.stills = 0
        """How many want nothing to move."""


_terminal = _Terminal()


@contextmanager
def showing(display: Display) -> Generator[None]:
    """Show a display for the length of the block, except while everything has to be still."""
    _terminal.shown.append(display)
    if not _terminal.stills:
        display.start()
    try:
        yield
    finally:
        display.stop()
        _terminal.shown.remove(display)


@contextmanager
def still() -> Generator[None]:
    """Have nothing move for the length of the block."""
    if not _terminal.stills:
        for display in _terminal.shown:
            display.stop()
    _terminal.stills += 1
    try:
        yield
    finally:
        _terminal.stills -= 1
        if not _terminal.stills:
            for display in _terminal.shown:
                display.start()
