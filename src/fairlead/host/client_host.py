"""A host beside a host: connections of its own where servers are not to be shared, and all else in common.

One stands behind each client of a gateway, so that no reply, notification or question crosses from one client
to another.

The host of one principal of a gateway: connections with its own logins, all else in common.

A server that a principal may be logged in to is never shared with another principal: neither its connection
nor what it listed, in memory or in the store. What the configuration alone lets in is shared by all.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup
from mcp_types import LoggingLevel
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fairlead.catalog.catalog import Catalog
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import RemoteServer
from fairlead.connection.transport.factory import TransportContext
from fairlead.connection.transport.http_endpoint import HeaderSource
from fairlead.errors import AuthRequired
from fairlead.events import Event
from fairlead.host.background import task_owner
from fairlead.host.call import require_consent
from fairlead.host.elicitation.peer import declarable
from fairlead.host.events import EventBus, Subscriber
from fairlead.host.host import Host
from fairlead.host.logins import is_personal
from fairlead.host.managed_server import HumanSide, ManagedServer, ServerStatus
from fairlead.host.managed_servers import ManagedServers, same_definition
from fairlead.host.model.bundles import Selection
from fairlead.host.operator import Ability, Operator
from fairlead.host.snapshots import KnownServerState, Snapshot
from fairlead.policy.quarantine import ScreenedListing


def is_shared(member: ManagedServer) -> bool:
    """May callers share one connection to a server? Where it keeps nothing between requests, they may."""
    if member.connection is None:
        return True  # what is wrong with it is wrong for everybody
    if member.config.sharing != "auto":
        return member.config.sharing == "shared"
    if member.keeps_sessions:
        return False  # a gateway behind: what it has for one client is not another's
    return member.version in MODERN_PROTOCOL_VERSIONS or member.server.transport in ("builtin", "in_process")


@asynccontextmanager
async def beside(host: Host, *, operator: Operator) -> AsyncGenerator["ClientHost"]:
    """Run a host beside another for the length of the block. Its own connections end with it."""
    async with task_owner("ClientHost") as tasks:
        made = ClientHost(host, tasks, operator)
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await made.aclose()


class ClientServers(ManagedServers):
    """The servers of another host, and connections of one's own to those that are not shared."""

    def __init__(self, above: ManagedServers, tasks: TaskGroup, person: HumanSide, bus: EventBus) -> None:
        super().__init__(tasks, above._around, above._store, person, bus, above._admission)
        self._above = above
        above.followers.add(self)
        self._compared: dict[str, tuple[ScreenedListing | None, ScreenedListing | None, bool]] = {}

    def __iter__(self) -> Iterator[ManagedServer]:
        return (self._by_id.get(above.server.server_id, above) for above in self._above)

    def __getitem__(self, server_id: str) -> ManagedServer:
        above = self._above[server_id]
        own = self._by_id.get(server_id)
        if own is not None:
            return own
        if is_shared(above):
            return above
        known = KnownServerState(
            snapshot=self._find_client_snapshot(above) or above.snapshot,
            pins=above.pins,
            lock=above.lock,
            approved=not above.awaits_consent,
            before_defaults=above.before_defaults,
        )
        return self._put(above.server, known)

    def _key(self, above: ManagedServer) -> tuple[str, frozenset[Ability]]:
        return above.server.server_id, declarable(above.config, self._person.operator.abilities)

    def _find_client_snapshot(self, above: ManagedServer) -> Snapshot | None:
        return self._above.listed_for.get(self._key(above))

    def take_listing_for_client(self, server_id: str) -> bool:
        """Offer what a server lists for a client with these abilities. True where it was not asked yet."""
        above = self._above[server_id]
        is_own = above.is_usable and not above.awaits_consent and not is_shared(above)
        if not is_own or server_id in self._by_id or not self._key(above)[1]:
            return False
        self[server_id]
        return self._find_client_snapshot(above) is None

    def own_to(self, server_id: str) -> ManagedServer | None:
        """The one with a connection of this host's own to a server, if there is one."""
        return self._by_id.get(server_id)

    def repin(self, above: ManagedServer) -> None:
        """Hold one's own connection to the same pins as that of the host above."""
        own = self._by_id.get(above.server.server_id)
        if own is not None and own.pins is not above.pins:
            own.repin(above.pins)

    @property
    def own(self) -> tuple[ManagedServer, ...]:
        """Those with a connection of their own."""
        return tuple(self._by_id.values())

    def known(self, server_id: str) -> ManagedServer:
        """A server to look at: one's own where there is one."""
        above = self._above[server_id]
        return self._by_id.get(server_id) or above

    def offering(self) -> Iterator[ManagedServer]:
        """The servers as this host has them: one's own only where it offers something else."""
        for above in self._above:
            own = self._by_id.get(above.server.server_id)
            yield own if own is not None and self._differs(own, above) else above

    @property
    def offer_the_same(self) -> bool:
        """Does nobody offer this host anything else than all others?"""
        if not self._by_id:
            return True  # as for most, and this is asked with every call
        return not any(self._differs(own, self._above[name]) for name, own in self._by_id.items())

    async def take(self, servers: Iterable[LoadedServer]) -> list[ManagedServer]:
        """Go by another configuration: one's own connections to servers that changed come to their end."""
        for server in servers:
            own = self._by_id.get(server.server_id)
            if own is not None and same_definition(own.server, server):
                own.take_rules(server)
                self._above.relock(own, self._above[server.server_id].lock)
            elif own is not None:
                self.drop(server.server_id)
        return []

    async def close(self) -> None:
        """End one's own connections, and nobody else's."""
        self._above.followers.discard(self)
        for member in self._by_id.values():
            self._above.count_gone(member.status())
        async with anyio.create_task_group() as closing:
            for member in self._by_id.values():
                if member.connection is not None:
                    closing.start_soon(member.connection.aclose)

    def _differs(self, own: ManagedServer, above: ManagedServer) -> bool:
        last = self._compared.get(own.server.server_id)
        if last is None or last[0] is not own.screened or last[1] is not above.screened:
            differs = own.screened is not None and (
                above.screened is None
                or _comparable_listing(own.screened) != _comparable_listing(above.screened)
            )
            last = self._compared[own.server.server_id] = (own.screened, above.screened, differs)
        return last[2]

    def _save(self, member: ManagedServer) -> None:
        """Keep nothing: the host above does, where this is news to it."""
        above = self._above[member.server.server_id]
        if member.unsaved_pins is not None:
            first_use, member.unsaved_pins = member.unsaved_pins, None
            above.join_pins(first_use)
            member.pins = above.pins
        if member.unsaved_trouble is not None:
            trouble, member.unsaved_trouble = member.unsaved_trouble, None
            above.take_trouble(trouble)
        if member.unsaved is not None:
            snapshot, member.unsaved = member.unsaved, None
            key = self._key(above)
            if key[1]:
                self._above.listed_for[key] = snapshot
            # What depends on a client's abilities is not for those without, unless what they have is worse.
            if not key[1] and member.findings:
                above.catch_up(snapshot)  # commands that look into the store find what is held back, and why
            elif not key[1] or above.snapshot is None or above.findings:
                above.adopt(snapshot)

    def _on_screened(self, member: ManagedServer) -> None:
        """Have all other connections to the server follow, where this listing is the newest."""
        if member.snapshot is not None:
            self._above.note_findings(member, member.snapshot.saved_at, member.findings)

    def _watch_pins_of(self, member: ManagedServer) -> None:
        """Leave it to the host above."""


