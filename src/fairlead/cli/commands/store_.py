"""`fairlead store`."""

import os

import click

from fairlead.actions.store_keys import rekey_store, save_new_key
from fairlead.cli.config_edits import action_context
from fairlead.cli.options import json_option, load
from fairlead.config.store_location import KEY_FILE
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import display_path, print_data, print_json, print_notices, say


@click.group("store")
def command() -> None:
    """Manage the store that gateways of a team share: its key, and what is in it.

    \b
    Examples:
      fairlead store key new --save
      fairlead store rekey
    """


@command.group("key")
def key_command() -> None:
    """Make the cluster key, which encrypts what is kept in Redis."""


@key_command.command("new")
@click.option("--save", is_flag=True, help=f"Write it to `{KEY_FILE}` of the configuration folder.")
@json_option
def new_key(*, save: bool, as_json: bool) -> int:
    """Make a cluster key. Every replica needs the same one; without it nothing in Redis can be read.

    With `--save`, a key that is there already stays as the second: it decrypts, and encrypts nothing new.

    \b
    Examples:
      fairlead store key new
      fairlead store key new --save
    """
    if not save:
        from fairlead.store.cluster_key import new_cluster_key

        made = new_cluster_key()
        if as_json:
            print_json({"key": made})
        else:
            print_data(made)
        return Exit.OK
    saved = save_new_key(os.environ)
    if as_json:
        print_json({"file": str(saved.path), "keys": saved.keys})
    path = display_path(saved.path)
    say(f"wrote {path}; copy it to every replica, and keep a copy apart from Redis's backups")
    return Exit.OK


@command.command("rekey")
@json_option
@click.pass_context
def rekey(ctx: click.Context, *, as_json: bool) -> int:
    """Encrypt everything in Redis anew with the first cluster key, so that the others can be removed.

    Audit records stay as they were written: keep the old key until `audit.keep_days` have passed.

    \b
    Example:
      fairlead store rekey
    """
    rekeyed = rekey_store(action_context(ctx, load(ctx)))
    print_notices(rekeyed.notices)
    if as_json:
        print_json({"rekeyed": rekeyed.values})
    say(f"{rekeyed.values} values were encrypted anew")
    return Exit.OK
