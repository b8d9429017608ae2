"""The state of a connection: the states and the transitions between them as a table, and its counters."""

import time
from dataclasses import dataclass

from fairlead.errors import ServerError
from fairlead.events import DOWN, ServerState

_TROUBLE = frozenset[ServerState](DOWN)
_AFTER_TROUBLE = frozenset[ServerState]({"connecting", "ready", "idle"}) | _TROUBLE

NEXT: dict[ServerState, frozenset[ServerState]] = {
    "disabled": frozenset(),
    "idle": frozenset({"connecting"}),
    "connecting": frozenset[ServerState]({"ready", "idle"}) | _TROUBLE,
    "ready": frozenset[ServerState]({"idle", "connecting"}) | _TROUBLE,
    **{state: _AFTER_TROUBLE - {state} for state in DOWN},
}
"""`ready` follows one of `DOWN` where a list that failed was listed again; `connecting` follows
`ready` where a lost session is begun anew."""


def check_move(before: ServerState, after: ServerState) -> None:
    """Check a transition against the table: one that is not in it is a bug."""
    if after not in NEXT[before]:
        raise AssertionError(f"a connection cannot move from {before} to {after}")


@dataclass(kw_only=True, slots=True)
class ConnectionStatus:
    """State and counters of a connection, for status displays. Only the supervisor writes them."""

    state: ServerState = "idle"
    version: str | None = None
    server: str | None = None
    """The server's own name and version."""
    keeps_sessions: bool = False
    """Whether it is a gateway that keeps sessions for stateless requests."""
    download: str | None = None
    """What is downloaded for its start, in the words of the program that does."""
    noise: str | None = None
    """What it wrote to stdout last that is no MCP message."""
    last_error: ServerError | None = None
    """Why it did not work when it was last tried; None once it works again."""
    last_error_at: float | None = None
    last_connected_at: float | None = None
    connecting_since: float | None = None
    """When it began to connect, by the monotonic clock, while it does."""
    connects: int = 0
    losses: int = 0
    calls: int = 0

    @property
    def connecting_seconds(self) -> float:
        """For how long it has been connecting; 0 where it is not."""
        return 0.0 if self.connecting_since is None else time.monotonic() - self.connecting_since

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the way it runs."""
        download = f"it starts once this is done: {self.download}" if self.download else None
        noise = f"it writes to stdout, where only MCP messages belong: {self.noise}" if self.noise else None
        return tuple(filter(None, (download, noise)))
