"""A terminal with a person at it: a pseudo-terminal that controls the program, and someone who types."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

SECONDS = 30

# The terminal must be the controlling one, or Ctrl-C on it reaches nobody.
_BEGIN = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Person:
    """Reads what a program shows and types what it is to get."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self._terminal = terminal
        self._process = process
        self._unread = ""
        self.seen = ""
        """Everything shown so far."""

    def sees(self, text: str) -> str:
        """Wait until the program shows this, and return what it showed up to then since the last time."""
        deadline = time.monotonic() + SECONDS
        while text not in self._unread:
            assert self._read(deadline), f"{text!r} was not shown, but: {self.seen}"
        before, _, self._unread = self._unread.partition(text)
        return before + text

    def types(self, text: str, end: str = "\n") -> None:
        os.write(self._terminal, f"{text}{end}".encode())

    def presses_ctrl_c(self) -> None:
        self.types("\x03", end="")

    def waits(self) -> int:
        """Wait for the end of the program, and return its status."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            continue
        return self._process.wait(timeout=SECONDS)

    def _read(self, deadline: float) -> bool:
        readable, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            return False
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # which is how Linux says that nobody holds the other side
            return False
        text = data.decode(errors="replace").replace("\r\n", "\n")
        self._unread += text
        self.seen += text
        return bool(data)


def _measured() -> dict[str, str]:
    """What a program needs to know to have its coverage counted, if this one has."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}


@contextmanager
def at_terminal(
    *arguments: str, env: Mapping[str, str], cwd: Path, program: Sequence[str] = ("-m", "fairlead")
) -> Generator[Person]:
    """Run `fairlead` on a terminal of its own. The program is gone at the end of the block."""
    terminal, other_side = pty.openpty()
    python = sys.executable
    process = subprocess.Popen(
        [python, "-I", "-S", "-c", _BEGIN, python, *program, *arguments],
        stdin=other_side,
        stdout=other_side,
        stderr=other_side,
        env={"TERM": "xterm", "COLUMNS": "200", **_measured(), **env},
        cwd=cwd,
        start_new_session=True,
    )
    os.close(other_side)
    try:
        yield Person(terminal, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=SECONDS)
        os.close(terminal)
