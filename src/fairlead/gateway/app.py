"""The gateway as an ASGI application: who comes in, and where they go."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from fairlead.errors import UnknownBundle
from fairlead.gateway.access import Access, Revoking, token_in
from fairlead.gateway.front import Front
from fairlead.gateway.handlers import ADMITTED
from fairlead.gateway.perimeter import Refused

if TYPE_CHECKING:
    from fairlead.gateway.endpoint import Endpoint
    from fairlead.gateway.gateway import Gateway

_MCP_PATHS = frozenset({"mcp", "sse", "messages"})


class GatewayApp:
    """Serves MCP at `/mcp` and `/mcp/<bundle>`, and to old clients at `/sse`; all else is for the routes."""

    def __init__(self, gateway: "Gateway", access: Access, routes: Sequence[BaseRoute]) -> None:
        self._gateway = gateway
        self._access = access
        self._front = Front(gateway.host.tracer)
        self._others = Starlette(routes=[*routes])
        if isinstance(access, Revoking):
            gateway.tasks.start_soon(gateway.end_revoked, access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        kind, _, bundle = scope["path"].strip("/").partition("/")
        if kind not in _MCP_PATHS or "/" in bundle:
            await self._others(scope, receive, send)
            return
        admitted = await self._access.admit(scope)
        if isinstance(admitted, Refused):
            await admitted(scope, receive, send)
            return
        scope[ADMITTED] = admitted
        if scope["method"] == "GET":
            with self._gateway.streams.opened(token_in(scope)):
                await self._handle(kind, bundle, scope, receive, send)
        else:
            await self._handle(kind, bundle, scope, receive, send)

    async def _handle(self, kind: str, bundle: str, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._gateway.opened(bundle or None) or await self._opened(bundle or None)
        if endpoint is None:
            await Refused.saying(404, f"there is no bundle `{bundle}`")(scope, receive, send)
        elif kind == "mcp":
            await self._front.handle(endpoint, scope, receive, send)
        elif kind == "sse" and scope["method"] == "GET":
            await endpoint.handle_sse(scope, receive, send)
        elif kind == "messages":
            await self._front.handle_message(endpoint, scope, receive, send)
        else:
            await Refused.saying(405, "only GET begins a stream", {"Allow": "GET"})(scope, receive, send)

    async def _opened(self, bundle: str | None) -> "Endpoint | None":
        try:
            return await self._gateway.endpoint(bundle)
        except UnknownBundle:
            return None
