"""Edits of configuration files by the command line: their context, and the output of their outcome."""

import os

import click

from fairlead.actions.config_edits import EditOutcome
from fairlead.actions.context import ActionContext
from fairlead.actions.switch import switch_server
from fairlead.cli.options import load
from fairlead.config.load import LoadedConfig
from fairlead.config.secrets.storage import ForgottenSecrets
from fairlead.terminal.output import display_path, print_edit, report, say, warn


def action_context(ctx: click.Context, loaded: LoadedConfig | None = None) -> ActionContext:
    """The context of actions of this command line."""
    return ActionContext(
        surface="command line",
        env=os.environ,
        reload=lambda: load(ctx),
        before=loaded,
        tells_gateways=True,
    )


def show_edit(outcome: EditOutcome) -> None:
    """Print the outcome of an edit."""
    if outcome.failure is not None:
        exc = outcome.failure
        warn(f"the file was written, but the configuration does not load: {exc}", exc.hint)
    print_edit(outcome)


def show_forgotten(forgotten: ForgottenSecrets | None) -> None:
    """Print which secrets were deleted, or kept, as an entry left a file."""
    if forgotten is None:
        return
    for reference in forgotten.deleted:
        say(f"  deleted its secret {reference}")
    for reference in forgotten.kept:
        say(f"  kept its secret {reference}, which another file may use; delete it yourself if none does")


def switch(ctx: click.Context, server_id: str, scope: str | None, *, on: bool) -> None:
    """Enable or disable a server, and print the file that was changed."""
    word = "enabled" if on else "disabled"
    report(server=server_id, enabled=on)
    switched = switch_server(action_context(ctx, load(ctx)), server_id, on=on, scope=scope)
    target = switched.target
    if switched.is_written and target is not None:
        is_for_all = scope is None and target.scope == "user"
        more = "; `--scope project` is for this folder alone" if is_for_all else ""
        say(f"{word} `{server_id}` in {display_path(target.path)}{more}")
    elif switched.failure is None:
        say(f"`{server_id}` is {word} already")
    show_edit(switched.edit)
    if switched.failure is not None:
        warn(switched.failure)
