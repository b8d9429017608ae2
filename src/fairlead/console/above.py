"""A stream whose lines appear above the prompt, whoever writes them and from whichever thread."""

import asyncio
import io
from typing import TextIO

import anyio
from prompt_toolkit.application import get_app_session, in_terminal


class Above(io.TextIOBase):
    """Stands in for stdout and stderr while there is a prompt. A line that is not whole yet waits.

    To be made before it takes their place, while the terminal's own are there.
    """

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal
        self._output = get_app_session().output
        self._loop = asyncio.get_running_loop()
        self._waiting: list[str] = []
        self._wanted = anyio.Event()
        self._turn = anyio.Lock()

    def write(self, text: str, /) -> int:
        """Take text in, to be shown with the rest of its line."""
        ends_a_line = "\n" in text  # which refuses bytes, as whoever finds out what this is expects
        self._waiting.append(text)
        if ends_a_line:
            self._loop.call_soon_threadsafe(self._want)
        return len(text)

    def isatty(self) -> bool:
        """It ends up on a terminal."""
        return True

    def fileno(self) -> int:
        """The terminal's."""
        return self._terminal.fileno()

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - it is no variable
        """The terminal's."""
        return self._terminal.encoding

    async def show(self) -> None:
        """Show what is written, as it comes, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            await self.shown()

    async def shown(self) -> None:
        """Return when every line is on the terminal that was written before."""
        async with self._turn:
            text = self._whole_lines()
            if text:
                async with in_terminal():
                    self._output.write_raw(text)
                    self._output.flush()

    def _want(self) -> None:
        self._wanted.set()

    def _whole_lines(self) -> str:
        count = len(self._waiting)  # a thread may be adding more
        whole, newline, rest = "".join(self._waiting[:count]).rpartition("\n")
        self._waiting[:count] = [rest]
        return whole + newline
