"""Logs on stderr: one plain line each, as journals and people like them."""

import logging
import sys

from fairlead.catalog.sanitize import gate
from fairlead.config.secrets.log_filter import mask_logs
from fairlead.terminal.output import printable

_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


_LIBRARIES = ("mcp", "client")
"""Loggers of the MCP SDK, which say what happens on a connection."""


class OneLineFormatter(logging.Formatter):
    """Level, where, message, and what else is known as `name=value`. A traceback is said in its last line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line."""
        parts = [f"{record.levelname.lower()}: {record.getMessage()}"]
        parts += [f"{name}={value}" for name, value in vars(record).items() if name not in _OWN_FIELDS]
        if record.exc_info and record.exc_info[1] is not None:
            parts.append(f"error={record.exc_info[1]!r}")
        return printable(" ".join(parts))


def log_to_stderr() -> None:
    """Log what this package does: all of it to a journal, only what went wrong to a person's terminal."""
    if _is_verbose():
        return  # which logs more
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter())
    own = logging.getLogger("fairlead")
    mask_logs(gate.log_line)
    own.addHandler(handler)
    own.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)


class _TimedFormatter(OneLineFormatter):
    """The same, after the seconds since the start."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record as one line."""
        return f"{record.relativeCreated / 1000:8.3f} s  {super().format(record)}"


def log_verbosely() -> None:
    """Log all that happens, each line with the seconds since the start: `--verbose`. Idempotent."""
    if _is_verbose():
        return
    mask_logs(gate.log_line)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TimedFormatter())
    for name in ("fairlead", *_LIBRARIES):
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
