"""`fairlead logs`."""

import json
import os
import time
from collections.abc import Callable

import click

from fairlead.actions.logs import LogReader, server_log
from fairlead.cli.options import json_option, load, server_argument
from fairlead.terminal.output import print_data, printable, say

POLL_SECONDS = 0.3


@click.command("logs")
@server_argument
@click.option(
    "-n", "--lines", type=click.IntRange(min=1), default=50, show_default=True, help="How many lines."
)
@click.option("-f", "--follow", is_flag=True, help="Show new lines as they come, until Ctrl-C.")
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
    reader = LogReader(server_log(os.environ, server.server_id))
    show: Callable[[str], None] = _show_as_json if as_json else _show_line
    tail = reader.tail()
    if tail is None:
        say(f"`{server_id}` has said nothing yet")
    for line in (tail or [])[-lines:]:
        show(line)
    while follow:
        time.sleep(POLL_SECONDS)
        for line in reader.new_lines():
            show(line)


def _show_line(line: str) -> None:
    print_data(printable(line))


def _show_as_json(line: str) -> None:
    print_data(json.dumps({"line": printable(line)}, ensure_ascii=False))
