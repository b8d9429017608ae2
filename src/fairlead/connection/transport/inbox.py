"""The inbox of a connection: requests and notifications of a server, with bounded queues."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Protocol, cast

import anyio
import anyio.abc
import msgspec
from mcp.shared.dispatcher import (
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    Outbound,
    run_notify_intercept,
)
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import (
    cancelled_request_id_from_params,
    handler_exception_to_error_data,
    progress_token_from_params,
)
from mcp.shared.transport_context import TransportContext
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ProgressToken, RequestId

from fairlead.connection.transport.messages import PendingRequests, error_frame, object_of, result_frame
from fairlead.jsonrpc.limits import MAX_REQUEST_VALUES

logger = logging.getLogger(__name__)

MAX_INBOUND_REQUESTS = 64
"""How many of a server's own requests are worked on at once; more are refused."""

MAX_WAITING_NOTIFICATIONS = 1_000
MAX_WAITING_NOTIFICATION_BYTES = 8 * 1024 * 1024


class Inbound:
    """The SDK's `DispatchContext` of one message the server sent on its own."""

    message_metadata = None

    def __init__(
        self,
        peer: Outbound,
        transport: TransportContext,
        request_id: RequestId | None = None,
        progress_token: ProgressToken | None = None,
    ) -> None:
        self.transport = transport
        self.request_id = request_id
        self.cancel_requested = anyio.Event()  # of the SDK's interface
        self.scope = anyio.CancelScope()
        self._peer = peer
        self._progress_token = progress_token
        self._open = True

    @property
    def can_send_request(self) -> bool:
        """Whether requests can still be sent to the server while this message is handled."""
        return self._open and self.transport.can_send_request

    def cancel(self) -> None:
        """Stop working on the request: the server does not want the answer any more."""
        self.cancel_requested.set()
        self.scope.cancel()

    def close(self) -> None:
        """End the message: nothing more is sent in its name."""
        self._open = False

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Ask the server something while its own request is being handled."""
        if not self.can_send_request:
            raise NoBackChannelError(method)
        return await self._peer.send_raw_request(method, params, opts)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification while a request of the server is being handled."""
        if self._open:
            await self._peer.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the server sent a progress token."""
        if self._progress_token is not None:
            report = {"progressToken": self._progress_token, "progress": progress}
            optional = {"total": total, "message": message}
            report |= {key: value for key, value in optional.items() if value is not None}
            await self.notify("notifications/progress", report)


class NotificationQueue:
    """Notifications waiting for their handler, in order.

    Equal ones that wait are one, so a server that says 20,000 times that its list changed says it once; and
    where even different ones come faster than they are handled, the oldest are dropped.
    """

    def __init__(self) -> None:
        # As bytes: decoded, they can take thirty times as much memory.
        self._waiting: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._bytes = 0
        self._dropped = 0
        self._filled = asyncio.Event()

    def put(self, method: str, raw: bytes) -> None:
        """Add a notification; `raw` are its parameters as they came."""
        key = (method, raw)
        if key in self._waiting:
            return
        self._waiting[key] = None
        self._bytes += len(method) + len(raw)
        while len(self._waiting) > MAX_WAITING_NOTIFICATIONS or (
            self._bytes > MAX_WAITING_NOTIFICATION_BYTES and len(self._waiting) > 1
        ):
            method, _ = self._pop()
            self._dropped += 1
            if self._dropped == 1:
                logger.warning("notifications are dropped: they come too fast", extra={"method": method})
        self._filled.set()

    async def get(self) -> tuple[str, bytes]:
        """Wait for the next notification."""
        while not self._waiting:
            self._dropped = 0
            self._filled.clear()
            await self._filled.wait()
        return self._pop()

    def _pop(self) -> tuple[str, bytes]:
        (method, raw), _ = self._waiting.popitem(last=False)
        self._bytes -= len(method) + len(raw)
        return method, raw


class MessageSender(Outbound, Protocol):
    """The part of a connection that the inbox uses."""

    async def post(self, frame: bytes) -> None:
        """Send a message, as soon as the server takes it."""
        ...

    def post_now(self, frame: bytes) -> None:
        """Send a message without waiting, or drop it where the server does not keep up."""
        ...


class Inbox:
    """Works on what the server sends on its own, with the handlers the session gave.

    All of it is called in a task, never in a callback of the event loop: it and the SDK's handlers use anyio,
    which does not work outside of tasks.
    """

    def __init__(
        self,
        peer: MessageSender,
        kind: str,
        tasks: anyio.abc.TaskGroup,
        handlers: tuple[OnRequest, OnNotify, OnNotifyIntercept | None],
        max_requests: int,
    ) -> None:
        self._peer = peer
        self._transport = TransportContext(kind=kind, can_send_request=True)
        self._tasks = tasks
        self._on_request, self._on_notify, self._intercept = handlers
        self._max_requests = max_requests
        self._requests: PendingRequests[Inbound] = PendingRequests()
        self._notifications = NotificationQueue()
        tasks.start_soon(self._handle_notifications)

    def handle_notification(self, method: str, raw: bytes, params: Mapping[str, Any] | None) -> None:
        """Take in a notification."""
        if method == "notifications/cancelled":
            request_id = cancelled_request_id_from_params(params)
            inbound = None if request_id is None else self._requests.get(request_id)
            if inbound is not None:
                inbound.cancel()
        if not run_notify_intercept(self._intercept, method, params):
            self._notifications.put(method, raw)

    async def _handle_notifications(self) -> None:
        context = Inbound(self._peer, self._transport)
        while True:
            method, raw = await self._notifications.get()
            try:
                await self._on_notify(context, method, object_of(msgspec.Raw(raw)) if raw else None)
            except Exception:
                logger.exception("a notification handler raised", extra={"method": method})

    def handle_request(self, request_id: RequestId | float, method: str, raw: msgspec.Raw) -> None:
        """Take in a request, or refuse it."""
        if len(self._requests) >= self._max_requests or self._requests.get(request_id) is not None:
            self.refuse(request_id, INTERNAL_ERROR, "too many requests at once")
            return
        try:
            params = object_of(raw, max_values=MAX_REQUEST_VALUES) if raw else None
        except ValueError:
            self.refuse(request_id, INVALID_PARAMS, "the parameters cannot be read")
            return
        token = progress_token_from_params(params)
        inbound = Inbound(self._peer, self._transport, cast("RequestId", request_id), token)
        self._requests.add(request_id, inbound)
        self._tasks.start_soon(self._answer, inbound, request_id, method, params)

    def refuse(self, request_id: RequestId | float, code: int, message: str) -> None:
        """Answer a request with an error, without handling it."""
        self._peer.post_now(error_frame(request_id, code, message))

    async def _answer(
        self, inbound: Inbound, request_id: RequestId | float, method: str, params: Mapping[str, Any] | None
    ) -> None:
        frame: bytes | None = None
        try:
            try:
                with inbound.scope:
                    frame = await self._answer_frame(inbound, request_id, method, params)
            finally:
                inbound.close()
            # A server that cancelled its request is owed no answer, and must not get one.
            if frame is not None and not inbound.cancel_requested.is_set():
                await self._peer.post(frame)
        finally:
            # Not before its answer is on its way: a server that asks faster than it takes answers would have
            # them pile up without a limit.
            self._requests.remove(request_id)

    async def _answer_frame(
        self, inbound: Inbound, request_id: RequestId | float, method: str, params: Mapping[str, Any] | None
    ) -> bytes:
        try:
            return result_frame(request_id, await self._on_request(inbound, method, params))
        except Exception as exc:
            error = handler_exception_to_error_data(exc)
            if error is None:
                logger.exception("a request handler raised", extra={"method": method})
                return error_frame(request_id, INTERNAL_ERROR, "internal error")
            return error_frame(request_id, error.code, error.message, error.data)
