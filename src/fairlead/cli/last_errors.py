"""Output of a server's last error, for commands that show one server."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fairlead.terminal.output import print_data, printable
from fairlead.wording import without_server


def error_lines(status: Mapping[str, Any]) -> list[str]:
    """The lines of the last error of a server, and its hint; `status` is as `status_as_json` writes it."""
    error, hint = status["last_error"], status.get("hint")
    if not error:
        return []
    lines = without_server(error, status["id"]).split("\n")
    if hint and hint not in error:
        lines.append(f"hint: {hint}")
    return [printable(line) for line in lines]


def print_last_error(status: Mapping[str, Any]) -> None:
    """Print the whole last error of a server, with the time and the hint, if it has one."""
    if not (lines := error_lines(status)):
        return
    at = status.get("last_error_at")
    when = f" ({datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S})" if at else ""
    print_data(f"\nlast error{when}:")
    for line in lines:
        print_data(f"  {line}")
