"""Hosts of a gateway's clients and principals: own connections where needed, all other parts shared.

A client host has its own connections to servers that keep state per client, so that no reply, notification or
elicitation crosses from one client to another. A principal host has its own connections to servers that are
used with its logins: neither these nor their listings are shared with another principal.

Both are a `Host` like any other, whose `HostParts` are those of the host above, but for its servers.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
from anyio.abc import TaskGroup
from mcp_types import LoggingLevel
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import CHILD_TRANSPORTS, BuiltinServer, RemoteServer
from fairlead.connection.transport.http_endpoint import HeaderSource
from fairlead.errors import AuthRequired, ConnectFailed, UnknownServer
from fairlead.events import DOWN
from fairlead.host.background import task_owner
from fairlead.host.call import require_consent
from fairlead.host.events import EventBus
from fairlead.host.host import Host
from fairlead.host.logins import is_personal
from fairlead.host.managed_server import ManagedServer, ServerContext
from fairlead.host.managed_servers import HostServers, ManagedServers, same_definition
from fairlead.host.operator import Ability, Operator
from fairlead.host.server_peer import declarable
from fairlead.host.server_status import ServerStatus
from fairlead.host.snapshots import KnownServerState, Snapshot
from fairlead.policy.quarantine import ScreenedListing

KNOWN_WAIT_SECONDS = 1.0
"""How long a client's first list waits for servers whose tools are known from earlier runs."""


def is_shared(managed: ManagedServer) -> bool:
    """Whether clients share one connection to a server: where it keeps no state between requests."""
    if managed.connection is None:
        return True  # its configuration is wrong for every client
    config = managed.config
    if config.sharing != "auto":
        return config.sharing == "shared"
    if managed.keeps_sessions:
        return False  # a gateway behind: what it has for one client is not another's
    if isinstance(config, BuiltinServer) and config.builtin == "edit":
        return False  # what one client undoes is its own edit
    # Only stateless protocol versions keep nothing between requests; a session belongs to one client.
    return managed.version in MODERN_PROTOCOL_VERSIONS or managed.server.transport in (
        "builtin",
        "in_process",
    )


