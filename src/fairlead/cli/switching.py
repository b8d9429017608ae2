"""Switch servers on and off, for `enable` and `disable`."""

import click

from fairlead.cli.changes import approved_servers, servers_in, settle
from fairlead.cli.options import load, target_file
from fairlead.cli.output import say, shown_path
from fairlead.config.edit import edit_file, set_value
from fairlead.config.load import LoadedServer
from fairlead.config.scopes import EMPTY_FILE, EditTarget, entry_to_switch
from fairlead.errors import UnknownServer


def switch(ctx: click.Context, server_id: str, scope: str | None, *, on: bool) -> None:
    """Set `enabled` of a server in the entry that decides about it, or in the file of a scope, over that."""
    before = load(ctx)
    server = before.server(server_id)
    word = "enabled" if on else "disabled"
    if scope is None and server.enabled == on:
        say(f"`{server_id}` is {word} already")
        return
    if scope is None:
        entry = entry_to_switch(before, server)
        target, path = entry.target, entry.path
    else:
        target, path = target_file(ctx, scope), ("servers", server_id)
    approved = approved_servers(before, [server_id])

    def change(text: str) -> str:
        if scope is not None and server_id not in servers_in(text, target):
            _require_below(server, target)
        return set_value(text, (*path, "enabled"), on)

    if edit_file(target.path, change, create=EMPTY_FILE):
        is_for_all = scope is None and target.scope == "user"
        more = "; `--scope project` is for this folder alone" if is_for_all else ""
        say(f"{word} `{server_id}` in {shown_path(target.path)}{more}")
    else:
        say(f"`{server_id}` is {word} already")
    after = settle(ctx, target, [server_id], approved=approved)
    now = after.servers.get(server_id) if after else None
    if now and now.enabled != on:
        origin = now.definition.origin(("enabled",))
        say(f"but {origin} says otherwise, and that counts more")


def _require_below(server: LoadedServer, target: EditTarget) -> None:
    """Refuse to switch a server in a file that is below the one which defines it: it would have no effect."""
    if server.source == "project" and target.scope == "user":
        raise UnknownServer(
            f"there is no server `{server.server_id}` in {target.path}",
            hint="it is in the project's file: add `--scope project`",
        )
