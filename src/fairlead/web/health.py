"""Is it alive, and can it serve? For whoever restarts it. It says nothing else, and so anybody may ask."""

from starlette.responses import PlainTextResponse, Response

from fairlead.web.door import Answer, Visit
from fairlead.web.panel import Panel


async def alive(visit: Visit) -> Response:
    """It answers, so it lives."""
    return PlainTextResponse("ok\n")


def readiness(panel: Panel) -> Answer:
    """Ready when every required server is."""

    async def answer(visit: Visit) -> Response:
        if panel.is_ready:
            return PlainTextResponse("ok\n")
        return PlainTextResponse("not ready\n", 503)

    return answer
