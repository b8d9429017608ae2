"""`fairlead init`."""

import os
from pathlib import Path

import click

from fairlead.actions.start import StartedConfig, start_config
from fairlead.cli.options import json_option
from fairlead.config.command_lines import command_line
from fairlead.config.edit_scope import EditTarget
from fairlead.config.paths import FILE_NAME, user_file
from fairlead.config.sources import place_of
from fairlead.terminal.exit_codes import Exit
from fairlead.terminal.output import (
    confirm,
    display_path,
    is_interactive,
    plural,
    print_json,
    print_table,
    say,
    warn,
)


@click.command("init")
@click.option(
    "--scope",
    type=click.Choice(["project", "user", "global"]),
    default="project",
    show_default=True,
    help="A file for this folder, or your own for every folder (`user`, `global`).",
)
@click.option("--no-schema", is_flag=True, help="Without the JSON Schema that editors check the file with.")
@json_option
@click.pass_context
def command(ctx: click.Context, scope: str, *, no_schema: bool, as_json: bool) -> int:
    """Write a first fairlead.json, and offer to take over the servers of agents on this machine.

    No file is ever overwritten. It is optional: `fairlead add` creates the file, too.

    \b
    Examples:
      fairlead init
      fairlead init --scope user
    """
    explicit = ctx.find_root().obj or os.environ.get("FAIRLEAD_CONFIG_PATH")
    place = place_of(os.environ, Path.cwd())
    if explicit:
        target = EditTarget(scope="file", path=Path(explicit))
    elif scope == "project":
        target = EditTarget(scope="project", path=place.cwd / FILE_NAME)
    else:
        target = EditTarget(scope="user", path=user_file(os.environ))
    started = start_config(target, place, with_schema=not no_schema)
    say(f"wrote {display_path(started.target.path)}")
    if started.schema is not None:
        say(f"  and {display_path(started.schema)}, which editors check it with")
    if started.hides is not None:
        command_ = command_line("import", display_path(started.hides))
        warn(f"{display_path(started.hides)} is not read here any more", f"run `{command_}` to take it over")
    if as_json:
        print_json(_as_json(started))
        return Exit.OK
    return _offer_import(ctx, started)


def _offer_import(ctx: click.Context, started: StartedConfig) -> int:
    if not started.found:
        say("\nhint: add a server with `fairlead add ID -- COMMAND`, such as")
        say("  fairlead add time -- uvx mcp-server-time")
        return Exit.OK
    say("\nfound on this machine:")
    rows = [(each.agent, display_path(each.file), ", ".join(each.server_ids)) for each in started.found]
    print_table(("agent", "file", "servers"), rows)
    total = len({name for each in started.found for name in each.server_ids})
    if is_interactive() and confirm(f"\nLook at {plural(total, 'server')}, to take over those you want?"):
        from fairlead.cli.commands.import_ import command as import_command

        status: object = ctx.invoke(import_command)
        return status if isinstance(status, int) else Exit.OK
    say("\nhint: `fairlead import` takes over their servers, `fairlead add` adds one")
    return Exit.OK


def _as_json(started: StartedConfig) -> dict[str, object]:
    return {
        "file": str(started.target.path),
        "schema": str(started.schema) if started.schema else None,
        "hides": str(started.hides) if started.hides else None,
        "found": [
            {"agent": each.agent, "file": str(each.file), "servers": each.server_ids}
            for each in started.found
        ],
    }
