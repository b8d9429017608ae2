"""The host of one principal of a gateway: connections with its own logins, all else in common.

A server that a principal may be logged in to is never shared with another principal: neither its connection
nor what it listed, in memory or in the store. What the configuration alone lets in is shared by all.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from fairlead.catalog.catalog import Catalog
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.models import RemoteServer
from fairlead.connection.endpoint import HeaderSource
from fairlead.connection.transports import Surroundings
from fairlead.errors import AuthRequired
from fairlead.events import Event
from fairlead.host.bundles import Selection
from fairlead.host.bus import EventBus, Subscriber
from fairlead.host.host import Host
from fairlead.host.logins import is_personal
from fairlead.host.member import Member, Person, ServerStatus
from fairlead.host.members import Members, same_definition
from fairlead.host.snapshots import Known
from fairlead.host.task_owner import task_owner

LoginHint = Callable[[str], str]
"""What a principal can do about a missing login to a server."""


class PrincipalMembers(Members):
    """The servers of another host, but for those that are reached with the principal's own login."""

    def __init__(
        self, above: Members, tasks: TaskGroup, around: Surroundings, person: Person, bus: EventBus
    ) -> None:
        super().__init__(tasks, around, above._store, person, bus, above._admission)
        self._above = above

    def __iter__(self) -> Iterator[Member]:
        return (self._chosen(above) for above in [*self._above])

    def __getitem__(self, server_id: str) -> Member:
        return self._chosen(self._above[server_id])

    def has_own(self, server_id: str) -> bool:
        """Is a server reached with the principal's own login?"""
        return server_id in self._by_id

    async def take(self, servers: Iterable[LoadedServer]) -> list[Member]:
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

    def _chosen(self, above: Member) -> Member:
        if not is_personal(above.server):
            return above
        own = self._by_id.get(above.server.server_id)
        if own is None or not same_definition(own.server, above.server):
            # The configuration is just being taken over. Another principal's must not stand in meanwhile.
            known = Known(pins=above.pins, lock=above.lock, before_defaults=above.before_defaults)
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

    def _new_members(self) -> PrincipalMembers:
        members = self._above._members
        self._own = PrincipalMembers(members, self._tasks, self._around, self._person, self._bus)
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

    def __init__(self, to: Subscriber, own: PrincipalMembers) -> None:
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
