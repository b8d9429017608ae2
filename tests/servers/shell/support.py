"""A shell to attack: its sandbox, a repository in it, and what runs there later."""

import os
import shutil
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from fairlead.bubblewrap import PROGRAM, trouble_with
from fairlead.connection.process.sandbox import SandboxRequest, pack_without_program
from fairlead.servers.framework.tools import Reply
from fairlead.servers.repo.folders import Confinement
from fairlead.servers.shell.tools import RunInput, RunOutput, ShellAccess, shell_tools

SECONDS = 120

needs_bwrap = pytest.mark.skipif(
    shutil.which(PROGRAM) is None or trouble_with(shutil.which(PROGRAM) or "", network=False) is not None,
    reason="bubblewrap does not work here",
)

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@localhost",
    "PATH": os.environ.get("PATH", os.defpath),
}


def git(folder: Path, *words: str) -> str:
    """Run git outside the sandbox, as the user would."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env=GIT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.stdout + done.stderr


@dataclass
class Progress:
    """Hears how far a command is."""

    reports: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    on_report: Callable[[], None] = lambda: None

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        self.reports.append((done, message or ""))
        self.on_report()


class Shell:
    """Runs commands as the built-in server does."""

    def __init__(self, confinement: Confinement, access: ShellAccess) -> None:
        self.root = confinement.roots[0].path
        self.progress = Progress()
        (self.tool,) = shell_tools(confinement, access)

    async def __call__(self, command: str | None = None, **rest: Any) -> RunOutput:
        return (await self.reply(command, **rest)).output

    async def reply(self, command: str | None = None, **rest: Any) -> Reply[RunOutput]:
        given = RunInput.model_validate({**({"command": command} if command is not None else {}), **rest})
        with anyio.fail_after(SECONDS):
            return cast("Reply[RunOutput]", await self.tool.handler(self.progress, given))


@contextmanager
def open_shell(
    *roots: Path,
    home: Path,
    parent: Mapping[str, str] | None = None,
    network: bool = False,
    protected: Sequence[Path] = (),
) -> Generator[Shell]:
    """A shell in these folders, with a home of its own."""
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ.get("PATH", os.defpath), **(parent or {})}
    wanted = SandboxRequest(home=home, write=tuple(root.resolve() for root in roots), network=network)
    bwrap, view = pack_without_program("shell", wanted, environment)
    access = ShellAccess(
        bwrap=bwrap,
        view=view,
        parent=environment,
        locks=home.parent / "locks",
        protected=lambda: protected,
    )
    with Confinement(roots) as confinement:
        yield Shell(confinement, access)
