"""Output of a server outside the protocol: its last lines, sanitized, and a log of bounded size."""

import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path

from fairlead.catalog.sanitize import gate

logger = logging.getLogger(__name__)

MAX_LINES = 100
MAX_FIRST_LINES = 30
MAX_LINE_CHARACTERS = 500
MAX_LOG_BYTES = 1024 * 1024
SHOWN_LINES = 60
"""How many lines of a log are shown."""

_SHOWN_BYTES = 32 * 1024

_MAX_LINE_BYTES = 4 * MAX_LINE_CHARACTERS


class OutputTail:
    """First and last lines of an output as plain text, each cut to a bounded length."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._first: list[str] = []
        self._count = 0
        self._kept: deque[bytes] = deque(maxlen=MAX_LINES)  # each as `excerpt` cuts it

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that are left, oldest first."""
        while self._kept:
            data = self._kept.popleft()
            text = gate.log_text(data)
            if len(data) > _MAX_LINE_BYTES:  # half of a secret may be at the end
                text = text[: max(0, len(text) - gate.secret_reach())]
            self._add(text)
        return tuple(self._lines)

    @property
    def all_lines(self) -> tuple[str, ...]:
        """The first lines, where they are no longer among the last, and the last ones, oldest first.

        A reason that stands above a long usage text is among the first.
        """
        lines = self.lines
        return (*self._first[: max(self._count - len(lines), 0)], *lines)

    def keep(self, data: bytes) -> None:
        """Take in whole lines, to be cleaned only if they are read: so a flood of them costs little."""
        self._kept.append(excerpt(data))

    def add(self, data: bytes) -> str:
        """Take in whole lines, and return all of their text."""
        text = gate.log_text(data)
        self._add(text)
        return text

    def _add(self, text: str) -> None:
        every = text.split("\n")
        if len(self._first) < MAX_FIRST_LINES:
            self._first += _truncate_lines(every[:MAX_FIRST_LINES])
            del self._first[MAX_FIRST_LINES:]
        self._lines.extend(_truncate_lines(every[-MAX_LINES - 1 :]))
        self._count += len(every) - every.count("")


def excerpt(data: bytes | bytearray | memoryview) -> bytes:
    """Beginning of a line, long enough that every secret in what is shown of it can be masked."""
    return bytes(data[: _MAX_LINE_BYTES + gate.secret_reach()])


def _truncate_lines(lines: list[str]) -> list[str]:
    return [line[:MAX_LINE_CHARACTERS] for each in lines if (line := each.rstrip())]


class StderrLog:
    """A server's stderr: its last lines in `tail`, more of them in a file of bounded size if there is a path.

    The file holds at most `max_bytes`. What it held before is kept beside it, once, as `<name>.1`.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_bytes: int = MAX_LOG_BYTES,
        on_text: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Make a log.

        Args:
            path: The file, if there is to be one.
            max_bytes: What it holds at most.
            on_text: Called with whole lines, sanitized, as they come.
        """
        self.tail = OutputTail()
        self._on_text = on_text
        self._path = path
        self._max_bytes = max_bytes
        self._partial = b""
        self._file: int | None = None
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Take in what arrived, in pieces of any size."""
        lines, newline, rest = data.rpartition(b"\n")
        if newline:
            if len(self._partial) > _MAX_LINE_BYTES:
                # Masked with what follows, and only then cut: no half of a secret is kept.
                self._keep(self.tail.add(self._partial)[:_MAX_LINE_BYTES])
                lines = lines.partition(b"\n")[2]
            else:
                lines = self._partial + lines
            self._partial = b""
            if lines:
                self._keep(self.tail.add(lines))
        # Of a line that never ends, only the beginning is kept.
        self._partial += rest[: _MAX_LINE_BYTES + gate.secret_reach() - len(self._partial)]

    def finish(self) -> None:
        """Take the last line even if it has no newline: the process has ended."""
        if self._partial:
            self.feed(b"\n")

    def close(self) -> None:
        """Take in the last line, and close the file."""
        self.finish()
        self._path = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _keep(self, text: str) -> None:
        self._on_text(text)
        if self._path is None:
            return
        data = f"{text}\n".encode(errors="replace")[-self._max_bytes :]
        try:
            file = self._file_with_room(self._path, len(data))
            self._size += os.write(file, data)
        except OSError:
            logger.warning("a server's stderr is no longer kept in its log file", exc_info=True)
            self._path = None

    def _file_with_room(self, path: Path, size: int) -> int:
        if self._file is None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open(path)
        if self._file is not None and self._size + size > self._max_bytes:
            os.close(self._file)
            self._file = None
            path.replace(path.with_name(f"{path.name}.1"))
            self._open(path)
        assert self._file is not None
        return self._file

    def _open(self, path: Path) -> None:
        # Servers print secrets now and then, so the log is for its owner's eyes only.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._file).st_size


def log_tail(path: Path, lines: int = SHOWN_LINES) -> tuple[str, ...]:
    """The last lines of a log file, with nothing in them that steers a terminal, and known secrets masked."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _SHOWN_BYTES))
            data = log.read(_SHOWN_BYTES)
    except OSError:
        return ()
    return tuple(gate.log_text(data).splitlines()[-lines:])
