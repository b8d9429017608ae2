"""The dashboard's routes, to be mounted in the gateway's application."""

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from fairlead.errors import FairleadError
from fairlead.gateway.access import token_in
from fairlead.gateway.login_links import LoginLinks
from fairlead.gateway.perimeter import Refused
from fairlead.web import health, layout
from fairlead.web.door import LOGIN, Answer, Audience, Door, Visit
from fairlead.web.entrance import Entrance
from fairlead.web.metrics import metrics_answer
from fairlead.web.pages import approvals, calls, connect, login, review, servers, tools
from fairlead.web.panel import Panel
from fairlead.web.status import status_answer
from fairlead.web.stream import event_stream

LINKS: Final = "/api/dashboard-links"
STATIC: Final = {
    "fairlead.css": "text/css",
    "fairlead.svg": "image/svg+xml",
    "live.js": "text/javascript",
}


def dashboard_routes(panel: Panel, entrance: Entrance, links: LoginLinks | None = None) -> list[BaseRoute]:
    """The pages for people, and what programs ask: status, health and metrics.

    Pages are below the path of a session. Without one they are for programs with a token, to read.
    """
    links = links or LoginLinks()

    def failed(visit: Visit, error: FairleadError) -> str:
        return layout.error_page(visit, panel, error)

    def door(
        path: str,
        get: Answer | None = None,
        post: Answer | None = None,
        *,
        audience: Audience = "people",
        needed: str = "admin",
    ) -> Route:
        error_page = failed if audience in ("people", "strangers") else None
        endpoint = Door(entrance, get=get, post=post, audience=audience, needed=needed, error_page=error_page)
        return Route(path, endpoint=endpoint)

    programs = partial(door, audience="programs")
    everybody = partial(door, audience="everybody")
    pages = [
        door("/", servers.overview(panel)),
        door("/servers/{server}", servers.one(panel), servers.act(panel)),
        door("/servers/{server}/review", review.review(panel), review.decide(panel)),
        door("/tools", tools.catalog(panel)),
        door("/calls", calls.calls(panel)),
        door("/approvals", approvals.approvals(panel), approvals.give(panel), needed="decide"),
        door("/events", event_stream(panel, "decide"), needed="decide"),
        door("/logout", post=login.log_out, needed="decide"),
    ]
    return [
        Mount("/~{place}", routes=pages),
        *pages,
        door(LOGIN, login.show, login.log_in, audience="strangers"),
        door("/connect/{code}", connect.show(panel, links), connect.act(panel, links), audience="strangers"),
        Route(LINKS, _links(entrance), methods=["POST"]),
        programs("/api/status", status_answer(panel)),
        programs("/metrics", metrics_answer(panel)),
        everybody("/healthz", health.alive),
        everybody("/readyz", health.readiness(panel)),
        *(everybody(f"/static/{name}", _static(name, kind)) for name, kind in STATIC.items()),
    ]


def _links(entrance: Entrance) -> Callable[[Request], Awaitable[Response]]:
    """Where the command line gets a link that logs its user in."""

    async def answer(request: Request) -> Response:
        admitted = await entrance.admit_token(request.scope)
        if isinstance(admitted, Refused):
            return Response(admitted.body, admitted.status, dict(admitted.headers))
        links = await entrance.links(token_in(request.scope) or "")
        return JSONResponse({"links": links}, headers={"Cache-Control": "no-store"})

    return answer


def _static(name: str, media_type: str) -> Answer:
    content = (files("fairlead.web") / "static" / name).read_bytes()

    async def answer(visit: Visit) -> Response:
        headers = {"Cache-Control": "public, max-age=300"}
        return Response(content, media_type=media_type, headers=headers)

    return answer
