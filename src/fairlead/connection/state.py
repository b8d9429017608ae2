"""The states of a connection, and the only ways between them."""

from fairlead.events import State

NEXT: dict[State, frozenset[State]] = {
    "disabled": frozenset(),
    "idle": frozenset({"connecting"}),
    "connecting": frozenset({"ready", "error", "auth_required", "idle"}),
    "ready": frozenset({"idle", "error", "auth_required", "connecting"}),
    "error": frozenset({"connecting", "ready", "auth_required", "idle"}),
    "auth_required": frozenset({"connecting", "ready", "error", "idle"}),
}
"""`ready` follows `error` or `auth_required` where a list that failed was listed again; `connecting` follows
`ready` where a lost session is begun anew."""


def check_move(before: State, after: State) -> None:
    """Hold the owner to the table: a move that is not in it is a bug of ours."""
    if after not in NEXT[before]:
        raise AssertionError(f"a connection cannot move from {before} to {after}")
