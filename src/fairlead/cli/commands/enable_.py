"""`fairlead enable`."""

import click

from fairlead.cli.config_edits import switch
from fairlead.cli.options import server_argument, switch_scope_option


@click.command("enable")
@server_argument
@switch_scope_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str | None) -> None:
    """Enable a server, in the file that has its entry."""
    switch(ctx, server_id, scope, on=True)
