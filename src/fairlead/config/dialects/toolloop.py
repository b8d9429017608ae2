"""Codex ToolLoop: `codex-toolloop.mcp.json`, with bundles of one server and references like ours."""

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
    paths_from_env,
    upward,
    user,
)
from fairlead.config.dialects.fields import (
    TOOL_NAMES,
    FieldContext,
    FieldMapping,
    Format,
    MalformedField,
    ValueKind,
    note_other_keys,
    read_fields,
    read_servers,
    section,
    table,
    text,
    texts,
    valid_ids,
    word,
    write_servers,
)
from fairlead.config.dialects.references import AS_OURS
from fairlead.config.paths import MachinePaths

_FILES = ("codex-toolloop.mcp.json", ".codex-toolloop/mcp.json")
_TRANSPORTS = {"stdio": "stdio", "http": "http", "sse": "sse"}


def _write_bundle_tools(theirs: str, value: object, spot: FieldContext) -> dict[str, Any]:
    """A list of tools for a bundle: servers there have none."""
    names = TOOL_NAMES.write(value, spot)
    if names is None:
        return {}
    spot.note("is in a bundle of the same name, as servers there have no lists of tools")
    return {"bundle": {theirs: names}}


FORMAT = Format(
    title="Codex ToolLoop",
    fields=(
        FieldMapping("trust", "trust", word({"trusted": "trusted", "untrusted": "untrusted"})),
        FieldMapping("transport.type", "transport", word(_TRANSPORTS)),
        FieldMapping("transport.command", "command", text(AS_OURS)),
        FieldMapping("transport.args", "args", texts(AS_OURS)),
        FieldMapping("transport.cwd", "cwd", text(AS_OURS)),
        FieldMapping("transport.env", "env", table(AS_OURS)),
        FieldMapping("transport.url", "url", text(AS_OURS)),
        FieldMapping("transport.headers", "headers", table(AS_OURS)),
        FieldMapping("transport.authProviderId", "auth_provider_id", text(AS_OURS)),
    ),
    writing={
        "allow_tools": lambda value, spot: _write_bundle_tools("allowTools", value, spot),
        "deny_tools": lambda value, spot: _write_bundle_tools("denyTools", value, spot),
    },
    targets={name: {"trust": "untrusted", "transport": {"type": name}} for name in _TRANSPORTS},
)


def _some_names(value: object, spot: FieldContext) -> list[str]:
    names = TOOL_NAMES.read(value, spot)
    if not names:
        raise MalformedField("must name at least one tool")
    return names


_BUNDLE = {
    item.theirs: item.read
    for item in (
        FieldMapping("serverId", "server", text(AS_OURS)),
        FieldMapping("mode", "mode", word({"direct": "direct", "meta": "meta"})),
        FieldMapping("allowTools", "allow_tools", ValueKind(read=_some_names, write=TOOL_NAMES.write)),
        FieldMapping("denyTools", "deny_tools", TOOL_NAMES),
    )
}


def read(data: dict[str, Any], _: MachinePaths) -> ImportedDocument:
    """Servers, and each bundle as a bundle of one server."""
    imported = read_servers(section(data, "servers"), FORMAT, renames=False)
    note_other_keys(data, ("servers", "bundles", "$schema"), imported.notes)
    unnamed: list[ConversionNote] = []
    bundles = valid_ids(section(data, "bundles"), unnamed)
    imported.notes.extend(replace(note, field="bundles") for note in unnamed)
    for name, raw in bundles.items():
        spot = FieldContext(None, f"bundles.{name}", imported.notes)
        try:
            imported.bundles[name] = _of_one_server(read_fields(raw, _BUNDLE, spot), imported.servers)
        except MalformedField as exc:
            (exc.spot or spot).note(f"{exc}; this bundle is left out")
    return imported


def _of_one_server(bundle: Entry, servers: Mapping[str, Entry]) -> Entry:
    server = bundle.pop("server", None)
    if server is None:
        raise MalformedField("has no `serverId`")
    if server not in servers:
        raise MalformedField(f"is of `{server}`, which is no server of this file or was left out")
    mode = {"mode": bundle.pop("mode")} if "mode" in bundle else {}
    return {"servers": {server: bundle}, **mode}


def write(entries: Mapping[str, Entry]) -> ExportedDocument:
    """Servers. Lists of tools belong to bundles there, so a server with lists gets its own bundle."""
    notes: list[ConversionNote] = []
    servers = write_servers(entries, FORMAT, notes)
    bundles = {
        name: {"serverId": name, "mode": "direct", **server.pop("bundle")}
        for name, server in servers.items()
        if "bundle" in server
    }
    return ExportedDocument(
        document={"servers": servers} | ({"bundles": bundles} if bundles else {}), notes=notes
    )


def locations(place: MachinePaths) -> list[Location]:
    """File that the environment names, else those here and above; the nearest counts."""
    return user(*paths_from_env(place, "CODEX_TOOLLOOP_MCP_CONFIG_PATH")) or upward(place, *_FILES)


TOOLLOOP = ConfigDialect(
    name="toolloop", title="Codex ToolLoop", syntax="json", locations=locations, read=read, write=write
)
