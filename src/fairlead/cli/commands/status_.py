"""`fairlead status`."""

import time
from dataclasses import replace
from datetime import datetime
from typing import Any

import click

from fairlead.actions.status import StatusReport, read_status
from fairlead.cli.last_errors import error_lines, print_last_error
from fairlead.cli.options import json_option, load
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, print_table, printable, say, warn
from fairlead.wording import without_server

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
@click.argument("server_id", metavar="[ID]", required=False)
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option
@click.pass_context
def command(ctx: click.Context, server_id: str | None, *, watch: bool, as_json: bool) -> int:
    """Show the state of every server: in the gateway that is running, else as the last run left it.

    With an ID, everything about that one, its whole last error too. Nothing is started, and no server is
    contacted.

    \b
    Examples:
      fairlead status
      fairlead status github
      fairlead status --watch
    """
    while True:
        loaded = load(ctx)
        report = read_status(loaded)
        if server_id is not None:
            chosen = loaded.server(server_id).server_id
            report = replace(report, servers=[row for row in report.servers if row["id"] == chosen])
        if report.failure is not None:
            warn(f"{report.failure}; this is what was known before")
        if as_json:
            print_json({"gateway": report.gateway, "servers": report.servers})
        elif report.servers:
            if watch:
                click.clear()
            if server_id is None:
                _show(report)
            else:
                _show_one(report)
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
    if report.note:
        say(f"note: {report.note}")
    if report.gateway:
        say(f"as the gateway at {report.gateway} says")


def _show_one(report: StatusReport) -> None:
    for status in report.servers:
        names, cells = COLUMNS[1:-1], _row(status)[1:-1]
        width = max(map(len, names))
        print_data(printable(status["id"]))
        for name, cell in zip(names, cells, strict=True):
            print_data(f"  {name:<{width}}  {printable(cell)}")
        print_last_error(status)
        for note in status["notes"]:
            say(f"note: {note}")
    if report.gateway:
        say(f"as the gateway at {report.gateway} says")


def _print_error_whole(status: dict[str, Any]) -> None:
    """Print below the table what of an error has no room in it: all its lines, and the hint."""
    error, hint = status["last_error"], status.get("hint")
    if not error or ("\n" not in error and (not hint or hint in error)):
        return
    first, *rest = error_lines(status)
    print_data(f"\n{printable(status['id'])}: {first}")
    for line in rest:
        print_data(f"  {line}")


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
        without_server(status["last_error"] or "-", status["id"]).split("\n", 1)[0],
    )
