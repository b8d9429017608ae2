"""The reference of the command line: what `fairlead help` prints of each command."""

import click

from fairlead.cli.main import COMMANDS, cli

_WIDTH = 100
_INTRODUCTION = """# Commands

What `fairlead help COMMAND` prints, for every command. How names, output and `--json` work is on
[the command line](../command-line.md), what a command ends with in [exit statuses](exit-codes.md).
"""


def command_line_page() -> str:
    """The page: commands in the order of `fairlead --help`."""
    parts = [_INTRODUCTION]
    context = click.Context(cli, info_name="fairlead", **cli.context_settings)
    for section, commands in COMMANDS.items():
        parts.append(f"\n## {section}\n")
        for name in commands:
            command = cli.get_command(context, name)
            assert command is not None, name
            parts += _explained(command, context, name)
    return "".join(parts)


def _explained(command: click.Command, parent: click.Context, name: str) -> list[str]:
    """A command's help, and that of its own commands."""
    context = click.Context(
        command, info_name=name, parent=parent, max_content_width=_WIDTH, terminal_width=_WIDTH
    )
    path = context.command_path
    parts = [f"\n### {path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"]
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            chosen = command.get_command(context, each)
            if chosen is not None and not chosen.hidden:
                parts += _explained(chosen, context, each)
    return parts
