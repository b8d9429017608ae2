"""`fairlead stash`."""

import click

from fairlead.actions.stash import stash_server
from fairlead.cli.config_edits import action_context, show_edit
from fairlead.cli.options import load, server_argument
from fairlead.config.secrets.redaction import BESIDE_REFERENCE
from fairlead.terminal.output import display_path, report, say, warn


@click.command("stash")
@server_argument
@click.pass_context
def command(ctx: click.Context, server_id: str) -> None:
    """Move a server's secrets in plain text out of your file, into the keyring or a private file.

    The file gets references in their place. Where there is no keyring, each goes into a file that only you
    can read. The rest of your file stays as it is, comments included.

    \b
    Examples:
      fairlead stash github
    """
    entries = stash_server(action_context(ctx, load(ctx)), server_id)
    report(server=server_id, references=[secret.reference for each in entries for secret in each.stashed])
    if not entries:
        say(f"`{server_id}` has no secret in plain text")
    for each in entries:
        for secret in each.stashed:
            say(f"moved `{secret.field}` of `{server_id}` out of {display_path(each.target.path)}")
            say(f"  it says {secret.reference} now")
        for name in each.left:
            warn(f"`{name}` has a secret next to a reference, and stays", BESIDE_REFERENCE)
        show_edit(each.edit)
