"""No secret in what this package logs, whatever the program does with its logs."""

import logging

from fairlead.config.masking import SECRETS, Masker

_LOGGER = "fairlead"
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({})))


class MaskingHandler(logging.Handler):
    """Writes nothing, but masks each record in place.

    A record climbs from its logger to the root, and is handed to the handlers it meets on its way. So this
    one, on the logger of the whole package, sees it before any that the program set up at the root; a filter
    would see only what is logged to that very logger.
    """

    def __init__(self, masker: Masker) -> None:
        super().__init__()
        self._masker = masker

    def emit(self, record: logging.LogRecord) -> None:
        """Mask the message, what it was filled in with, the traceback and every extra field."""
        try:
            self._mask(record)
        except Exception:  # noqa: BLE001 - as every handler does: a bad record is no reason to fail
            self.handleError(record)
        # Python prints the warnings of a program that set up no logging; having a handler must not end that.
        fallback = logging.lastResort
        if fallback and record.levelno >= fallback.level and not _has_other_handlers(record.name):
            fallback.handle(record)

    def _mask(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if (masked := self._masker.mask(message)) != message:
            record.msg, record.args = masked, ()
        if record.exc_info and record.exc_info[0] is not None:
            text = logging.Formatter().formatException(record.exc_info)
            if (masked := self._masker.mask(text)) != text:
                record.exc_text, record.exc_info = masked, None
        for name, value in vars(record).items():
            if name not in _OWN_FIELDS and isinstance(value, str):
                setattr(record, name, self._masker.mask(value))


def mask_logs(masker: Masker = SECRETS) -> None:
    """Have everything this package logs masked, in the whole process. Doing so again changes nothing."""
    logger = logging.getLogger(_LOGGER)
    if not any(isinstance(handler, MaskingHandler) for handler in logger.handlers):
        logger.handlers.insert(0, MaskingHandler(masker))


def _has_other_handlers(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, MaskingHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