class ClientServers:
    """The servers of the host above, with connections of its own to those that are not shared."""

    generation = None
    """What they offer changes with the servers above as well, so that it is compared each time."""

    def __init__(self, above: HostServers, context: ServerContext) -> None:
        self._above = above
        self._context = context
        self._own: dict[str, ManagedServer] = {}
        self._leave: dict[str, Callable[[], None]] = {}
        """Called when an own connection ends. Its owner may have lost the server by then."""
        self._is_closed = False
        self._compared: dict[str, tuple[ScreenedListing | None, ScreenedListing | None, bool]] = {}

    def __iter__(self) -> Iterator[ManagedServer]:
        return (self._own.get(above.server.server_id, above) for above in self._above)

    def __getitem__(self, server_id: str) -> ManagedServer:
        above = self._above[server_id]
        own = self._own.get(server_id)
        if own is not None:
            return own
        if is_shared(above):
            return above
        # A request that outlives its client must not open a connection that no one closes.
        if self._is_closed:
            raise ConnectFailed(server_id, "the host is closed")
        known = KnownServerState(
            snapshot=self._find_client_snapshot(above) or above.snapshot,
            pins=above.pins,
            lock=above.lock,
            approved=not above.awaits_consent,
            before_defaults=above.before_defaults,
        )
        own = self._own[server_id] = ManagedServer(
            above.server,
            self._context,
            known,
            save=self._pass_on_news,
            changed=lambda: None,
            screened=self._report_findings,
        )
        self._leave[server_id] = self.owner(server_id).add_client(own, partial(self.drop, server_id))
        return own

    def get_known(self, server_id: str) -> ManagedServer:
        """A server to inspect: the one with an own connection where there is one."""
        above = self._above.get_known(server_id)
        return self._own.get(server_id) or above

    def owner(self, server_id: str) -> ManagedServers:
        """The servers of a host above that this one is saved, pinned and reviewed with."""
        return self._above.owner(server_id)

    @property
    def own(self) -> tuple[ManagedServer, ...]:
        """The managed servers with a connection of this host's own."""
        return tuple(self._own.values())

    def take_listing_for_client(self, server_id: str) -> bool:
        """Use the listing for clients with these abilities. Returns whether it is not known yet.

        A server that hangs or failed above would do so here, too: it is left alone until it is listed there.
        """
        above = self._above[server_id]
        is_own = above.is_usable and not above.awaits_consent and not is_shared(above)
        if not is_own or server_id in self._own or not self._key(above)[1]:
            return False
        if (
            above.screened is None
            or above.screened.listing.is_partial
            or (above.connection and above.connection.vitals.state in DOWN)
        ):
            return False
        self[server_id]
        return self._find_client_snapshot(above) is None

    def was_listed_before(self, server_id: str) -> bool:
        """Whether all that is known of a server is from earlier runs, for whose listings no client waited."""
        connection = self._above[server_id].connection
        return connection is None or not connection.vitals.connects

    def list_offered(self) -> Iterator[ManagedServer]:
        """The servers as this host offers them: the own one only where its listing differs."""
        for above in self._above:
            own = self._own.get(above.server.server_id)
            yield own if own is not None and self._differs(own, above) else above

    @property
    def offers_the_same(self) -> bool:
        """Whether every listing equals that of the host above."""
        if not self._own:
            return True  # as for most; this runs with every call
        pairs = ((own, self._find_above(own)) for own in self._own.values())
        return not any(above is None or self._differs(own, above) for own, above in pairs)

    async def take(self, servers: Iterable[LoadedServer]) -> list[ManagedServer]:
        """Apply another configuration: own connections to servers that changed are closed."""
        for server in servers:
            own = self._own.get(server.server_id)
            if own is not None and same_definition(own.server, server):
                own.take_rules(server)
                self.owner(server.server_id).relock(own, self._above[server.server_id].lock)
            elif own is not None:
                self.drop(server.server_id)
        return []

    def drop(self, server_id: str) -> None:
        """Close the own connection to a server, after its calls under way."""
        own = self._own.pop(server_id, None)
        if own is not None:
            self._leave.pop(server_id)()
            own.retire(self._context.tasks)

    def keep_only(self, server_ids: Iterable[str]) -> None:
        """Close the own connections to all other servers."""
        for server_id in self._own.keys() - set(server_ids):
            self.drop(server_id)

    async def end(self, server_id: str) -> None:
        """Close the own connection to a server, if there is one."""
        own = self._own.get(server_id)
        if own is not None and own.connection is not None:
            await own.connection.aclose()

    async def close(self) -> None:
        """Close the own connections only, and make no more."""
        self._is_closed = True
        for leave in self._leave.values():
            leave()
        await _close_all(self._own.values())

    def statuses_besides(self, server_id: str) -> list[ServerStatus]:
        """None: no host is below."""
        return []

    def _key(self, above: ManagedServer) -> tuple[str, frozenset[Ability]]:
        return above.server.server_id, declarable(above.config, self._context.human.operator.abilities)

    def _find_client_snapshot(self, above: ManagedServer) -> Snapshot | None:
        return self.owner(above.server.server_id).listed_for.get(self._key(above))

    def _differs(self, own: ManagedServer, above: ManagedServer) -> bool:
        last = self._compared.get(own.server.server_id)
        if last is None or last[0] is not own.screened or last[1] is not above.screened:
            differs = own.screened is not None and (
                above.screened is None
                or _comparable_listing(own.screened) != _comparable_listing(above.screened)
            )
            last = self._compared[own.server.server_id] = (own.screened, above.screened, differs)
        return last[2]

    def _find_above(self, own: ManagedServer) -> ManagedServer | None:
        """The same server in the host above; None once the configuration has it no more.

        An own connection ends a little later than that, and what is new then is saved nowhere.
        """
        try:
            return self._above[own.server.server_id]
        except UnknownServer:
            return None

    def _pass_on_news(self, managed: ManagedServer) -> None:
        """Pass what is new to the host above, which saves it."""
        above = self._find_above(managed)
        if above is None:
            return
        if managed.unsaved_pins is not None:
            first_use, managed.unsaved_pins = managed.unsaved_pins, None
            above.join_pins(first_use)
            managed.pins = above.pins
        if managed.unsaved_trouble is not None:
            trouble, managed.unsaved_trouble = managed.unsaved_trouble, None
            above.take_trouble(trouble)
        if managed.unsaved is not None:
            snapshot, managed.unsaved = managed.unsaved, None
            key = self._key(above)
            if key[1]:
                self.owner(above.server.server_id).listed_for[key] = snapshot
            # What depends on a client's abilities is not for those without, unless what they have is worse.
            if not key[1] and managed.findings:
                above.catch_up(snapshot)  # commands that look into the store find what is held back, and why
            elif not key[1] or above.snapshot is None or above.findings:
                above.adopt(snapshot)

    def _report_findings(self, managed: ManagedServer) -> None:
        """Have all other connections to the server follow if this listing is the newest."""
        if managed.snapshot is not None and self._find_above(managed) is not None:
            owner = self.owner(managed.server.server_id)
            owner.note_findings(managed, managed.snapshot.saved_at, managed.findings)


