"""Cline: `cline_mcp_settings.json`, with `${env:NAME}`; the extension's layout and the command line's."""

from typing import Any

from fairlead.config.dialects.dialect import Dialect, Entry, Imported, Location
from fairlead.config.dialects.entries import (
    Field,
    Format,
    approved,
    note_other_keys,
    noted,
    read_servers,
    section,
)
from fairlead.config.dialects.kinds import NEGATED, SECONDS, table, text, texts, word
from fairlead.config.dialects.places import application_data, moved, user
from fairlead.config.dialects.references import PREFIXED
from fairlead.config.paths import Place
from fairlead.config.shapes import is_object

_TYPES = {"stdio": "stdio", "streamableHttp": "http", "http": "http", "sse": "sse"}
_FILE = "cline_mcp_settings.json"

FORMAT = Format(
    title="Cline",
    fields=(
        Field("type", "transport", word(_TYPES)),
        Field("command", "command", text(PREFIXED)),
        Field("args", "args", texts(PREFIXED)),
        Field("cwd", "cwd", text(PREFIXED)),
        Field("env", "env", table(PREFIXED)),
        Field("url", "url", text(PREFIXED)),
        Field("headers", "headers", table(PREFIXED)),
        Field("timeout", "request_timeout_ms", SECONDS),
        Field("disabled", "enabled", NEGATED),
        Field("oauthClient.clientId", "oauth.client_id", text(PREFIXED)),
        Field("oauthClient.clientSecret", "oauth.client_secret", text(PREFIXED)),
    ),
    reading={
        "autoApprove": approved,
        "oauth": noted("is a login Cline keeps for itself; log in again here"),
        "metadata": noted("is Cline's own; ignored"),
        "remoteConfigured": noted("says that an administrator added it; ignored"),
    },
)


def read(data: dict[str, Any], _: Place) -> Imported:
    """The servers. Tools that are never asked about there are not asked about here."""
    servers = section(data, "mcpServers")
    imported = read_servers({name: _flat(raw) for name, raw in servers.items()}, FORMAT)
    note_other_keys(data, ("mcpServers", "$schema"), imported.notes)
    return imported


def _flat(raw: object) -> object:
    """An entry with its transport's fields among the others, and its type under one name."""
    if not is_object(raw):
        return raw
    entry: Entry = raw
    if is_object(transport := entry.get("transport")):
        entry = transport | {key: value for key, value in entry.items() if key != "transport"}
    if "transportType" in entry:
        entry = {"type": entry["transportType"]} | {
            key: value for key, value in entry.items() if key != "transportType"
        }
    if "url" in entry and "command" not in entry and "type" not in entry:
        entry = {"type": "sse"} | entry  # what Cline takes a URL for if nothing else is said
    return entry


def locations(place: Place) -> list[Location]:
    """Where Cline keeps it now, then where its extension for VS Code did."""
    default = place.home / ".cline" / "data" / "settings" / _FILE
    storage = application_data(place) / "Code" / "User" / "globalStorage" / "saoudrizwan.claude-dev"
    return user(moved(place, "CLINE_MCP_SETTINGS_PATH", default), storage / "settings" / _FILE)


CLINE = Dialect(name="cline", title="Cline", syntax="json", locations=locations, read=read)
