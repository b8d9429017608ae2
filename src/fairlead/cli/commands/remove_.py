"""`fairlead remove`."""

from typing import Any

import click

from fairlead.actions.config_edits import servers_in
from fairlead.cli.config_edits import forget_entry_secrets, settle
from fairlead.cli.options import edit_scope_option, load, server_argument, target_file
from fairlead.config.command_lines import command_line
from fairlead.config.document.edit import edit_file, remove_value
from fairlead.config.edit_scope import EMPTY_FILE, EditTarget
from fairlead.config.load import LoadedConfig
from fairlead.config.untyped import as_object
from fairlead.config.validate import suggestion
from fairlead.errors import UnknownServer
from fairlead.terminal.output import display_path, say


@click.command("remove")
@server_argument
@edit_scope_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str | None) -> None:
    """Remove a server from one file. A definition in another file stays, and takes effect again."""
    target = target_file(ctx, scope)
    before = load(ctx)

    removed: dict[str, Any] = {}

    def change(text: str) -> str:
        present = servers_in(text, target)
        if server_id not in present:
            raise _not_there(server_id, target, before)
        removed.clear()
        removed.update(as_object(present[server_id]))
        return remove_value(text, ("servers", server_id))

    edit_file(target.path, change, create=EMPTY_FILE)
    say(f"removed `{server_id}` from {display_path(target.path)}")
    after = settle(ctx, target, [])
    forget_entry_secrets(target, removed, after)
    remaining = after.servers.get(server_id) if after else None
    if remaining:
        layer = remaining.definition.source
        place = display_path(layer.path) if layer.path else layer.label
        say(f"`{server_id}` is still defined in {place}, which is in effect now")


def _not_there(server_id: str, target: EditTarget, loaded: LoadedConfig) -> UnknownServer:
    other = loaded.servers.get(server_id)
    hint = suggestion(server_id, loaded.servers) or "run `fairlead list` to see the configured servers"
    if other and other.source in ("user", "project"):
        hint = f"it is in the {other.source} file: add `--scope {other.source}`"
    elif other and other.is_built_in:
        hint = f"it is built in: run `{command_line('disable', server_id)}` to be without it"
    return UnknownServer(f"there is no server `{server_id}` in {target.path}", hint=hint)
