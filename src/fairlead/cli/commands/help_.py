"""`fairlead help`."""

import click

from fairlead.terminal.output import print_data


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command: the same as `--help` after it.

    \b
    Examples:
      fairlead help
      fairlead help call
      fairlead help gateway token add
    """
    context = ctx.find_root()
    for word in words:
        group = context.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"`{context.command_path}` has no command `{word}`", context)
        found = group.get_command(context, word)
        if found is None:
            known = group.list_commands(context)
            raise click.exceptions.NoSuchCommand(word, possibilities=known, ctx=context)
        context = click.Context(found, info_name=word, parent=context)
    print_data(context.get_help())
