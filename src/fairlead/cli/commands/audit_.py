"""`fairlead audit`."""

import os
import re
import sys
import time
from datetime import datetime

import click

from fairlead.actions.audit_log import AuditReader, open_audit_log
from fairlead.cli.options import json_option, load
from fairlead.config.store_location import store_location
from fairlead.policy.audit import AuditQuery, encode
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_table, printable, say
from fairlead.terminal.tables import COLUMNS, audit_row

POLL_SECONDS = 0.3
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Moment(click.ParamType[float]):
    """A point in time: how long ago (`90s`, `1h`, `7d`), or a date with or without a time."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The moment in seconds since 1970."""
        text = str(value)
        if ago := re.fullmatch(r"(\d{1,9})([smhdw])", text):
            return time.time() - int(ago[1]) * _UNITS[ago[2]]
        try:
            return datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            self.fail(
                f"`{text}` is neither like `1h` nor like `2026-01-31` or `2026-01-31T12:00`", param, ctx
            )


@click.command("audit")
@click.option("--since", type=Moment(), help="Records after this time: `1h`, `7d`, `2026-01-31T12:00`.")
@click.option("--until", type=Moment(), help="Records before this time.")
@click.option("--server", metavar="ID", help="Only calls to this server.")
@click.option("--tool", metavar="NAME", help="Only calls of this tool: `server.tool`, or its name alone.")
@click.option("--principal", metavar="NAME", help="Records of this principal.")
@click.option("--outcome", metavar="CODE", help="Only this outcome: `ok`, `tool_error`, `call_denied`, …")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Show new records as they come, until Ctrl-C.")
@json_option
@click.pass_context
def command(  # noqa: PLR0913 - one parameter for each option
    ctx: click.Context,
    since: float | None,
    until: float | None,
    server: str | None,
    tool: str | None,
    principal: str | None,
    outcome: str | None,
    limit: int,
    *,
    follow: bool,
    as_json: bool,
) -> int:
    """Show the audit log: calls, decisions and outcomes. With `--json`, one record on each line.

    Records are kept for `audit.keep_days` (90), and no more than `audit.keep_records` (100,000).

    \b
    Examples:
      fairlead audit --since 1h
      fairlead audit --server github --outcome call_denied
      fairlead audit --follow --json
    """
    wanted = AuditQuery(
        since=since, until=until, server=server, tool=tool, principal=principal, outcome=outcome
    )
    location = store_location(os.environ, load(ctx).config.store)
    with open_audit_log(location, create=follow) as reader:
        if reader is None:
            say("nothing was recorded yet")
            return Exit.OK
        _show(reader, wanted, limit, as_json=as_json)
        if follow:
            _follow(reader, wanted, as_json=as_json)
    return Exit.OK


def _show(reader: AuditReader, wanted: AuditQuery, limit: int, *, as_json: bool) -> None:
    records = reader.latest(wanted, limit, every=as_json)
    if as_json:
        for record in records:
            print_data(encode(record).decode())
    elif records:
        print_table(COLUMNS, [audit_row(record) for record in records])
    else:
        say("nothing of that kind was recorded")


def _follow(reader: AuditReader, wanted: AuditQuery, *, as_json: bool) -> None:
    while True:
        for record in reader.new(wanted):
            if as_json:
                print_data(encode(record).decode())
            elif record.stage != "sent":  # its end is a line of its own
                print_data("  ".join(map(printable, audit_row(record))))
        sys.stdout.flush()
        time.sleep(POLL_SECONDS)
