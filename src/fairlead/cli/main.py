"""The `fairlead` command: finds the subcommand, loads only that one, and turns errors into exit statuses."""

import atexit
import errno
import gc
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from fairlead.config.paths import current_folder
from fairlead.errors import ConfigUnreadable, FairleadError
from fairlead.terminal.exit_codes import Exit, exit_of
from fairlead.terminal.output import (
    JSON_ASKED,
    discard_stream,
    finish_report,
    open_standard_streams,
    print_error,
    print_error_json,
    print_usage_error,
    print_usage_error_json,
    reset_report,
    say,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: dict[str, dict[str, str]] = {
    "Servers": {
        "init": "Write a first fairlead.json.",
        "add": "Add a server.",
        "remove": "Remove a server.",
        "enable": "Enable a server.",
        "disable": "Disable a server.",
        "list": "Show the configured servers.",
        "get": "Show one server.",
        "stash": "Move a server's secrets out of your file, into the keyring or a private file.",
    },
    "Tools": {
        "tools": "Show what servers offer.",
        "search": "Find a tool by what it does.",
        "call": "Call a tool.",
        "run": "Have a model carry out a task with your tools.",
        "console": "See servers live, call tools and talk to a model, at one prompt.",
        "resources": "List the resources of servers.",
        "read": "Read a resource.",
        "prompts": "Show the prompts of servers.",
        "prompt": "Show one prompt, filled in.",
        "test": "Connect to a server step by step, and report.",
        "status": "Show the state of every server.",
        "artifacts": "Show artifacts: the stored parts of results over budget.",
        "logs": "Show a local server's stderr.",
        "lint": "List the tools that a model provider would refuse, or that are rewritten for it.",
    },
    "Trust": {
        "approve": "Let a project's server start.",
        "review": "Review servers' tools: allow, ask or deny each.",
        "approvals": "List and answer pending approvals; forget remembered ones.",
        "lock": "Write a lockfile of what servers offer, and check it.",
        "audit": "Show the audit log.",
        "docs": "Set which documentation sites may be read.",
    },
    "Login": {
        "login": "Log in to a server, once for all agents.",
        "logout": "Forget a login.",
        "whoami": "Show your login at each server.",
        "auth": "Show the logins that are kept on this machine.",
    },
    "Other agents": {
        "gateway": "Put one endpoint in front of all servers, for every agent.",
        "bundle": "Make selections of servers and tools, for one agent or one person.",
        "store": "Create or rotate the cluster key of a shared store.",
        "serve": "Offer the built-in repo and docs servers to any MCP client.",
        "import": "Take over servers from Claude, Cursor, VS Code, Codex and others.",
        "export": "Write servers in another agent's format.",
    },
    "This machine": {
        "backup": "Write configuration and state into one file.",
        "restore": "Replace configuration and state by those in a backup.",
        "forget": "Delete what is kept about a server, a principal or a login.",
    },
    "Help": {
        "doctor": "Diagnose machine, configuration and servers, and say how to fix them.",
        "explain": "Explain where a setting comes from, or a tool's permission.",
        "schema": "Print the JSON Schema of fairlead.json.",
        "completion": "Print the completion script for your shell.",
    },
}

_UNLISTED = {"help": "Show the help of a command.", "version": "Print the version."}
"""Commands that the sections above leave out, since `--help` and `--version` say the same."""

_ALIASES = {"ls": "list", "rm": "remove"}
"""Other names that people type."""

_MEANT = {
    **{name: f"gateway {name}" for name in ("start", "stop", "restart", "open", "token", "agents")},
    "tokens": "gateway token",
    **dict.fromkeys(("dashboard", "ui", "web"), "gateway open"),
    **dict.fromkeys(("install", "connect"), "gateway --install"),
    "uninstall": "gateway --uninstall",
    **dict.fromkeys(("servers", "mcp"), "list"),
    **dict.fromkeys(("show", "info", "describe"), "get"),
    **dict.fromkeys(("new", "create"), "add"),
    **dict.fromkeys(("delete", "del"), "remove"),
    **dict.fromkeys(("exec", "invoke", "use"), "call"),
    **dict.fromkeys(("log", "stderr"), "logs"),
    "resource": "resources",
    "diagnose": "doctor",
    "permissions": "review",
    "history": "audit",
}
"""Commands that people look for under a name of other programs, or without that of their group."""

_ELSEWHERE = {"console": "fairlead.console.command"}
"""Commands of other surfaces, loaded by name: no surface imports another."""

# Looking for pydantic plugins means reading every installed package's metadata, at every start.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

COMPLETE_VARIABLE = "_FAIRLEAD_COMPLETE"
"""Set by a shell that asks for completions."""

UNWRITABLE = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENXIO})
"""Why a stream takes no more data. An error of a file that we opened names the file; one of a stream none."""

