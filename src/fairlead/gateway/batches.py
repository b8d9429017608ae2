"""Batches of messages over HTTP, which only protocol version 2025-03-26 has.

Each message of a batch is handled as if it had come alone. The answers, and what servers send while the
requests run, go into one event stream, each as soon as it is there: a request that asks its client something
would otherwise wait for an answer to a question that is not sent yet. Over Streamable HTTP that stream is the
response to the batch, over HTTP+SSE the one that its client holds open.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio
from mcp_types import INVALID_REQUEST, JSONRPCRequest, RequestId
from starlette.types import Message, Receive, Scope, Send

from fairlead.gateway.access.auth import RATE, AuthenticatedRequest
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.access.rate_limit import RateLimit
from fairlead.gateway.client_session import ClientSession
from fairlead.gateway.sdk_server import ADMITTED
from fairlead.jsonrpc.incoming import MessageRefusal, read_part

BATCH_VERSION: Final = "2025-03-26"
_AT_ONCE: Final = 16
"""How many requests of a batch run at the same time."""
_RATE_LIMITED: Final = -32000
_ACCEPTED: Final = (b"application/json", b"text/event-stream")

HandleBody = Callable[[bytes, Scope, Receive, Send], Awaitable[None]]


class Listener(Protocol):
    """A client of the HTTP+SSE transport, for as long as it holds its event stream open."""

    client: ClientSession

    async def refuse(self, refusal: MessageRefusal) -> None:
        """Answer a message in its event stream that cannot be handled."""
        ...


async def answer_batch(
    parts: Sequence[bytes],
    client: ClientSession | None,
    handle: HandleBody,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Answer a batch, or refuse it as a whole where its session has another protocol version.

    Args:
        parts: Its messages.
        client: Whose session it came in, if in any.
        handle: Answers one message.
    """
    if refusal := _refuse_whole(parts, client):
        refused = RequestRefused(
            status=400, headers={"Content-Type": "application/json"}, body=refusal.encode()
        )
        await refused(scope, receive, send)
        return
    assert client is not None
    accept = dict(scope["headers"]).get(b"accept", b"")
    if not all(kind in accept for kind in _ACCEPTED):
        await RequestRefused.saying(406, "a client accepts both application/json and text/event-stream")(
            scope, receive, send
        )
        return
    stream = _EventStream(client.id.encode(), send)
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def run(part: bytes) -> None:
        async with limiter:
            await handle(part, scope, receive, _Response(stream).send)

    seen: set[RequestId] = set()
    async with anyio.create_task_group() as tasks:
        for part in parts:
            message = read_part(part)
            refusal = (
                message
                if isinstance(message, MessageRefusal)
                else await _refuse_request(message, seen, scope)
            )
            if refusal is not None:
                await stream.write_message(refusal.encode())
            elif message is not None:
                tasks.start_soon(run, part)
    await stream.end()


async def post_batch(
    parts: Sequence[bytes],
    listener: Listener | None,
    handle: HandleBody,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Take in a batch over the HTTP+SSE transport, whose answers go into its client's event stream.

    Args:
        parts: Its messages.
        listener: Whose session it came in, if in any.
        handle: Takes in one message.
    """
    if refusal := _refuse_whole(parts, listener.client if listener else None):
        refused = RequestRefused(
            status=400, headers={"Content-Type": "application/json"}, body=refusal.encode()
        )
        await refused(scope, receive, send)
        return
    assert listener is not None
    seen: set[RequestId] = set()
    for part in parts:
        message = read_part(part)
        refusal = (
            message if isinstance(message, MessageRefusal) else await _refuse_request(message, seen, scope)
        )
        if refusal is not None:
            await listener.refuse(refusal)
        elif message is not None:
            posted = _Posted()
            await handle(part, scope, receive, posted.send)
            if posted.status >= 400:  # the session is over, and so is what follows
                await RequestRefused(status=posted.status)(scope, receive, send)
                return
    await RequestRefused(status=202)(scope, receive, send)


class _Posted:
    """The response to one message of a batch that has no answer of its own."""

    def __init__(self) -> None:
        self.status = 500

    async def send(self, message: Message) -> None:
        """Take a part of the response, as an ASGI server would."""
        if message["type"] == "http.response.start":
            self.status = message["status"]


def _refuse_whole(parts: Sequence[bytes], client: ClientSession | None) -> MessageRefusal | None:
    if client is None or client.version != BATCH_VERSION:
        reason = f"only protocol version {BATCH_VERSION} has batches: send one message at a time"
        return MessageRefusal(code=INVALID_REQUEST, reason=reason)
    return None if parts else MessageRefusal(code=INVALID_REQUEST, reason="the batch is empty")


async def _refuse_request(message: object, seen: set[RequestId], scope: Scope) -> MessageRefusal | None:
    """Return why a request is not handled, if it is not. `seen` are the ids of those before it."""
    if not isinstance(message, JSONRPCRequest):
        return None
    if message.method == "initialize":
        return MessageRefusal(
            code=INVALID_REQUEST, reason="`initialize` is not part of a batch", id=message.id
        )
    if message.id in seen:
        return MessageRefusal(code=INVALID_REQUEST, reason="another request has this id", id=message.id)
    rate: RateLimit | None = scope.get(RATE)
    admitted: AuthenticatedRequest = scope[ADMITTED]
    # The first was counted when the HTTP request was let in.
    if seen and rate is not None and (wait := await rate.take(admitted.principal)):
        return MessageRefusal(
            code=_RATE_LIMITED, reason=f"too many requests: try again in {wait} s", id=message.id
        )
    seen.add(message.id)
    return None


class _EventStream:
    """The HTTP response to a batch: begun with the first answer, or 202 where nothing wants one."""

    def __init__(self, session_id: bytes, send: Send) -> None:
        self._send = send
        self._session_id = session_id
        self._is_begun = False
        self._writing = anyio.Lock()

    async def write_message(self, message: bytes) -> None:
        """Write a message as an event."""
        lines = b"".join(b"data: %b\n" % line for line in message.splitlines())
        await self.write(b"event: message\n%b\n" % lines)

    async def write(self, events: bytes) -> None:
        """Write whole events."""
        async with self._writing:
            if not self._is_begun:
                self._is_begun = True
                await self._begin(
                    200, (b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")
                )
            await self._send({"type": "http.response.body", "body": events, "more_body": True})

    async def end(self) -> None:
        """End the response."""
        if not self._is_begun:
            await self._begin(202, (b"content-length", b"0"))
        await self._send({"type": "http.response.body", "body": b""})

    async def _begin(self, status: int, *headers: tuple[bytes, bytes]) -> None:
        all_headers = [*headers, (b"mcp-session-id", self._session_id)]
        await self._send({"type": "http.response.start", "status": status, "headers": all_headers})


class _Response:
    """The response to one message of a batch, turned into events of the batch's stream."""

    def __init__(self, stream: _EventStream) -> None:
        self._stream = stream
        self._is_stream = False
        self._body = bytearray()

    async def send(self, message: Message) -> None:
        """Take a part of the response, as an ASGI server would."""
        if message["type"] == "http.response.start":
            headers: dict[bytes, bytes] = dict(message["headers"])
            self._is_stream = b"text/event-stream" in headers.get(b"content-type", b"")
            return
        body: bytes = message.get("body", b"")
        if self._is_stream:
            if body:
                await self._stream.write(body)
            return
        self._body += body
        if not message.get("more_body") and self._body.lstrip().startswith(b"{"):
            await self._stream.write_message(bytes(self._body))
