"""`fairlead logs`."""

import os
import time

import click

from fairlead.actions.logs import LogReader, server_log
from fairlead.cli.options import load, server_argument
from fairlead.terminal.output import print_data, printable, say

POLL_SECONDS = 0.3


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
    reader = LogReader(server_log(os.environ, server.server_id))
    tail = reader.tail()
    if tail is None:
        say(f"`{server_id}` has said nothing yet")
    for line in (tail or [])[-lines:]:
        print_data(printable(line))
    while follow:
        time.sleep(POLL_SECONDS)
        for line in reader.new_lines():
            print_data(printable(line))
