"""The client's side of a connection: capabilities and identity, answers to server requests, logins."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from importlib.metadata import version as installed_version
from typing import Any, Final, Protocol, TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from fairlead.connection.frame_log import FRAME_LOG
from fairlead.connection.tracing import TRACE
from fairlead.errors import AuthRequired

CLIENT_INFO = types.Implementation(name="fairlead", version=installed_version("fairlead"))


SESSION_META_KEY: Final = "fairlead/session"
"""Names the session that a stateless request belongs to, to gateways that declare that they go by it."""


class RequestOrigin(Protocol):
    """The gateway client a request is made for, where several share one connection."""

    @property
    def log_level(self) -> types.LoggingLevel | None:
        """The log level that the request sets."""
        ...


CALLER: ContextVar[RequestOrigin | None] = ContextVar("caller", default=None)
"""The client that the current task makes requests for; None for the connection's own requests."""

AGENT_META_KEY: Final = "fairlead/agent"
"""Marks the calls that a gateway's agent makes, so that no agent is set to work by another."""

IS_AGENT: ContextVar[bool] = ContextVar("is agent", default=False)
"""Whether a gateway's agent makes the current task's requests: they are marked with `AGENT_META_KEY`."""

INPUT_REQUEST: ContextVar[str | None] = ContextVar("input request", default=None)
"""The key, at a stateless server, of the elicitation that the current task answers."""


def detach_from_caller() -> None:
    """Detach the current task from the client that happened to start it."""
    CALLER.set(None)
    IS_AGENT.set(False)
    TRACE.set(None)
    FRAME_LOG.set(None)


class ClientPeer(Protocol):
    """Answers requests of one server. Some servers also request what was not declared to them."""

    @property
    def capabilities(self) -> types.ClientCapabilities:
        """The client capabilities declared to the server, for the client of the current request."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether clients share the connection. Then only elicitations that come with an answer are put."""
        ...

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Answer an elicitation."""
        ...

    async def sample(
        self, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Answer a sampling request."""
        ...

    async def list_roots(self) -> types.ListRootsResult | types.ErrorData:
        """Answer a roots request."""
        ...

    def handle_log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Handle a log message of the server."""
        ...

    def handle_update(self, uri: str) -> None:
        """Handle the notification that a watched resource has changed."""
        ...

    def handle_completion(self, elicitation_id: str) -> None:
        """Handle the notification that a URL elicitation is complete."""
        ...


class RefusingPeer:
    """A peer that can do nothing for a server, and says so."""

    capabilities = types.ClientCapabilities()
    is_shared = False

    async def elicit(self, params: types.ElicitRequestParams) -> types.ErrorData:
        """Refuse."""
        return refusal("elicitation")

    async def sample(self, params: types.CreateMessageRequestParams) -> types.ErrorData:
        """Refuse."""
        return refusal("sampling")

    async def list_roots(self) -> types.ErrorData:
        """Refuse."""
        return refusal("roots")

    def handle_log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Take no note."""

    def handle_update(self, uri: str) -> None:
        """Take no note."""

    def handle_completion(self, elicitation_id: str) -> None:
        """Take no note."""


class TooManyElicitations(MCPError):
    """A server sent more elicitations than are allowed in one request. It gets this error."""

    def __init__(self, most: int) -> None:
        super().__init__(INVALID_REQUEST, f"at most {most} elicitations are allowed in one request")


def refusal(what: str) -> types.ErrorData:
    """The answer to what was not declared, and is not done."""
    return types.ErrorData(code=INVALID_REQUEST, message=f"{what}: not supported here")


class Introduction:
    """Client information and capabilities, in the form of the handshake and of stateless requests."""

    def __init__(self, peer: ClientPeer, session_key: str | None = None) -> None:
        self.client_info = _dump_model(CLIENT_INFO)
        self._session_key = session_key
        self.session: dict[str, str] = {}
        """The session named in stateless requests; empty before the server is known to keep sessions."""
        self._peer = peer
        self._dumps: dict[int, tuple[types.ClientCapabilities, dict[str, Any]]] = {}

    def name_session(self) -> None:
        """Name the session in every request from now on."""
        if self._session_key is not None:
            self.session = {SESSION_META_KEY: self._session_key}

    @property
    def capabilities(self) -> dict[str, Any]:
        """The `_meta` of every stateless request. The same object while nothing changes."""
        declared = self._peer.capabilities
        found = self._dumps.get(id(declared))
        if found is None:
            found = self._dumps[id(declared)] = (
                declared,
                _dump_model(declared),
            )  # kept, so that no other gets its id
        return found[1]

    @property
    def handshake_capabilities(self) -> dict[str, Any]:
        """The capabilities for the handshake: without extensions, nor elicitation on shared connections."""
        untold = {"extensions", "elicitation", "sampling"} if self._peer.is_shared else {"extensions"}
        return {name: value for name, value in self.capabilities.items() if name not in untold}


def _dump_model(model: types.Implementation | types.ClientCapabilities) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


MAX_STEP_UPS = 2

LogIn: TypeAlias = Callable[[AuthRequired], Awaitable[None]]
"""Has the user log in as a server demands, or raises."""


class LoginCount:
    """Limits login requests for one purpose: one login, and two more for wider OAuth scopes."""

    def __init__(self) -> None:
        self._logins = self._step_ups = 0

    def add(self, error: AuthRequired) -> None:
        """Count what a server asks for. Raises at the limit."""
        if error.wants_more:
            self._step_ups += 1
        else:
            self._logins += 1
        if self._logins > 1 or self._step_ups > MAX_STEP_UPS:
            raise error
