"""Events of a host, as values. Surfaces render these; nothing else observes a host.

An event never carries results, headers or tokens, and of arguments only the shape, unless the configuration
allows their values (`audit.values`), which have secrets masked: it is safe to print and to log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from fairlead.bounded_repr import BoundedRepr

ServerState = Literal[
    "disabled", "idle", "connecting", "auth_required", "needs_client_registration", "ready", "error"
]
"""State of a server, as shown to users.

`needs_client_registration` has a login, but lets no client register itself: the user has to do that once.
"""
DOWN: Final[tuple[ServerState, ...]] = ("error", "auth_required", "needs_client_registration")
"""States in which a server does not work until something is done about it."""

StartupStatus = Literal["starting", "ready", "failed", "auth_required", "cancelled"]
"""Progress of a server's start. All but the first are its outcome."""

CallOutcome = Literal["ok", "tool_error", "cancelled", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class StateChanged(BoundedRepr):
    """A server changed its state; `reason` says why where it is not obvious.

    While it is `connecting`, another one comes for each step of a download that goes before its start.
    """

    server_id: str
    """The id of the server."""
    state: ServerState
    """Its state from now on."""
    reason: str | None = None
    """Why, as a sentence, where it is not obvious."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class McpStartupUpdate(BoundedRepr):
    """A server of those started together begins to start, or is done; `error` says what failed.

    `auth_required` waits for the user's login, `cancelled` was closed before it was ready.
    """

    server_id: str
    """The id of the server."""
    status: StartupStatus
    """How far its start has come."""
    error: str | None = None
    """What failed, with `failed`."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class McpStartupComplete(BoundedRepr):
    """All servers started together are done: ready, failed, waiting for a login, or cancelled."""

    ready: tuple[str, ...] = ()
    """Servers that can be used."""
    failed: Mapping[str, str]
    """Reasons by server."""
    auth_required: tuple[str, ...] = ()
    """Servers that wait for the user's login."""
    cancelled: tuple[str, ...] = ()
    """Servers that were closed before they were ready."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class McpToolsChanged(BoundedRepr):
    """A server's tools were listed, and have changed."""

    server_id: str
    """The id of the server."""
    tools: int
    """The number of its tools."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class OffersChanged(BoundedRepr):
    """A server's resources or prompts were listed, and have changed."""

    server_id: str
    """The id of the server."""
    kind: Literal["resources", "prompts"]
    """What has changed."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ToolsQuarantined(BoundedRepr):
    """Tools of a server differ from what was reviewed or locked, and are quarantined until a review."""

    server_id: str
    """The id of the server."""
    tools: tuple[str, ...]
    """The names of the tools."""


# Events of calls are Structs, which take a tenth of the time to create: there are two of them for every call.


class McpToolCallBegin(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call was allowed and is sent to its server."""

    call_id: int
    """Number of the call in this host, the same in all of its events."""
    server_id: str
    """The id of the server."""
    tool: str
    """The name of the tool, as its server has it."""
    principal: str = ""
    """The identity that the call is made for."""
    shape: Mapping[str, Any] = {}
    """Types and sizes of the arguments by name: `{"path": "string(12)"}`."""
    arguments: Any = None
    """The arguments with secrets masked, where `audit.values` is set; else None."""


class McpToolCallProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A tool reported its progress."""

    call_id: int
    """Number of the call."""
    progress: float
    """How far it is, in a unit of its own."""
    total: float | None = None
    """Where it ends, if the tool knows."""
    message: str | None = None
    """What the tool says of it."""


class McpToolCallEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call ended; `error` is the code of its error, if it failed."""

    call_id: int
    """Number of the call."""
    server_id: str
    """The id of the server."""
    tool: str
    """The name of the tool."""
    seconds: float
    """How long the call took."""
    is_error: bool
    """Whether it was of no use: the tool answered with an error, or the call failed."""
    error: str | None = None
    """The code of its error, if the call failed."""
    principal: str = ""
    """The identity that the call was made for."""
    shape: Mapping[str, Any] = {}
    """As at its begin, like `arguments`."""
    arguments: Any = None
    """As at its begin."""

    @property
    def outcome(self) -> CallOutcome:
        """Whether it went well, the tool answered with an error, the caller gave up, or the call failed."""
        if self.error is None:
            return "tool_error" if self.is_error else "ok"
        return "cancelled" if self.error == "cancelled" else "failed"


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ResourceUpdated(BoundedRepr):
    """A subscribed resource has changed."""

    server_id: str
    """The id of the server."""
    uri: str
    """The URI of the resource."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ServerLogged(BoundedRepr):
    """A server sent a log message, sanitized and masked here."""

    server_id: str
    """The id of the server."""
    level: str
    """The level, such as `warning`."""
    message: str
    """The message as text."""
    logger: str | None = None
    """Logger that the server named."""
    json: bytes | None = field(default=None, repr=False, compare=False)
    """The whole message as sanitized JSON, for programs that pass it on; None where that is too large."""
    untrusted: bool = False
    """Whether an untrusted server sent it: for a model it is data, never instructions."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ElicitationRequest(BoundedRepr):
    """A server requests input from the user."""

    server_id: str
    """The id of the server."""
    kind: Literal["form", "url"]
    """Whether it asks for a form, or to open a page."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ElicitationComplete(BoundedRepr):
    """An elicitation ended: the user chose `accept`, `decline` or `cancel`.

    It was `refused` where the user was not prompted, `withdrawn` where the server does not wait any more, and
    it `failed` where the operator did.
    """

    server_id: str
    """The id of the server."""
    kind: Literal["form", "url"]
    """Whether it asked for a form, or to open a page."""
    outcome: str
    """How it ended."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class BrowserOpenFailed(BoundedRepr):
    """The user agreed to a login page, and no browser could be opened from here: they open it themselves."""

    server_id: str
    """The id of the server."""
    url: str
    """The page without its query, which belongs to this login alone."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class EventsDropped(BoundedRepr):
    """The reader of these events did not keep up, and lost this many, which happened before the next one."""

    count: int
    """How many."""


Event = (
    StateChanged
    | McpStartupUpdate
    | McpStartupComplete
    | McpToolsChanged
    | OffersChanged
    | ToolsQuarantined
    | McpToolCallBegin
    | McpToolCallProgress
    | McpToolCallEnd
    | ResourceUpdated
    | ServerLogged
    | ElicitationRequest
    | ElicitationComplete
    | BrowserOpenFailed
    | EventsDropped
)
