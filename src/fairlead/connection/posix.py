"""A server's process on POSIX: its pipes, its end, and the end of everything it started."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import IO

import anyio
import anyio.abc

from fairlead.connection.environment import child_environment
from fairlead.connection.guardian import Guardian
from fairlead.connection.outcomes import SpawnFailed
from fairlead.connection.pipes import PipeReader, PipeWriter
from fairlead.connection.process import (
    KILL_SECONDS,
    LAST_WORDS_SECONDS,
    Command,
    Listener,
    why_not_started,
)
from fairlead.connection.reaper import Family, latest_start

_POLL_SECONDS = 0.02
_PIPE_BYTES = 256 * 1024


class PosixChild:
    """A child that leads its own session and process group.

    `subprocess` starts it, and only then the event loop learns of it, because not every loop closes our other
    files for it, gives it pipes rather than sockets, and refuses an argument it cannot pass on.
    """

    def __init__(self, command: Command, listener: Listener, guardian: Guardian | None) -> None:
        self._command = command
        self._listener = listener
        self._guardian = guardian
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._silent = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._open_pipes = {0, 1, 2}
        self._ended = False
        self._last_words: asyncio.TimerHandle | None = None
        self._process: subprocess.Popen[bytes]
        self._family: Family
        self._stdin: PipeWriter
        self._outputs: list[PipeReader] = []

    @classmethod
    def start(cls, command: Command, listener: Listener, guardian: Guardian | None) -> "PosixChild":
        """Start the process. Raises `SpawnFailed`."""
        child = cls(command, listener, guardian)
        child._spawn()
        return child

    def _spawn(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command.argv,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=child_environment(self._command.env, self._command.parent),
                cwd=self._command.cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            raise SpawnFailed(why_not_started(self._command, exc)) from exc
        pid = self._process.pid
        started_by = latest_start() if self._guardian is None else self._guardian.watch(pid)
        self._family = Family(pid, started_by)
        self._connect(self._process)
        watch_exit(self._process, self._on_exit)

    def _connect(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        _widen(process.stdout)
        closed = self._on_pipe_closed
        self._stdin = PipeWriter(process.stdin, partial(closed, 0))
        self._outputs = [
            PipeReader(process.stdout, self._listener.on_stdout, partial(closed, 1)),
            PipeReader(process.stderr, self._listener.on_stderr, partial(closed, 2)),
        ]

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it exited: a code, or the negative number of a signal; `None` while it runs."""
        return self._process.returncode

    @property
    def waiting_bytes(self) -> int:
        """How much of what was written it has not read yet."""
        return self._stdin.waiting_bytes

    @property
    def congested(self) -> asyncio.Future[None] | None:
        """What to wait for before writing more, or `None`."""
        return self._stdin.congested

    @property
    def has_read(self) -> bool:
        """Has it read anything of what was written? Where the system does not say, it has."""
        return self._stdin.was_read

    def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Do nothing: the event loop carries what is said."""

    def write(self, data: bytes) -> None:
        """Write to its stdin, without waiting."""
        self._stdin.write(data)

    def write_soon(self, data: bytes) -> None:
        """Write to its stdin, together with what others write in this turn of the event loop."""
        self._stdin.write_soon(data)

    async def stop(self) -> None:
        """End it and all it started; returns within bounded time, and it must not be cancelled."""
        # Whoever left the group can only be found while their parents are there.
        self._family.alive()
        self._stdin.close()
        with anyio.move_on_after(self._command.exit_seconds):
            await self._exited.wait()
        if self._family.alive():
            self._family.signal(signal.SIGTERM)
            await self._end_of_family(self._command.terminate_seconds)
        if self._family.alive():
            self._family.signal(signal.SIGKILL)
            await self._end_of_family(KILL_SECONDS)
        await self._close_pipes()
        if self._guardian is not None:
            self._guardian.release(self._process.pid)

    async def _end_of_family(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._exited.wait()
            while True:
                if not self._family.alive():
                    return
                await anyio.sleep(_POLL_SECONDS)

    async def _close_pipes(self) -> None:
        with anyio.move_on_after(LAST_WORDS_SECONDS):
            await self._silent.wait()
        if self.waiting_bytes:
            # Nobody will read it, and the pipe would stay open for it.
            self._stdin.abort()
        for output in self._outputs:
            output.close()
        with anyio.move_on_after(KILL_SECONDS):
            await self._hung_up.wait()

    # What the event loop notes.

    def _on_pipe_closed(self, fd: int) -> None:
        # Without stdin or stdout it cannot be talked to.
        self._open_pipes.discard(fd)
        if not self._open_pipes & {1, 2}:
            self._silent.set()
        if not self._open_pipes:
            self._hung_up.set()
        if fd != 2 or self._exited.is_set():
            self._ending()

    def _on_exit(self) -> None:
        self._exited.set()
        self._ending()

    def _ending(self) -> None:
        # The exit, the end of stdout and the last of stderr come in any order. A process it started may even
        # hold its pipes open, so there is a limit to waiting for all three.
        if self._exited.is_set() and self._silent.is_set():
            self._end()
        elif self._last_words is None:
            self._last_words = self._loop.call_later(LAST_WORDS_SECONDS, self._end)

    def _end(self) -> None:
        if self._last_words is not None:
            self._last_words.cancel()
        self._stdin.let_senders_go()
        if not self._ended:
            self._ended = True
            self._listener.on_end(self.returncode)


def _widen(pipe: IO[bytes]) -> None:
    """Let large results come in fewer pieces: of 100 KB, the reader spends a quarter less."""
    if sys.platform == "linux":
        import fcntl  # this module is imported on systems that have none

        # A user who has very many pipes may not have them larger.
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def watch_exit(process: subprocess.Popen[bytes], on_exit: Callable[[], None]) -> None:
    """Call `on_exit` in the running loop once `process` has exited and its return code is known."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(process.pid) if sys.platform == "linux" else None
    except OSError:
        descriptor = None

    def exited() -> None:
        if descriptor is not None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        process.wait()
        on_exit()

    def wait() -> None:
        process.wait()
        # The loop may be gone by now, and then nobody is left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(exited)

    if descriptor is not None:
        loop.add_reader(descriptor, exited)
    else:
        threading.Thread(target=wait, name="fairlead-exit", daemon=True).start()
