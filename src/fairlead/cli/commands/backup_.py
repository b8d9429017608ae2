"""`fairlead backup`."""

import os
from pathlib import Path

import click

from fairlead.cli.config_edits import action_context
from fairlead.cli.options import json_option, load
from fairlead.terminal.output import (
    display_path,
    is_interactive,
    print_json,
    print_notices,
    print_table,
    say,
    warn,
)

PASSPHRASE_VARIABLE = "FAIRLEAD_BACKUP_PASSPHRASE"  # noqa: S105 - the name of a variable


@click.command("backup")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--with-secrets", is_flag=True, help="Logins, stored secrets and keys, too; asks for a passphrase."
)
@click.option("--no-passphrase", is_flag=True, help="With --with-secrets: do not encrypt it.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, file: Path | None, *, with_secrets: bool, no_passphrase: bool, as_json: bool
) -> None:
    """Write configuration and state into one file: servers, pins, approvals, consents, audit log, tokens.

    No secret is in it unless you ask. With secrets it is encrypted with a passphrase, which you type at a
    terminal, or which FAIRLEAD_BACKUP_PASSPHRASE has. Only you can read the file, and none is overwritten.
    Stored results (`fairlead artifacts`) and logs of servers are left out.

    \b
    Examples:
      fairlead backup
      fairlead backup ~/backups/fairlead.zip
      fairlead backup --with-secrets before-the-move.zip
    """
    from fairlead.actions.backup import default_backup_file, make_backup

    if no_passphrase and not with_secrets:
        raise click.UsageError("`--no-passphrase` goes with `--with-secrets`", ctx)
    passphrase = _choose_passphrase() if with_secrets and not no_passphrase else None
    loaded = load(ctx)
    path = file or default_backup_file(Path.cwd())
    made = make_backup(action_context(ctx, loaded), path, with_secrets=with_secrets, passphrase=passphrase)
    if as_json:
        print_json(
            {
                "file": str(made.path.absolute()),
                "contents": made.contents,
                "secrets": made.has_secrets,
                "encrypted": made.is_encrypted,
                "not_in_backup": {"keyring_secrets": made.in_keyring},
            }
        )
    else:
        print_table(("what", "number"), [(name, str(number)) for name, number in made.contents.items()])
    say(f"\nwrote {display_path(made.path.absolute())}, which only you can read")
    if made.has_secrets and not made.is_encrypted:
        warn("it has your secrets in plain text: logins, tokens, keys", "keep it as you would keep them")
    elif made.has_secrets:
        say("it has your secrets, encrypted; without the passphrase it cannot be restored")
    else:
        say("it has no secrets: log in again after a restore on another machine, or use `--with-secrets`")
    print_notices(made.notices)


def _choose_passphrase() -> str:
    given = os.environ.get(PASSPHRASE_VARIABLE)
    if given:
        return given
    if not is_interactive():
        raise click.UsageError(
            f"a backup with secrets needs a passphrase: set {PASSPHRASE_VARIABLE}, or pass `--no-passphrase`"
        )
    typed: str = click.prompt(
        "Passphrase for the backup", hide_input=True, confirmation_prompt=True, err=True
    )
    return typed
