"""Catalogs of known tools: cached per selection, rebuilt only where a listing changed."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol

import anyio
from anyio.abc import TaskGroup

from fairlead.catalog.catalog import Catalog, CatalogPart, HiddenTool
from fairlead.catalog.naming import Scheme
from fairlead.catalog.signatures import estimate
from fairlead.catalog.tools import Listing, ToolEntry, ToolKey
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.events import Event, McpToolsChanged
from fairlead.host.background import run_off_loop
from fairlead.host.model.bundles import CatalogKey, Selection
from fairlead.policy.decision import BundleFilter, CallPolicy, Decision
from fairlead.policy.quarantine import ScreenedListing

AT_ONCE: Final = 250
"""Catalogs up to this many tools are built at once, larger ones in the background."""


class CatalogServer(Protocol):
    """A managed server as catalogs use it; its own class loads the SDK."""

    @property
    def server(self) -> LoadedServer:
        """Its definition."""
        ...

    @property
    def is_usable(self) -> bool:
        """Whether it is enabled and its entry is valid."""
        ...

    @property
    def awaits_consent(self) -> bool:
        """Whether the user has not consented to a project's entry."""
        ...

    @property
    def screened(self) -> ScreenedListing | None:
        """The part of its listing that may be offered."""
        ...

    @property
    def listing(self) -> Listing | None:
        """Its known listing without quarantined tools; None before consent."""
        ...

    def use_first(self, bundle_filter: BundleFilter) -> None:
        """Pin the tools that a bundle lets through, if it is the first to."""
        ...


class CatalogServers(Protocol):
    """The servers of a host as catalogs use them."""

    @property
    def generation(self) -> int | None:
        """Increases whenever servers, or what may be offered of them, change; None if that is not counted."""
        ...

    def list_offered(self) -> Iterable[CatalogServer]:
        """The servers whose listings make up the catalog."""
        ...

    @property
    def offers_the_same(self) -> bool:
        """Whether every listing is that of the host above."""
        ...


class HostCatalogs:
    """The catalogs of one host: those of the host above for as long as both offer the same."""

    def __init__(
        self,
        servers: CatalogServers,
        scheme: Scheme,
        reserved: frozenset[str],
        background: "CatalogBuilder",
        above: "HostCatalogs | None" = None,
    ) -> None:
        self._servers = servers
        self._reserved = reserved
        self._background = background
        self._above = above
        self._catalogs = Catalogs(scheme, reserved, background)

    def current(self, selection: Selection) -> Catalog:
        """The tools of a selection that are known now. Contacts no server."""
        if self._above is not None and self._servers.offers_the_same:
            return self._above.current(selection)
        return self._catalogs.current(selection, self._servers.list_offered, self._servers.generation)

    async def wait(self, selection: Selection, *, only_first: bool = False) -> None:
        """Wait until a large catalog that is being built is ready; the first one only, if `only_first`."""
        if self._above is not None and self._servers.offers_the_same:
            await self._above.wait(selection, only_first=only_first)
        else:
            self.current(selection)
            await self._catalogs.wait(selection, only_first=only_first)

    def reset(self, scheme: Scheme) -> None:
        """Drop all catalogs: the configuration changed, and with it what is allowed."""
        self._catalogs = Catalogs(scheme, self._reserved, self._background)

    def close(self) -> None:
        """Build nothing in the background any more."""
        self._background.is_open = False


