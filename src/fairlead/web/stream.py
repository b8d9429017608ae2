"""The stream that tells open pages to look again. It says that something changed, and never what."""

import time
from collections.abc import AsyncGenerator
from typing import Final

from starlette.responses import Response, StreamingResponse

from fairlead.web.door import Answer, Visit
from fairlead.web.panel import Panel

HEARTBEAT_SECONDS: Final = 15.0
CHECK_SECONDS: Final = 0.5
"""How soon a stream ends after its session, or the token of that session, has ended."""


def event_stream(panel: Panel, needed: str) -> Answer:
    """Server-sent events, for as long as the session or the token has the scope `needed`."""

    async def lines(visit: Visit) -> AsyncGenerator[str]:
        yield "retry: 2000\n\n"
        sent_at = time.monotonic()
        async for changed in panel.changes(CHECK_SECONDS):
            if not await visit.entrance.is_admitted(visit.request.scope, visit.ticket, needed):
                return
            if changed or time.monotonic() - sent_at >= HEARTBEAT_SECONDS:
                sent_at = time.monotonic()
                yield "event: changed\ndata:\n\n" if changed else ": still here\n\n"

    async def answer(visit: Visit) -> Response:
        return StreamingResponse(lines(visit), media_type="text/event-stream")

    return answer
