"""The dashboard's routes, to be mounted in the gateway's application."""

from functools import partial
from importlib.resources import files
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from fairlead.errors import FairleadError
from fairlead.web import health, layout
from fairlead.web.door import LOGIN, Answer, Audience, Door, Visit
from fairlead.web.entrance import Entrance
from fairlead.web.metrics import metrics_answer
from fairlead.web.pages import approvals, calls, login, review, servers, tools
from fairlead.web.panel import Panel
from fairlead.web.status import status_answer
from fairlead.web.stream import event_stream

STATIC: Final = {
    "fairlead.css": "text/css",
    "fairlead.svg": "image/svg+xml",
    "live.js": "text/javascript",
    "login.js": "text/javascript",
}


def dashboard_routes(panel: Panel, entrance: Entrance) -> list[Route]:
    """The pages for people, and what programs ask: status, health and metrics."""

    def failed(visit: Visit, error: FairleadError) -> str:
        return layout.error_page(visit, panel, error)

    def door(
        path: str, get: Answer | None = None, post: Answer | None = None, *, audience: Audience = "people"
    ) -> Route:
        error_page = failed if audience in ("people", "strangers") else None
        endpoint = Door(entrance, get=get, post=post, audience=audience, error_page=error_page)
        return Route(path, endpoint=endpoint)

    programs = partial(door, audience="programs")
    everybody = partial(door, audience="everybody")
    return [
        door("/", servers.overview(panel)),
        door("/servers/{server}", servers.one(panel), servers.act(panel)),
        door("/servers/{server}/review", review.review(panel), review.decide(panel)),
        door("/tools", tools.catalog(panel)),
        door("/calls", calls.calls(panel)),
        door("/approvals", approvals.approvals(panel), approvals.give(panel)),
        door("/events", event_stream(panel)),
        door(LOGIN, login.show, login.log_in, audience="strangers"),
        door("/logout", post=login.log_out),
        programs("/api/status", status_answer(panel)),
        programs("/metrics", metrics_answer(panel)),
        everybody("/healthz", health.alive),
        everybody("/readyz", health.readiness(panel)),
        *(everybody(f"/static/{name}", _static(name, kind)) for name, kind in STATIC.items()),
    ]


def _static(name: str, media_type: str) -> Answer:
    content = (files("fairlead.web") / "static" / name).read_bytes()

    async def answer(visit: Visit) -> Response:
        headers = {"Cache-Control": "public, max-age=300"}
        return Response(content, media_type=media_type, headers=headers)

    return answer