class Catalogs:
    """Keeps the latest catalog of each selection. Unchanged servers give the same objects, byte for byte.

    A small catalog is made on demand. A large one is made in the background (see `background`):
    until it is ready the one before is handed out, or at first one of as many servers as are small together.
    """

    def __init__(self, scheme: Scheme, reserved: frozenset[str], background: "CatalogBuilder") -> None:
        self._scheme: Scheme = scheme
        self._reserved = reserved
        self._background = background
        self._latest: dict[CatalogKey, _LatestCatalog] = {}
        self._builds: dict[CatalogKey, _Build] = {}

    def current(
        self,
        selection: Selection,
        servers: Callable[[], Iterable[CatalogServer]],
        generation: int | None = None,
    ) -> Catalog:
        """The catalog of what is known now. While a large one is built off the event loop, the latest one.

        Args:
            selection: Which tools.
            servers: Returns the servers whose listings make up the catalog.
            generation: Their generation: if it is that of the latest catalog, nothing is compared.
        """
        latest = self._latest.get(selection.catalog_key)
        if latest is not None and latest.generation == generation is not None:
            return latest.catalog
        sources = _sources(selection, servers())
        if latest is not None and _same(latest.sources, sources):
            latest.generation = generation
            return latest.catalog
        if _count(sources) <= AT_ONCE or not self._background.is_open:
            catalog = self._build(selection, sources, latest)
            self._latest[selection.catalog_key] = _LatestCatalog(sources, catalog, generation)
            return catalog
        self._build_soon(selection, sources)
        if latest is None:
            small = _small(sources)
            latest = _LatestCatalog(small, self._build(selection, small, None), None)
            self._latest[selection.catalog_key] = latest
        return latest.catalog

    async def wait(self, selection: Selection, *, only_first: bool = False) -> None:
        """Wait for the catalog of a selection that is being made, if one is.

        With `only_first`, only for the first one: before it is there, not all servers are in the catalog.
        """
        while (build := self._builds.get(selection.catalog_key)) is not None:
            if only_first and not build.is_first:
                return
            await build.is_over.wait()

    def _build(
        self, selection: Selection, sources: "list[_Source]", latest: "_LatestCatalog | None"
    ) -> Catalog:
        known: dict[int, CatalogPart] = {}
        before: Catalog | None = None
        if latest is not None:
            before = latest.catalog
            known = {id(of): before.offerings[managed.server.server_id] for managed, of in latest.sources}
        offerings = [
            known.get(id(screened)) or offering_of(managed.server, screened, selection)
            for managed, screened in sources
        ]
        scheme: Scheme = "plain" if selection.plain_names else self._scheme
        return Catalog(offerings, scheme=scheme, reserved=self._reserved, before=before)

    def _build_soon(self, selection: Selection, sources: "list[_Source]") -> None:
        build = self._builds.get(selection.catalog_key)
        if build is None:
            is_first = selection.catalog_key not in self._latest
            self._builds[selection.catalog_key] = _Build(sources, is_first=is_first)
            self._background.start(partial(self._build_latest, selection))
        else:
            build.sources = sources  # once the one under way is done

    async def _build_latest(self, selection: Selection) -> None:
        """Make a catalog, and again for as long as servers change meanwhile."""
        build = self._builds[selection.catalog_key]
        done: list[_Source] | None = None
        try:
            while done is None or not _same(done, build.sources):
                done, latest = build.sources, self._latest.get(selection.catalog_key)
                catalog = await run_off_loop(partial(self._build, selection, done, latest), _count(done))
                self._latest[selection.catalog_key] = _LatestCatalog(done, catalog, None)
                before = latest.sources if latest is not None else []
                new = {id(screened) for _, screened in done} ^ {id(screened) for _, screened in before}
                self._background.announce([managed for managed, screened in done if id(screened) in new])
        finally:
            del self._builds[selection.catalog_key]
            build.is_over.set()


