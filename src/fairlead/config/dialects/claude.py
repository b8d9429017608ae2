"""Claude Code: a project's `.mcp.json`, and `~/.claude.json` with servers for all folders or one."""

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
    path_from_env,
    upward,
    user,
)
from fairlead.config.dialects.fields import (
    COMMAND_LINE,
    MILLISECONDS,
    PORT,
    TRANSPORTS,
    FieldContext,
    FieldMapping,
    Format,
    MalformedField,
    ValueKind,
    disabled,
    read_servers,
    report_ignored,
    section,
    server_ids,
    strings,
    table,
    text,
    texts,
    word,
    write_servers,
)
from fairlead.config.dialects.references import BRACED, LITERAL, NotExpressible
from fairlead.config.paths import MachinePaths

_SHORTEST_MS = 1000


def _read_timeout(value: object, spot: FieldContext) -> int | None:
    milliseconds = MILLISECONDS.read(value, spot)
    if milliseconds is not None and milliseconds < _SHORTEST_MS:
        spot.note("is under a second, which Claude Code ignores; ignored here too")
        return None
    return milliseconds


def _write_timeout(value: object, spot: FieldContext) -> int:
    milliseconds = MILLISECONDS.write(value, spot)
    if milliseconds < _SHORTEST_MS:
        raise NotExpressible("is under a second, which Claude Code ignores")
    return milliseconds


_TIMEOUT = ValueKind(read=_read_timeout, write=_write_timeout)

FORMAT = Format(
    title="Claude Code",
    fields=(
        FieldMapping("type", "transport", word(TRANSPORTS)),
        FieldMapping("command", "command", text(BRACED)),
        FieldMapping("args", "args", texts(BRACED)),
        FieldMapping("env", "env", table(BRACED)),
        FieldMapping("url", "url", text(BRACED)),
        FieldMapping("headers", "headers", table(BRACED)),
        FieldMapping("headersHelper", "headers_helper", COMMAND_LINE),
        FieldMapping("oauth.clientId", "oauth.client_id", text(LITERAL)),
        FieldMapping("oauth.callbackPort", "oauth.callback_port", PORT),
        FieldMapping("oauth.scopes", "oauth.scope", text(LITERAL)),
        FieldMapping("timeout", "request_timeout_ms", _TIMEOUT),
        FieldMapping("request_timeout_ms", "request_timeout_ms", _TIMEOUT),
    ),
    reading={
        "disabled": disabled,
        "alwaysLoad": report_ignored(
            "has no equivalent on a server; name the tools in a bundle's `always_direct`"
        ),
        "oauth.authServerMetadataUrl": report_ignored(
            "cannot be set here; set `authorization_url` and `token_url` instead"
        ),
        "oauth.xaa": report_ignored("has no equivalent here"),
    },
    targets={"stdio": {"type": "stdio"}, "http": {"type": "http"}, "sse": {"type": "sse"}},
)


def read(data: dict[str, Any], place: MachinePaths) -> ImportedDocument:
    """Servers of the file; of `~/.claude.json` also those for the current folder, which win."""
    imported = read_servers(section(data, "mcpServers"), FORMAT)
    projects = section(data, "projects")
    for folder in _folders(place):
        if folder in projects:
            _add_local(imported, section(projects, folder))
    return imported


def _folders(place: MachinePaths) -> list[str]:
    """The current folder and those above it, the nearest last, in the spellings the file may use."""
    folders = reversed((place.cwd, *place.cwd.parents))
    return list(
        dict.fromkeys(spelling for folder in folders for spelling in (str(folder), folder.as_posix()))
    )


def _add_local(imported: ImportedDocument, settings: Mapping[str, Any]) -> None:
    servers = section(settings, "mcpServers")
    local = read_servers(servers, FORMAT)
    imported.notes.extend(local.notes)
    for server_id in local.servers:
        message = "is for this folder alone; here it is for all"
        if server_id in imported.servers:
            message = "has another entry for this folder, which is used"
        imported.notes.append(ConversionNote(server_id=server_id, field="projects", message=message))
    imported.servers.update(local.servers)
    ids = server_ids(servers, [])
    for list_name in ("disabledMcpServers", "disabledMcpjsonServers"):
        for name in _names(settings, list_name, imported.notes):
            if ids.get(name) in local.servers:
                imported.servers[ids[name]]["enabled"] = False
            else:
                message = "disables it for this folder alone; not carried over"
                imported.notes.append(ConversionNote(server_id=name, field=list_name, message=message))


def _names(settings: Mapping[str, Any], key: str, notes: list[ConversionNote]) -> list[str]:
    try:
        return strings(settings.get(key, []))
    except MalformedField as exc:
        notes.append(ConversionNote(server_id=None, field=key, message=f"{exc}; ignored"))
        return []


def write(entries: Mapping[str, Entry]) -> ExportedDocument:
    """Servers as `.mcp.json` and `~/.claude.json` have them."""
    notes: list[ConversionNote] = []
    return ExportedDocument(document={"mcpServers": write_servers(entries, FORMAT, notes)}, notes=notes)


def locations(place: MachinePaths) -> list[Location]:
    """`.mcp.json` here and above, then the user's file."""
    home = path_from_env(place, "CLAUDE_CONFIG_DIR", place.home)
    return distinct(upward(place, ".mcp.json"), user(home / ".claude.json"))


CLAUDE = ConfigDialect(
    name="claude", title="Claude Code", syntax="json", locations=locations, read=read, write=write
)
