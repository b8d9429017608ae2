"""Our ends of a server's pipes. The event loop has transports for them too, which take longer to set up."""

import array
import asyncio
import os
import sys
from collections.abc import Callable
from typing import IO

from fairlead.connection.process import MAX_WAITING_BYTES

_CHUNK_BYTES = 256 * 1024
_DRAINED_BYTES = MAX_WAITING_BYTES // 4
_MANY_LINES = 512
_PIECE_BYTES = 16 * 1024
"""How much is handed on in one turn of the event loop where it is many lines: 16 KiB take about 5 ms."""


class PipeReader:
    """Reads what comes until it ends. Then, or when it is closed, `on_closed` is called, once.

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
        """What was read and not handed on yet; nothing more is read before it is."""
        self._loop = asyncio.get_running_loop()
        self._held = False
        self._waits = False
        """Is `_go_on` going to be called?"""
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._read)

    def hold(self, *, hold: bool) -> None:
        """Read no more for now, or go on. What is not read makes the other side wait."""
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
    """Writes without waiting, and keeps what the other side is slow to read.

    `on_closed` is called, once, when the pipe is closed or nobody reads from it any more.
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
        """How much the pipe has not taken yet."""
        return len(self._waiting)

    @property
    def was_read(self) -> bool:
        """Has anybody read anything of what was written? Where the system does not say, somebody has."""
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
        """Let nobody wait for the pipe to take more."""
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
    """How much of what a pipe has taken nobody has read, as far as the system says."""
    if sys.platform != "linux":
        return 0
    import fcntl  # this module is imported on systems that have none
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]
