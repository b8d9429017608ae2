"""A real console in a real terminal: `fairlead console` in tmux, and someone who looks and types."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.conftest import Machine
from tests.real.processes import until

SECONDS = 30.0
"""How long anything may take on a busy machine."""

_LOOKS_PER_SECOND = 20
_SETTINGS = (
    ("set-option", "-g", "remain-on-exit", "on"),
    ("set-option", "-g", "status", "off"),
    ("set-option", "-g", "history-limit", "10000"),
    ("set-option", "-s", "escape-time", "0"),
)


class Screen:
    """What a person sees of a program, and the keys they press."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def text(self) -> str:
        """What is on the screen now; a line that was broken at the edge is one again."""
        return self._captured()

    def everything(self) -> str:
        """What is on the screen and all that was pushed out of it."""
        return self._captured("-S", "-")

    def coloured(self) -> str:
        """What is on the screen now, with the sequences that style it."""
        return self._captured("-e")

    async def type(self, text: str) -> None:
        r"""Type a text; `\n` is the Enter key."""
        first, *others = text.split("\n")
        self._press(first)
        for line in others:
            await self.key("Enter")
            self._press(line)

    async def key(self, *names: str) -> None:
        """Press keys by the names that tmux has for them: `C-c`, `Tab`, `Up`, `Enter`."""
        self.tmux("send-keys", *names)

    async def shows(self, wanted: str | re.Pattern[str], *, within: float = SECONDS) -> str:
        """Wait until this is on the screen, and return the screen."""
        return await self._waits(wanted, within, there=True)

    async def shows_not(self, unwanted: str | re.Pattern[str], *, within: float = SECONDS) -> str:
        """Wait until this is gone from the screen, and return the screen."""
        return await self._waits(unwanted, within, there=False)

    async def ends(self, *, within: float = SECONDS) -> int:
        """Wait for the end of the program, and return its status."""
        try:
            await until(lambda: not self.is_running, within)
            await until(lambda: self._ending() != "", within)
        except TimeoutError:
            pytest.fail(f"the program still runs, and shows:\n{self.text()}")
        return int(self._told("pane_dead_status") or -1)

    async def leaves(self) -> int:
        """Leave whatever is under way and then the program, and return its status."""
        with anyio.move_on_after(SECONDS):
            while self.is_running:
                # A question that begins meanwhile takes no key that was pressed before it, so again.
                await self.key("C-c", "C-d")
                with anyio.move_on_after(1):
                    await until(lambda: not self.is_running, SECONDS)
        return await self.ends(within=5)

    @property
    def is_running(self) -> bool:
        return self._told("pane_dead") != "1"

    def tmux(self, *arguments: str) -> str:
        """Have tmux do something, and return what it says."""
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"tmux {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def _press(self, text: str) -> None:
        if text:
            # What ends an argument with a semicolon ends the command, for tmux.
            self.tmux("send-keys", "-l", "--", f"{text[:-1]}\\;" if text.endswith(";") else text)

    def _captured(self, *options: str) -> str:
        captured = self.tmux("capture-pane", "-p", "-J", *options)
        return "\n".join(line.rstrip() for line in captured.rstrip().split("\n"))

    def _ending(self) -> str:
        """How the program ended, once tmux knows. It may miss that; at the end of another child it looks."""
        self.tmux("run-shell", "true")
        return self._told("pane_dead_status") or self._told("pane_dead_signal")

    def _told(self, variable: str) -> str:
        return self.tmux("display-message", "-p", f"#{{{variable}}}").strip()

    async def _waits(self, sought: str | re.Pattern[str], within: float, *, there: bool) -> str:
        seen = self.text()
        with anyio.move_on_after(within):
            while _is_in(sought, seen) is not there:
                await anyio.sleep(1 / _LOOKS_PER_SECOND)
                seen = self.text()
        shown = sought if isinstance(sought, str) else sought.pattern
        fault = "was not shown" if there else "did not go away"
        assert _is_in(sought, seen) is there, f"{shown!r} {fault} in {within:g} s; the screen:\n{seen}"
        return seen


def tmux_words(socket: Path, run: Sequence[str], *, cwd: Path, columns: int, rows: int) -> list[str]:
    """The command that starts a tmux of its own, with a program in a terminal of that size."""
    words = ["tmux", "-u", "-f", os.devnull, "-S", str(socket), "start-server"]
    for setting in _SETTINGS:
        words += [";", *setting]
    return [*words, ";", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", str(cwd), *run]


@asynccontextmanager
async def tmux_console(
    machine: Machine,
    *arguments: str,
    columns: int = 120,
    rows: int = 40,
    env: Mapping[str, str] | None = None,
    program: str = "console",
) -> AsyncGenerator[Screen]:
    """Run `fairlead console` on this machine, in a terminal of so many columns and rows.

    The console is left at the end of the block, and no process that it began may be there after that.
    """
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: it is the terminal that the console is tested in")
    with tempfile.TemporaryDirectory(prefix="fairlead-tmux-") as folder:  # a socket's path must be short
        socket = Path(folder, "socket")
        run = [sys.executable, "-m", "fairlead", program, *arguments]
        begin = tmux_words(socket, run, cwd=machine.project, columns=columns, rows=rows)
        environment = {"LANG": "C.UTF-8", **_measured(), **machine.env, **(env or {})}
        # Not with anyio: under uvloop the server that stays would hold the pipes, so that they never end.
        start = partial(
            subprocess.run, begin, check=True, env=environment, cwd=machine.project, timeout=SECONDS
        )
        await to_thread.run_sync(start)
        screen = Screen(socket)
        try:
            yield screen
            await screen.leaves()
        finally:
            screen.tmux("kill-server")
            await _nobody_left(machine)


async def _nobody_left(machine: Machine) -> None:
    try:
        await until(lambda: not _at_home(machine), SECONDS)
    except TimeoutError:
        left = {pid: _read(Path(f"/proc/{pid}/cmdline")) for pid in _at_home(machine)}
        pytest.fail(f"processes that the console left behind: {left}")


def _at_home(machine: Machine) -> set[int]:
    """Who was started with this machine's home, which is everybody that the console began."""
    mark = f"HOME={machine.home}".encode()
    return {int(file.parent.name) for file in Path("/proc").glob("[0-9]*/environ") if mark in _read(file)}


def _read(file: Path) -> list[bytes]:
    try:
        return file.read_bytes().split(b"\0")
    except OSError:
        # It is gone by now, or not ours to look at.
        return []


def _is_in(sought: str | re.Pattern[str], text: str) -> bool:
    return sought in text if isinstance(sought, str) else sought.search(text) is not None


def _measured() -> dict[str, str]:
    """What a program needs to know to have its coverage counted, if this one has."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
