"""Options and arguments that several commands share."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from fairlead.config.edit_scope import EditTarget, edit_target, no_scopes
from fairlead.config.load import LoadedConfig, Scope, load_config
from fairlead.config.sources import place_of
from fairlead.errors import FairleadError
from fairlead.terminal.output import JSON_ASKED, start_report

logger = logging.getLogger(__name__)

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _note_json(ctx: click.Context, _option: click.Parameter, given: bool) -> bool:  # noqa: FBT001 - click's
    """Whether `--json` stands here, or before the name of the command: `fairlead --json list`."""
    ctx.meta[JSON_ASKED] = given or ctx.meta.get(JSON_ASKED, False)
    return bool(ctx.meta[JSON_ASKED])


def json_option(function: FunctionT) -> FunctionT:
    """Add `--json`: data out as JSON."""
    return click.option("--json", "as_json", is_flag=True, callback=_note_json, help="Print JSON.")(function)


def json_option_of_group() -> click.Option:
    """`--json` before the name of a command, where people write it, too. No help shows it."""
    return click.Option(["--json"], is_flag=True, expose_value=False, hidden=True, callback=_note_json)


def _begin_report(ctx: click.Context, option: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's
    if _note_json(ctx, option, given):
        start_report()


def _log_verbosely(_ctx: click.Context, _option: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's
    if given:
        from fairlead.terminal.log_output import log_verbosely

        log_verbosely()


def verbose_option(function: FunctionT) -> FunctionT:
    """Add `--verbose`: log to stderr what happens."""
    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_log_verbosely,
        help="Log to stderr what happens, and when. Secrets are masked.",
    )(function)


def add_common_options(command: click.Command) -> None:
    """Add `--verbose`, and `--json` where there is none, to a command and those below it.

    A command without a `--json` of its own prints words. With it, they become one JSON document.
    """
    options = {option for parameter in command.params for option in parameter.opts}
    is_group = isinstance(command, click.Group)
    if "--json" not in options:
        command.params.append(
            json_option_of_group()
            if is_group
            else click.Option(
                ["--json"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_begin_report,
                help="Print JSON.",
            )
        )
    if "--verbose" not in options:
        verbose_option(command)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_common_options(below)


def edit_scope_option(function: FunctionT) -> FunctionT:
    """Add `--scope`: the file to change."""
    return click.option(
        "--scope",
        type=click.Choice(["project", "user", "global"]),
        help="Change the project's file (the default) or your own; `global` is another name for `user`.",
    )(function)


def entry_scope_option(function: FunctionT) -> FunctionT:
    """Add `--scope`: the file in which to edit the entry of a server."""
    return click.option(
        "--scope",
        type=click.Choice(["project", "user", "global"]),
        help="Write this into the project's file or your own (`user`, `global`); by default into the entry "
        "that decides.",
    )(function)


def read_scope_option(function: FunctionT) -> FunctionT:
    """Add `--scope`: the file to read."""
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


_OVERRIDES = "fairlead.overrides"


def override(ctx: click.Context, values: dict[str, Any]) -> None:
    """Set values that outrank those of any file, whenever this command line loads the configuration."""
    ctx.meta[_OVERRIDES] = values


def load(ctx: click.Context, scope: str = "effective") -> LoadedConfig:
    """Load the configuration that the command line names."""
    scopes: dict[str, Scope] = {"project": "project", "user": "user", "global": "user"}
    began = time.perf_counter()
    overrides: dict[str, Any] | None = ctx.meta.get(_OVERRIDES)
    loaded = load_config(_explicit(ctx), overrides, scope=scopes.get(scope, "effective"))
    if logger.isEnabledFor(logging.DEBUG):
        files = ", ".join(layer.label for layer in loaded.layers) or "none"
        seconds = f"{time.perf_counter() - began:.3f}"
        logger.debug(
            "configuration read", extra={"files": files, "servers": len(loaded.servers), "seconds": seconds}
        )
    return loaded


def target_file(ctx: click.Context, scope: str | None, *, take_over: bool = False) -> EditTarget:
    """The file that this command line wants to change."""
    explicit = _explicit(ctx) or _path(os.environ.get("FAIRLEAD_CONFIG_PATH"))
    if explicit and scope:
        raise no_scopes(explicit)
    whose: Literal["project", "user"] = "user" if scope in ("user", "global") else "project"
    return edit_target(whose, place_of(os.environ, Path.cwd()), explicit, take_over=take_over)


def _explicit(ctx: click.Context) -> Path | None:
    root = ctx.find_root()
    return root.obj or root.params.get("config")  # a shell that completes runs no command


def _path(named: str | None) -> Path | None:
    return Path(named) if named else None


def complete_server(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The ids of configured servers that begin so, for a shell."""
    try:
        return [server_id for server_id in load(ctx).servers if server_id.startswith(incomplete)]
    except FairleadError:
        return []  # a shell completes nothing rather than print an error into the prompt
