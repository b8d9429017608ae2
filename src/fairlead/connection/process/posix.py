"""Server processes on POSIX: started by the guardian, with pipes read and written on the event loop.

The pipes are our own, since asyncio's pipe transports take longer to set up.
"""

import array
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import IO

import anyio
import anyio.abc

from fairlead.connection.process.child import (
    KILL_SECONDS,
    LAST_WORDS_SECONDS,
    MAX_WAITING_BYTES,
    Command,
    ProcessListener,
    explain_spawn_error,
)
from fairlead.connection.process.guardian import Guardian, ServerProcess

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 256 * 1024
_DRAINED_BYTES = MAX_WAITING_BYTES // 4
_MANY_LINES = 512
_PIECE_BYTES = 16 * 1024
"""How much is handed on in one turn of the event loop where it is many lines: 16 KiB take about 5 ms."""


class PipeReader:
    """Reads a pipe until its end. Then, or when it is closed, `on_closed` is called, once.

    `on_data` returns how many seconds nothing more is to be read; it is asked again then, with nothing.
    """

    def __init__(
        self, file: IO[bytes], on_data: Callable[[bytes], float | None], on_closed: Callable[[], None]
    ) -> None:
        self._file = file
        self._fd = file.fileno()
        self._on_data = on_data
        self._on_closed = on_closed
        self._rest = b""
        """Data that was read and not delivered yet; nothing more is read before it is."""
        self._loop = asyncio.get_running_loop()
        self._held = False
        self._waits = False
        """Whether `_go_on` is scheduled."""
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._read)

    def hold(self, *, hold: bool) -> None:
        """Stop reading for now, or go on. Unread data makes the other side wait."""
        if hold == self._held or self._file.closed:
            return
        self._held = hold
        if hold:
            self._loop.remove_reader(self._fd)
        elif not self._waits:
            self._go_on_in(0)

    def close(self) -> None:
        """Read no more."""
        if not self._file.closed:
            self._loop.remove_reader(self._fd)
            self._file.close()
            self._loop.call_soon(self._on_closed)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if _has_many_lines(data):
            data, self._rest = data[:_PIECE_BYTES], data[_PIECE_BYTES:]
        pause = self._on_data(data)
        if (pause or self._rest) and not self._file.closed:
            self._loop.remove_reader(self._fd)
            self._go_on_in(pause or 0)

    def _go_on_in(self, seconds: float) -> None:
        self._waits = True
        self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        """Hand on the rest, a piece in each turn of the event loop, and then read again.

        Not while reading is held: a pause that ends must not bring in what nothing has room for.
        """
        self._waits = False
        if self._file.closed or self._held:
            return
        pause = self._on_data(b"")
        if not pause and self._rest:
            piece, self._rest = self._rest[:_PIECE_BYTES], self._rest[_PIECE_BYTES:]
            pause = self._on_data(piece)
        if self._file.closed:
            return
        if pause or self._rest:
            self._go_on_in(pause or 0)
        elif not self._held:
            self._loop.add_reader(self._fd, self._read)


def _has_many_lines(data: bytes) -> bool:
    # Not by counting: that takes as long as all else that is done to a large message together.
    place = -1
    for _ in range(_MANY_LINES if len(data) > _MANY_LINES else 0):
        place = data.find(b"\n", place + 1)
        if place < 0:
            return False
    return place >= 0