def _comparable_listing(screened: ScreenedListing) -> tuple[object, ...]:
    return screened.listing.tools, screened.listing.rejected, screened.quarantined


async def _close_all(servers: Iterable[ManagedServer]) -> None:
    async with anyio.create_task_group() as closing:
        for managed in servers:
            if managed.connection is not None:
                closing.start_soon(managed.connection.aclose)


@asynccontextmanager
async def open_client_host(host: Host, *, operator: Operator) -> AsyncGenerator["ClientHost"]:
    """Run the host of a gateway's client for the length of the block. Its own connections end with it.

    Args:
        host: The host above: the gateway's, or that of the client's principal.
        operator: Answers approvals and elicitations for the client's user.
    """
    async with task_owner("ClientHost") as tasks:
        made = ClientHost(host, tasks, operator)
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await made.host.aclose()


class ClientHost:
    """Host of one gateway client, with the operations that only a gateway needs."""

    def __init__(self, above: Host, tasks: TaskGroup, operator: Operator) -> None:
        shared = above.parts.context
        context = replace(
            shared,
            tasks=tasks,
            transports=replace(shared.transports, ownership=None),  # what is one client's is started here
            human=replace(shared.human, operator=operator, shared=False),
            bus=EventBus(shared.bus),
        )
        self._tasks = tasks
        self._servers = ClientServers(above.servers, context)
        parts = replace(above.parts, context=context, servers=self._servers, catalogs_above=above.catalogs)
        self.host = Host(above.config, parts)
        """The host, to list, read and call the servers with."""

    @property
    def own_servers(self) -> tuple[ManagedServer, ...]:
        """The managed servers with a connection of this client's own."""
        return self._servers.own

    async def set_log_level(self, server_id: str, level: LoggingLevel) -> None:
        """Set the log level of an unshared handshake server. Stateless ones get it in each request."""
        managed = self._servers[server_id]
        if not is_shared(managed) and managed.version not in MODERN_PROTOCOL_VERSIONS:
            await require_consent(managed, self.host.store)
            await managed.live().set_log_level(level)

    async def list_for_client(self, server_ids: Iterable[str], *, seconds: float) -> None:
        """List servers for a client with these abilities: some offer it more tools.

        Only servers that are not shared, that the abilities are declared to, and that no client with the same
        abilities has listed are connected.

        Args:
            server_ids: The servers.
            seconds: How long to wait. Listings that come later are announced. Servers that earlier runs know
                are waited for at most `KNOWN_WAIT_SECONDS`.
        """
        unknown = [name for name in server_ids if self._servers.take_listing_for_client(name)]
        known = [name for name in unknown if self._servers.was_listed_before(name)]
        new = [name for name in unknown if name not in known]
        async with anyio.create_task_group() as waits:
            waits.start_soon(self._list_soon, new, seconds)
            waits.start_soon(self._list_soon, known, min(seconds, KNOWN_WAIT_SECONDS))

    async def _list_soon(self, server_ids: list[str], seconds: float) -> None:
        """List servers, and wait for them so long. It goes on where it is not waited for any longer."""
        left = len(server_ids)
        done = anyio.Event()

        async def connect(server_id: str) -> None:
            nonlocal left
            await self.host.connect(server_id)
            left -= 1
            if not left:
                done.set()
            if server_id in self.per_call_servers():
                await self._servers.end(server_id)  # no call is made over this connection

        if server_ids:
            for server_id in server_ids:
                self._tasks.start_soon(connect, server_id)
            with anyio.move_on_after(seconds):
                await done.wait()

    async def prepare_for_server_requests(self, server_id: str) -> bool:
        """Connect a server if its requests may not say which call they belong to. Returns whether that is so.

        It is for handshake servers over stdio; over HTTP, the stream tells the call.
        """
        managed = self._servers[server_id]
        config = managed.server.config
        if config is None or is_shared(managed) or managed.version in MODERN_PROTOCOL_VERSIONS:
            return False
        if managed.server.transport not in CHILD_TRANSPORTS or (
            config.elicitation is False and config.sampling is None
        ):
            return False
        await require_consent(managed, self.host.store)
        return not (await managed.live().ready()).modern

    def per_call_servers(self) -> frozenset[str]:
        """The servers that are started for each request (`sharing: call`)."""
        return frozenset(
            managed.server.server_id
            for managed in self._servers
            if managed.connection is not None and managed.config.sharing == "call"
        )


