"""Write servers, or the gateway, in another agent's format. Secrets stay references; none is resolved."""

from collections.abc import Sequence
from pathlib import Path

from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.saved_state import read_saved
from fairlead.adapters.export import Loss, export_servers, export_to_codex
from fairlead.config.dialects import registry, syntax
from fairlead.config.dialects.dialect import ConfigDialect, ExportedDocument
from fairlead.config.document.edit import edit_file
from fairlead.config.document.files import hold_lock, read_text, write_atomic
from fairlead.config.load import LoadedConfig
from fairlead.config.untyped import as_object
from fairlead.errors import ConfigError, Remedy
from fairlead.gateway.install import NAME, GatewayRoute


def dialect_to_write(agent: str) -> ConfigDialect:
    """The format of an agent. Raises `ConfigError` where Fairlead only reads it."""
    dialect = registry.by_name(agent)
    dialect.require_writer()
    return dialect


def export_gateway(dialect: ConfigDialect, url: str | None) -> ExportedDocument:
    """One entry: a gateway in front of all servers, started by the agent, or reached by URL."""
    return dialect.require_writer()({NAME: GatewayRoute(url=url).entry(None)})


def export_document(
    loaded: LoadedConfig, dialect: ConfigDialect, server_ids: Sequence[str] = (), lose: Sequence[Loss] = ()
) -> ExportedDocument:
    """Servers in another agent's format, with no more permissions than here.

    Args:
        loaded: The configuration.
        dialect: The format.
        server_ids: The servers; by default all.
        lose: Restrictions of a server that may be lost in the other agent's format.

    Raises:
        UnknownServer: There is none of an id.
    """
    saved = read_saved(loaded)
    known = {name: each.screened for name, each in saved.items() if each.screened is not None}
    approved = [name for name, each in saved.items() if each.approved]
    servers = [loaded.server(name) for name in server_ids or loaded.servers]
    if dialect.name == "codex":
        return export_to_codex(servers, known=known, approved=approved, lose=lose)
    return export_servers(dialect, servers, known=known, approved=approved, lose=lose)


def write_export(
    context: ActionContext, dialect: ConfigDialect, exported: ExportedDocument, output: Path
) -> list[Notice]:
    """Put exported servers into a file of the agent, and leave the rest of it as it is.

    Args:
        context: Who exports them.
        dialect: The agent's format.
        exported: The servers.
        output: The file.

    Returns:
        What the user should know about it.

    Raises:
        ConfigError: No server is left to write. The message says why.
    """
    servers = sorted({name for section in exported.document.values() for name in as_object(section)})
    if not servers:
        raise _nothing_to_write_error(dialect, exported, output)

    def change(text: str) -> str:
        return syntax.merge_into(text, exported.document, dialect.syntax)

    if dialect.syntax in ("json", "jsonc"):
        edit_file(output, change, create="{}\n")
    else:
        with hold_lock(output):
            write_atomic(output, change(read_text(output, keep_mark=True) if output.exists() else ""))
    return context.record("export", "", agent=dialect.name, file=str(output.absolute()), servers=servers)


def _nothing_to_write_error(dialect: ConfigDialect, exported: ExportedDocument, output: Path) -> ConfigError:
    reasons = "; ".join(f"`{note.server_id}`: {note.message}" for note in exported.notes if note.server_id)
    why = reasons or "none is configured that does not come with Fairlead"
    return ConfigError(
        f"no server can be exported to {dialect.title}, so {output} was not written: {why}",
        hint="write one entry, of a gateway that keeps every restriction",
        remedy=Remedy(input="gateway"),
    )
