"""`fairlead approvals`."""

import os
from datetime import datetime
from pathlib import Path

import click

from fairlead.cli.options import json_option, load
from fairlead.cli.output import print_json, print_table, printable, say
from fairlead.config.paths import store_file
from fairlead.errors import UnknownTool
from fairlead.policy.approvals import NAMESPACE, Kept, read_kept
from fairlead.store.database import Database
from fairlead.store.store import ANY


@click.group("approvals", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Show the calls that you allowed for good, and take that back.

    An answer holds for one tool as it was defined when you gave it: a tool that changed is asked about anew.

    \b
    Examples:
      fairlead approvals
      fairlead approvals forget files write_file
      fairlead approvals forget files
    """
    if ctx.invoked_subcommand is not None:
        return
    kept = [found for _, found in _kept(ctx)]
    if as_json:
        print_json({"approvals": [_as_json(found) for found in kept]})
    elif kept:
        print_table(("server", "tool", "for", "since"), [_row(found) for found in kept])
        say("\nhint: `fairlead approvals forget SERVER [TOOL]` has you asked again")
    else:
        say("no calls are allowed for good; `always` as the answer to a question does that")


@command.command("forget")
@click.argument("server_id", metavar="SERVER")
@click.argument("tool", required=False)
@click.pass_context
def forget_command(ctx: click.Context, server_id: str, tool: str | None) -> None:
    """Take back what you allowed for good: of one tool, or of all tools of a server."""
    gone = [
        (key, found)
        for key, found in _kept(ctx)
        if found.server_id == server_id and tool in (None, found.tool)
    ]
    if not gone:
        what = f"`{tool}` of `{server_id}`" if tool else f"`{server_id}`"
        raise UnknownTool(f"nothing of {what} is allowed for good", hint="run `fairlead approvals`")
    with Database.open(_store(ctx)) as database:
        for key, _ in gone:
            database.delete(NAMESPACE, key, expect=ANY)
    for _, found in gone:
        say(f"`{found.server_id}/{printable(found.tool)}` is asked about again")


def _store(ctx: click.Context) -> Path:
    return store_file(os.environ, load(ctx).config.store.path)


def _kept(ctx: click.Context) -> list[tuple[str, Kept]]:
    path = _store(ctx)
    if not path.exists():
        return []
    with Database.open(path) as database:
        return read_kept(database.scan(NAMESPACE))


def _as_json(found: Kept) -> dict[str, object]:
    return {
        "server": found.server_id,
        "tool": found.tool,
        "principal": found.principal,
        "approved_at": found.approved_at,
    }


def _row(found: Kept) -> tuple[str, ...]:
    since = datetime.fromtimestamp(found.approved_at).astimezone().strftime("%Y-%m-%d %H:%M")
    return found.server_id, printable(found.tool), printable(found.principal), since