def _comparable_listing(screened: ScreenedListing) -> tuple[object, ...]:
    return screened.listing.tools, screened.listing.rejected, screened.quarantined


class ClientHost(Host):
    """A host whose servers, records and logins are another's, but for the connections that are its own."""

    def __init__(self, above: Host, tasks: TaskGroup, operator: Operator) -> None:
        self._above = above
        person = replace(above._person, operator=operator, shared=False)
        super().__init__(
            above._config, tasks, above._around, above._records, person, above.logins, above._names
        )
        self._calls.ids = above._calls.ids

    def login_hint(self, server_id: str) -> str:
        """How the one that the host above acts for logs in to a server."""
        return self._above.login_hint(server_id)

    def _new_bus(self) -> EventBus:
        return EventBus(self._above._bus)

    def _new_members(self) -> ClientServers:
        self._beside = ClientServers(self._above._members, self._tasks, self._person, self._bus)
        return self._beside

    @property
    def own_members(self) -> tuple[ManagedServer, ...]:
        """The servers it has a connection of its own to."""
        return self._beside.own

    async def want_logs(self, server_id: str, level: LoggingLevel) -> None:
        """Have an older server that is not shared log from this level on. Modern ones are told each time."""
        member = self._member(server_id)
        if not is_shared(member) and member.version not in MODERN_PROTOCOL_VERSIONS:
            await require_consent(member, self.store)
            await member.live().set_log_level(level)

    async def list_for_client(self, server_ids: Iterable[str], *, seconds: float) -> None:
        """List servers as they are for a client with these abilities, which some offer more tools.

        Only those are asked that the client does not share, that are told of its abilities, and that no
        client with the same abilities has listed. They are waited for so many seconds;
        later ones are announced.
        """
        unknown = [name for name in server_ids if self._beside.take_listing_for_client(name)]
        if not unknown:
            return
        done = anyio.Event()

        async def connect() -> None:
            await self.connect(*unknown)
            done.set()

        self._tasks.start_soon(connect)  # it goes on where the list is not waited for any longer
        with anyio.move_on_after(seconds):
            await done.wait()

    async def prepare_to_be_asked(self, server_id: str) -> bool:
        """Connect a server if it may ask without saying in which request. Returns whether it may.

        Handshake-era servers over stdio do; over HTTP, the stream says which request it is.
        """
        member = self._member(server_id)
        config = member.server.config
        if config is None or is_shared(member) or member.version in MODERN_PROTOCOL_VERSIONS:
            return False
        if member.server.transport != "stdio" or (config.elicitation is False and config.sampling is None):
            return False
        await require_consent(member, self.store)
        return not (await member.live().ready()).modern

    def per_call_servers(self) -> frozenset[str]:
        """The servers that are started anew for each request."""
        return frozenset(
            member.server.server_id
            for member in self._above.members
            if member.connection is not None and member.config.sharing == "call"
        )

    def catalog(self, selection: Selection) -> Catalog:
        """The tools that are known now: the very catalog of the host above while nothing differs."""
        if self._beside.offer_the_same:
            return self._above.catalog(selection)
        return self._catalogs.current(selection, self._beside.offering())

    async def wait_for_catalog(self, selection: Selection, *, only_first: bool = False) -> None:
        """Wait until a large catalog that is being made is there, here or above."""
        if self._beside.offer_the_same:
            await self._above.wait_for_catalog(selection, only_first=only_first)
        else:
            await super().wait_for_catalog(selection, only_first=only_first)

    async def close(self, server_id: str) -> None:
        """End one's own connection to a server, if there is one."""
        for member in self._beside.own:
            if member.server.server_id == server_id and member.connection is not None:
                await member.connection.aclose()

    @asynccontextmanager
    async def events(self, *, calls: bool = True) -> AsyncGenerator[AsyncIterator[Event]]:
        """What happens here, and to the servers that are shared; nothing of what happens beside."""
        subscriber = Subscriber(overhears=False, hears_calls=calls)
        attached = [*self._attach(subscriber), *self._above._attach(subscriber)]
        try:
            yield subscriber
        finally:
            for bus, listener in attached:
                bus.unsubscribe(listener)


