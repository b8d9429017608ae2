"""An application with the perimeter around it."""

from typing import Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.gateway.access import SCREENED, Gatekeeper
from fairlead.gateway.perimeter import MAX_BODY_BYTES, too_large

RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"


class GuardedApp:
    """Keeps requests from the wrong place away from an application, and ends bodies that go past the limit.

    It also publishes where clients get their tokens, where they log in for them.
    """

    def __init__(self, app: ASGIApp, gatekeeper: Gatekeeper, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._gatekeeper = gatekeeper
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif refused := self._gatekeeper.screen(scope):
            await refused(scope, receive, send)
        elif scope["path"].startswith(RESOURCE_METADATA) and self._gatekeeper.resource_metadata:
            await JSONResponse(self._gatekeeper.resource_metadata)(scope, receive, send)
        elif self._is_within_limits(scope):
            await self._app(scope, receive, send)
        else:
            await self._pass_on(scope, receive, send)

    def _is_within_limits(self, scope: Scope) -> bool:
        """Does it say how long its body is, and keep within the limit? Then nobody has to count."""
        length = scope[SCREENED].get(b"content-length")
        return length is not None and int(length) <= self._max_body_bytes

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(receive, send, self._max_body_bytes)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.is_cut_off:  # who was answered already may fail as it likes
                raise
        if exchange.is_cut_off and not exchange.has_begun:
            await too_large(self._max_body_bytes)(scope, receive, send)


class _Exchange:
    """A request on its way in, up to a limit. To the application, one past it is a client that went away."""

    def __init__(self, receive: Receive, send: Send, limit: int) -> None:
        self._receive = receive
        self._send = send
        self._left = limit
        self.is_cut_off = False
        self.has_begun = False

    async def receive(self) -> Message:
        """Hand on the next part."""
        if self.is_cut_off:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        self.is_cut_off = self._left < 0
        return {"type": "http.disconnect"} if self.is_cut_off else message

    async def send(self, message: Message) -> None:
        """Hand on the answer, unless nobody wants it any more."""
        if self.is_cut_off and not self.has_begun:
            return
        self.has_begun = True
        await self._send(message)
