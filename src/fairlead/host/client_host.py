"""Hosts of a gateway's clients and principals: own connections where needed, all other parts shared.

A client host has its own connections to servers that keep state per client, so that no reply, notification or
elicitation crosses from one client to another. A principal host has its own connections to servers that are
used with its logins: neither these nor their listings are shared with another principal.
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
    """Whether clients share one connection to a server: where it keeps no state between requests."""
    if member.connection is None:
        return True  # its configuration is wrong for every client
    if member.config.sharing != "auto":
        return member.config.sharing == "shared"
    if member.keeps_sessions:
        return False  # a gateway behind: what it has for one client is not another's
    return member.version in MODERN_PROTOCOL_VERSIONS or member.server.transport in ("builtin", "in_process")


@asynccontextmanager
async def beside(host: Host, *, operator: Operator) -> AsyncGenerator["ClientHost"]:
    """Run a client host for the length of the block. Its own connections end with it."""
    async with task_owner("ClientHost") as tasks:
        made = ClientHost(host, tasks, operator)
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await made.aclose()


class ClientServers(ManagedServers):
    """The servers of the host above, with connections of its own to those that are not shared."""

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
        """Use the listing for clients with these abilities. Returns whether it is not known yet."""
        above = self._above[server_id]
        is_own = above.is_usable and not above.awaits_consent and not is_shared(above)
        if not is_own or server_id in self._by_id or not self._key(above)[1]:
            return False
        self[server_id]
        return self._find_client_snapshot(above) is None

    def own_to(self, server_id: str) -> ManagedServer | None:
        """The managed server with a connection of this host's own, if there is one."""
        return self._by_id.get(server_id)

    def repin(self, above: ManagedServer) -> None:
        """Hold the own connection to the same pins as that of the host above."""
        own = self._by_id.get(above.server.server_id)
        if own is not None and own.pins is not above.pins:
            own.repin(above.pins)

    @property
    def own(self) -> tuple[ManagedServer, ...]:
        """The managed servers with a connection of this host's own."""
        return tuple(self._by_id.values())

    def known(self, server_id: str) -> ManagedServer:
        """A server to inspect: the one with an own connection where there is one."""
        above = self._above[server_id]
        return self._by_id.get(server_id) or above

    def offering(self) -> Iterator[ManagedServer]:
        """The servers as this host offers them: the own one only where its listing differs."""
        for above in self._above:
            own = self._by_id.get(above.server.server_id)
            yield own if own is not None and self._differs(own, above) else above

    @property
    def offer_the_same(self) -> bool:
        """Whether every listing equals that of the host above."""
        if not self._by_id:
            return True  # as for most, and this is asked with every call
        return not any(self._differs(own, self._above[name]) for name, own in self._by_id.items())

    async def take(self, servers: Iterable[LoadedServer]) -> list[ManagedServer]:
        """Apply another configuration: own connections to servers that changed are closed."""
        for server in servers:
            own = self._by_id.get(server.server_id)
            if own is not None and same_definition(own.server, server):
                own.take_rules(server)
                self._above.relock(own, self._above[server.server_id].lock)
            elif own is not None:
                self.drop(server.server_id)
        return []

    async def close(self) -> None:
        """Close the own connections only."""
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
        """Save nothing: pass what is new to the host above, which saves it."""
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
        """Have all other connections to the server follow if this listing is the newest."""
        if member.snapshot is not None:
            self._above.note_findings(member, member.snapshot.saved_at, member.findings)

    def _watch_pins_of(self, member: ManagedServer) -> None:
        """Do nothing: the host above watches the pins."""


def _comparable_listing(screened: ScreenedListing) -> tuple[object, ...]:
    return screened.listing.tools, screened.listing.rejected, screened.quarantined


