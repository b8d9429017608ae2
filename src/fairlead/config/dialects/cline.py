"""Cline: `cline_mcp_settings.json`, with `${env:NAME}`, in the layouts of the extension and the CLI."""

from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    Entry,
    ImportedDocument,
    Location,
    application_data,
    path_from_env,
    user,
)
from fairlead.config.dialects.fields import (
    NEGATED,
    SECONDS,
    FieldMapping,
    Format,
    note_other_keys,
    read_approved_tools,
    read_servers,
    report_ignored,
    section,
    table,
    text,
    texts,
    word,
)
from fairlead.config.dialects.references import PREFIXED
from fairlead.config.paths import MachinePaths
from fairlead.config.untyped import is_object

_TYPES = {"stdio": "stdio", "streamableHttp": "http", "http": "http", "sse": "sse"}
_FILE = "cline_mcp_settings.json"

FORMAT = Format(
    title="Cline",
    fields=(
        FieldMapping("type", "transport", word(_TYPES)),
        FieldMapping("command", "command", text(PREFIXED)),
        FieldMapping("args", "args", texts(PREFIXED)),
        FieldMapping("cwd", "cwd", text(PREFIXED)),
        FieldMapping("env", "env", table(PREFIXED)),
        FieldMapping("url", "url", text(PREFIXED)),
        FieldMapping("headers", "headers", table(PREFIXED)),
        FieldMapping("timeout", "request_timeout_ms", SECONDS),
        FieldMapping("disabled", "enabled", NEGATED),
        FieldMapping("oauthClient.clientId", "oauth.client_id", text(PREFIXED)),
        FieldMapping("oauthClient.clientSecret", "oauth.client_secret", text(PREFIXED)),
    ),
    reading={
        "autoApprove": read_approved_tools,
        "oauth": report_ignored("is a login Cline keeps for itself; log in again here"),
        "metadata": report_ignored("is Cline's own; ignored"),
        "remoteConfigured": report_ignored("says that an administrator added it; ignored"),
    },
)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers. Tools that need no approval there need none here."""
    servers = section(data, "mcpServers")
    imported = read_servers({name: _flat(raw) for name, raw in servers.items()}, FORMAT)
    note_other_keys(data, ("mcpServers", "$schema"), imported.notes)
    return imported


def _flat(raw: object) -> object:
    """Entry with its transport's fields among the others, and its type under one name."""
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
        entry = {"type": "sse"} | entry  # Cline's default for a URL
    return entry


def locations(place: MachinePaths) -> list[Location]:
    """Cline's present path, then the one of its extension for VS Code."""
    default = place.home / ".cline" / "data" / "settings" / _FILE
    storage = application_data(place) / "Code" / "User" / "globalStorage" / "saoudrizwan.claude-dev"
    return user(path_from_env(place, "CLINE_MCP_SETTINGS_PATH", default), storage / "settings" / _FILE)


CLINE = ConfigDialect(name="cline", title="Cline", syntax="json", locations=locations, read=read)
