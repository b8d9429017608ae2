"""`fairlead disable`."""

import click

from fairlead.cli.options import edit_scope_option, server_argument
from fairlead.cli.switching import switch


@click.command("disable")
@server_argument
@edit_scope_option
@click.pass_context
def command(ctx: click.Context, server_id: str, scope: str | None) -> None:
    """Switch a server off, and keep its definition."""
    switch(ctx, server_id, scope, on=False)
