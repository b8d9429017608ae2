"""A shell in a real terminal: tmux, and a person who types commands, reads the screen and answers prompts."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.console.tmux_support import Screen, tmux_words
from tests.journeys.support.person import Journey

COLUMNS, ROWS = 140, 50
PROMPT = "$ "
MOST_LINES = 8
"""How much a gateway may print when it starts."""
SECONDS = 120.0
"""How long anything may take, beside other tests on a busy machine."""
_LOOK_SECONDS = 0.1


class Terminal:
    """One shell. What is typed at its prompt counts as a command of the journey; answers do not."""

    def __init__(self, journey: Journey, screen: Screen, ended: Path) -> None:
        self._journey = journey
        self._screen = screen
        self._ended = ended
        """The shell writes the status of each command there."""
        self._line = ""
        self._number = 0

    @property
    def shown(self) -> str:
        """What has been shown since the command that was typed last."""
        everything = self._screen.everything()
        return everything.rpartition(f"{PROMPT}{self._line}")[2] if self._line else everything

    def types(self, line: str) -> None:
        """Type a command at the prompt."""
        assert self._is_at_prompt(), f"the last command still runs:\n{self.shown}"
        self._journey.commands += 1
        self._number += 1
        self._line = line
        self.answers(line)

    def answers(self, text: str) -> None:
        """Type an answer to what the command asks."""
        for start in range(0, len(text), 500):  # tmux takes no more in one command than a terminal does
            piece = text[start : start + 500]
            self._screen.tmux("send-keys", "-l", "--", f"{piece[:-1]}\\;" if piece.endswith(";") else piece)
        self._screen.tmux("send-keys", "Enter")

    def presses(self, key: str) -> None:
        """Press a key by the name that tmux has for it."""
        self._screen.tmux("send-keys", key)

    def sees(self, wanted: str | re.Pattern[str]) -> str:
        """Wait until the command has shown this, and return what it has shown."""
        sought = re.compile(re.escape(wanted)) if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + SECONDS
        while not sought.search(seen := self.shown):
            assert time.monotonic() < deadline, f"{sought.pattern!r} was not shown, but:\n{seen}"
            time.sleep(_LOOK_SECONDS)
        return seen

    def waits(self) -> int:
        """Wait for the end of the command, and return its status."""
        deadline = time.monotonic() + SECONDS
        while not self._is_at_prompt():
            assert time.monotonic() < deadline, f"the command still runs:\n{self.shown}"
            time.sleep(_LOOK_SECONDS)
        return self._statuses()[-1]

    def runs(self, line: str, status: int = 0) -> str:
        """Type a command that asks nothing, wait for its end, and return what it showed."""
        self.types(line)
        assert self.waits() == status, self.shown
        return self.shown

    def _is_at_prompt(self) -> bool:
        return len(self._statuses()) == self._number + 1  # the first prompt has one as well

    def _statuses(self) -> list[int]:
        return [int(word) for word in self._ended.read_text().split()]


def start_gateway(shell: Terminal) -> tuple[str, str]:
    """Start a gateway in a terminal; return its address and the link to its dashboard, as they are shown."""
    shell.types("fairlead gateway --port 0")
    shown = shell.sees("Ctrl-C stops")
    assert len(shown.strip().splitlines()) <= MOST_LINES, shown
    url = re.search(r"^url +(\S+)/mcp", shown, re.MULTILINE)
    link = re.search(r"http://\S+/login\?code=\S+", shown)
    assert url, shown
    assert link, shown
    return url[1], link[0]


def stop_gateway(shell: Terminal) -> None:
    """End the gateway that a terminal runs."""
    shell.presses("C-c")
    assert shell.waits() == 0, shell.shown


@contextmanager
def terminal(journey: Journey, **env: str) -> Generator[Terminal]:
    """A shell on the person's machine, where `fairlead` is installed."""
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("tmux is not installed: it is the terminal of the journeys")
    with tempfile.TemporaryDirectory(prefix="fairlead-tmux-") as folder:  # a socket's path must be short
        socket, ended = Path(folder, "socket"), Path(folder, "ended")
        ended.touch()
        environment = {
            **journey.env,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{journey.env['PATH']}",
            "PS1": PROMPT,
            "PROMPT_COMMAND": f"echo $? >> {ended}",
            **env,
        }
        shell = ["bash", "--norc", "--noprofile"]
        begin = tmux_words(socket, shell, cwd=journey.project, columns=COLUMNS, rows=ROWS)
        subprocess.run(
            [program, *begin[1:]], check=True, env=environment, cwd=journey.project, timeout=SECONDS
        )
        screen = Screen(socket)
        try:
            opened = Terminal(journey, screen, ended)
            opened.waits()
            yield opened
        finally:
            screen.tmux("kill-server")