class CatalogBuilder:
    """Builds large catalogs in the background of one host, and announces them."""

    def __init__(self, tasks: TaskGroup, emit: Callable[[Event], None]) -> None:
        self._tasks = tasks
        self._emit = emit
        self.is_open = True
        """Whether work can still be started: not once the host is closing."""

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine function in the background for as long as the host is open."""
        self._tasks.start_soon(work)

    def announce(self, servers: Iterable[CatalogServer]) -> None:
        """Emit `McpToolsChanged` for servers whose tools a new catalog has."""
        for managed in servers:
            listing = managed.listing
            count = len(listing.tools) if listing else 0
            self._emit(McpToolsChanged(server_id=managed.server.server_id, tools=count))


@dataclass(slots=True)
class _Build:
    """A catalog that is being made."""

    sources: "list[_Source]"
    is_first: bool
    """Whether no catalog of all servers was built yet."""
    is_over: anyio.Event = field(default_factory=anyio.Event)


_Source = tuple[CatalogServer, ScreenedListing]


@dataclass(slots=True)
class _LatestCatalog:
    sources: list[_Source]
    catalog: Catalog
    generation: int | None


def _sources(selection: Selection, servers: Iterable[CatalogServer]) -> list[_Source]:
    sources: list[_Source] = []
    for managed in servers:
        server_id = managed.server.server_id
        # What a project file describes is not shown to a model before the user approved it.
        shown = managed.is_usable and not managed.awaits_consent
        if managed.screened is not None and shown and selection.has(server_id):
            bundle_filter = selection.bundle_filter(server_id)
            if bundle_filter is not None:
                managed.use_first(bundle_filter)
            sources.append((managed, managed.screened))
    return sources


def _count(sources: "list[_Source]") -> int:
    return sum(len(screened.listing.tools) for _, screened in sources)


def _small(sources: "list[_Source]") -> "list[_Source]":
    """As many servers as can be handled at once."""
    small: list[_Source] = []
    count = 0
    for managed, screened in sources:
        if count + len(screened.listing.tools) <= AT_ONCE:
            count += len(screened.listing.tools)
            small.append((managed, screened))
    return small


def _same(before: list[_Source], now: list[_Source]) -> bool:
    if len(before) != len(now):
        return False
    return all(old[0] is new[0] and old[1] is new[1] for old, new in zip(before, now, strict=True))


def catalog_of(config: LoadedConfig, selection: Selection, known: Mapping[str, ScreenedListing]) -> Catalog:
    """The catalog that a host would have of a selection if this is what it knew, without one."""
    offerings = [
        offering_of(server, known[server_id], selection)
        for server_id, server in config.servers.items()
        if server_id in known and server.usable and selection.has(server_id)
    ]
    # Nothing need be reserved: a name that begins like those of the meta-tools has a hash at its end.
    return Catalog(offerings, scheme="plain" if selection.plain_names else config.config.tools.names)


def offering_of(server: LoadedServer, screened: ScreenedListing, selection: Selection) -> CatalogPart:
    """The part of a catalog from one valid server: its tools, and which are denied or quarantined."""
    assert server.config is not None
    policy = CallPolicy(server)
    listing = screened.listing
    held_back = {
        tool: HiddenTool(absence="quarantined", reason=reason)
        for tool, reason in screened.quarantined.items()
    }
    denied = {
        entry.key.tool: _hidden_by_policy(server, decision)
        for entry in listing.tools
        if (decision := selection.decide(policy, entry.key.tool, entry)).verdict == "deny"
    }
    return CatalogPart(
        server_id=server.server_id,
        tools=listing.tools,
        rejected=listing.rejected,
        denied=denied | held_back,  # held back comes first, as it does when a call is decided
        description=server.config.description or listing.instructions or "",
        first_party=server.is_built_in,
    )


def _hidden_by_policy(server: LoadedServer, decision: Decision) -> HiddenTool:
    if decision.rule is not None:
        origin = str(decision.rule.origin or "the policy")
    elif decision.bundle is not None:
        origin = f"bundles.{decision.bundle}"
    else:
        origin = str(server.definition.origin((decision.field,) if decision.field else ()))
    return HiddenTool(absence="denied", reason=decision.reason, origin=origin)


def has_reading(selection: Selection, listings: Iterable[Listing]) -> bool:
    """Whether a listing has resources or prompts that the selection lets a model read."""
    return any(
        (selection.resources and (listing.resources or listing.templates))
        or (selection.prompts and listing.prompts)
        for listing in listings
    )


def cost_of(catalog: Catalog) -> int:
    """Approximate number of tokens of all definitions."""
    return sum(tool.entry.derive(_cost) for tool in catalog.tools)


def token_cost(entry: ToolEntry) -> int:
    """Approximate number of tokens of a tool's definition, counted once."""
    return entry.derive(_cost)


def _cost(entry: ToolEntry) -> int:
    return estimate(entry.definition) + estimate(entry.key.origin)


def is_direct(key: ToolKey, selection: Selection, cost: int) -> bool:
    """Whether a model gets a tool directly rather than behind meta-tools, given the cost of all."""
    return mode_for(key.server_id, selection, cost) == "direct" or selection.keeps_direct(key.tool)


def mode_for(server_id: str, selection: Selection, cost: int) -> Literal["direct", "meta"]:
    """The mode of a server's tools, except those that are always direct."""
    mode = selection.modes.get(server_id, selection.mode)
    if mode == "auto":
        return "direct" if cost <= selection.token_budget else "meta"
    return mode
