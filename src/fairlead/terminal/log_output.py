"""Logs on stderr: one plain line each, as journals and people like them."""

import logging
import sys

from fairlead.catalog.sanitize import gate
from fairlead.config.secrets.log_filter import mask_logs
from fairlead.terminal.output import printable

_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLineFormatter())
    own = logging.getLogger("fairlead")
    mask_logs(gate.log_line)
    handler.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
    own.addHandler(handler)
    own.setLevel(logging.INFO)  # the dashboard shows all of it


def shorten_warnings() -> None:
    """Print warnings of a command that configures no logs as one line each, without tracebacks."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(OneLineFormatter())
