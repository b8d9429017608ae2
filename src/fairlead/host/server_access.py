"""Access to the servers of one host: to inspect, list, reach and call them, until the host is closed."""

import asyncio

from fairlead.catalog.tools import Listing
from fairlead.connection.connection import Connection
from fairlead.errors import ConnectFailed, FairleadError
from fairlead.host.call import listing_of, require_consent
from fairlead.host.events import EventBus, EventStream
from fairlead.host.managed_server import ManagedServer
from fairlead.host.managed_servers import HostServers
from fairlead.host.server_status import ServerStatus
from fairlead.store.protocol import Store


class ServerAccess:
    """Access to a host's servers, for the host itself, its resources, prompts, tasks and extension messages.

    Args:
        servers: The servers as the host sees them.
        store: Where consents are kept; None if it cannot be opened.
        bus: The host's event bus.
    """

    def __init__(self, servers: HostServers, store: Store | None, bus: EventBus) -> None:
        self._servers = servers
        self._store = store
        self._bus = bus
        self._closed = False
        self._loop = _running_loop()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Refuse all access from now on. The connections are closed elsewhere."""
        self._closed = True

    @property
    def is_in_other_loop(self) -> bool:
        """Whether the caller runs in another event loop than the host. Threads without one may look at it."""
        running = _running_loop()
        return running is not None and running is not self._loop

    def require_own_loop(self) -> None:
        """Refuse callers in another event loop: what they wait for would never come, or break the host.

        Raises:
            FairleadError: The caller is in another event loop than the one that the host was opened in.
        """
        if self.is_in_other_loop:
            raise FairleadError(
                "this host was opened in another event loop",
                hint="open a host in each event loop, or share the one of `fairlead.open()` between threads",
            )

    def statuses(self) -> list[ServerStatus]:
        """The state of every server. Contacts no server."""
        return [server.status() for server in self._servers]

    def inspect(self, server_id: str) -> ManagedServer:
        """The server to look at: no connection is made for that.

        Raises:
            UnknownServer: No server has that id.
            ConnectFailed: The host is closed.
        """
        self._require_usable(server_id)
        return self._servers.get_known(server_id)

    def use(self, server_id: str) -> ManagedServer:
        """The server to call; in a client host, with a connection of its own where it is not shared.

        Raises:
            UnknownServer: No server has that id.
            ServerError: The server cannot be used, or the host is closed.
        """
        self._require_usable(server_id)
        server = self._servers[server_id]
        if server.connection is None:
            server.live()  # raises what is wrong with it, rather than what policy would say
        return server

    def is_untrusted(self, server_id: str) -> bool:
        """Whether what this server says is untrusted content."""
        return self.inspect(server_id).config.trust != "trusted"

    async def offers(self, server_id: str) -> Listing:
        """The listing of a server, of this run or a snapshot. It is connected only if it was never listed.

        Raises:
            ListFailed: The server does not list what it offers.
        """
        server = self.inspect(server_id)
        server.refresh_if_stale()
        return await listing_of(server, self._store)

    async def list_now(self, server_id: str) -> Listing:
        """The listing of a server from this run. It is connected if it is not.

        Raises:
            ListFailed: The server does not list what it offers.
        """
        return await listing_of(self.inspect(server_id), self._store, fresh=True)

    async def reach(self, server_id: str) -> Connection:
        """The connection of a server, open or not, for requests to this server alone.

        Raises:
            ConsentRequired: A project's file has the server, and the user has not approved it.
        """
        server = self.use(server_id)
        connection = server.live()
        await require_consent(server, self._store)
        return connection

    def events(self, *, calls: bool = True) -> EventStream:
        """Events of the host from now on.

        Args:
            calls: Include the events of single calls.
        """
        self.require_own_loop()
        return EventStream(self._bus, calls=calls)

    def _require_usable(self, server_id: str) -> None:
        if self._closed:
            raise ConnectFailed(server_id, "the host is closed")
        self.require_own_loop()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
