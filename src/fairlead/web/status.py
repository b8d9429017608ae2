"""Where every server stands, for programs: what `fairlead status --json` prints, live."""

from typing import Any

from starlette.responses import JSONResponse, Response

from fairlead.host.member import ServerStatus
from fairlead.web.door import Answer, Visit
from fairlead.web.panel import Panel


def status_answer(panel: Panel) -> Answer:
    """The state of all servers as JSON."""

    async def answer(visit: Visit) -> Response:
        servers = [as_json(status) for status in panel.status()]
        return JSONResponse({"servers": servers, "pending_approvals": len(panel.pending())})

    return answer


def as_json(status: ServerStatus) -> dict[str, Any]:
    """One server."""
    return {
        "id": status.server_id,
        "transport": status.transport,
        "source": status.source,
        "enabled": status.enabled,
        "state": status.state,
        "era": status.version,
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
