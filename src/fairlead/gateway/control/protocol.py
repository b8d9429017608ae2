"""Messages of the control API between the command line and a running gateway.

A command posts a `ControlCommand`. The response is a stream of events: progress, elicitations, and in the end
the result or an error. Elicitations are answered by another request. Hanging up cancels the command.
"""

from typing import Any, Final, Literal

import msgspec

from fairlead.gateway.carried_errors import CommandFailed
from fairlead.host.snapshots import LastFailure, StoredSnapshot

CONTROL_PATH: Final = "/api/control"
ANSWERS_PATH: Final = "/api/control/answers"

Askable = Literal["form", "url"]
ASKABLE: Final[tuple[Askable, ...]] = ("form", "url")
"""The elicitation modes that a terminal supports."""


class ListTools(msgspec.Struct, frozen=True, tag="tools"):
    """List the tools of a server. `fresh`: as it lists them now, rather than as they are known."""

    server: str
    fresh: bool = False


class CallTool(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """Call a tool, and bring the whole result."""

    server: str
    tool: str
    arguments: dict[str, Any]
    confirmed: bool
    """The user confirmed this very call."""
    timeout_ms: int | None = None


class AllowTool(msgspec.Struct, frozen=True, tag="allow"):
    """Remember the user's approval of a tool."""

    server: str
    tool: str


class ListServers(msgspec.Struct, frozen=True, tag="servers"):
    """List what is known of servers, after listing those that never were; with `refresh`, all of them."""

    servers: tuple[str, ...]
    refresh: bool = False


class RestartServer(msgspec.Struct, frozen=True, tag="restart"):
    """End every connection to a server, and begin another."""

    server: str


class RestartedServer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a restart."""

    notices: tuple[str, ...] = ()
    """What the user should know besides: that it is not in the audit log."""


CommandWork = ListTools | CallTool | AllowTool | ListServers | RestartServer


class ControlCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command for the gateway, and the kinds of elicitations that its user can answer."""

    work: CommandWork
    config: str
    """What the configuration of the command says, in short. The gateway may not have read it yet."""
    can: tuple[Askable, ...] = ()


class CommandProgress(msgspec.Struct, frozen=True, tag="progress"):
    """Progress of the command."""

    progress: float
    total: float | None = None
    message: str | None = None


class ElicitationAsked(msgspec.Struct, frozen=True, tag="question"):
    """An elicitation: the parameters of `elicitation/create`."""

    id: str
    server: str
    params: msgspec.Raw


class ElicitationWithdrawn(msgspec.Struct, frozen=True, tag="withdrawn"):
    """An elicitation ended without an answer."""

    id: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The result of the command."""

    result: msgspec.Raw


CommandEvent = CommandProgress | ElicitationAsked | ElicitationWithdrawn | Done | CommandFailed


class ElicitationReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's answer to an elicitation: an `ElicitResult`, or the error that refused it."""

    id: str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class KnownServer(msgspec.Struct, frozen=True, kw_only=True):
    """State and listing of a server, as a gateway knows them."""

    snapshot: StoredSnapshot | None
    """What may be offered of what it lists."""
    quarantined: dict[str, str]
    """Why each of these tools waits for a review."""
    trouble: LastFailure | None
    failure: CommandFailed | None
    """Error of the request made just now."""
