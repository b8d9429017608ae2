"""Protocol extensions between a program and its servers: requests and notifications."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.config.argument_types import check_types
from fairlead.connection.connection import Connection
from fairlead.errors import CallFailed
from fairlead.host.server_access import ServerAccess


class ExtensionMessages:
    """Messages of your own to servers that declare that they understand them: `host.custom`."""

    def __init__(self, servers: ServerAccess) -> None:
        self._servers = servers

    @check_types
    async def declares(self, server_id: str, capability: str) -> bool:
        """Whether a server declares an experimental capability or extension. It is connected if needed."""
        offers = (await (await self._servers.reach(server_id)).ready()).capabilities
        return capability in (offers.experimental or {}) or capability in (offers.extensions or {})

    @check_types
    async def request(
        self, server_id: str, capability: str, method: str, params: Mapping[str, Any] | None = None
    ) -> msgspec.Raw:
        """Send a request and return the answer, cleaned and masked.

        Args:
            server_id: The server.
            capability: The experimental capability or extension that it must declare, else nothing is sent.
            method: The method.
            params: Its parameters.

        Raises:
            CallFailed: The server does not declare the capability, or no answer came.
        """
        raw = await self.request_unchanged(server_id, capability, method, params)
        try:
            return msgspec.Raw(await gate.run(gate.answer_steps(bytes(raw))))
        except (ValueError, RecursionError) as exc:
            message = f"its answer cannot be parsed: {gate.text(str(exc))}"
            raise CallFailed(server_id, message, delivery="done") from gate.displayable_cause(exc)

    @check_types
    async def request_unchanged(
        self, server_id: str, capability: str, method: str, params: Mapping[str, Any] | None = None
    ) -> msgspec.Raw:
        """The same, but with the answer as it came: for what is compared with a digest before it is shown."""
        return await (await self._reach(server_id, capability)).request(
            method, {} if params is None else params
        )

    @check_types
    async def notify(
        self, server_id: str, capability: str, method: str, params: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification.

        Args:
            server_id: The server.
            capability: The experimental capability or extension that it must declare, else nothing is sent.
            method: The method.
            params: Its parameters.

        Raises:
            CallFailed: The server does not declare the capability.
        """
        await (await self._reach(server_id, capability)).notify(method, {} if params is None else params)

    async def _reach(self, server_id: str, capability: str) -> Connection:
        if not await self.declares(server_id, capability):
            message = f"it does not declare `{capability}`, so nothing was sent"
            raise CallFailed(server_id, message, delivery="not_sent")
        return await self._servers.reach(server_id)
