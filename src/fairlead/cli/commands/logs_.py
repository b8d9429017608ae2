"""`fairlead logs`."""

import os
import time
from pathlib import Path

import click

from fairlead.cli.options import load, server_argument
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
@click.pass_context
def command(ctx: click.Context, server_id: str, lines: int, *, follow: bool) -> None:
    """Show a local server's stderr."""
    server = load(ctx).server(server_id)
    path = state_folder(os.environ) / "logs" / f"{server.server_id}.log"
    end = _show_tail(path, lines)
    if end is None:
        say(f"`{server_id}` has said nothing yet")
        end = 0
    while follow:
        time.sleep(POLL_SECONDS)
        end = _show_new(path, end)


def _show_tail(path: Path, lines: int) -> int | None:
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return None
    for line in text.splitlines()[-lines:]:
        print_data(printable(line))
    return size


def _show_new(path: Path, end: int) -> int:
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(end if size >= end else 0)  # a shorter file is a new one
            for line in log.read().decode(errors="replace").splitlines():
                print_data(printable(line))
            return size
    except FileNotFoundError:
        return 0
