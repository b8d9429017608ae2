"""Log handlers for stderr and files, with one plain line for each record."""

import logging
import os
import sys
import time
from pathlib import Path
from typing import Final, TextIO

from fairlead.catalog.sanitize import gate
from fairlead.config.document.files import hold_lock
from fairlead.config.secrets.log_filter import mask_logs
from fairlead.errors import ConfigUnwritable, FairleadError
from fairlead.gateway.service import open_log
from fairlead.terminal.output import printable
from fairlead.wording import join_clauses

MAX_LOG_BYTES: Final = 2 * 1024 * 1024
"""Size at which a log file is rotated; one rotated file is kept."""

_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


SDK_LOGGERS = ("mcp", "client")
"""Loggers of the MCP SDK, which say what happens on a connection."""


class OneLineFormatter(logging.Formatter):
    """Formatter for one line: level, logger, message and extra fields; of a traceback its last line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line."""
        parts = [f"{record.levelname.lower()}: {record.getMessage()}"]
        parts += [f"{name}={value}" for name, value in vars(record).items() if name not in _OWN_FIELDS]
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, FairleadError):
            parts.append(f"error={join_clauses(str(error), error.hint)}")
        elif error is not None:
            parts.append(f"error={error!r}")
        return printable(" ".join(parts))


class DatedFormatter(OneLineFormatter):
    """Like `OneLineFormatter`, with the time first: for files that are read later."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S%z", time.localtime(record.created))
        return f"{stamp} {super().format(record)}"


class _BoundedFile(logging.StreamHandler[TextIO]):
    """Writes to stderr, which is a file, and begins that anew when it is too long.

    The file stays the same, since stderr is open on it: its text is copied away, and it is emptied. Several
    processes of one gateway write to it, and one at a time does that.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self._max_bytes = max_bytes

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        try:
            if self._is_too_long():
                with hold_lock(self._path, timeout=0):
                    self._begin_anew()
        except ConfigUnwritable:
            return  # another process does so now
        except OSError:
            self.handleError(record)

    def _is_too_long(self) -> bool:
        return os.fstat(_STDERR).st_size > self._max_bytes

    def _begin_anew(self) -> None:
        if not self._is_too_long():
            return  # another process was first
        older = self._path.with_name(f"{self._path.name}.1")
        older.write_bytes(self._path.read_bytes())
        older.chmod(0o600)
        os.truncate(self._path, 0)


def log_to_stderr() -> None:
    """Log what this package does: all of it to a journal, only what went wrong to a person's terminal."""
    if _is_verbose():
        return  # which logs more
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter())
    _log_to(handler, logging.WARNING if sys.stderr.isatty() else logging.INFO)


def log_to_file(path: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Log to a file of bounded size that only this user can read.

    Stdout and stderr go there as well from now on: what another library, or the interpreter, prints.

    Raises:
        ConfigUnwritable: The file cannot be written.
    """
    log = open_log(path)
    for number in (_STDOUT, _STDERR):
        os.dup2(log, number)
    os.close(log)
    handler = _BoundedFile(path, max_bytes)
    handler.setFormatter(DatedFormatter())
    _log_to(handler, logging.INFO)


_STDOUT, _STDERR = 1, 2


def _log_to(handler: logging.Handler, level: int) -> None:
    own = logging.getLogger("fairlead")
    mask_logs(gate.log_line)
    handler.setLevel(level)
    own.addHandler(handler)
    own.setLevel(logging.INFO)  # the dashboard shows all of it


class _TimedFormatter(OneLineFormatter):
    """The same, after the seconds since the start."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line."""
        return f"{record.relativeCreated / 1000:8.3f} s  {super().format(record)}"


def log_verbosely() -> None:
    """Log everything, each line with the seconds since the start: `--verbose`. Idempotent."""
    if _is_verbose():
        return
    mask_logs(gate.log_line)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TimedFormatter())
    for name in ("fairlead", *SDK_LOGGERS):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)


def _is_verbose() -> bool:
    handlers = logging.getLogger("fairlead").handlers
    return any(isinstance(handler.formatter, _TimedFormatter) for handler in handlers)


def shorten_warnings() -> None:
    """Print warnings of a command that configures no logs as one line each, without tracebacks."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(OneLineFormatter())
