"""Codex ToolLoop: `codex-toolloop.mcp.json`, with servers, bundles of one server, references like ours."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fairlead.config.dialects.dialect import Dialect, Entry, Exported, Imported, Location, Note
from fairlead.config.dialects.entries import (
    Field,
    Format,
    note_other_keys,
    read_fields,
    read_servers,
    section,
    write_servers,
)
from fairlead.config.dialects.ids import server_ids
from fairlead.config.dialects.kinds import TOOL_NAMES, Kind, Malformed, Spot, table, text, texts, word
from fairlead.config.dialects.places import named, upward, user
from fairlead.config.dialects.references import AS_OURS
from fairlead.config.paths import Place

_FILES = ("codex-toolloop.mcp.json", ".codex-toolloop/mcp.json")
_TRANSPORTS = {"stdio": "stdio", "http": "http", "sse": "sse"}


def _bundled(theirs: str, value: object, spot: Spot) -> dict[str, Any]:
    """A list of tools, kept apart for a bundle: servers there have none."""
    names = TOOL_NAMES.write(value, spot)
    if names is None:
        return {}
    spot.note("is in a bundle of the same name, as servers there have no lists of tools")
    return {"bundle": {theirs: names}}


FORMAT = Format(
    title="Codex ToolLoop",
    fields=(
        Field("trust", "trust", word({"trusted": "trusted", "untrusted": "untrusted"})),
        Field("transport.type", "transport", word(_TRANSPORTS)),
        Field("transport.command", "command", text(AS_OURS)),
        Field("transport.args", "args", texts(AS_OURS)),
        Field("transport.cwd", "cwd", text(AS_OURS)),
        Field("transport.env", "env", table(AS_OURS)),
        Field("transport.url", "url", text(AS_OURS)),
        Field("transport.headers", "headers", table(AS_OURS)),
        Field("transport.authProviderId", "auth_provider_id", text(AS_OURS)),
    ),
    writing={
        "allow_tools": lambda value, spot: _bundled("allowTools", value, spot),
        "deny_tools": lambda value, spot: _bundled("denyTools", value, spot),
    },
    targets={name: {"trust": "untrusted", "transport": {"type": name}} for name in _TRANSPORTS},
)


def _some_names(value: object, spot: Spot) -> list[str]:
    names = TOOL_NAMES.read(value, spot)
    if not names:
        raise Malformed("must name at least one tool")
    return names


_BUNDLE = {
    item.theirs: item.read
    for item in (
        Field("serverId", "server", text(AS_OURS)),
        Field("mode", "mode", word({"direct": "direct", "meta": "meta"})),
        Field("allowTools", "allow_tools", Kind(read=_some_names, write=TOOL_NAMES.write)),
        Field("denyTools", "deny_tools", TOOL_NAMES),
    )
}


def read(data: dict[str, Any], _: Place) -> Imported:
    """The servers, and each bundle as a bundle of one server."""
    servers = section(data, "servers")
    imported = read_servers(servers, FORMAT)
    note_other_keys(data, ("servers", "bundles", "$schema"), imported.notes)
    bundles = section(data, "bundles")
    renamed: list[Note] = []
    known, names = server_ids(servers, []), server_ids(bundles, renamed)
    imported.notes.extend(
        replace(note, server_id=None, field=f"bundles.{note.server_id}") for note in renamed
    )
    for name, raw in bundles.items():
        spot = Spot(None, f"bundles.{name}", imported.notes)
        try:
            imported.bundles[names[name]] = _of_one_server(read_fields(raw, _BUNDLE, spot), known)
        except Malformed as exc:
            (exc.spot or spot).note(f"{exc}; this bundle is left out")
    return imported


def _of_one_server(bundle: Entry, known: Mapping[str, str]) -> Entry:
    server = bundle.pop("server", None)
    if server is None:
        raise Malformed("has no `serverId`")
    mode = {"mode": bundle.pop("mode")} if "mode" in bundle else {}
    return {"servers": {known.get(server, server): bundle}, **mode}


def write(entries: Mapping[str, Entry]) -> Exported:
    """The servers. Lists of tools belong to bundles there, so a server with lists gets its own bundle."""
    notes: list[Note] = []
    servers = write_servers(entries, FORMAT, notes)
    bundles = {
        name: {"serverId": name, "mode": "direct", **server.pop("bundle")}
        for name, server in servers.items()
        if "bundle" in server
    }
    return Exported(document={"servers": servers} | ({"bundles": bundles} if bundles else {}), notes=notes)


def locations(place: Place) -> list[Location]:
    """The file the environment names, else those here and above; the nearest is the one that counts."""
    return user(*named(place, "CODEX_TOOLLOOP_MCP_CONFIG_PATH")) or upward(place, *_FILES)


TOOLLOOP = Dialect(
    name="toolloop", title="Codex ToolLoop", syntax="json", locations=locations, read=read, write=write
)
