"""Gemini CLI: `settings.json`, with `$NAME` and `${NAME}`, and lists of allowed and excluded servers."""

from collections.abc import Mapping
from dataclasses import replace
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
    project,
    user,
)
from fairlead.config.dialects.fields import (
    MILLISECONDS,
    TOOL_NAMES,
    TRANSPORTS,
    FieldContext,
    FieldMapping,
    Format,
    MalformedField,
    Reader,
    disabled,
    read_allowlist,
    read_redundant,
    read_servers,
    report_if_equal,
    report_ignored,
    scopes,
    section,
    server_ids,
    strings,
    table,
    text,
    texts,
    word,
    write_servers,
)
from fairlead.config.dialects.references import SHELL
from fairlead.config.paths import MachinePaths
from fairlead.config.untyped import as_object


def _read_http_url(value: object, spot: FieldContext) -> Entry:
    return {"url": text(SHELL).read(value, spot), "transport": "http"}


FORMAT = Format(
    title="Gemini CLI",
    fields=(
        FieldMapping("type", "transport", word(TRANSPORTS)),
        FieldMapping("command", "command", text(SHELL)),
        FieldMapping("args", "args", texts(SHELL)),
        FieldMapping("cwd", "cwd", text(SHELL)),
        FieldMapping("env", "env", table(SHELL)),
        FieldMapping("url", "url", text(SHELL)),
        FieldMapping("headers", "headers", table(SHELL)),
        FieldMapping("timeout", "request_timeout_ms", MILLISECONDS),
        FieldMapping("includeTools", "allow_tools", TOOL_NAMES),
        FieldMapping("excludeTools", "deny_tools", TOOL_NAMES),
        FieldMapping("description", "description", text(SHELL)),
        FieldMapping("oauth.clientId", "oauth.client_id", text(SHELL)),
        FieldMapping("oauth.clientSecret", "oauth.client_secret", text(SHELL)),
        FieldMapping("oauth.authorizationUrl", "oauth.authorization_url", text(SHELL)),
        FieldMapping("oauth.tokenUrl", "oauth.token_url", text(SHELL)),
        FieldMapping("oauth.registrationUrl", "oauth.registration_url", text(SHELL)),
        FieldMapping("oauth.scopes", "oauth.scope", scopes(SHELL)),
    ),
    reading={
        "httpUrl": _read_http_url,
        "includeTools": read_allowlist,
        "tcp": report_ignored("is a WebSocket, which cannot be reached from here"),
        "trust": report_if_equal(
            True, 'skips every confirmation there; if you want that here, set `approval` to "allow" yourself'
        ),
        "oauth.enabled": report_if_equal(
            False, "has no equivalent here; set `oauth` to false to never log in"
        ),
        "oauth.issuer": report_ignored("is found in the server's metadata here; ignored"),
        "oauth.audiences": report_ignored("has no equivalent here"),
        "oauth.redirectUri": report_ignored(
            "cannot be set here; set `callback_port` if the login needs a fixed port"
        ),
        "oauth.tokenParamName": report_ignored("has no equivalent here"),
        "authProviderType": report_ignored("is a login only Gemini CLI has"),
        "targetAudience": report_ignored("is for a login only Gemini CLI has"),
        "targetServiceAccount": report_ignored("is for a login only Gemini CLI has"),
        "extension": report_ignored("says which extension it came with; ignored"),
        "disabled": disabled,
    },
    # Disabled servers are in a list apart from the entries.
    writing={"enabled": lambda _, __: {}},
    targets={"stdio": {}, "http": {"type": "http"}, "sse": {"type": "sse"}},
)


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers; those the lists exclude are disabled."""
    servers = section(data, "mcpServers")
    imported = read_servers(servers, _format)
    lists = section(data, "mcp")
    _disable(imported, lists, server_ids(servers, []))
    if "serverCommand" in lists:
        imported.notes.append(
            ConversionNote(
                server_id=None,
                field="mcp.serverCommand",
                message="has no equivalent here; add it as a server",
            )
        )
    return imported


def _format(raw: object) -> Format:
    """Format of one server, which prefers a URL over a command, and `httpUrl` over `url`."""
    entry = as_object(raw)
    if "httpUrl" in entry:
        first: dict[str, Reader] = {
            "url": report_ignored("is ignored where there is an `httpUrl`"),
            "type": read_redundant,
        }
    elif "type" in entry:
        return FORMAT
    else:
        first = {"url": _read_http_url}
    return replace(FORMAT, reading={**FORMAT.reading, **first})


def _disable(imported: ImportedDocument, lists: Mapping[str, Any], ids: Mapping[str, str]) -> None:
    try:
        only = strings(lists["allowed"]) if lists.get("allowed") is not None else None
        excluded = strings(lists.get("excluded") or [])
    except MalformedField as exc:
        imported.notes.append(
            ConversionNote(server_id=None, field="mcp", message=f"has a list that {exc}; all stay on")
        )
        return
    for name, server_id in ids.items():
        off = name in excluded or (only is not None and name not in only)
        if off and server_id in imported.servers:
            imported.servers[server_id]["enabled"] = False


def write(entries: Mapping[str, Entry]) -> ExportedDocument:
    """Servers, and the list of disabled ones."""
    notes: list[ConversionNote] = []
    servers = write_servers(entries, FORMAT, notes)
    for server in servers.values():
        if "oauth" in server:
            server["oauth"] = {"enabled": True, **server["oauth"]}
    document: dict[str, Any] = {"mcpServers": servers}
    if excluded := [server_id for server_id in servers if entries[server_id].get("enabled") is False]:
        document["mcp"] = {"excluded": excluded}
    return ExportedDocument(document=document, notes=notes)


def locations(place: MachinePaths) -> list[Location]:
    """The project's file, then the user's."""
    home = path_from_env(place, "GEMINI_CLI_HOME", place.home)
    return distinct(project(place, ".gemini/settings.json"), user(home / ".gemini" / "settings.json"))


GEMINI = ConfigDialect(
    name="gemini", title="Gemini CLI", syntax="jsonc", locations=locations, read=read, write=write
)