LoginHint = Callable[[str], str]
"""Returns what a principal can do about a missing login to a server."""


class PrincipalServers:
    """The servers of the host above, with own connections to those used with the principal's logins."""

    generation = None
    """What they offer changes with the servers above as well, so that it is compared each time."""

    def __init__(self, above: HostServers, context: ServerContext) -> None:
        self._above = above
        self._own = ManagedServers(context)

    def __iter__(self) -> Iterator[ManagedServer]:
        return (self._choose_server(above) for above in [*self._above])

    def __getitem__(self, server_id: str) -> ManagedServer:
        return self._choose_server(self._above[server_id])

    def get_known(self, server_id: str) -> ManagedServer:
        """A server to inspect; here the same as one to call."""
        return self[server_id]

    def has_own(self, server_id: str) -> bool:
        """Whether a server is used with the principal's own login."""
        return self._own.get(server_id) is not None

    def owner(self, server_id: str) -> ManagedServers:
        """The principal's own servers, or those of a host above where the server is shared."""
        return self._own if self.has_own(server_id) else self._above.owner(server_id)

    def list_offered(self) -> Iterator[ManagedServer]:
        """Every server, with the principal's own connection where it has one."""
        return iter(self)

    @property
    def offers_the_same(self) -> bool:
        """Whether no server is used with the principal's own logins."""
        return not any(is_personal(managed.server) for managed in self._above)

    async def take(self, servers: Iterable[LoadedServer]) -> list[ManagedServer]:
        """Apply a configuration to the servers that are used with the principal's own logins."""
        wanted = list(servers)
        for server in wanted:
            if not is_personal(server):
                self.drop(server.server_id)
        return await self._own.take([server for server in wanted if is_personal(server)])

    def drop(self, server_id: str) -> None:
        """Remove the own server with this id, if there is one. Its calls under way finish first."""
        if self.has_own(server_id):
            self._own.drop(server_id)

    def keep_only(self, server_ids: Iterable[str]) -> None:
        """Remove all other own servers."""
        self._own.keep_only(server_ids)

    async def end(self, server_id: str) -> None:
        """End the own connections to a server, those of the principal's clients too."""
        await self._own.end(server_id)

    async def close(self) -> None:
        """Close the own connections and save their state."""
        await self._own.close()

    def statuses_besides(self, server_id: str) -> list[ServerStatus]:
        """The states of a server's connections of this principal and its clients."""
        own = self._own.get(server_id)
        besides = self._own.statuses_besides(server_id)
        return besides if own is None else [own.status(), *besides]

    def _choose_server(self, above: ManagedServer) -> ManagedServer:
        if not is_personal(above.server):
            return above
        own = self._own.get(above.server.server_id)
        if own is None or not same_definition(own.server, above.server):
            # The configuration is just being taken over. Another principal's must not stand in meanwhile.
            known = KnownServerState(pins=above.pins, lock=above.lock, before_defaults=above.before_defaults)
            own = self._own.put(above.server, known)
        elif own.pins is not above.pins and above.pins is not None:
            own.repin(above.pins)  # it was reviewed
        return own


@asynccontextmanager
async def open_principal_host(
    above: Host, loaded: LoadedConfig, principal: str, login_hint: LoginHint
) -> AsyncGenerator[Host]:
    """Run the host of a gateway's principal for the length of the block: its logins are its own.

    Args:
        above: The host of the gateway.
        loaded: The configuration of that host.
        principal: The identity whose logins are used.
        login_hint: Returns what the principal can do about a missing login.
    """
    shared, logins = above.parts.context, above.logins

    async def log_in(error: AuthRequired) -> None:
        try:
            await logins.log_in_on_demand(error, principal)
        except AuthRequired as exc:
            exc.hint = login_hint(exc.server_id)
            raise

    def headers_for(server: LoadedServer, resolved: RemoteServer) -> HeaderSource:
        return logins.headers_for(server, resolved, principal)

    async with task_owner("PrincipalHost") as tasks:
        context = replace(
            shared,
            tasks=tasks,
            transports=replace(shared.transports, headers_for=headers_for),
            human=replace(shared.human, principal=principal, log_in=log_in),
            bus=EventBus(shared.bus, has_own=lambda server_id: servers.has_own(server_id)),
        )
        servers = PrincipalServers(above.servers, context)
        parts = replace(
            above.parts,
            context=context,
            servers=servers,
            login_hint=login_hint,
            catalogs_above=above.catalogs,
        )
        host = Host(above.config, parts)
        try:
            await host.reload(loaded)
            yield host
        finally:
            with anyio.CancelScope(shield=True):
                await host.aclose()
