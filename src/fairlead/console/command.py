"""`fairlead console`."""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from fairlead.config.command_lines import extra_hint
from fairlead.errors import FairleadError
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import say

if TYPE_CHECKING:
    from fairlead.config.load import LoadedConfig


@click.command("console")
@click.option(
    "--model",
    metavar="PROVIDER/NAME",
    help="`openai/…` or `anthropic/…`; the configured `model` if left out.",
)
@click.option("--bundle", metavar="NAME", help="Give the model the tools of a bundle, rather than all.")
@click.pass_context
def command(ctx: click.Context, model: str | None, bundle: str | None) -> int:
    """See your servers live, call tools, answer approvals, and talk to a model that uses all of it.

    Type `/help` in it for what there is. Tab completes; Ctrl-C cancels what is under way, not the console.

    \b
    Examples:
      fairlead console
      fairlead console --model openai/gpt-5-mini
    """
    if find_spec("prompt_toolkit") is None:
        raise FairleadError("the console needs the package `prompt-toolkit`", hint=extra_hint("console"))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say("error: the console needs a terminal, for its input and its output")
        say("\nhint: `fairlead call` calls a tool and `fairlead run` has a model do a task, without one")
        return Exit.USAGE
    import anyio

    from fairlead.console.app import run_console
    from fairlead.console.session import ConsoleOptions

    def load() -> "LoadedConfig":
        from fairlead.config.load import load_config  # which is not wanted before the prompt is drawn

        return load_config(ctx.find_root().obj)

    anyio.run(run_console, ConsoleOptions(load=load, model=model, bundle=bundle))
    return Exit.OK
