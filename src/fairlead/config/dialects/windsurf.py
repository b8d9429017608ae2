"""Windsurf: `mcp_config.json`, with `${env:NAME}` and `${file:path}`."""

from typing import Any

from fairlead.config.dialects.dialect import ConfigDialect, ImportedDocument, Location, user
from fairlead.config.dialects.fields import (
    NEGATED,
    TOOL_NAMES,
    TRANSPORTS,
    FieldMapping,
    Format,
    note_other_keys,
    read_approved_tools,
    read_servers,
    section,
    table,
    text,
    texts,
    word,
)
from fairlead.config.dialects.references import Piece, editor_style
from fairlead.config.paths import MachinePaths
from fairlead.config.secrets.references import SecretReference


def _variables(name: str) -> Piece | None:
    kind, _, path = name.partition(":")
    return SecretReference(kind="file", name=path) if kind == "file" and path else None


_STYLE = editor_style(_variables)

FORMAT = Format(
    title="Windsurf",
    fields=(
        FieldMapping("type", "transport", word(TRANSPORTS)),
        FieldMapping("command", "command", text(_STYLE)),
        FieldMapping("args", "args", texts(_STYLE)),
        FieldMapping("cwd", "cwd", text(_STYLE)),
        FieldMapping("env", "env", table(_STYLE)),
        FieldMapping("serverUrl", "url", text(_STYLE)),
        FieldMapping("url", "url", text(_STYLE)),
        FieldMapping("headers", "headers", table(_STYLE)),
        FieldMapping("disabled", "enabled", NEGATED),
        FieldMapping("disabledTools", "deny_tools", TOOL_NAMES),
    ),
    reading={"alwaysAllow": read_approved_tools},
)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers. Tools that need no approval there need none here."""
    imported = read_servers(section(data, "mcpServers"), FORMAT)
    note_other_keys(data, ("mcpServers", "$schema"), imported.notes)
    return imported


def locations(place: MachinePaths) -> list[Location]:
    """The editor's file, then the one of its plug-ins for other editors."""
    folder = place.home / ".codeium"
    return user(folder / "windsurf" / "mcp_config.json", folder / "mcp_config.json")


WINDSURF = ConfigDialect(name="windsurf", title="Windsurf", syntax="json", locations=locations, read=read)
