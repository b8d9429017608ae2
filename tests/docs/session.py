"""A page that is run word for word: commands are typed into a terminal, files written, output compared.

In output, `…` stands for what varies; on a line of its own, for any number of lines. A line that ends in
`[…]: answer` is a prompt with what the reader types. Comments (`<!-- test: … -->`) say what the prose says in
words:

| comment | meaning |
|---|---|
| `builtins` | the built-in servers are there, as for every reader |
| `program NAME TOOL…` | a program NAME is installed: a server with these tools |
| `time server` | `uvx mcp-server-time` is the real server, without a download |
| `clone NAME` | `~/NAME` is a clone of Fairlead; `fairlead` is a command where its environment is active |
| `terminal NAME` | what follows is typed in another terminal |
| `exits STATUS` | the last command of the next block ends with that |
| `stays` | the next block's last command goes on running |
| `ends` | it ends by itself now, and the next block, if it is output, is what it printed |
| `browser STEP WORD…` | a step of `tests/web/browser_process.py`; `open` opens the link that was shown |
"""

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import Block, Page, Step
from tests.journeys.support.browser import Visitor, browser
from tests.journeys.support.person import Journey
from tests.journeys.support.terminal import Terminal, terminal
from tests.real.servers import PYTHON_BIN

_PROMPT = re.compile(r"^(?P<asked>.*\]:) (?P<answer>\S.*)$")
_LINK = re.compile(r"http://\S+/login\?code=\S+")
FILES: Final = frozenset({"python", "json", "jsonc", "yaml", "toml"})


class Session:
    """A reader who follows a page."""

    def __init__(self, journey: Journey, resources: ExitStack) -> None:
        self._journey = journey
        self._resources = resources
        self._terminals: dict[str, Terminal] = {}
        self._environment: dict[str, str] = {}
        self._visitor: Visitor | None = None
        self._name = "first"
        self._status = 0
        self._stays = False
        self._ended = False
        self._steps: dict[str, Callable[..., None]] = {
            "builtins": self._have_builtins,
            "program": self._install,
            "time": self._install_time,
            "clone": self._clone,
            "terminal": self._change_terminal,
            "exits": self._expect_status,
            "stays": self._expect_to_stay,
            "ends": self._end,
            "browser": self._browse,
        }

    def follow(self, page: Page) -> None:
        """Do everything that the page says, from top to bottom."""
        for part in page.parts():
            if isinstance(part, Step):
                name, *words = shlex.split(part.words)
                self._steps[name](*words)
            elif not part.not_run:
                self._take(part)

    def _take(self, block: Block) -> None:
        if block.title and block.language in FILES:
            path = self._journey.project / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
            for index, command in enumerate(commands):
                self._type(command, is_last=index == len(commands) - 1)
        elif block.language == "text" and self._ended:
            compare(block.text, self._terminal.shown)
        self._ended = False

    def _type(self, command: str, *, is_last: bool) -> None:
        line, *expected = command.rstrip("\n").split("\n")
        shell = self._terminal
        shell.types(_without_comment(line))
        for each in expected:
            if prompt := _PROMPT.match(each):
                shell.sees(_pattern(prompt["asked"]))
                shell.answers(prompt["answer"])
        if is_last and self._stays:
            self._stays = False
            shell.sees(_whole(expected))
            return
        wanted, self._status = (self._status, 0) if is_last else (0, self._status)
        status = shell.waits()
        assert status == wanted, f"`{line}` ended with {status}:\n{shell.shown}"
        if expected:
            compare("\n".join(expected), shell.shown)

    @property
    def _terminal(self) -> Terminal:
        if self._name not in self._terminals:
            self._terminals[self._name] = self._resources.enter_context(
                terminal(self._journey, **self._environment)
            )
        return self._terminals[self._name]

    def _have_builtins(self) -> None:
        del self._journey.env["FAIRLEAD_BUILTINS"]

    def _install(self, name: str, *tools: str) -> None:
        self._journey.install(name, tools=[*tools])

    def _install_time(self, _server: str) -> None:
        program = PYTHON_BIN / "mcp-server-time"
        if not program.exists():
            pytest.skip("mcp-server-time is not installed: run tests/tools/install-servers")
        self._journey.install_program(
            "uvx", f"#!/bin/sh\nexec {shlex.quote(str(program))} --local-timezone UTC\n"
        )

    def _clone(self, name: str) -> None:
        clone = self._journey.home / name
        clone.mkdir()
        (clone / ".venv").symlink_to(sys.prefix)
        folders = self._journey.env["PATH"].split(os.pathsep)
        without = [folder for folder in folders if not Path(folder, "fairlead").exists()]
        self._environment["PATH"] = os.pathsep.join(without)

    def _change_terminal(self, name: str) -> None:
        self._name = name

    def _expect_status(self, status: str) -> None:
        self._status = int(status)

    def _expect_to_stay(self) -> None:
        self._stays = True

    def _end(self) -> None:
        assert self._terminal.waits() == 0, self._terminal.shown
        self._ended = True

    def _browse(self, step: str, *words: str) -> None:
        if self._visitor is None:
            self._visitor = self._resources.enter_context(browser())
        if step == "open" and not words:
            link = _LINK.search(self._terminal.shown)
            assert link, self._terminal.shown
            words = (link[0],)
        self._visitor(step, *words)


def follow(page: Page, journey: Journey) -> None:
    """Follow a page on a machine with nothing on it, and leave no gateway behind."""
    journey.file.parent.mkdir(parents=True)
    journey.file.write_text('{"gateway": {"port": 0}}\n')  # the usual port may be another test's
    journey.env["PATH"] = f"{journey.programs}:{sys.exec_prefix}/bin:{journey.env['PATH']}"
    with ExitStack() as resources:
        resources.callback(journey.run, "gateway", "stop", "--all")
        Session(journey, resources).follow(page)


def compare(expected: str, shown: str) -> None:
    """Fail unless what was shown is what the page says."""
    seen = "\n".join(line.rstrip() for line in shown.splitlines())
    assert _whole(expected.strip("\n").split("\n")).search(seen), (
        f"the page says\n{expected}\nand shown was\n{seen}"
    )


def _whole(lines: list[str]) -> re.Pattern[str]:
    parts = [r"(?:.*\n)*?" if line.strip() == "…" else _pattern(line).pattern + r"[ \t]*\n" for line in lines]
    whole = "".join(parts).removesuffix(r"\n")
    return re.compile(rf"^{whole}", re.MULTILINE)


def _pattern(line: str) -> re.Pattern[str]:
    """A line of output: `…` is anything, and it does not matter how wide a gap is."""
    pieces = re.split(r"(…| {2,})", line.rstrip())
    return re.compile(
        "".join(".*?" if each == "…" else " +" if each.isspace() else re.escape(each) for each in pieces)
    )


def _without_comment(line: str) -> str:
    """A command without the comment that explains it."""
    return re.sub(r"\s{2,}#.*$", "", line)
