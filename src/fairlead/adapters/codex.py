"""The configured servers as Codex takes them, for backends that bring their own MCP client."""

from collections.abc import Collection, Mapping
from typing import Any

from fairlead.adapters.portable import portable_entries
from fairlead.catalog.entries import Listing
from fairlead.config.dialects import codex
from fairlead.config.dialects.dialect import Exported, Note
from fairlead.config.dialects.kinds import is_pattern
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import Server
from fairlead.policy.decision import listed


def to_codex_mcp_servers_config(
    loaded: LoadedConfig,
    *,
    listings: Mapping[str, Listing] | None = None,
    approved: Collection[str] = (),
) -> Exported:
    """The servers as `mcp_servers` tables, with the tools that may be called there and secrets as references.

    Codex knows exact names of tools only: with `listings` (what each server offers) patterns become names,
    without them a pattern allows nothing. A server that a project file describes goes along only where its id
    is among the `approved`: Codex would start it unasked.
    """
    notes: list[Note] = []
    servers = [server for server in loaded.servers.values() if _may_leave(server, approved, notes)]
    entries = portable_entries(servers, notes)
    exported = codex.write({server_id: _without_rules(entry) for server_id, entry in entries.items()})
    written: dict[str, Any] = exported.document["mcp_servers"]
    for server in servers:
        if server.config is not None and server.server_id in written:
            names = _offered((listings or {}).get(server.server_id))
            said = _tools(server.server_id, server.config, names, notes)
            if said is None:
                del written[server.server_id]
            else:
                written[server.server_id] |= said
    return Exported(document=exported.document, notes=[*notes, *exported.notes])


def _may_leave(server: LoadedServer, approved: Collection[str], notes: list[Note]) -> bool:
    if server.is_built_in:
        return False
    if server.consent is not None and server.server_id not in approved:
        message = "left out: it comes from a project file, and nobody approved it"
        notes.append(Note(server_id=server.server_id, field="", message=message))
        return False
    return True


def _without_rules(entry: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in entry.items() if field not in ("allow_tools", "deny_tools")}


def _offered(listing: Listing | None) -> list[str] | None:
    return None if listing is None else [entry.key.tool for entry in listing.tools]


def _tools(
    server_id: str, config: Server, offered: list[str] | None, notes: list[Note]
) -> dict[str, list[str]] | None:
    """Which tools Codex may call: never more than may be called here. None where that cannot be said."""
    if config.trust == "trusted" and config.allow_tools is None:
        patterns = [name for name in config.deny_tools if is_pattern(name)]
        if patterns and offered is None:
            message = "denies by pattern, and nobody knows the tools yet; this server is left out"
            notes.append(Note(server_id=server_id, field="deny_tools", message=message))
            return None
        known = [name for name in offered or () if listed(config, name).verdict == "deny"]
        denied = dict.fromkeys([*(name for name in config.deny_tools if name not in patterns), *known])
        return {"disabled_tools": list(denied)} if denied else {}
    named = [name for name in config.allow_tools or () if not is_pattern(name)]
    if offered is None and len(named) < len(config.allow_tools or ()):
        message = "has patterns, which allow nothing in Codex until the server's tools are known"
        notes.append(Note(server_id=server_id, field="allow_tools", message=message))
    candidates = dict.fromkeys([*named, *(offered or ())])
    return {"enabled_tools": [name for name in candidates if listed(config, name).verdict == "allow"]}
