"""What a local server said last on its stderr, for people."""

from pathlib import Path
from typing import Final

from fairlead.catalog import gate

LOG_LINES: Final = 60
LOG_BYTES: Final = 32 * 1024


def log_tail(path: Path, lines: int = LOG_LINES) -> tuple[str, ...]:
    """The last lines of a log, with nothing in them that steers a terminal, and known secrets masked."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LOG_BYTES))
            data = log.read(LOG_BYTES)
    except OSError:
        return ()
    return tuple(gate.log_text(data).splitlines()[-lines:])
