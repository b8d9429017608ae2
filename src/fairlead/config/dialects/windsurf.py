"""Windsurf: `mcp_config.json`, with `${env:NAME}` and `${file:path}`."""

from typing import Any

from fairlead.config.dialects.dialect import Dialect, Imported, Location
from fairlead.config.dialects.entries import (
    TRANSPORTS,
    Field,
    Format,
    approved,
    note_other_keys,
    read_servers,
    section,
)
from fairlead.config.dialects.kinds import NEGATED, TOOL_NAMES, table, text, texts, word
from fairlead.config.dialects.places import user
from fairlead.config.dialects.references import Piece, editor_style
from fairlead.config.paths import Place
from fairlead.config.secrets import Reference


def _variables(name: str) -> Piece | None:
    kind, _, path = name.partition(":")
    return Reference(kind="file", name=path) if kind == "file" and path else None


_STYLE = editor_style(_variables)

FORMAT = Format(
    title="Windsurf",
    fields=(
        Field("type", "transport", word(TRANSPORTS)),
        Field("command", "command", text(_STYLE)),
        Field("args", "args", texts(_STYLE)),
        Field("cwd", "cwd", text(_STYLE)),
        Field("env", "env", table(_STYLE)),
        Field("serverUrl", "url", text(_STYLE)),
        Field("url", "url", text(_STYLE)),
        Field("headers", "headers", table(_STYLE)),
        Field("disabled", "enabled", NEGATED),
        Field("disabledTools", "deny_tools", TOOL_NAMES),
    ),
    reading={"alwaysAllow": approved},
)


def read(data: dict[str, Any], _: Place) -> Imported:
    """The servers. Tools that are never asked about there are not asked about here."""
    imported = read_servers(section(data, "mcpServers"), FORMAT)
    note_other_keys(data, ("mcpServers", "$schema"), imported.notes)
    return imported


def locations(place: Place) -> list[Location]:
    """The editor's file, then the one of its plug-ins for other editors."""
    folder = place.home / ".codeium"
    return user(folder / "windsurf" / "mcp_config.json", folder / "mcp_config.json")


WINDSURF = Dialect(name="windsurf", title="Windsurf", syntax="json", locations=locations, read=read)
