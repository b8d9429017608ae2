"""A server's process, whatever the system: how to start it, what it tells, what can be asked of it."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio.abc

EXIT_SECONDS = 2.0
"""How long a server may take to end by itself once its input is closed."""

TERMINATE_SECONDS = 2.0
"""How long it and all it started may take to end once they are told to."""

MAX_WAITING_BYTES = 256 * 1024
"""How much may wait for a server to read it before senders have to wait too."""

KILL_SECONDS = 0.3
"""How long to wait for the system to take note of a killed process."""

QUICK_EXIT_SECONDS = 0.5
"""How long a server may take to end by itself that has answered nothing."""

LAST_WORDS_SECONDS = 0.25
"""How long to wait for what a server still has to say when it ends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """How to start a server: a program and its arguments, never a line for a shell.

    `env` is what is declared for it; it gets that over the safe part of `parent`, our own environment.
    `descriptors` are open files that it gets beside its pipes (not on Windows): the number each has in the
    process, 3 or more, and here. They stay the caller's, who keeps them open until the process has started.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    parent: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    cwd: Path | None = None
    descriptors: Mapping[int, int] = field(default_factory=dict[int, int])
    exit_seconds: float = EXIT_SECONDS
    terminate_seconds: float = TERMINATE_SECONDS


class Listener(Protocol):
    """Who wants to know what a child says and when it is over. None of this may wait."""

    def on_stdout(self, data: bytes) -> float | None:
        """It wrote to its stdout. Returns for how many seconds nothing more is to be read."""
        ...

    def on_stderr(self, data: bytes) -> float | None:
        """It wrote to its stderr. Returns for how many seconds nothing more is to be read."""
        ...

    def on_end(self, returncode: int | None) -> None:
        """It exited, or cannot be talked to though it runs. Comes once, after its last words."""
        ...


class Child(Protocol):
    """A running server process."""

    @property
    def pid(self) -> int:
        """Its id."""
        ...

    @property
    def returncode(self) -> int | None:
        """How it exited: a code, or the negative number of a signal; `None` while it runs."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """How much of what was written it has not read yet."""
        ...

    @property
    def congested(self) -> asyncio.Future[None] | None:
        """What to wait for before writing more, or `None`."""
        ...

    @property
    def has_read(self) -> bool:
        """Has it read anything of what was written? Where the system does not say, it has."""
        ...

    def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Carry what is said to and fro, where the system needs tasks for that."""
        ...

    def write(self, data: bytes) -> bool:
        """Write to its stdin, without waiting. False where it is gone, and certainly reads none of it."""
        ...

    def write_soon(self, data: bytes) -> bool:
        """Write to its stdin, together with what others write in this turn of the event loop."""
        ...

    def hold_stdout(self, *, hold: bool) -> None:
        """Read no more of its stdout for now, or go on."""
        ...

    async def stop(self, *, quickly: bool = False) -> None:
        """End it and all it started; returns within bounded time, and it must not be cancelled.

        `quickly` gives it little time to end by itself before it is told to.
        """
        ...


def why_not_started(command: Command, exc: OSError | ValueError) -> str:
    """Say in words why a command could not be run."""
    program = command.argv[0]
    if command.cwd is not None and not command.cwd.is_dir():
        return f"there is no folder {command.cwd}"
    if isinstance(exc, OSError) and exc.filename == "folder":
        return f"it cannot start in the folder {command.cwd or Path.cwd()}: {exc.strerror}"
    if isinstance(exc, FileNotFoundError):
        return f"there is no program {program}"
    if isinstance(exc, PermissionError):
        return f"{program} may not be run"
    return f"{program} cannot be run: {exc.strerror if isinstance(exc, OSError) else exc}"
