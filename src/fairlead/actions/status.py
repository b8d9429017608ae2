"""State of every server: as the running gateway has it, else as the last run left it. Contacts no server."""

import os
from dataclasses import dataclass
from typing import Any

from fairlead.actions.saved_state import SavedState, note_unreadable_answers, notes_to_review, read_saved
from fairlead.config.command_lines import command_line
from fairlead.config.load import LoadedConfig, LoadedServer
from fairlead.config.untyped import as_list
from fairlead.errors import ConnectFailed
from fairlead.events import DOWN, ServerState
from fairlead.gateway.registry import STATUS_PATH, find, sources_of
from fairlead.host.managed_server import entry_notes, login_notes
from fairlead.host.server_status import ServerStatus
from fairlead.wording import join_clauses


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusReport:
    """State of every server, and its source: a running gateway, or the last run."""

    servers: list[dict[str, Any]]
    """As `status_as_json` writes them."""
    gateway: str | None = None
    """The URL of the running gateway that says so; None where it is what the last run left behind."""
    failure: ConnectFailed | None = None
    """Why a running gateway did not answer."""
    note: str | None = None
    """What to say of stored answers to approvals that cannot be read."""


def read_status(loaded: LoadedConfig) -> StatusReport:
    """The state of every configured server."""
    running = find(os.environ, sources_of(loaded))
    failure = None
    if running is not None:
        try:
            servers = as_list(running.ask(STATUS_PATH).get("servers"))
            return StatusReport(servers=servers, gateway=running.url)
        except ConnectFailed as exc:
            failure = exc
    saved = read_saved(loaded)
    servers = [
        status_as_json(read_saved_status(server, saved[name])) for name, server in loaded.servers.items()
    ]
    return StatusReport(servers=servers, failure=failure, note=note_unreadable_answers(loaded))


def status_as_json(status: ServerStatus) -> dict[str, Any]:
    """State of one server as JSON, for `fairlead status --json` and `/api/status` alike."""
    return {
        "id": status.server_id,
        "transport": status.transport,
        "source": status.source,
        "enabled": status.enabled,
        "state": status.state,
        "protocol": status.version,
        "tools": status.tools,
        "stale": status.stale,
        "last_connected_at": status.last_connected_at,
        "last_error": status.last_error,
        "last_error_at": status.last_error_at,
        "hint": status.hint,
        "connects": status.connects,
        "calls": status.calls,
        "session_connections": status.session_connections,
        "notes": list(status.notes),
    }


def read_saved_status(server: LoadedServer, saved: SavedState) -> ServerStatus:
    """The state of a server that no running program has connected, as the last run left it."""
    snapshot, trouble = saved.snapshot, saved.trouble
    problem = next((p for p in server.problems if p.severity == "error" and server.enabled), None)
    error, hint = (str(problem), problem.hint) if problem else (None, None)
    if error is None and not saved.approved:
        error = f"not approved; run `{command_line('approve', server.server_id)}`"
    failed = trouble if error is None else None
    if failed is not None:
        what_to_do = failed.hint if failed.state in DOWN and failed.state != "error" else None
        error, hint = join_clauses(failed.message, what_to_do), failed.hint
    return ServerStatus(
        server_id=server.server_id,
        transport=server.transport,
        source=server.source,
        enabled=server.enabled,
        state=_state(server, error, trouble.state if trouble else None),
        version=snapshot.version if snapshot else None,
        tools=len(snapshot.listing.tools) if snapshot else None,
        stale=snapshot is not None and snapshot.is_stale(server.config.tools_ttl_ms if server.config else 0),
        last_connected_at=snapshot.saved_at if snapshot else None,
        last_error=error,
        last_error_at=failed.at if failed else None,
        hint=hint,
        connects=0,
        calls=0,
        notes=(
            *entry_notes(server),
            *login_notes(server),
            *notes_to_review(server, saved),
            *(saved.screened.listing.notes if saved.screened else ()),
        ),
    )


def _state(server: LoadedServer, error: str | None, left_in: str | None) -> ServerState:
    if not server.enabled:
        return "disabled"
    if error is None:
        return "idle"
    known: list[ServerState] = [state for state in DOWN if state == left_in]
    return known[0] if known else "error"
