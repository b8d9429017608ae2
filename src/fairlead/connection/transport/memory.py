"""The in-memory transport: a server in this process, with the same messages as over a pipe."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.server import Server
from mcp.server.runner import modern_on_request
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.transport_context import TransportContext
from mcp_types import RequestId

from fairlead.connection.outcomes import ConnectionEnding
from fairlead.connection.peer import CALLER, IS_AGENT, RequestOrigin
from fairlead.connection.transport.calls import Call
from fairlead.connection.transport.dispatcher import MAX_INBOUND_REQUESTS, WireDispatcher
from fairlead.connection.transport.messages import notification_frame

_MAX_CALLS = 10_000
_NO_OPTIONS: CallOptions = {}


class MemoryEnd(WireDispatcher):
    """One of two ends; what one sends, the other gets. Join them before use."""

    kind = "memory"

    def __init__(self, *, max_inbound_requests: int = MAX_INBOUND_REQUESTS) -> None:
        super().__init__(max_inbound_requests=max_inbound_requests)
        self._other: MemoryEnd

    def join(self, other: "MemoryEnd") -> None:
        """Connect two ends."""
        self._other, other._other = other, self

    def _send(self, call: Call, frame: bytes, opts: CallOptions) -> None:
        call.require_decision()
        call.sent = True
        self._pass_on(frame)

    async def post(self, frame: bytes, opts: CallOptions = _NO_OPTIONS) -> None:
        """Send a message."""
        self._pass_on(frame)

    def post_now(self, frame: bytes) -> None:
        """Send a message."""
        self._pass_on(frame)

    def _cancel(self, call: Call, reason: str, opts: CallOptions) -> None:
        params = {"requestId": call.id, "reason": reason}
        self._pass_on(notification_frame("notifications/cancelled", params))

    def _pass_on(self, frame: bytes) -> None:
        # Later, not now: no end is to find itself called from within its own call.
        self._loop.call_soon(self._other._receive_soon, (frame,))

    def _end(self, ending: ConnectionEnding) -> None:
        super()._end(ending)
        if self._other.ending is None:
            self._other._end(
                ConnectionEnding(kind="hung_up", message="the server closed its end of the connection")
            )


class MemoryDispatcher(MemoryEnd):
    """A server in this process, spoken to with the stateless protocol.

    Its handlers run for the client that a request is made for (`CALLER`), as the host's own code does. Enter
    it to start the server's lifespan, leave it to end it.
    """

    def __init__(self, server: Server[Any]) -> None:
        super().__init__()
        self._server = server
        self._stack = AsyncExitStack()
        self._origins: dict[RequestId, tuple[RequestOrigin | None, bool]] = {}
        """Whom requests are made for that no handler has yet, by id."""

    async def __aenter__(self) -> Self:
        """Start the server."""
        end = MemoryEnd(max_inbound_requests=_MAX_CALLS)
        self.join(end)
        async with AsyncExitStack() as stack:
            state = await stack.enter_async_context(self._server.lifespan(self._server))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            handle = modern_on_request(self._server, state)

            async def on_request(
                context: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
            ) -> dict[str, Any]:
                # In a task of its own, so that nothing has to be set back.
                caller, is_agent = self._origins.pop(context.request_id or 0, (None, False))
                CALLER.set(caller)
                IS_AGENT.set(is_agent)
                return await handle(context, method, params)

            await tasks.start(end.run, on_request, _ignore)
            self._stack = stack.pop_all()
        return self

    def _send(self, call: Call, frame: bytes, opts: CallOptions) -> None:
        if len(self._origins) == _MAX_CALLS:  # some were refused, and so reached no handler
            del self._origins[next(iter(self._origins))]
        self._origins[call.id] = (CALLER.get(), IS_AGENT.get())
        super()._send(call, frame, opts)

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the server and what it is working on."""
        self._end(ConnectionEnding(kind="closed", message="the connection was closed"))
        await self._stack.aclose()


async def _ignore(context: DispatchContext[TransportContext], method: str, params: object) -> None:
    """Ignore a notification: a stateless client sends none except a cancellation."""
