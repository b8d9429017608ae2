"""opencode: `opencode.json` or `.jsonc`, in both layouts it knows, with `{env:NAME}` and `{file:path}`."""

from collections.abc import Mapping
from typing import Any

from fairlead.config.dialects.dialect import (
    ConfigDialect,
    ConversionNote,
    Entry,
    ExportedDocument,
    ImportedDocument,
    Location,
    config_home,
    distinct,
    paths_from_env,
    upward,
    user,
)
from fairlead.config.dialects.fields import (
    FLAG,
    MILLISECONDS,
    NEGATED,
    PORT,
    FieldContext,
    FieldMapping,
    Format,
    MalformedField,
    ValueKind,
    read_servers,
    report_ignored,
    section,
    table,
    text,
    texts,
    word,
    write_servers,
)
from fairlead.config.dialects.references import CURLY
from fairlead.config.paths import MachinePaths

_TYPES = {"local": "stdio", "remote": "http"}
_NAMES = ("opencode.jsonc", "opencode.json")
_SSE = "cannot be set in opencode, which tries SSE where HTTP fails"
_REDIRECT = report_ignored("cannot be set here; set `callback_port` if the login needs a fixed port")


def _read_command(value: object, spot: FieldContext) -> Entry:
    argv = texts(CURLY).read(value, spot)
    if not argv:
        raise MalformedField("must not be empty")
    return {"command": argv[0]} | ({"args": argv[1:]} if argv[1:] else {})


def _only_false(value: object, _: FieldContext) -> bool:
    if value is not False:
        raise MalformedField("must be false or an object")
    return False


_NEWER_LAYOUT = (
    FieldMapping("disabled", "enabled", NEGATED),
    FieldMapping("timeout.startup", "startup_timeout_ms", MILLISECONDS),
    FieldMapping("timeout.request", "request_timeout_ms", MILLISECONDS),
    FieldMapping("oauth.client_id", "oauth.client_id", text(CURLY)),
    FieldMapping("oauth.client_secret", "oauth.client_secret", text(CURLY)),
    FieldMapping("oauth.callback_port", "oauth.callback_port", PORT),
)

FORMAT = Format(
    title="opencode",
    fields=(
        FieldMapping("type", "transport", word(_TYPES)),
        FieldMapping("environment", "env", table(CURLY)),
        FieldMapping("cwd", "cwd", text(CURLY)),
        FieldMapping("url", "url", text(CURLY)),
        FieldMapping("headers", "headers", table(CURLY)),
        FieldMapping("enabled", "enabled", FLAG),
        FieldMapping("timeout", "request_timeout_ms", MILLISECONDS),
        FieldMapping("oauth", "oauth", ValueKind(read=_only_false, write=_only_false)),
        FieldMapping("oauth.clientId", "oauth.client_id", text(CURLY)),
        FieldMapping("oauth.clientSecret", "oauth.client_secret", text(CURLY)),
        FieldMapping("oauth.scope", "oauth.scope", text(CURLY)),
        FieldMapping("oauth.callbackPort", "oauth.callback_port", PORT),
    ),
    reading={
        "command": _read_command,
        "oauth.redirectUri": _REDIRECT,
        "oauth.redirect_uri": _REDIRECT,
        **{field.theirs: field.read for field in _NEWER_LAYOUT},
    },
    # Combined into one list after all other fields.
    writing={
        "command": FieldMapping("command", "command", text(CURLY)).write,
        "args": FieldMapping("args", "args", texts(CURLY)).write,
    },
    targets={"stdio": {"type": "local"}, "http": {"type": "remote"}, "sse": {"type": "remote"}},
    overlays=True,
)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers. Rules about their tools are elsewhere in the document, and are noted."""
    found = section(data, "mcp")
    newer = isinstance(found.get("servers"), dict) and "type" not in found["servers"]
    servers = section(data, "mcp", "servers") if newer else found
    imported = read_servers(servers, FORMAT)
    if newer and "timeout" in found:
        imported.notes.append(
            ConversionNote(server_id=None, field="mcp.timeout", message="is for all servers; ignored")
        )
    for key in ("tools", "permission"):
        if isinstance(data.get(key), dict):
            _note_rules(key, data[key], imported)
    return imported


def _note_rules(key: str, rules: Mapping[str, Any], imported: ImportedDocument) -> None:
    for server_id in imported.servers:
        for pattern in rules:
            if pattern == server_id or pattern.startswith((f"{server_id}_", f"{server_id}*")):
                message = "is a rule about this server's tools; set `deny_tools` or `approval` here"
                imported.notes.append(
                    ConversionNote(server_id=server_id, field=f"{key}.{pattern}", message=message)
                )


def write(entries: Mapping[str, Entry]) -> ExportedDocument:
    """Servers in the layout every version reads."""
    notes: list[ConversionNote] = []
    servers = write_servers(entries, FORMAT, notes)
    for server_id, server in servers.items():
        if "command" in server:
            server["command"] = [server["command"], *server.pop("args", [])]
        if entries[server_id].get("transport") == "sse":
            notes.append(ConversionNote(server_id=server_id, field="transport", message=_SSE))
    return ExportedDocument(document={"mcp": servers}, notes=notes)


def locations(place: MachinePaths) -> list[Location]:
    """The project's files here and above, then the user's."""
    in_project = (*(f".opencode/{name}" for name in _NAMES), *_NAMES)
    folders = [*paths_from_env(place, "OPENCODE_CONFIG_DIR"), config_home(place) / "opencode"]
    in_folders = (folder / name for folder in folders for name in _NAMES)
    return distinct(upward(place, *in_project), user(*paths_from_env(place, "OPENCODE_CONFIG"), *in_folders))


OPENCODE = ConfigDialect(
    name="opencode", title="opencode", syntax="jsonc", locations=locations, read=read, write=write
)
