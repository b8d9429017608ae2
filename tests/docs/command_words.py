"""Command lines in documents: are they ones that the command line takes?"""

import click

from fairlead.cli.main import cli


def parse(words: list[str]) -> None:
    """Have the command line read its words, down to the last subcommand, without running anything."""
    command: click.Command = cli
    name, rest, parent = "fairlead", words, None
    while True:
        context = command.make_context(name, [*rest], parent=parent)
        left = [*getattr(context, "_protected_args", ()), *context.args]
        if not isinstance(command, click.Group) or not left:
            return
        found, chosen, rest = command.resolve_command(context, left)
        assert found is not None
        assert chosen is not None
        name, command, parent = found, chosen, context