LoginHint = Callable[[str], str]
"""What a principal can do about a missing login to a server."""


class PrincipalServers(ManagedServers):
    """The servers of another host, but for those that are reached with the principal's own login."""

    def __init__(
        self,
        above: ManagedServers,
        tasks: TaskGroup,
        around: TransportContext,
        person: HumanSide,
        bus: EventBus,
    ) -> None:
        super().__init__(tasks, around, above._store, person, bus, above._admission)
        self._above = above

    def __iter__(self) -> Iterator[ManagedServer]:
        return (self._choose_member(above) for above in [*self._above])

    def __getitem__(self, server_id: str) -> ManagedServer:
        return self._choose_member(self._above[server_id])

    def has_own(self, server_id: str) -> bool:
        """Is a server reached with the principal's own login?"""
        return server_id in self._by_id

    async def take(self, servers: Iterable[LoadedServer]) -> list[ManagedServer]:
        """Go by a configuration: of the servers that are reached with logins, one's own are taken in."""
        wanted = list(servers)
        for server in wanted:
            if not is_personal(server) and server.server_id in self._by_id:
                self.drop(server.server_id)
        return await super().take([server for server in wanted if is_personal(server)])

    async def close(self) -> None:
        """End one's own connections, and keep what is new of them."""
        async with anyio.create_task_group() as closing:
            for member in self._by_id.values():
                if member.connection is not None:
                    closing.start_soon(member.connection.aclose)
        await self._save_now()

    def _choose_member(self, above: ManagedServer) -> ManagedServer:
        if not is_personal(above.server):
            return above
        own = self._by_id.get(above.server.server_id)
        if own is None or not same_definition(own.server, above.server):
            # The configuration is just being taken over. Another principal's must not stand in meanwhile.
            known = KnownServerState(pins=above.pins, lock=above.lock, before_defaults=above.before_defaults)
            own = self._put(above.server, known)
        elif own.pins is not above.pins and above.pins is not None:
            own.repin(above.pins)  # it was reviewed
        return own


