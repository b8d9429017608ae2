"""Our side of a conversation: what we can do for a server that asks, and what we say of ourselves."""

from dataclasses import dataclass
from importlib.metadata import version as installed_version
from typing import Any, Protocol

import mcp_types as types
from mcp_types import INVALID_REQUEST

CLIENT_INFO = types.Implementation(name="fairlead", version=installed_version("fairlead"))


class Peer(Protocol):
    """What one server may ask of us. Nothing is asked that was not declared, says the protocol; some do."""

    @property
    def capabilities(self) -> types.ClientCapabilities:
        """What the server is told we can do."""
        ...

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Put a question to a person."""
        ...

    async def sample(
        self, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Put something to a model."""
        ...

    async def list_roots(self) -> types.ListRootsResult | types.ErrorData:
        """Say which folders the server may work in."""
        ...

    def logged(self, params: types.LoggingMessageNotificationParams) -> None:
        """Take note of what the server logs."""
        ...

    def updated(self, uri: str) -> None:
        """Take note that a resource somebody subscribed to has changed."""
        ...


class NobodyThere:
    """A peer that can do nothing for a server, and says so."""

    capabilities = types.ClientCapabilities()

    async def elicit(self, params: types.ElicitRequestParams) -> types.ErrorData:
        """Refuse."""
        return refusal("questions to a person")

    async def sample(self, params: types.CreateMessageRequestParams) -> types.ErrorData:
        """Refuse."""
        return refusal("sampling")

    async def list_roots(self) -> types.ErrorData:
        """Refuse."""
        return refusal("roots")

    def logged(self, params: types.LoggingMessageNotificationParams) -> None:
        """Take no note."""

    def updated(self, uri: str) -> None:
        """Take no note."""


def refusal(what: str) -> types.ErrorData:
    """The answer to what was not declared, and is not done."""
    return types.ErrorData(code=INVALID_REQUEST, message=f"{what}: not supported here")


@dataclass(frozen=True, kw_only=True, slots=True)
class Introduction:
    """Who we are and what we can do, as both eras want to hear it."""

    client_info: dict[str, Any]
    capabilities: dict[str, Any]

    @property
    def handshake_capabilities(self) -> dict[str, Any]:
        """What servers of the older era are told: they know no extensions."""
        return {name: value for name, value in self.capabilities.items() if name != "extensions"}

    @classmethod
    def of(cls, peer: Peer) -> "Introduction":
        """How this peer introduces itself."""
        return cls(client_info=_dumped(CLIENT_INFO), capabilities=_dumped(peer.capabilities))


def _dumped(model: types.Implementation | types.ClientCapabilities) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
