"""`fairlead completion`."""

import click
from click.shell_completion import get_completion_class

from fairlead.terminal.output import print_data


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script for your shell.

    \b
    Examples:
      eval "$(fairlead completion bash)"        # in ~/.bashrc
      eval "$(fairlead completion zsh)"         # in ~/.zshrc
      fairlead completion fish > ~/.config/fish/completions/fairlead.fish
    """
    maker = get_completion_class(shell)
    assert maker is not None, shell
    print_data(maker(ctx.find_root().command, {}, "fairlead", "_FAIRLEAD_COMPLETE").source())
