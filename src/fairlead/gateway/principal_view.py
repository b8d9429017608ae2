"""View of an endpoint for one principal: tools, instructions, and the logins that are missing."""

from collections.abc import Callable
from typing import Final

import anyio

from fairlead.config.principal import LOCAL, GroupedPrincipal
from fairlead.gateway.lists import OfferLists, ToolList
from fairlead.gateway.services import GatewayServices
from fairlead.host.client_host import is_shared
from fairlead.host.host import Host
from fairlead.host.model.bundles import Selection
from fairlead.host.model.resource_tools import ReadingTools
from fairlead.host.model.toolset import Toolset

LOGIN_WAIT_SECONDS: Final = 2.0
"""How long the first `initialize` of a principal waits to learn which servers want its login."""

SelectionFor = Callable[[GroupedPrincipal], Selection]
"""Returns what is selected for a caller: rules may hide other tools from each."""


class PrincipalView:
    """View of an endpoint for one principal, the same for all of its clients."""

    def __init__(
        self, gateway: GatewayServices, host: Host, caller: GroupedPrincipal, select: SelectionFor
    ) -> None:
        """Offer what `select` returns for a caller, over the host of its principal."""
        self.host = host
        self._gateway = gateway
        self._caller = caller
        self._select = select
        self._preparing = anyio.Lock()
        self._tools = ToolList()
        self.renew()

    def renew(self) -> None:
        """Apply the present configuration."""
        self.toolset = Toolset(self.host, self._select(self._caller), *self._caller)
        self._patience = self._gateway.startup_wait

    async def prepare(self) -> None:
        """List every server that was never listed, as far as that is possible.

        A slow server is waited for once; clients are notified when its tools are known. A connection that was
        made for the list alone, and that no two clients may share, is closed again.
        """
        async with self._preparing:
            await self.toolset.ready(seconds=self._patience)
            self._patience = 0.0
            self.release()

    def release(self) -> None:
        """Close the connections that were made for a list alone, and that clients may not share.

        No client waits for that: a server may take seconds to exit.
        """
        for managed in self.host.servers:
            connection = managed.connection
            if connection is None or connection.vitals.state != "ready" or is_shared(managed):
                continue
            if not managed.keeps_sessions:  # that one brings list changes for all clients
                self._gateway.tasks.start_soon(connection.aclose)

    async def list_tools(self, version: str | None) -> bytes:
        """Return the tools of clients without a catalog of their own: a JSON array for a protocol version."""
        return await self._tools.tools(self.toolset, version)

    async def learn_logins(self) -> None:
        """Find out which servers want a login of this principal, so that `instructions` name the links.

        A server that was tried before is not tried again. The local user has other ways to log in.
        """
        if self._caller.principal == LOCAL:
            return
        untried = [
            status.server_id
            for status in self.host.status()
            if status.enabled
            and status.tools is None
            and status.last_error is None
            and self.toolset.selection.has(status.server_id)
            and self._gateway.is_personal(status.server_id)
        ]
        if untried:
            with anyio.move_on_after(LOGIN_WAIT_SECONDS):
                await self.host.connect(*untried)
            self.release()

    def instructions(self) -> str | None:
        """Return the logins that are needed, then the servers' own instructions, as far as they are known."""
        reading = ReadingTools(self.host, self.toolset.selection)
        listings = {
            status.server_id: listing
            for status in self.host.status()
            if status.enabled
            and reading.may_read(status.server_id)
            and (listing := self.host.listing(status.server_id)) is not None
        }
        trusted = [name for name in listings if self.host.is_trusted(name)]
        said = (self._login_instructions(), OfferLists(listings, "gateway", trusted).instructions())
        return "\n\n".join(filter(None, said)) or None

    def _login_instructions(self) -> str | None:
        """Tell how to log in to the servers whose tools are missing for want of a login.

        Without this a client whose servers all need one sees an empty list and no reason for it.
        """
        hints = [f"- {server_id}: {hint}" for server_id, hint in self.toolset.waiting_for_login().items()]
        if not hints:
            return None
        return "\n".join(["# Servers that need a login", "", "Their tools appear after it.", "", *hints])
