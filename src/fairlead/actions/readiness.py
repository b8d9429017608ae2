"""Readiness of a configuration: what agents can use through the gateway, and the command that fixes the rest.

Everything is known from earlier runs: no server is contacted, so that this is quick however slow servers are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from fairlead.actions.known_catalog import KnownCatalog, read_catalog
from fairlead.actions.saved_state import SavedState, notes_to_review
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import BundleMode
from fairlead.host.model.catalogs import cost_of, mode_for

ObstacleKind = Literal["not approved", "broken", "needs a login", "not reviewed", "changed"]
"""Why agents do not get a server's tools, or not all of them, or not without approval."""
MAX_COUNTED_TOOLS: Final = 2000
"""Up to so many tools are counted as agents get them; of more, by what their servers list, which is quick."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Obstacle:
    """Reason why agents cannot use servers, or not fully, and those servers."""

    kind: ObstacleKind
    servers: tuple[str, ...]
    command: str
    """The command that fixes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    """Number of servers and tools that agents can use, and the obstacles."""

    servers: int
    """How many servers are enabled, ready or not."""
    ready: tuple[str, ...]
    tools: int
    """How many tools of these are known."""
    unlisted: tuple[str, ...]
    """Servers that were never connected: they are at the first use, and then it is known what they offer."""
    obstacles: tuple[Obstacle, ...]
    mode: Literal["direct", "meta", "mixed"]
    """Do agents get the tools themselves, or meta-tools that find and call them?"""


def read_readiness(
    loaded: LoadedConfig, bundle: str | None = None, mode: BundleMode | None = None
) -> Readiness:
    """Determine what agents can use.

    Args:
        loaded: The configuration.
        bundle: The bundle that is served, if it is not everything.
        mode: How tools are presented, where the command line says so.

    Raises:
        UnknownBundle: There is no such bundle.
        StoreError: What earlier runs left behind cannot be read.
    """
    known = read_catalog(loaded, bundle)
    found: dict[ObstacleKind | None, list[str]] = {}
    unlisted: list[str] = []
    for server in known.chosen:
        saved = known.saved[server.server_id]
        kind = _obstacle(server, saved)
        found.setdefault(kind, []).append(server.server_id)
        if kind is None and saved.snapshot is None and server.transport not in _OUR_OWN:
            unlisted.append(server.server_id)
    ready = [name for name in found.pop(None, []) if name not in unlisted]
    return Readiness(
        servers=len(known.chosen),
        ready=tuple(ready),
        tools=_count_tools(known, {*ready, *found.get("changed", []), *found.get("not reviewed", [])}),
        unlisted=tuple(unlisted),
        obstacles=tuple(
            Obstacle(kind=kind, servers=tuple(found[kind]), command=_command(kind, found[kind]))
            for kind in _ORDER
            if kind in found
        ),
        mode=_mode(known, bundle, mode),
    )


_ORDER: Final[tuple[ObstacleKind, ...]] = (
    "not approved",
    "broken",
    "needs a login",
    "changed",
    "not reviewed",
)


def _obstacle(server: LoadedServer, saved: SavedState) -> ObstacleKind | None:
    if any(problem.severity == "error" for problem in server.problems):
        return "broken"
    if not saved.approved:
        return "not approved"
    if saved.trouble is not None:
        is_login = saved.trouble.state in ("auth_required", "needs_client_registration")
        return "needs a login" if is_login else "broken"
    if saved.screened is not None and saved.screened.quarantined:
        return "changed"
    return "not reviewed" if notes_to_review(server, saved) else None


def _command(kind: ObstacleKind, servers: list[str]) -> str:
    match kind:
        case "not approved":
            return command_line("approve", servers[0]) if len(servers) == 1 else "fairlead approve --all"
        case "needs a login":
            return command_line("login", servers[0])
        case "broken":
            return command_line("test", servers[0]) if len(servers) == 1 else "fairlead doctor"
        case "changed" | "not reviewed":
            return command_line("review", *servers) if len(servers) <= _MAX_NAMED else "fairlead review --all"


_MAX_NAMED: Final = 3
_OUR_OWN: Final = ("builtin", "in_process")
"""Servers in this process: there is nothing to wait for."""


def _count_tools(known: KnownCatalog, servers: Iterable[str]) -> int:
    listed = sum(len(known.listings[name].tools) for name in servers if name in known.listings)
    return len(known.catalog.tools) if listed <= MAX_COUNTED_TOOLS else listed


def _mode(
    known: KnownCatalog, bundle: str | None, mode: BundleMode | None
) -> Literal["direct", "meta", "mixed"]:
    settings = known.loaded.config.gateway
    chosen = mode or (settings.mode if not bundle else None) or known.selection.mode
    selection = replace(known.selection, mode=chosen)
    listed = sum(len(listing.tools) for listing in known.listings.values())
    # So many cost more than any budget that is meant seriously, and adding that up would take seconds.
    cost = cost_of(known.catalog) if listed <= MAX_COUNTED_TOOLS else selection.token_budget + 1
    directly = [mode_for(server.server_id, selection, cost) == "direct" for server in known.chosen]
    if all(directly):
        return "direct"
    return "mixed" if any(directly) else "meta"
