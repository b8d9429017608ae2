"""`fairlead remove`."""

import click

from fairlead.actions.entries import remove_server
from fairlead.cli.config_edits import action_context, show_edit, show_forgotten
from fairlead.cli.options import edit_scope_option, load, server_argument, target_file
from fairlead.terminal.output import display_path, report, say


@click.command("remove")
@server_argument
@edit_scope_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str | None) -> None:
    """Remove a server from one file. A definition in another file stays, and takes effect again.

    What was kept about the server stays, too: `fairlead forget server ID` deletes that.

    \b
    Examples:
      fairlead remove github
      fairlead remove github --scope user
    """
    target = target_file(ctx, scope)
    removed = remove_server(action_context(ctx, load(ctx)), server_id, target)
    say(f"removed `{server_id}` from {display_path(target.path)}")
    report(server=server_id, file=str(target.path))
    show_edit(removed.edit)
    show_forgotten(removed.forgotten)
    if removed.remaining:
        layer = removed.remaining.definition.source
        place = display_path(layer.path) if layer.path else layer.label
        say(f"`{server_id}` is still defined in {place}, which is in effect now")
