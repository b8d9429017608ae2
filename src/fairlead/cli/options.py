"""Options and arguments that several commands share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from fairlead.config.edit_scope import EditTarget, edit_target, no_scopes
from fairlead.config.load import LoadedConfig, Scope, load_config
from fairlead.config.sources import place_of
from fairlead.errors import FairleadError

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def json_option(function: FunctionT) -> FunctionT:
    """Add `--json`: data out as JSON."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def edit_scope_option(function: FunctionT) -> FunctionT:
    """Add `--scope`: whose file to change."""
    return click.option(
        "--scope",
        type=click.Choice(["project", "user", "global"]),
        help="Change the project's file (the default) or your own; `global` is another name for `user`.",
    )(function)


def entry_scope_option(function: FunctionT) -> FunctionT:
    """Add `--scope`: in whose file to edit the entry of a server."""
    return click.option(
        "--scope",
        type=click.Choice(["project", "user", "global"]),
        help="Write this into the project's file or your own (`user`, `global`); by default into the entry "
        "that decides.",
    )(function)


def read_scope_option(function: FunctionT) -> FunctionT:
    """Add `--scope`: whose file to read."""
    return click.option(
        "--scope",
        type=click.Choice(["effective", "project", "user", "global"]),
        default="effective",
        show_default=True,
        help="What is in effect, or only what one file says; `global` is another name for `user`.",
    )(function)


def server_argument(function: FunctionT) -> FunctionT:
    """Add the id of a configured server, completed by the shell."""
    return click.argument("server_id", metavar="ID", shell_complete=complete_server)(function)


def load(ctx: click.Context, scope: str = "effective") -> LoadedConfig:
    """Load the configuration this command line means."""
    scopes: dict[str, Scope] = {"project": "project", "user": "user", "global": "user"}
    return load_config(_explicit(ctx), scope=scopes.get(scope, "effective"))


def target_file(ctx: click.Context, scope: str | None, *, take_over: bool = False) -> EditTarget:
    """Name the file this command line wants to change."""
    explicit = _explicit(ctx) or _path(os.environ.get("FAIRLEAD_CONFIG_PATH"))
    if explicit and scope:
        raise no_scopes(explicit)
    whose: Literal["project", "user"] = "user" if scope in ("user", "global") else "project"
    return edit_target(whose, place_of(os.environ, Path.cwd()), explicit, take_over=take_over)


def _explicit(ctx: click.Context) -> Path | None:
    return ctx.find_root().obj


def _path(named: str | None) -> Path | None:
    return Path(named) if named else None


def complete_server(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of configured servers that begin so, for a shell."""
    try:
        return [server_id for server_id in load(ctx).servers if server_id.startswith(incomplete)]
    except FairleadError:
        return []  # a shell completes nothing rather than print an error into the prompt
