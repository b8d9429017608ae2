"""`fairlead disable`."""

import click

from fairlead.cli.config_edits import switch
from fairlead.cli.options import entry_scope_option, server_argument


@click.command("disable")
@server_argument
@entry_scope_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str | None) -> None:
    """Disable a server, in the file that has its entry, and keep its definition.

    \b
    Examples:
      fairlead disable github
      fairlead disable github --scope project
    """
    switch(ctx, server_id, scope, on=False)
