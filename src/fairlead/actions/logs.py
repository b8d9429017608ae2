"""Read the logs of servers: what they write to stderr."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fairlead.config.paths import state_folder

TAIL_BYTES: Final = 1024 * 1024


def server_log(env: Mapping[str, str], server_id: str) -> Path:
    """The file with the stderr of a local server. It is there once the server has written something."""
    return state_folder(env) / "logs" / f"{server_id}.log"


class LogReader:
    """Reads a log file from near its end, and then what is added to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = 0

    def tail(self, most_bytes: int = TAIL_BYTES) -> list[str] | None:
        """The lines at its end; None where there is no file."""
        try:
            with self._path.open("rb") as log:
                self._end = log.seek(0, os.SEEK_END)
                begin = max(0, self._end - most_bytes)
                log.seek(begin)
                lines = log.read(self._end - begin).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return None
        return lines[1:] if begin else lines  # the first may be a part of one

    def new_lines(self) -> list[str]:
        """The lines that were added since the last call."""
        try:
            with self._path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                begin = log.seek(self._end if size >= self._end else 0)  # a shorter file is a new one
                self._end = size
                return log.read(size - begin).decode(errors="replace").splitlines()
        except FileNotFoundError:
            self._end = 0
            return []
