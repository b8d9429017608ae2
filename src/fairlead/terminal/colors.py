"""Whether output is colored, and the colors of states.

`NO_COLOR` switches colors off, `FORCE_COLOR` and `CLICOLOR_FORCE` on, also in a pipe; `CLICOLOR=0` leaves
them out. Otherwise a terminal that can show them gets them, and a file or a pipe does not.
"""

import os
from collections.abc import Mapping
from typing import Final, TextIO

_RESET: Final = "\x1b[0m"
_CODES: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}

STATE_COLUMNS: Final = frozenset({"state", "answer", "enabled", "decision", "outcome", "offered", "result"})
"""Columns of tables whose cells are states."""

_COLORS_OF_STATES: Final = {
    **dict.fromkeys(("ready", "allow", "allowed", "yes", "ok", "valid", "running", "passed"), "green"),
    **dict.fromkeys(
        (
            "ask",
            "held",
            "connecting",
            "auth_required",
            "needs_client_registration",
            "waiting",
            "warning",
            "expired",
            "not",
            "starting",
        ),
        "yellow",
    ),
    **dict.fromkeys(
        ("error", "deny", "denied", "refused", "failed", "tool_error", "call_denied", "unavailable"), "red"
    ),
    **dict.fromkeys(("disabled", "no", "idle", "-"), "dim"),
}


def use_color(stream: TextIO, env: Mapping[str, str] = os.environ) -> bool:
    """Whether what is written to a stream is colored."""
    if env.get("NO_COLOR"):
        return False
    if any(env.get(name) not in (None, "", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return env.get("CLICOLOR") != "0" and env.get("TERM") != "dumb" and stream.isatty()


def paint(text: str, *styles: str) -> str:
    """The text in a color, or bold, or dim."""
    codes = ";".join(_CODES[style] for style in styles)
    return f"\x1b[{codes}m{text}{_RESET}" if text and codes else text


def color_of_state(cell: str) -> str | None:
    """The color of a state, by its first word: green is well, yellow waits for the user, red failed."""
    words = cell.replace(":", " ").replace(",", " ").split(maxsplit=1)
    return _COLORS_OF_STATES.get(words[0].lower()) if words else None
