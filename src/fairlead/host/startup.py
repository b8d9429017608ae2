"""Concurrent starts of servers, reported as `McpStartupUpdate` and `McpStartupComplete` events."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from fairlead.bounded_repr import BoundedRepr
from fairlead.catalog.sanitize import gate
from fairlead.errors import AuthRequired, ClientRegistrationRequired, ConnectFailed, FairleadError
from fairlead.events import Event, McpStartupComplete, McpStartupUpdate, ServerState, StartupStatus
from fairlead.host.managed_server import ManagedServer

_LOOK_AGAIN_SECONDS = 0.1

Ready = Callable[[ManagedServer], Awaitable[object]]
"""Gets a server ready and waits for it, or raises what is wrong."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ServerInfo(BoundedRepr):
    """The name and instructions a started server reports, and the protocol version negotiated with it."""

    name: str | None
    """Its name, as it reports it."""
    version: str
    """The protocol version that was negotiated."""
    instructions: str | None
    """What it says about its use."""


class Startups:
    """The starts of one host. A server is part of one start at a time, however many callers want it."""

    def __init__(self, tasks: TaskGroup, emit: Callable[[Event], None]) -> None:
        self._tasks = tasks
        self._emit = emit
        self._starting: set[str] = set()

    async def start(self, servers: Iterable[ManagedServer], ready: Ready) -> dict[str, FairleadError]:
        """Start servers concurrently. Cancelling the wait stops no server, and events follow to the end.

        Args:
            servers: The servers.
            ready: Gets one of them ready.

        Returns:
            What went wrong, by server.
        """
        wanted = {managed.server.server_id: managed for managed in servers}
        start = _Start(managed for name, managed in wanted.items() if name not in self._starting)
        self._starting |= start.servers.keys()
        for server_id in start.servers:
            self._emit(McpStartupUpdate(server_id=server_id, status="starting"))
        failures: dict[str, FairleadError] = {}

        async def one(server_id: str, managed: ManagedServer) -> None:
            try:
                await ready(managed)
            except FairleadError as exc:
                failures[server_id] = exc
                self._settle(start, managed, _status_after(exc, managed), exc)
            else:
                self._settle(start, managed, "ready")

        try:
            if len(wanted) == 1:  # as one that is used for the first time: a task would cost as much again
                for server_id, managed in wanted.items():
                    await one(server_id, managed)
            else:
                async with anyio.create_task_group() as tasks:
                    for server_id, managed in wanted.items():
                        tasks.start_soon(one, server_id, managed)
        finally:
            if not start.is_over:
                self._tasks.start_soon(self._see_through, start)
        return failures

    async def _see_through(self, start: "_Start") -> None:
        """Report the servers of a start whose callers stopped waiting."""
        await anyio.lowlevel.checkpoint()  # a connection that was requested last is begun by now
        for managed in start.unsettled:
            connection = managed.connection
            while connection is not None and connection.vitals.state == "connecting":
                await managed.listed.wait()
                # It may have been listed elsewhere, while it still connects here.
                await anyio.sleep(_LOOK_AGAIN_SECONDS)
            vitals = connection.vitals if connection else None
            status = _ENDS.get(vitals.state, "cancelled") if vitals else "failed"
            self._settle(start, managed, status, vitals.last_error if vitals and status != "ready" else None)

    def _settle(
        self,
        start: "_Start",
        managed: ManagedServer,
        status: StartupStatus,
        error: FairleadError | None = None,
    ) -> None:
        server_id = managed.server.server_id
        if server_id not in start.servers or server_id in start.updates:
            return
        reason = gate.error_text(error) if error else None
        update = McpStartupUpdate(server_id=server_id, status=status, error=reason)
        start.updates[server_id] = update
        self._starting.discard(server_id)
        self._emit(update)
        if start.is_over:
            self._emit(start.outcome())


class _Start:
    """One start: its servers, and the outcomes so far."""

    def __init__(self, servers: Iterable[ManagedServer]) -> None:
        self.servers = {managed.server.server_id: managed for managed in servers}
        self.updates: dict[str, McpStartupUpdate] = {}

    @property
    def unsettled(self) -> list[ManagedServer]:
        """The servers that are still starting."""
        return [managed for name, managed in self.servers.items() if name not in self.updates]

    @property
    def is_over(self) -> bool:
        """Whether every server has an outcome."""
        return len(self.updates) == len(self.servers)

    def outcome(self) -> McpStartupComplete:
        """The final event, with servers in the order they were requested."""
        updates = [self.updates[server_id] for server_id in self.servers]

        def names_with(status: StartupStatus) -> tuple[str, ...]:
            return tuple(update.server_id for update in updates if update.status == status)

        return McpStartupComplete(
            ready=names_with("ready"),
            failed={update.server_id: update.error or "" for update in updates if update.status == "failed"},
            cancelled=names_with("cancelled"),
            auth_required=names_with("auth_required"),
        )


_ENDS: Mapping[ServerState, StartupStatus] = {
    "ready": "ready",
    "error": "failed",
    "auth_required": "auth_required",
    "needs_client_registration": "auth_required",
}
"""Startup status by connection state. In all other states it was closed."""


def _status_after(error: FairleadError, managed: ManagedServer) -> StartupStatus:
    if isinstance(error, AuthRequired | ClientRegistrationRequired):
        return "auth_required"
    # Closed while it connected: as if it had not begun.
    was_closed = isinstance(error, ConnectFailed) and managed.status().state == "idle"
    return "cancelled" if was_closed else "failed"
