"""The state of a server, as `Host.status` returns it, over one connection or several."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairlead.bounded_repr import BoundedRepr
from fairlead.events import DOWN, ServerState


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ServerStatus(BoundedRepr):
    """The state of a server, as `Host.status` returns it."""

    server_id: str
    """The id of the server."""
    transport: str | None
    """How it is reached: `stdio`, `http`, `sse`, `builtin` or `extension`."""
    source: str
    """The layer that its entry is from, such as `user` or `project`."""
    enabled: bool
    """Whether it is switched on."""
    state: ServerState
    """Its state now."""
    version: str | None
    """The protocol version that was negotiated last."""
    tools: int | None
    """None if it was never listed."""
    stale: bool
    """The tools are from an earlier run, and older than they should be."""
    last_error: str | None
    """Why it did not work when it was last tried; None once it works again."""
    hint: str | None
    """What to do about the last error."""
    last_connected_at: float | None
    """When it was connected last, in seconds since 1970."""
    connects: int
    """How often it was connected by this host."""
    calls: int
    """How many tool calls it has answered, for this host."""
    notes: tuple[str, ...]
    """Warnings about its declarations."""
    session_connections: int = 0
    """The number of open connections of single gateway clients, besides the shared one."""
    last_error_at: float | None = None
    """When the last error was, in seconds since 1970."""


_LIVELINESS: Final = ("ready", "connecting", *reversed(DOWN), "idle", "disabled")


def combine(shared: ServerStatus, others: Sequence[ServerStatus]) -> ServerStatus:
    """State of a server over all connections to it: the shared one and those of single clients.

    Its state is that of the connection that works best; an error of another shows only where none works, and
    none has worked since.
    """
    if not others or not shared.enabled:
        return shared
    worked_at = max(each.last_connected_at or 0.0 for each in (shared, *others))
    every = tuple(_without_old_error(each, worked_at) for each in (shared, *others))
    best = min(every, key=lambda status: _LIVELINESS.index(status.state))
    return replace(
        shared,
        state=best.state,
        version=shared.version or best.version,
        tools=best.tools if shared.tools is None else shared.tools,
        last_error=best.last_error,
        last_error_at=best.last_error_at,
        hint=best.hint,
        notes=tuple(dict.fromkeys(note for each in (shared, *others) for note in each.notes)),
        last_connected_at=worked_at or None,
        connects=sum(each.connects for each in every),
        calls=sum(each.calls for each in every),
        session_connections=sum(each.state in ("ready", "connecting") for each in others),
    )


def combine_processes(own: ServerStatus, others: Sequence[ServerStatus]) -> ServerStatus:
    """State of a server over all processes of a gateway, each with a status that `combine` returned."""
    single = sum(each.session_connections for each in (own, *others))
    return replace(combine(own, others), session_connections=single)


def _without_old_error(status: ServerStatus, worked_at: float) -> ServerStatus:
    """A status without an error that is older than a connection that worked."""
    if status.last_error_at is None or status.last_error_at > worked_at:
        return status
    state: ServerState = "idle" if status.state in DOWN else status.state
    return replace(status, state=state, last_error=None, last_error_at=None, hint=None)
