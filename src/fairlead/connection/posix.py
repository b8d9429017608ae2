"""A server's process on POSIX: its pipes, its end, and the end of everything it started."""

import asyncio
import contextlib
import os
import sys
from functools import partial

import anyio
import anyio.abc

from fairlead.connection.guardian import Guardian, ServerProcess
from fairlead.connection.outcomes import SpawnFailed
from fairlead.connection.pipes import PipeReader, PipeWriter
from fairlead.connection.process import (
    KILL_SECONDS,
    LAST_WORDS_SECONDS,
    Command,
    Listener,
    why_not_started,
)

_PIPE_BYTES = 256 * 1024


class PosixChild:
    """A child that leads its own session and process group, below a reaper of the guardian.

    Its pipes are between it and us alone. Whatever descends from it ends with it: see `reaper.py`.
    """

    def __init__(self, command: Command, listener: Listener) -> None:
        self._command = command
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._silent = asyncio.Event()
        self._hung_up = asyncio.Event()
        self._open_pipes = {0, 1, 2}
        self._ended = False
        self._last_words: asyncio.TimerHandle | None = None
        self._process: ServerProcess
        self._stdin: PipeWriter
        self._outputs: list[PipeReader] = []

    @classmethod
    async def start(cls, command: Command, listener: Listener, guardian: Guardian) -> "PosixChild":
        """Start the process. Raises `SpawnFailed`."""
        child = cls(command, listener)
        await child._spawn(guardian)
        return child

    async def _spawn(self, guardian: Guardian) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_err, theirs_err = os.pipe()
        try:
            theirs = (theirs_in, theirs_out, theirs_err)
            self._process = await guardian.start(self._command, theirs, self._on_exit)
        except BaseException as exc:
            for fd in (ours_in, ours_out, ours_err):
                os.close(fd)
            if isinstance(exc, (OSError, ValueError)):
                raise SpawnFailed(why_not_started(self._command, exc)) from exc
            raise
        finally:
            for fd in (theirs_in, theirs_out, theirs_err):
                os.close(fd)
        self._connect(ours_in, ours_out, ours_err)

    def _connect(self, stdin: int, stdout: int, stderr: int) -> None:
        _widen(stdout)
        closed = self._on_pipe_closed
        self._stdin = PipeWriter(os.fdopen(stdin, "wb", buffering=0), partial(closed, 0))
        self._outputs = [
            PipeReader(os.fdopen(stdout, "rb", buffering=0), self._listener.on_stdout, partial(closed, 1)),
            PipeReader(os.fdopen(stderr, "rb", buffering=0), self._listener.on_stderr, partial(closed, 2)),
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

    def write(self, data: bytes) -> bool:
        """Write to its stdin, without waiting. False where it is gone, and certainly reads none of it."""
        return not self._exited.is_set() and self._stdin.write(data)

    def write_soon(self, data: bytes) -> bool:
        """Write to its stdin, together with what others write in this turn of the event loop."""
        return not self._exited.is_set() and self._stdin.write_soon(data)

    def hold_stdout(self, *, hold: bool) -> None:
        """Read no more of its stdout for now, or go on."""
        self._outputs[0].hold(hold=hold)

    async def stop(self, *, quickly: bool = False) -> None:
        """End it and all it started; returns within bounded time, and it must not be cancelled."""
        self._stdin.close()
        self._process.stop(quickly=quickly)
        await self._process.wait_gone(self._command.exit_seconds + self._command.terminate_seconds)
        await self._close_pipes()
        self._process.close()

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


def _widen(pipe: int) -> None:
    """Let large results come in fewer pieces: of 100 KB, the reader spends a quarter less."""
    if sys.platform == "linux":
        import fcntl  # this module is imported on systems that have none

        # A user who has very many pipes may not have them larger.
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
