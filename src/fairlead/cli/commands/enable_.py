"""`fairlead enable`."""

import click

from fairlead.cli.config_edits import switch
from fairlead.cli.options import entry_scope_option, server_argument


@click.command("enable")
@server_argument
@entry_scope_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str | None) -> None:
    """Enable a server, in the file that has its entry.

    \b
    Examples:
      fairlead enable github
      fairlead enable github --scope project
    """
    switch(ctx, server_id, scope, on=True)
