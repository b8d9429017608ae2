"""`fairlead status`."""

import os
import time
from datetime import datetime
from typing import Any

import click

from fairlead.actions.saved_state import SavedState, notes_to_review, read_saved
from fairlead.cli.options import json_option, load
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.untyped import as_list
from fairlead.errors import ConnectFailed
from fairlead.gateway.registry import find, sources_of
from fairlead.host.managed_server import login_notes
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import print_data, print_json, print_table, printable, say, warn

COLUMNS = ("id", "transport", "source", "enabled", "state", "era", "tools", "last connected", "last error")
WATCH_SECONDS = 2.0


@click.command("status")
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option
@click.pass_context
def command(ctx: click.Context, *, watch: bool, as_json: bool) -> int:
    """Show the state of every server: in the gateway that is running, else as the last run left it.

    Nothing is started, and no server is contacted.
    """
    while True:
        gateway, rows = _rows(load(ctx))
        if as_json:
            print_json({"gateway": gateway, "servers": rows})
        elif rows:
            if watch:
                click.clear()
            print_table(COLUMNS, [_row(row) for row in rows])
            for row in rows:
                _print_error_whole(row)
            for row in rows:
                for note in row["notes"]:
                    say(f"note: `{row['id']}`: {note}")
            if gateway:
                say(f"as the gateway at {gateway} says")
        else:
            say("no MCP servers configured")
        if not watch:
            return Exit.OK
        time.sleep(WATCH_SECONDS)


def _rows(loaded: LoadedConfig) -> tuple[str | None, list[dict[str, Any]]]:
    """Where servers stand, and the gateway that says so."""
    running = find(os.environ, sources_of(loaded))
    if running is not None:
        try:
            return running.url, as_list(running.ask("/api/status").get("servers"))
        except ConnectFailed as exc:
            warn(f"{exc}; this is what was known before")
    saved = read_saved(loaded)
    return None, [_status(server, saved[name]) for name, server in loaded.servers.items()]


def _status(server: LoadedServer, saved: SavedState) -> dict[str, Any]:
    snapshot, trouble = saved.snapshot, saved.trouble
    error = next((str(p) for p in server.problems if p.severity == "error" and server.enabled), None)
    if error is None and not saved.approved:
        error = f"not approved; run `{command_line('approve', server.server_id)}`"
    failed = trouble if error is None else None
    if failed is not None:
        what_to_do = f"; {failed.hint}" if failed.state == "auth_required" and failed.hint else ""
        error = f"{failed.message}{what_to_do}"
    ttl_ms = server.config.tools_ttl_ms if server.config else 0
    return {
        "id": server.server_id,
        "transport": server.transport,
        "source": server.source,
        "enabled": server.enabled,
        "state": _state(server, error, trouble.state if trouble else None),
        "era": snapshot.version if snapshot else None,
        "tools": len(snapshot.listing.tools) if snapshot else None,
        "stale": snapshot is not None and snapshot.is_stale(ttl_ms),
        "last_connected_at": snapshot.saved_at if snapshot else None,
        "last_error": error,
        "last_error_at": failed.at if failed else None,
        "hint": failed.hint if failed else None,
        "notes": [
            *login_notes(server),
            *notes_to_review(server, saved),
            *(saved.screened.listing.notes if saved.screened else ()),
        ],
    }


def _state(server: LoadedServer, error: str | None, left_in: str | None) -> str:
    if not server.enabled:
        return "disabled"
    if error is None:
        return "idle"
    return "auth_required" if left_in == "auth_required" else "error"


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
        status["era"] or "-",
        "?" if tools is None else f"{tools}{' (old)' if status['stale'] else ''}",
        f"{datetime.fromtimestamp(connected).astimezone():%Y-%m-%d %H:%M}" if connected else "-",
        (status["last_error"] or "-").split("\n", 1)[0],
    )
