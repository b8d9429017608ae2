"""What happened, as values. Surfaces render these; nothing else observes a host.

An event never carries arguments, results, headers or tokens: it is safe to print and to log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

State = Literal["disabled", "idle", "connecting", "auth_required", "ready", "error"]
"""Where a server is in its life, as people see it."""

StartupStatus = Literal["starting", "ready", "failed", "auth_required", "cancelled"]
"""How a server's start is doing. All but the first are how it ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateChanged:
    """A server moved to another state; `reason` says why where it is not obvious."""

    server_id: str
    state: State
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class McpStartupUpdate:
    """One of the servers that are started together begins to start, or is done; `error` says what is wrong.

    `auth_required` waits for a person to log in, `cancelled` was closed before it was ready.
    """

    server_id: str
    status: StartupStatus
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class McpStartupComplete:
    """All of the servers that were started together are done, one way or another."""

    ready: tuple[str, ...] = ()
    failed: Mapping[str, str]
    """Why, by server."""
    auth_required: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class McpToolsChanged:
    """A server's tools were listed, and are not what they were."""

    server_id: str
    tools: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OffersChanged:
    """A server's resources or prompts were listed, and are not what they were."""

    server_id: str
    kind: Literal["resources", "prompts"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolsQuarantined:
    """Tools of a server are not what was reviewed or locked, and cannot be used until somebody looks."""

    server_id: str
    tools: tuple[str, ...]


# Events of calls are Structs, which take a tenth of the time to make: there are two of them for every call.


class McpToolCallBegin(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call was let through and goes to its server."""

    call_id: int
    server_id: str
    tool: str


class McpToolCallProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A tool reported how far it is."""

    call_id: int
    progress: float
    total: float | None = None
    message: str | None = None


class McpToolCallEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call ended, well or badly; `error` is the code of what it ended with."""

    call_id: int
    server_id: str
    tool: str
    seconds: float
    is_error: bool
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceUpdated:
    """A resource that somebody subscribed to has changed."""

    server_id: str
    uri: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerLogged:
    """A server sent a log message: its own words, made safe to show."""

    server_id: str
    level: str
    message: str
    logger: str | None = None
    """What part of it says so."""
    json: bytes | None = field(default=None, repr=False, compare=False)
    """All of it as JSON, for programs that hand it on; None where that is too much. Nothing hides in it."""
    untrusted: bool = False
    """It comes from a server that is not trusted: to a model it is data, never instructions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElicitationRequest:
    """A server asks a person something."""

    server_id: str
    kind: Literal["form", "url"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ElicitationComplete:
    """A question is over: `accept`, `decline` or `cancel` is what the person did with it.

    It was `refused` where nobody was asked, `withdrawn` where nobody waits for the answer any more, and it
    `failed` where the operator did.
    """

    server_id: str
    kind: Literal["form", "url"]
    outcome: str


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
)
