"""Logging handler that makes the logs of this package and the SDK safe to show."""

import logging
from collections.abc import Callable

from fairlead.config.secrets.masking import SECRETS

LOGGERS = ("fairlead", "mcp", "client", "aiohttp")
"""Our loggers, and those of libraries that quote what servers send: `client` is the SDK's session."""
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({})))


class MaskingHandler(logging.Handler):
    """Handler that writes nothing, but changes each record in place: its texts become the result of `show`.

    A record goes from its logger up to the root, through the handlers on its way. So this one, on the logger
    of a whole package, sees it before any that the program set up at the root; a filter would see only what
    is logged to that very logger.
    """

    def __init__(self, show: Callable[[str], str]) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Mask the message, its arguments, the traceback and every extra field."""
        try:
            self._mask(record)
        except Exception:  # noqa: BLE001 - as every handler does: a bad record is no reason to fail
            self.handleError(record)
        # Python prints warnings of a program without logging handlers; this handler must not end that.
        fallback = logging.lastResort
        if fallback and record.levelno >= fallback.level and not _has_other_handlers(record.name):
            fallback.handle(record)

    def _mask(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if (shown := self._show(message)) != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[0] is not None:
            text = logging.Formatter().formatException(record.exc_info)
            if (shown := self._show(text)) != text:
                record.exc_text, record.exc_info = shown, None
        for name, value in vars(record).items():
            # Other values are formatted as text in the end.
            if name not in _OWN_FIELDS and (shown := self._show(text := str(value))) != text:
                setattr(record, name, shown)


def mask_logs(show: Callable[[str], str] = SECRETS.mask) -> None:
    """Have all logs of this package and the SDK changed by `show`, in the whole process. Idempotent.

    Args:
        show: Makes a text safe to show: `gate.log_line`, which sanitizes too, in a layer above this one.
    """
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, MaskingHandler) for handler in logger.handlers):
            logger.handlers.insert(0, MaskingHandler(show))


def _has_other_handlers(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, MaskingHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
