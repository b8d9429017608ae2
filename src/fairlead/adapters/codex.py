"""The configured servers as Codex takes them, for backends that bring their own MCP client."""

from collections.abc import Collection, Mapping
from typing import Any

from fairlead.adapters.portable import Loss, export_servers, tool_lists
from fairlead.catalog.entries import Listing
from fairlead.config.dialects.codex import CODEX
from fairlead.config.dialects.dialect import Exported
from fairlead.config.load import LoadedConfig
from fairlead.policy.quarantine import Screened


def to_codex_mcp_servers_config(
    loaded: LoadedConfig,
    *,
    listings: Mapping[str, Listing] | None = None,
    approved: Collection[str] = (),
    lose: Collection[Loss] = (),
) -> Exported:
    """The servers as `mcp_servers` tables, with the tools that may be called there and secrets as references.

    Codex knows exact names of tools only: with `listings` (what each server offers) patterns become names,
    without them a pattern allows nothing. A server that a project file describes goes along only where its id
    is among the `approved`: Codex would start it unasked. One that is narrowed by what Codex cannot be told
    (a sandbox, rules about arguments) is left out unless `lose` names that.
    """
    known = {name: Screened(listing=listing) for name, listing in (listings or {}).items()}
    return export_to_codex(loaded, known=known, approved=approved, lose=lose)


def export_to_codex(
    loaded: LoadedConfig,
    *,
    server_ids: Collection[str] | None = None,
    known: Mapping[str, Screened] | None = None,
    approved: Collection[str] = (),
    lose: Collection[Loss] = (),
) -> Exported:
    """The same for some servers, with what waits for a review told apart."""
    servers = [loaded.server(name) for name in (loaded.servers if server_ids is None else server_ids)]
    exported = export_servers(CODEX, servers, known=known, approved=approved, lose=lose)
    written: dict[str, Any] = exported.document["mcp_servers"]
    for server in servers:
        table = written.get(server.server_id)
        lists = tool_lists(server, (known or {}).get(server.server_id), []) if table is not None else None
        if table is not None and lists is not None and lists.allowed == ():
            table["enabled_tools"] = []  # to Codex, an empty list is a list
    return exported