class PipeWriter:
    """Writes to a pipe without waiting, and keeps what the other side is slow to read.

    `on_closed` is called, once, when either end of the pipe is closed.
    """

    def __init__(self, file: IO[bytes], on_closed: Callable[[], None]) -> None:
        self.congested: asyncio.Future[None] | None = None
        self._file = file
        self._fd = file.fileno()
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._taken = 0
        self._left_unread = 0
        self._closing = False
        os.set_blocking(self._fd, False)
        # Nothing is ever to be read here, except the news that there is no reader.
        self._loop.add_reader(self._fd, self.abort)

    @property
    def waiting_bytes(self) -> int:
        """Number of bytes that the pipe has not taken yet."""
        return len(self._waiting)

    @property
    def was_read(self) -> bool:
        """Whether the other end has read anything. True where the system cannot tell."""
        unread = self._left_unread if self._file.closed else _unread_bytes(self._fd)
        return unread < self._taken

    def write(self, data: bytes) -> bool:
        """Write; what comes after the pipe was closed is dropped. False where none of it can have left."""
        if self._closing:
            return False
        if not self._waiting:
            taken = self._offer(data)
            if taken == len(data) or self._closing:
                return taken > 0
            data = data[taken:]
            self._loop.add_writer(self._fd, self._drain)
        self._keep(data)
        return True

    def write_soon(self, data: bytes) -> bool:
        """Write together with what others write in this turn of the event loop.

        Every write wakes up the other side, which costs more than all else about it.
        """
        if self._closing:
            return False
        if not self._waiting:
            self._loop.call_soon(self._write_gathered)
        self._keep(data)
        return True

    def let_senders_go(self) -> None:
        """Wake all that wait until the pipe takes more."""
        if self.congested is not None:
            self.congested.set_result(None)
            self.congested = None

    def close(self) -> None:
        """Close the pipe as soon as it has taken everything."""
        self._closing = True
        if not self._waiting:
            self.abort()

    def abort(self) -> None:
        """Close the pipe now."""
        self._closing = True
        if not self._file.closed:
            self._left_unread = _unread_bytes(self._fd)
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            self._waiting.clear()
            self._file.close()
            self._loop.call_soon(self._on_closed)

    def _keep(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) > MAX_WAITING_BYTES and self.congested is None:
            self.congested = self._loop.create_future()

    def _write_gathered(self) -> None:
        if self._waiting:
            self._drain()
        if self._waiting:
            self._loop.add_writer(self._fd, self._drain)

    def _drain(self) -> None:
        del self._waiting[: self._offer(self._waiting)]
        if self._file.closed:
            return
        if len(self._waiting) <= _DRAINED_BYTES:
            self.let_senders_go()
        if not self._waiting:
            self._loop.remove_writer(self._fd)
            if self._closing:
                self.abort()

    def _offer(self, data: bytes | bytearray) -> int:
        try:
            taken = os.write(self._fd, data)
        except BlockingIOError:
            return 0
        except OSError:
            self.abort()
            return 0
        self._taken += taken
        return taken


def _unread_bytes(fd: int) -> int:
    """Number of unread bytes in a pipe, as far as the system can tell."""
    if sys.platform != "linux":
        return 0
    import fcntl  # this module is imported on systems that have none
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


_PIPE_BYTES = 256 * 1024


class PosixChild:
    """A child that leads its own session and process group, below a reaper of the guardian.

    Its pipes are between it and us alone. Its descendants end with it: see `reaper.py`.
    """

    def __init__(self, command: Command, listener: ProcessListener) -> None:
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
    async def start(cls, command: Command, listener: ProcessListener, guardian: Guardian) -> "PosixChild":
        """Start the process. Raises `SpawnFailed`."""
        child = cls(command, listener)
        await child._spawn(guardian)
        return child

    async def _spawn(self, guardian: Guardian) -> None:
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for is_input in (True, False, False):  # one may be opened where the next one is one too many
                reading, writing = os.pipe()
                ours.append(writing if is_input else reading)
                theirs.append(reading if is_input else writing)
            stdin, stdout, stderr = theirs
            self._process = await guardian.start(self._command, (stdin, stdout, stderr), self._on_exit)
        except BaseException as exc:
            for fd in ours:
                os.close(fd)
            if isinstance(exc, (OSError, ValueError)):
                raise explain_spawn_error(self._command, exc) from exc
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self._connect(*ours)
        logger.debug("process started", extra={"program": self._command.argv[0], "pid": self._process.pid})

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
        """Its exit status: a code, or the negative number of a signal; `None` while it runs."""
        return self._process.returncode

    @property
    def waiting_bytes(self) -> int:
        """Number of written bytes that it has not read yet."""
        return self._stdin.waiting_bytes

    @property
    def congested(self) -> asyncio.Future[None] | None:
        """The event to wait for before writing more, or `None`."""
        return self._stdin.congested

    @property
    def has_read(self) -> bool:
        """Whether the server has read anything. True where the system cannot tell."""
        return self._stdin.was_read

    def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Do nothing: the event loop carries input and output."""

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
            # Nothing reads it any more, and the pipe would stay open for it.
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
    """Enlarge the pipe's buffer: for a result of 100 KB, the reader takes a quarter less time."""
    if sys.platform == "linux":
        import fcntl  # this module is imported on systems that have none

        # A user who has very many pipes may not have them larger.
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
