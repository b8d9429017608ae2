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


_shown: list[Display] = []  # a program has but one terminal


@contextmanager
def showing(display: Display) -> Generator[None]:
    """Show a display for the length of the block, except while everything has to be still."""
    _shown.append(display)
    display.start()
    try:
        yield
    finally:
        display.stop()
        _shown.remove(display)


@contextmanager
def still() -> Generator[None]:
    """Have nothing move for the length of the block."""
    stopped = [*_shown]
    for display in stopped:
        display.stop()
    try:
        yield
    finally:
        for display in stopped:
            if display in _shown:
                display.start()