class PrincipalHost(Host):
    """A host whose records and configuration are another's. Its logins are those of one principal."""

    def __init__(self, above: Host, tasks: TaskGroup, principal: str, login_hint: LoginHint) -> None:
        self._above = above
        self.principal = principal
        self._login_hint = login_hint
        logins = above.logins

        async def log_in(error: AuthRequired) -> None:
            try:
                await logins.wanted(error, principal)
            except AuthRequired as exc:
                exc.hint = login_hint(exc.server_id)
                raise

        def headers_for(server: LoadedServer, resolved: RemoteServer) -> HeaderSource:
            return logins.headers_for(server, resolved, principal)

        around = replace(above._around, headers_for=headers_for)
        person = replace(above._person, principal=principal, log_in=log_in)
        super().__init__(above._config, tasks, around, above._records, person, logins, above._names)
        self._calls.ids = above._calls.ids

    def login_hint(self, server_id: str) -> str:
        """How the principal logs in to a server."""
        return self._login_hint(server_id)

    def _new_bus(self) -> EventBus:
        return EventBus(self._above._bus)

    def _new_members(self) -> PrincipalServers:
        members = self._above._members
        self._own = PrincipalServers(members, self._tasks, self._around, self._person, self._bus)
        return self._own

    def statuses_besides(self, server_id: str) -> list[ServerStatus]:
        """Where a server stands over the connections of this principal alone, and of its clients."""
        own = [self._own[server_id].status()] if self._own.has_own(server_id) else []
        return [*own, *super().statuses_besides(server_id)]

    def holder_of(self, server_id: str) -> Host:
        """The host whose connection to a server this one shares: itself, or the one above."""
        return self if self._own.has_own(server_id) else self._above

    def catalog(self, selection: Selection) -> Catalog:
        """The tools that are known now: the very catalog of the host above where no login matters."""
        if not self._is_personal:
            return self._above.catalog(selection)
        return self._catalogs.current(selection, self._members)

    async def wait_for_catalog(self, selection: Selection, *, only_first: bool = False) -> None:
        """Wait until a large catalog that is being made is there, here or above."""
        if self._is_personal:
            await super().wait_for_catalog(selection, only_first=only_first)
        else:
            await self._above.wait_for_catalog(selection, only_first=only_first)

    @property
    def _is_personal(self) -> bool:
        return any(is_personal(member.server) for member in self._above.members)

    def _attach(self, subscriber: Subscriber) -> list[tuple[EventBus, Subscriber]]:
        """Have a subscriber hear what happens here, and above to servers that are shared."""
        shared = _OfShared(subscriber, self._own)
        return [*super()._attach(subscriber), *self._above._attach(shared)]


class _OfShared(Subscriber):
    """Passes on what happens to servers that are shared, and nothing of another principal's own."""

    def __init__(self, to: Subscriber, own: PrincipalServers) -> None:
        super().__init__(overhears=False)
        self._to = to
        self._own = own

    def put(self, event: Event) -> None:
        """Pass an event on, if it is about a server that the principal shares."""
        if not self._own.has_own(getattr(event, "server_id", "")):
            self._to.put(event)


@asynccontextmanager
async def principal_host(
    host: Host, loaded: LoadedConfig, principal: str, login_hint: LoginHint
) -> AsyncGenerator[PrincipalHost]:
    """Run the host of a principal beside another for the length of the block.

    `loaded` is the configuration of that other host.
    """
    async with task_owner("PrincipalHost") as tasks:
        made = PrincipalHost(host, tasks, principal, login_hint)
        try:
            await made.reload(loaded)
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await made.aclose()