class ClientHost(Host):
    """The host of one gateway client: shares all parts of the host above except its own connections."""

    def __init__(self, above: Host, tasks: TaskGroup, operator: Operator) -> None:
        self._above = above
        human = replace(above.parts.human, operator=operator, shared=False)
        bus = EventBus(above.bus)
        self._own = ClientServers(above.members, tasks, human, bus)
        parts = replace(above.parts, tasks=tasks, human=human, bus=bus, servers=self._own)
        super().__init__(above.config, parts)

    def login_hint(self, server_id: str) -> str:
        """What the principal of the host above does to log in to a server."""
        return self._above.login_hint(server_id)

    @property
    def own_members(self) -> tuple[ManagedServer, ...]:
        """The managed servers with a connection of this client's own."""
        return self._own.own

    async def want_logs(self, server_id: str, level: LoggingLevel) -> None:
        """Set the log level of an unshared handshake server. Stateless ones get it in each request."""
        member = self._member(server_id)
        if not is_shared(member) and member.version not in MODERN_PROTOCOL_VERSIONS:
            await require_consent(member, self.store)
            await member.live().set_log_level(level)

    async def list_for_client(self, server_ids: Iterable[str], *, seconds: float) -> None:
        """List servers for a client with these abilities: some offer it more tools.

        Only servers that are not shared, that the abilities are declared to, and that no client with the same
        abilities has listed are connected.

        Args:
            server_ids: The servers.
            seconds: How long to wait. Listings that come later are announced.
        """
        unknown = [name for name in server_ids if self._own.take_listing_for_client(name)]
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
        """Connect a server if its requests may not say which call they belong to. Returns whether that is so.

        It is for handshake servers over stdio; over HTTP, the stream tells the call.
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
        """The servers that are started for each request (`sharing: call`)."""
        return frozenset(
            member.server.server_id
            for member in self._above.members
            if member.connection is not None and member.config.sharing == "call"
        )

    def catalog(self, selection: Selection) -> Catalog:
        """The tools that are known now: the catalog of the host above while all listings are equal."""
        if self._own.offer_the_same:
            return self._above.catalog(selection)
        return self._catalogs.current(selection, self._own.offering())

    async def wait_for_catalog(self, selection: Selection, *, only_first: bool = False) -> None:
        """Wait until a large catalog that is being built, here or above, is ready."""
        if self._own.offer_the_same:
            await self._above.wait_for_catalog(selection, only_first=only_first)
        else:
            await super().wait_for_catalog(selection, only_first=only_first)

    async def close(self, server_id: str) -> None:
        """Close the own connection to a server, if there is one."""
        for member in self._own.own:
            if member.server.server_id == server_id and member.connection is not None:
                await member.connection.aclose()

    @asynccontextmanager
    async def events(self, *, calls: bool = True) -> AsyncGenerator[AsyncIterator[Event]]:
        """Events of this client and of shared servers, without those of other clients."""
        subscriber = Subscriber(overhears=False, hears_calls=calls)
        attached = [*self.attach(subscriber), *self._above.attach(subscriber)]
        try:
            yield subscriber
        finally:
            for bus, listener in attached:
                bus.unsubscribe(listener)


LoginHint = Callable[[str], str]
"""Returns what a principal can do about a missing login to a server."""


class PrincipalServers(ManagedServers):
    """The servers of the host above, with own connections to those used with the principal's logins."""

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
        """Whether a server is used with the principal's own login."""
        return server_id in self._by_id

    async def take(self, servers: Iterable[LoadedServer]) -> list[ManagedServer]:
        """Apply a configuration to the servers that are used with the principal's own logins."""
        wanted = list(servers)
        for server in wanted:
            if not is_personal(server) and server.server_id in self._by_id:
                self.drop(server.server_id)
        return await super().take([server for server in wanted if is_personal(server)])

    async def close(self) -> None:
        """Close the own connections and save their state."""
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
    """The host of one gateway principal: shares records and configuration, and has its own logins."""

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

        transports = replace(above.parts.transports, headers_for=headers_for)
        human = replace(above.parts.human, principal=principal, log_in=log_in)
        bus = EventBus(above.bus)
        self._own = PrincipalServers(above.members, tasks, transports, human, bus)
        parts = replace(
            above.parts, tasks=tasks, transports=transports, human=human, bus=bus, servers=self._own
        )
        super().__init__(above.config, parts)

    def login_hint(self, server_id: str) -> str:
        """What the principal does to log in to a server."""
        return self._login_hint(server_id)

    def statuses_besides(self, server_id: str) -> list[ServerStatus]:
        """The states of a server's connections of this principal and its clients."""
        own = [self._own[server_id].status()] if self._own.has_own(server_id) else []
        return [*own, *super().statuses_besides(server_id)]

    def holder_of(self, server_id: str) -> Host:
        """The host whose connection to a server this one uses: itself, or the one above."""
        return self if self._own.has_own(server_id) else self._above

    def catalog(self, selection: Selection) -> Catalog:
        """The tools that are known now: the catalog of the host above if no server uses own logins."""
        if not self._is_personal:
            return self._above.catalog(selection)
        return self._catalogs.current(selection, self.members)

    async def wait_for_catalog(self, selection: Selection, *, only_first: bool = False) -> None:
        """Wait until a large catalog that is being built, here or above, is ready."""
        if self._is_personal:
            await super().wait_for_catalog(selection, only_first=only_first)
        else:
            await self._above.wait_for_catalog(selection, only_first=only_first)

    @property
    def _is_personal(self) -> bool:
        return any(is_personal(member.server) for member in self._above.members)

    def attach(self, subscriber: Subscriber) -> list[tuple[EventBus, Subscriber]]:
        """Subscribe to the events of this host, and to those of shared servers of the host above."""
        shared = _OfShared(subscriber, self._own)
        return [*super().attach(subscriber), *self._above.attach(shared)]


class _OfShared(Subscriber):
    """Forwards the events of shared servers, without those that the principal has own connections to."""

    def __init__(self, to: Subscriber, own: PrincipalServers) -> None:
        super().__init__(overhears=False)
        self._to = to
        self._own = own

    def put(self, event: Event) -> None:
        """Forward an event if it is about a shared server."""
        if not self._own.has_own(getattr(event, "server_id", "")):
            self._to.put(event)


@asynccontextmanager
async def principal_host(
    host: Host, loaded: LoadedConfig, principal: str, login_hint: LoginHint
) -> AsyncGenerator[PrincipalHost]:
    """Run the host of a principal for the length of the block.

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
