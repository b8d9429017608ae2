"""The stream that tells open pages to look again. It says that something changed, and never what."""

from collections.abc import AsyncGenerator

from starlette.responses import Response, StreamingResponse

from fairlead.web.door import Answer, Visit
from fairlead.web.panel import Panel


def event_stream(panel: Panel) -> Answer:
    """Server-sent events, for as long as somebody watches."""

    async def lines() -> AsyncGenerator[str]:
        yield "retry: 2000\n\n"
        async for changed in panel.changes():
            yield "event: changed\ndata:\n\n" if changed else ": still here\n\n"

    async def answer(visit: Visit) -> Response:
        return StreamingResponse(lines(), media_type="text/event-stream")

    return answer
