"""`fairlead logs`."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import click

from fairlead.cli.options import json_option, load, server_argument
from fairlead.config.paths import state_folder
from fairlead.terminal.output import print_data, printable, say

POLL_SECONDS = 0.3
TAIL_BYTES = 1024 * 1024


@click.command("logs")
@server_argument
@click.option(
    "-n", "--lines", type=click.IntRange(min=1), default=50, show_default=True, help="How many lines."
)
@click.option("-f", "--follow", is_flag=True, help="Go on as it says more, until Ctrl-C.")
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str, lines: int, *, follow: bool, as_json: bool) -> None:
    """Show a local server's stderr. With `--json`, one object on each line.

    \b
    Examples:
      fairlead logs github
      fairlead logs github -n 200 --follow
    """
    server = load(ctx).server(server_id)
    path = state_folder(os.environ) / "logs" / f"{server.server_id}.log"
    show = _show_as_json if as_json else _show_line
    end = _show_tail(path, lines, show)
    if end is None:
        say(f"`{server_id}` has said nothing yet")
        end = 0
    while follow:
        time.sleep(POLL_SECONDS)
        end = _show_new(path, end, show)


def _show_line(line: str) -> None:
    print_data(printable(line))


def _show_as_json(line: str) -> None:
    print_data(json.dumps({"line": printable(line)}, ensure_ascii=False))


def _show_tail(path: Path, lines: int, show: Callable[[str], None]) -> int | None:
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return None
    for line in text.splitlines()[-lines:]:
        show(line)
    return size


def _show_new(path: Path, end: int, show: Callable[[str], None]) -> int:
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(end if size >= end else 0)  # a shorter file is a new one
            for line in log.read().decode(errors="replace").splitlines():
                show(line)
            return size
    except FileNotFoundError:
        return 0
