"""Messages of the control API between the command line and a running gateway.

A command posts a `ControlCommand`. The response is a stream of events: progress, elicitations, and in the end
the result or an error. Elicitations are answered by another request. Hanging up cancels the command.
"""

from collections.abc import Iterator
from inspect import Parameter, signature
from typing import Any, Final, Literal

import msgspec

from fairlead.catalog.sanitize import gate
from fairlead.errors import ConfigError, ConfigInvalid, FairleadError
from fairlead.host.snapshots import LastFailure, StoredSnapshot

CONTROL_PATH: Final = "/api/control"
ANSWERS_PATH: Final = "/api/control/answers"

Askable = Literal["form", "url"]
ASKABLE: Final[tuple[Askable, ...]] = ("form", "url")
"""The elicitation modes that a terminal supports."""


class ListTools(msgspec.Struct, frozen=True, tag="tools"):
    """Say what tools a server has. `fresh`: as it says now, rather than as it is known."""

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
    """Say what is known of servers, after asking those that never were; with `refresh`, all of them."""

    servers: tuple[str, ...]
    refresh: bool = False


class RestartServer(msgspec.Struct, frozen=True, tag="restart"):
    """End every connection to a server, and begin another."""

    server: str


CommandWork = ListTools | CallTool | AllowTool | ListServers | RestartServer


class ControlCommand(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command for the gateway, and how its user can be asked meanwhile."""

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


class CommandFailed(msgspec.Struct, frozen=True, tag="failed"):
    """An error of the command, to be raised again by the client."""

    code: str
    message: str
    details: dict[str, str | int | bool | None]


CommandEvent = CommandProgress | ElicitationAsked | ElicitationWithdrawn | Done | CommandFailed


class ElicitationReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user's answer to an elicitation: an `ElicitResult`, or the error that refused it."""

    id: str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class KnownServer(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway knows of a server."""

    snapshot: StoredSnapshot | None
    """What may be offered of what it lists."""
    quarantined: dict[str, str]
    """Why each of these tools waits for a review."""
    trouble: LastFailure | None
    failure: CommandFailed | None
    """What went wrong when it was asked just now."""


def encode_error(error: FairleadError) -> CommandFailed:
    """Write an error for the command that meets it: its code, its text without secrets, and plain details."""
    # All that is wrong in a configuration is in its text; the problems are for those who have the files.
    kind = ConfigError if isinstance(error, ConfigInvalid) else type(error)
    details = {name: getattr(error, name, None) for name in _detail_names(kind)}
    plain = {name: value for name, value in details.items() if isinstance(value, _PLAIN)}
    return CommandFailed(code=kind.code, message=gate.error_text(error), details=plain)


def decode_error(failed: CommandFailed) -> FairleadError:
    """Make the error that a gateway met, to be raised here.

    A code or a set of details that this version does not know, from a gateway of another version, becomes a
    plain `FairleadError` with the same text.
    """
    kind = next((kind for kind in _error_types(FairleadError) if kind.code == failed.code), FairleadError)
    names = _detail_names(kind)
    required = {name for name, parameter in names.items() if parameter.default is Parameter.empty}
    if not required <= failed.details.keys():
        kind, names = FairleadError, _detail_names(FairleadError)
    details: dict[str, Any] = {name: value for name, value in failed.details.items() if name in names}
    # The constructors of server errors name the server themselves.
    message = failed.message.removeprefix(f"server `{failed.details.get('server_id')}`: ")
    return kind(message=message if "server_id" in names else failed.message, **details)


_PLAIN: Final = (str, int, bool, type(None))


def _detail_names(kind: type[FairleadError]) -> dict[str, Parameter]:
    """Return what an error is made of besides its message: its attributes have the same names."""
    return {name: each for name, each in signature(kind).parameters.items() if name != "message"}


def _error_types(kind: type[FairleadError]) -> Iterator[type[FairleadError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _error_types(narrower)
