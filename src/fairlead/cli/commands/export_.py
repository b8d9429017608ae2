"""`fairlead export`."""

from pathlib import Path

import click

from fairlead.actions.exports import dialect_to_write, export_document, export_gateway, write_export
from fairlead.adapters.export import LOSSES, Loss
from fairlead.cli.config_edits import action_context
from fairlead.cli.options import load
from fairlead.config.dialects import syntax
from fairlead.terminal.output import display_path, print_data, print_notices, printable, say


@click.command("export")
@click.argument("server_ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--to", "agent", required=True, metavar="AGENT", help="claude, cursor, vscode, codex, opencode, gemini, …"
)
@click.option("--gateway", is_flag=True, help="One entry: a Fairlead gateway in front of all servers.")
@click.option("--url", help="With --gateway: reach a running one by URL instead of starting it.")
@click.option(
    "--lose",
    type=click.Choice(LOSSES),
    multiple=True,
    help="Export a server although the other agent's format cannot express this.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write into this file.")
@click.pass_context
def command(  # noqa: PLR0913 - the options of one command
    ctx: click.Context,
    server_ids: tuple[str, ...],
    agent: str,
    *,
    gateway: bool,
    url: str | None,
    lose: tuple[Loss, ...],
    output: Path | None,
) -> None:
    """Write servers in another agent's format. Secrets stay references; none is ever resolved.

    Prints the document, or puts the servers into FILE and leaves the rest of it as it is. The other agent
    gets no more than may be used here: a server with restrictions that the format cannot express is left
    out, unless --lose names them. A gateway keeps everything.

    \b
    Examples:
      fairlead export --to codex
      fairlead export --to vscode -o .vscode/mcp.json files github
      fairlead export --to claude --gateway
    """
    dialect = dialect_to_write(agent)
    if gateway:
        exported = export_gateway(dialect, url)
    else:
        exported = export_document(load(ctx), dialect, server_ids, lose)
    # Before the notes: where nothing can be written, the error has what they say.
    notices = write_export(action_context(ctx), dialect, exported, output) if output is not None else ()
    for note in exported.notes:
        subject = ".".join(part for part in (note.server_id, note.field) if part)
        say(f"  note: {printable(subject)}: {printable(note.message)}")
    if output is None:
        print_data(syntax.dump(exported.document, dialect.syntax).rstrip("\n"))
    else:
        say(f"wrote {display_path(output.absolute())}")
    print_notices(notices)
