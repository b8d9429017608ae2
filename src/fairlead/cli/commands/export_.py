"""`fairlead export`."""

from pathlib import Path
from typing import Any

import click

from fairlead.actions.saved_state import read_saved
from fairlead.adapters.export import LOSSES, Loss, export_servers, export_to_codex
from fairlead.cli.options import load
from fairlead.config.dialects import registry, syntax
from fairlead.config.dialects.dialect import ConfigDialect, ExportedDocument
from fairlead.config.document.edit import edit_file
from fairlead.config.document.files import hold_lock, read_text, write_atomic
from fairlead.config.load import LoadedConfig
from fairlead.errors import ConfigError
from fairlead.terminal.output import display_path, print_data, printable, say


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
    help="Export a server although the other agent cannot be told this of it.",
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
    gets no more than may be used here: a server that is narrowed by what its format cannot say is left out,
    unless --lose names that. A gateway keeps everything.

    \b
    Examples:
      fairlead export --to codex
      fairlead export --to vscode -o .vscode/mcp.json files github
      fairlead export --to claude --gateway
    """
    dialect = registry.by_name(agent)
    if dialect.write is None:
        raise ConfigError(f"Fairlead reads the format of {dialect.title}, but does not write it")
    if gateway:
        exported = dialect.write(_gateway_entry(url))
    else:
        exported = _export_document(load(ctx), dialect, server_ids, lose)
    for note in exported.notes:
        subject = ".".join(part for part in (note.server_id, note.field) if part)
        say(f"  note: {printable(subject)}: {printable(note.message)}")
    if output is None:
        print_data(syntax.dump(exported.document, dialect.syntax).rstrip("\n"))
    else:
        _write(dialect, exported, output)
        say(f"wrote {display_path(output.absolute())}")


def _gateway_entry(url: str | None) -> dict[str, dict[str, Any]]:
    entry = {"url": url} if url else {"command": "fairlead", "args": ["gateway", "--stdio"]}
    return {"fairlead": entry}


def _export_document(
    loaded: LoadedConfig, dialect: ConfigDialect, server_ids: tuple[str, ...], lose: tuple[Loss, ...]
) -> ExportedDocument:
    saved = read_saved(loaded)
    known = {name: each.screened for name, each in saved.items() if each.screened is not None}
    approved = [name for name, each in saved.items() if each.approved]
    if dialect.name == "codex":
        return export_to_codex(
            loaded, server_ids=server_ids or None, known=known, approved=approved, lose=lose
        )
    servers = [loaded.server(name) for name in server_ids or loaded.servers]
    return export_servers(dialect, servers, known=known, approved=approved, lose=lose)


def _write(dialect: ConfigDialect, exported: ExportedDocument, output: Path) -> None:
    def change(text: str) -> str:
        return syntax.merge_into(text, exported.document, dialect.syntax)

    if dialect.syntax in ("json", "jsonc"):
        edit_file(output, change, create="{}\n")
    else:
        with hold_lock(output):
            write_atomic(output, change(read_text(output, keep_mark=True) if output.exists() else ""))
