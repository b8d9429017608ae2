"""Our side of a conversation: what we can do for a server that asks, and what we say of ourselves.

How a connection has somebody log in, and how often.
"""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from importlib.metadata import version as installed_version
from typing import Any, Final, Protocol, TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from fairlead.connection.tracing import TRACE
from fairlead.errors import AuthRequired

CLIENT_INFO = types.Implementation(name="fairlead", version=installed_version("fairlead"))


SESSION_META_KEY: Final = "fairlead/session"
"""Names the session that a stateless request belongs to, to gateways that declare that they go by it."""


class RequestOrigin(Protocol):
    """Whoever a request is made for, where many share one connection."""

    @property
    def log_level(self) -> types.LoggingLevel | None:
        """What a server shall log in the course of the request, and above."""
        ...


CALLER: ContextVar[RequestOrigin | None] = ContextVar("caller", default=None)
"""Whoever the present task makes requests for. What a connection does on its own, it does for nobody."""

QUESTION: ContextVar[str | None] = ContextVar("question", default=None)
"""What a modern server calls the question that the present task answers."""


def for_nobody() -> None:
    """Do what follows in the present task for nobody: not for whoever happened to begin it."""
    CALLER.set(None)
    TRACE.set(None)


class ClientPeer(Protocol):
    """What one server may ask of us. Nothing is asked that was not declared, says the protocol; some do."""

    @property
    def capabilities(self) -> types.ClientCapabilities:
        """What the server is told we can do: for whoever the present request is made, where that matters."""
        ...

    @property
    def is_shared(self) -> bool:
        """Do many callers share the connection? Then only questions that come with an answer are put."""
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

    def completed(self, elicitation_id: str) -> None:
        """Take note that all is done on a page that a person was asked to open."""
        ...


class RefusingPeer:
    """A peer that can do nothing for a server, and says so."""

    capabilities = types.ClientCapabilities()
    is_shared = False

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

    def completed(self, elicitation_id: str) -> None:
        """Take no note."""


class TooManyQuestions(MCPError):
    """A server asked more than anyone is to be asked in the course of one request. It is told so."""

    def __init__(self, most: int) -> None:
        super().__init__(INVALID_REQUEST, f"at most {most} questions may be asked in one request")


def refusal(what: str) -> types.ErrorData:
    """The answer to what was not declared, and is not done."""
    return types.ErrorData(code=INVALID_REQUEST, message=f"{what}: not supported here")


class Introduction:
    """Who we are and what we can do, as both eras want to hear it."""

    def __init__(self, peer: ClientPeer, session_key: str | None = None) -> None:
        self.client_info = _dump_model(CLIENT_INFO)
        self._session_key = session_key
        self.session: dict[str, str] = {}
        """What stateless requests say of the session they belong to; nothing before it is known to matter."""
        self._peer = peer
        self._dumps: dict[int, tuple[types.ClientCapabilities, dict[str, Any]]] = {}

    def name_session(self) -> None:
        """Say with every request from now on which session it belongs to."""
        if self._session_key is not None:
            self.session = {SESSION_META_KEY: self._session_key}

    @property
    def capabilities(self) -> dict[str, Any]:
        """What modern servers are told with every request. The same object while nothing else is said."""
        said = self._peer.capabilities
        found = self._dumps.get(id(said))
        if found is None:
            found = self._dumps[id(said)] = (said, _dump_model(said))  # kept, so that no other gets its id
        return found[1]

    @property
    def handshake_capabilities(self) -> dict[str, Any]:
        """What servers of the older era are told: they know no extensions, nor whom to ask among many."""
        untold = {"extensions", "elicitation", "sampling"} if self._peer.is_shared else {"extensions"}
        return {name: value for name, value in self.capabilities.items() if name not in untold}


def _dump_model(model: types.Implementation | types.ClientCapabilities) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


MAX_STEP_UPS = 2

LogIn: TypeAlias = Callable[[AuthRequired], Awaitable[None]]
"""Has somebody log in, as a server wants it, or raises."""


class LoginCount:
    """How often somebody was asked to log in for one purpose: once, and for more rights twice more."""

    def __init__(self) -> None:
        self._logins = self._step_ups = 0

    def add(self, error: AuthRequired) -> None:
        """Count what a server asks for. Raises it where it was asked for often enough."""
        if error.wants_more:
            self._step_ups += 1
        else:
            self._logins += 1
        if self._logins > 1 or self._step_ups > MAX_STEP_UPS:
            raise error
