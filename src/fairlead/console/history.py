"""The lines a person typed, to be had again with the arrow keys: a private file, without what is secret."""

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, cast

from prompt_toolkit.history import History

from fairlead.config.files import read_text, write_atomic
from fairlead.config.masking import SECRETS
from fairlead.errors import ConfigError

FILE_NAME: Final = "console_history"
MAX_LINES: Final = 1000

_MAY_BE_SECRET: Final = ("=", "{", "://")
"""What there is in a command with arguments, or with the address that a login ended at."""

logger = logging.getLogger(__name__)


class LineHistory(History):
    """Lines that are kept from run to run. Commands with arguments are remembered in this run only."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """The lines of earlier runs, the newest first."""
        try:
            kept = read_text(self._path).splitlines() if self._path.exists() else []
            if len(kept) > 2 * MAX_LINES:
                kept = kept[-MAX_LINES:]
                write_atomic(self._path, "".join(f"{line}\n" for line in kept), mode=0o600)
        except ConfigError:
            logger.warning("the lines of earlier runs cannot be read", exc_info=True)
            return []
        return [line for entry in reversed(kept) if (line := _read(entry)) is not None]

    def store_string(self, string: str) -> None:
        """Keep a line, if it may be."""
        if not is_kept(string):
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(f"{json.dumps(string)}\n")
        except OSError:
            logger.warning("this line is not kept for later runs", exc_info=True)


def is_kept(line: str) -> bool:
    """May a line be written down?"""
    if line.startswith("/") and any(sign in line for sign in _MAY_BE_SECRET):
        return False
    return SECRETS.mask(line) == line


def _read(entry: str) -> str | None:
    try:
        value = cast("object", json.loads(entry))
    except ValueError:
        return None
    return value if isinstance(value, str) else None
