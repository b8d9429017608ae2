"""The dashboard's routes, to be mounted in the gateway's application.

The stream that tells open pages to look again. It says that something changed, and never what.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from importlib.resources import files
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Receive, Scope, Send

from fairlead.errors import FairleadError
from fairlead.gateway.access.auth import token_in
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.login_links import LoginLinks
from fairlead.gateway.registry import DASHBOARD_LINKS_PATH, STATUS_PATH
from fairlead.gateway.workers.member import PoolMember
from fairlead.web import layout, monitoring
from fairlead.web.host_panel import HostPanel
from fairlead.web.monitoring import metrics_answer, status_answer
from fairlead.web.page_request import LOGIN, AccessCheck, Answer, Audience, PageRequest
from fairlead.web.pages import (
    approvals,
    audit,
    calls,
    connect,
    login,
    logs,
    overview,
    replicas,
    servers,
    tools,
)
from fairlead.web.pages.routes import working_pages
from fairlead.web.sessions import LoginSessions

HEARTBEAT_SECONDS: Final = 15.0
CHECK_SECONDS: Final = 0.5
"""How soon a stream ends after its session, or the token of that session, has ended."""


def event_stream(panel: HostPanel, needed: str) -> Answer:
    """Server-sent events, for as long as the session or the token has the scope `needed`."""

    async def lines(request: PageRequest) -> AsyncGenerator[str]:
        yield "retry: 2000\n\n"
        sent_at = time.monotonic()
        async for changed in panel.changes(CHECK_SECONDS):
            if not await request.sessions.is_admitted(request.http.scope, request.cookie, needed):
                return
            if changed or time.monotonic() - sent_at >= HEARTBEAT_SECONDS:
                sent_at = time.monotonic()
                yield "event: changed\ndata:\n\n" if changed else ": still here\n\n"

    async def answer(request: PageRequest) -> Response:
        return StreamingResponse(lines(request), media_type="text/event-stream")

    return answer


STATIC: Final = {
    "fairlead.css": "text/css",
    "forms.css": "text/css",
    "fairlead.svg": "image/svg+xml",
    "live.js": "text/javascript",
}


def dashboard_routes(
    panel: HostPanel,
    sessions: LoginSessions,
    links: LoginLinks | None = None,
    peers: PoolMember | None = None,
) -> list[BaseRoute]:
    """Routes of the dashboard's pages, and of status, health and metrics for programs.

    Pages are below the path of a session. Without one they are for programs with a token, to read.
    """
    links = links or LoginLinks()

    def show_error(request: PageRequest, error: FairleadError) -> str:
        return layout.error_page(request, panel, error)

    def route(  # noqa: PLR0913 - one for each property of a page
        path: str,
        get: Answer | None = None,
        post: Answer | None = None,
        *,
        audience: Audience = "people",
        needed: str = "admin",
        confirms: bool = True,
        has_arguments: bool = False,
    ) -> Route:
        error_page = show_error if audience in ("people", "strangers") else None
        endpoint = AccessCheck(
            sessions,
            get=get,
            post=post,
            audience=audience,
            needed=needed,
            error_page=error_page,
            confirms=confirms,
            has_arguments=has_arguments,
        )
        return Route(path, endpoint=endpoint)

    def fresh(answer: Answer) -> Answer:
        """Ask the other processes of the gateway first, for pages that tell of all of it."""

        async def answer_freshly(request: PageRequest) -> Response:
            await panel.refresh()
            return await answer(request)

        return answer_freshly

    async def show_missing(request: PageRequest) -> Response:
        return HTMLResponse(layout.missing_page(request, panel), 404)

    programs = partial(route, audience="programs")
    public = partial(route, audience="public")
    pages = [
        route("/", fresh(overview.overview(panel))),
        route("/servers", fresh(servers.overview(panel))),
        route("/servers/{server}", fresh(servers.one(panel)), servers.act(panel)),
        *working_pages(panel, route),
        route("/tools", tools.catalog(panel)),
        route("/calls", calls.calls(panel), calls.act(panel)),
        route("/replicas", replicas.show(panel)),
        route("/logs", logs.logs(panel)),
        route("/audit", audit.records(panel)),
        route("/audit.csv", audit.export_csv(panel)),
        route("/audit.jsonl", audit.export_json(panel)),
        route("/approvals", approvals.approvals(panel), approvals.give(panel), needed="decide"),
        route("/events", event_stream(panel, "decide"), needed="decide"),
        route("/logout", post=login.log_out, needed="decide"),
        route("/theme", post=login.choose_theme, needed="decide", confirms=False),
    ]
    missing = route("/{path:path}", show_missing, needed="decide")
    return [
        Mount("/~{place}", routes=[*pages, missing]),
        *pages,
        route(LOGIN, login.show, login.log_in, audience="strangers"),
        route("/connect/{code}", connect.show(panel, links), connect.act(panel, links), audience="strangers"),
        Route(DASHBOARD_LINKS_PATH, _links(sessions), methods=["POST"]),
        programs(STATUS_PATH, fresh(status_answer(panel))),
        programs("/metrics", fresh(metrics_answer(panel, peers))),
        public("/healthz", monitoring.alive),
        public("/readyz", monitoring.readiness(panel)),
        *(public(f"/static/{name}", _static(name, kind)) for name, kind in STATIC.items()),
        _MissingPage(AccessCheck(sessions, get=show_missing, audience="strangers", error_page=show_error)),
    ]


class _MissingPage(BaseRoute):
    """Answers browsers at addresses that no other route has, whether of the dashboard or of the gateway."""

    def __init__(self, app: AccessCheck) -> None:
        self._app = app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """A partial match: any route that matches in full is preferred, wherever it stands."""
        is_page = scope["type"] == "http" and scope["method"] == "GET"
        is_page = is_page and "text/html" in Headers(scope=scope).get("accept", "")
        return (Match.PARTIAL if is_page else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the page for an unknown address."""
        await self._app(scope, receive, send)


def _links(sessions: LoginSessions) -> Callable[[Request], Awaitable[Response]]:
    """Route by which the command line gets a link that logs its user in."""

    async def answer(request: Request) -> Response:
        admitted = await sessions.admit_token(request.scope)
        if isinstance(admitted, RequestRefused):
            return Response(admitted.body, admitted.status, dict(admitted.headers))
        links = await sessions.links(token_in(request.scope) or "")
        return JSONResponse({"links": links}, headers={"Cache-Control": "no-store"})

    return answer


def _static(name: str, media_type: str) -> Answer:
    content = (files("fairlead.web") / "static" / name).read_bytes()

    async def answer(request: PageRequest) -> Response:
        headers = {"Cache-Control": "public, max-age=300"}
        return Response(content, media_type=media_type, headers=headers)

    return answer
