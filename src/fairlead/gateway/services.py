"""Protocol of the gateway as its endpoints, client sessions and handlers use it.

They are written against it, and `gateway.py` puts them together: imports point one way.
"""

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from anyio.abc import TaskGroup

from fairlead.config.load import LoadedConfig
from fairlead.gateway.access.auth import OpenStreams
from fairlead.gateway.cluster.cluster import Cluster
from fairlead.gateway.pending_approvals import PendingApprovals
from fairlead.host.host import Host

TokenKey = tuple[str, str | None]
"""A principal and the digest of one of its tokens: what sessions are counted by."""


class GatewayServices(Protocol):
    """The gateway, as its endpoints and client sessions know it."""

    @property
    def host(self) -> Host:
        """The host of the local user."""
        ...

    @property
    def loaded(self) -> LoadedConfig:
        """The configuration in force."""
        ...

    @property
    def approvals(self) -> PendingApprovals:
        """The calls that wait for the user's decision."""
        ...

    @property
    def tasks(self) -> TaskGroup:
        """The task group that sessions run in."""
        ...

    @property
    def streams(self) -> OpenStreams:
        """The requests that may outlast the token they came with."""
        ...

    @property
    def id_prefix(self) -> str:
        """Prefix of the ids that this process gives out, which tells its ids from those of other workers."""
        ...

    @property
    def startup_wait(self) -> float:
        """Seconds that a client's first list waits for servers."""
        ...

    @property
    def trusts_clients(self) -> bool:
        """Whether an approval that is answered in the client counts as its user's."""
        ...

    def host_of(self, principal: str) -> AbstractAsyncContextManager[Host]:
        """Open the host that a principal's client hosts are built on, for the length of the block."""
        ...

    def login_url(self, principal: str, server_id: str) -> str | None:
        """Return the page where a principal logs in to a server, if there is one."""
        ...

    def is_personal(self, server_id: str) -> bool:
        """Return whether two principals may be logged in differently at a server."""
        ...

    @property
    def cluster(self) -> Cluster | None:
        """The other processes that act as one gateway with this one, if there may be any."""
        ...

    def new_session_id(self, principal: str, bundle: str | None, random: bytes | None = None) -> str | None:
        """Return an id for a session that others know to be this process's; None where there are none."""
        ...

    def room_for_session(self, principal: str, credential: str | None) -> AbstractAsyncContextManager[bool]:
        """Make room for a session that is opened in the block. Yields False at a quota."""
        ...

    def listening_stream(self, owner: TokenKey) -> AbstractContextManager[bool]:
        """Count a stream of `subscriptions/listen` during the block. Yields False at a quota."""
        ...

    def note_request_end(self) -> None:
        """Take note that a request of a client ended."""
        ...

    async def close_server(self, server_id: str) -> None:
        """End every connection to a server, of all principals and sessions."""
        ...