EPILOG = """\b
A first server:
  fairlead add time -- uvx mcp-server-time
  fairlead tools time
  fairlead call time.get_current_time timezone=Europe/Berlin

\b
Also: `fairlead help COMMAND`, `fairlead version`, `ls` for `list`, `rm` for `remove`. Every command takes
--json, also for its errors, and --verbose.
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads one when it is run: `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in (*self.list_commands(ctx), *_UNLISTED):
            return None
        # Options need the configuration's models, which the help of all commands does without.
        from fairlead.cli.options import add_common_options

        module = import_module(_ELSEWHERE.get(cmd_name, f"fairlead.cli.commands.{cmd_name}_"))
        command: click.Command = module.command
        add_common_options(command)
        if COMPLETE_VARIABLE in os.environ:
            from fairlead.cli.completion import attach_completers

            attach_completers(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the one meant."""
        known = (*self.list_commands(ctx), *_UNLISTED)
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in (*known, *_ALIASES):
            if name in _MEANT:
                raise click.UsageError(f"there is no command `{name}`. Did you mean `{_MEANT[name]}`?", ctx)
            raise click.exceptions.NoSuchCommand(name, possibilities=known, ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """The commands that begin so, without loading them, and the options."""
        from click.shell_completion import CompletionItem

        known = {
            name: summary for section in COMMANDS.values() for name, summary in section.items()
        } | _UNLISTED
        found = [
            CompletionItem(name, help=summary)
            for name, summary in known.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in groups, without loading them."""
        for section, commands in COMMANDS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()))


def _note_json(ctx: click.Context, _option: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's
    ctx.meta[JSON_ASKED] = given


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Use this file instead of your own and the project's.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Log to stderr what happens, and when. Secrets are masked."
)
@click.version_option(package_name="fairlead", message="%(prog)s %(version)s")
@click.option("--json", is_flag=True, expose_value=False, hidden=True, callback=_note_json)
@click.pass_context
def cli(ctx: click.Context, config: Path | None, *, verbose: bool) -> None:
    """Put your MCP servers in one config; use them from every agent."""
    ctx.obj = config
    if verbose:
        from fairlead.terminal.log_output import log_verbosely

        log_verbosely()


class _Interrupted(FairleadError):
    """The user pressed Ctrl-C."""

    code = "interrupted"


class _InternalError(FairleadError):
    """An exception that no code expects."""

    code = "internal_error"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    open_standard_streams()
    gc.disable()  # most commands are over before garbage matters
    sys.exit(run(arguments))


def run_program() -> None:
    """Run the command line as the program of this process, and exit.

    At its end the interpreter takes apart every module, which is a seventh of what a short command costs. All
    else that it does then is done here; where a thread is left, or output cannot be written, it does it all.
    """
    try:
        main()
    except SystemExit as exc:
        if not isinstance(exc.code, int) or threading.active_count() > 1:
            raise
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - what the interpreter calls, too
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # as in a program without a console
                    stream.flush()
        except (OSError, ValueError):
            raise exc from None
        os._exit(exc.code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    as_json = wants_json(words)
    reset_report()
    try:
        status: object = cli.main(args=words, prog_name="fairlead", standalone_mode=False)
    except click.ClickException as exc:
        print_usage_error(exc)
        if as_json:
            print_usage_error_json(exc, Exit.USAGE)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return _end_with(_Interrupted("interrupted"), Exit.INTERRUPTED, as_json=as_json)
    except FairleadError as exc:
        return _end_with(exc, exit_of(exc), as_json=as_json)
    except Exception as exc:
        cause = _root_cause(exc)
        if isinstance(cause, OSError) and cause.filename is None and cause.errno in UNWRITABLE:
            return _end_without_output(cause)
        if os.environ.get("FAIRLEAD_DEBUG"):
            raise
        if isinstance(exc, OSError) and (gone := _trouble_with_folder()) is not None:
            return _end_with(gone, exit_of(gone), as_json=as_json)
        bug = _InternalError(
            f"this is a bug in Fairlead: {type(exc).__name__}",
            hint="run it again with FAIRLEAD_DEBUG=1 and report what it prints",
        )
        return _end_with(bug, Exit.OUR_FAULT, as_json=as_json)
    status = status if isinstance(status, int) else Exit.OK
    finish_report(status, as_json=as_json)
    return status


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line has `--json`; what is after `--` belongs to another program."""
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own


def _end_with(error: FairleadError, status: Exit, *, as_json: bool) -> Exit:
    """End a command with an error: in words on stderr, and with `--json` as data on stdout."""
    if isinstance(error, _Interrupted):
        say(str(error))
    else:
        print_error(error)
    if as_json:
        print_error_json(error, status)
    return status


def _root_cause(exc: BaseException) -> BaseException:
    """The first failure inside the groups that task groups wrap failures in."""
    while isinstance(exc, BaseExceptionGroup):
        exc = cast("BaseExceptionGroup[BaseException]", exc).exceptions[0]
    return exc


def _end_without_output(failure: OSError) -> Exit:
    """End a command whose output cannot be written."""
    discard_stream(sys.stdout)  # or the interpreter complains at its end, and changes the exit status
    if failure.errno == errno.EPIPE:
        return Exit.OK  # the reader went away; so may we
    say(f"error: cannot write the output: {os.strerror(failure.errno or errno.EIO)}")
    say("\nhint: make room, or send the output elsewhere")
    return Exit.FIXABLE


def _trouble_with_folder() -> ConfigUnreadable | None:
    """Reason why the current folder cannot be used for relative paths, if so."""
    try:
        current_folder()
    except ConfigUnreadable as exc:
        return exc
    return None
