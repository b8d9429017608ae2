"""Cursor: `mcp.json`, with `${env:NAME}` and the editor's variables."""

from collections.abc import Mapping
from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    ConversionNote,
    Entry,
    ExportedDocument,
    ImportedDocument,
    Location,
    distinct,
    project,
    user,
)
from fairlead.config.dialects.fields import (
    TRANSPORTS,
    FieldMapping,
    Format,
    disabled,
    note_other_keys,
    read_servers,
    report_ignored,
    scopes,
    section,
    table,
    text,
    texts,
    word,
    write_servers,
)
from fairlead.config.dialects.references import ReferenceSyntax, editor_style
from fairlead.config.dialects.vscode import note_variables, resolve_predefined
from fairlead.config.paths import MachinePaths

_VARIABLES = ("workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator", "/")


def _format(style: ReferenceSyntax) -> Format:
    return Format(
        title="Cursor",
        fields=(
            FieldMapping("type", "transport", word(TRANSPORTS | {"streamableHttp": "http"})),
            FieldMapping("command", "command", text(style)),
            FieldMapping("args", "args", texts(style)),
            FieldMapping("cwd", "cwd", text(style)),
            FieldMapping("env", "env", table(style)),
            FieldMapping("url", "url", text(style)),
            FieldMapping("headers", "headers", table(style)),
            FieldMapping("auth.CLIENT_ID", "oauth.client_id", text(style)),
            FieldMapping("auth.CLIENT_SECRET", "oauth.client_secret", text(style)),
            FieldMapping("auth.scopes", "oauth.scope", scopes(style)),
        ),
        reading={
            "envFile": report_ignored("has no equivalent here; put its variables into `env`"),
            "disabled": disabled,
        },
        targets={"stdio": {"type": "stdio"}, "http": {}, "sse": {"type": "sse"}},
    )


def read(data: dict[str, Any], place: MachinePaths) -> ImportedDocument:
    """Servers, with the editor's variables as resolved on this machine."""
    servers = section(data, "mcpServers")
    imported = read_servers(servers, _format(editor_style(lambda name: resolve_predefined(place, name))))
    note_other_keys(data, ("mcpServers", "$schema"), imported.notes)
    note_variables(servers, place, imported.notes)
    return imported


def write(entries: Mapping[str, Entry]) -> ExportedDocument:
    """Servers as `mcp.json` has them."""
    notes: list[ConversionNote] = []
    # A variable's value does not matter here, only that the editor would expand it.
    form = _format(editor_style(lambda name: "" if name in _VARIABLES else None))
    return ExportedDocument(document={"mcpServers": write_servers(entries, form, notes)}, notes=notes)


def locations(place: MachinePaths) -> list[Location]:
    """Project file, then the user's."""
    return distinct(project(place, ".cursor/mcp.json"), user(place.home / ".cursor" / "mcp.json"))


CURSOR = ConfigDialect(
    name="cursor", title="Cursor", syntax="json", locations=locations, read=read, write=write
)
