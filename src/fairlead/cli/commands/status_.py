"""`fairlead status`."""

import time
from datetime import datetime
from typing import Any

import click

from fairlead.actions.status import StatusReport, read_status
from fairlead.cli.options import json_option, load
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, print_table, printable, say, warn

COLUMNS = (
    "id",
    "transport",
    "source",
    "enabled",
    "state",
    "protocol",
    "tools",
    "last connected",
    "last error",
)
WATCH_SECONDS = 2.0


@click.command("status")
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option
@click.pass_context
def command(ctx: click.Context, *, watch: bool, as_json: bool) -> int:
    """Show the state of every server: in the gateway that is running, else as the last run left it.

    Nothing is started, and no server is contacted.

    \b
    Examples:
      fairlead status
      fairlead status --watch
    """
    while True:
        report = read_status(load(ctx))
        if report.failure is not None:
            warn(f"{report.failure}; this is what was known before")
        if as_json:
            print_json({"gateway": report.gateway, "servers": report.servers})
        elif report.servers:
            if watch:
                click.clear()
            _show(report)
        else:
            say("no MCP servers configured")
        if not watch:
            return Exit.OK
        time.sleep(WATCH_SECONDS)


def _show(report: StatusReport) -> None:
    print_table(COLUMNS, [_row(row) for row in report.servers])
    for row in report.servers:
        _print_error_whole(row)
    for row in report.servers:
        for note in row["notes"]:
            say(f"note: `{row['id']}`: {note}")
    if report.gateway:
        say(f"as the gateway at {report.gateway} says")


def _print_error_whole(status: dict[str, Any]) -> None:
    """Print below the table what of an error has no room in it: all its lines, and the hint."""
    error, hint = status["last_error"], status.get("hint")
    if not error or ("\n" not in error and (not hint or hint in error)):
        return
    lines = [*error.split("\n"), *([f"hint: {hint}"] if hint and hint not in error else [])]
    subject = f"server `{status['id']}`: "
    print_data(f"\n{printable(status['id'])}: {printable(lines[0].removeprefix(subject))}")
    for line in lines[1:]:
        print_data(f"  {printable(line)}")


def _row(status: dict[str, Any]) -> tuple[str, ...]:
    connected = status["last_connected_at"]
    tools = status["tools"]
    return (
        status["id"],
        status["transport"] or "?",
        status["source"],
        "yes" if status["enabled"] else "no",
        status["state"],
        status.get("protocol") or "-",
        "?" if tools is None else f"{tools}{' (old)' if status['stale'] else ''}",
        f"{datetime.fromtimestamp(connected).astimezone():%Y-%m-%d %H:%M}" if connected else "-",
        (status["last_error"] or "-").split("\n", 1)[0],
    )
