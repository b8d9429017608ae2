"""`fairlead export`."""

from pathlib import Path
from typing import Any

import click

from fairlead.cli.options import load
from fairlead.cli.output import print_data, printable, say, shown_path
from fairlead.config.dialects import registry, texts
from fairlead.config.dialects.dialect import Dialect, Exported, Note
from fairlead.config.edit import edit_file
from fairlead.config.files import locked, read_text, write_atomic
from fairlead.config.load import LoadedConfig
from fairlead.config.redact import literal_secrets
from fairlead.config.shapes import as_object
from fairlead.errors import ConfigError


@click.command("export")
@click.argument("server_ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--to", "agent", required=True, metavar="AGENT", help="claude, cursor, vscode, codex, opencode, gemini, …"
)
@click.option("--gateway", is_flag=True, help="One entry: a Fairlead gateway in front of all servers.")
@click.option("--url", help="With --gateway: reach a running one by URL instead of starting it.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write into this file.")
@click.pass_context
def command(
    ctx: click.Context,
    server_ids: tuple[str, ...],
    agent: str,
    *,
    gateway: bool,
    url: str | None,
    output: Path | None,
) -> None:
    """Write servers in another agent's format. Secrets stay references; none is ever resolved.

    Prints the document, or puts the servers into FILE and leaves the rest of it as it is.

    \b
    Examples:
      fairlead export --to codex
      fairlead export --to vscode -o .vscode/mcp.json files github
      fairlead export --to claude --gateway
    """
    dialect = registry.by_name(agent)
    if dialect.write is None:
        raise ConfigError(f"Fairlead reads the format of {dialect.title}, but does not write it")
    entries, notes = (_gateway_entry(url), []) if gateway else _entries(load(ctx), server_ids)
    exported = dialect.write(entries)
    for note in (*notes, *exported.notes):
        subject = f"{note.server_id}.{note.field}" if note.server_id else note.field
        say(f"  note: {printable(subject)}: {printable(note.message)}")
    if output is None:
        print_data(texts.dump(exported.document, dialect.syntax).rstrip("\n"))
    else:
        _write(dialect, exported, output)
        say(f"wrote {len(entries)} servers to {shown_path(output.absolute())}")


def _gateway_entry(url: str | None) -> dict[str, dict[str, Any]]:
    entry = {"url": url} if url else {"command": "fairlead", "args": ["gateway", "--stdio"]}
    return {"fairlead": entry}


def _entries(
    loaded: LoadedConfig, server_ids: tuple[str, ...]
) -> tuple[dict[str, dict[str, Any]], list[Note]]:
    entries: dict[str, dict[str, Any]] = {}
    notes: list[Note] = []
    configured = [server for server in loaded.servers.values() if not server.is_built_in]
    for server in [loaded.server(server_id) for server_id in server_ids] or configured:
        if server.config is None:
            message = "left out: its entry is not valid"
            notes.append(Note(server_id=server.server_id, field="", message=message))
        elif (entry := _without_plain_secrets(server.server_id, server.entry, notes)) is not None:
            entries[server.server_id] = entry
    return entries, notes


def _without_plain_secrets(server_id: str, entry: dict[str, Any], notes: list[Note]) -> dict[str, Any] | None:
    """Secrets leave here as references only: a plain-text one becomes the variable it should have been."""
    result = {**entry}
    for path in literal_secrets(entry):
        field = ".".join(map(str, path))
        if path[0] not in ("env", "headers", "oauth"):
            message = (
                "left out: a secret in plain text would go with it; move it to `env` or a reference first"
            )
            notes.append(Note(server_id=server_id, field=field, message=message))
            return None
        group, name = str(path[0]), str(path[1])
        variable = name if group == "env" else f"{server_id}_{name}".upper().replace("-", "_")
        result[group] = {**as_object(result[group]), name: f"${{{variable}}}"}
        message = f"a secret in plain text here; exported as `${{{variable}}}`, so set that variable"
        notes.append(Note(server_id=server_id, field=field, message=message))
    return result


def _write(dialect: Dialect, exported: Exported, output: Path) -> None:
    def change(text: str) -> str:
        return texts.merge_into(text, exported.document, dialect.syntax)

    if dialect.syntax in ("json", "jsonc"):
        edit_file(output, change, create="{}\n")
    else:
        with locked(output):
            write_atomic(output, change(read_text(output) if output.exists() else ""))
