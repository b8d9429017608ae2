"""Event streams of handshake clients: their latest events, and how messages are written into them.

A request's stream begins with its first message. Where that is the answer, there is no stream: the answer is
sent as JSON, which has no limit of size in any client.
"""

import re
import secrets
from collections import deque
from collections.abc import Callable
from itertools import count
from types import TracebackType
from typing import Any, Final, cast

import msgspec
from mcp.server.streamable_http import (
    EventCallback,
    EventId,
    EventMessage,
    EventStore,
    StreamableHTTPServerTransport,
    StreamId,
)
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCNotification
from msgspec import UNSET, UnsetType
from starlette.types import Message, Scope, Send

from fairlead.gateway.client_session import ClientSession
from fairlead.jsonrpc.incoming import MessageRefusal

MAX_KEPT: Final = 256


class EventLog(EventStore):
    """The latest events of one session, in memory."""

    def __init__(self, *, kept: int = MAX_KEPT) -> None:
        self._events: deque[tuple[int, StreamId, JSONRPCMessage | None]] = deque(maxlen=kept)
        self._count = 0

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event, and name it."""
        self._count += 1
        self._events.append((self._count, stream_id, message))
        return str(self._count)

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        """Send what came on the same stream after an event. None where that event is forgotten."""
        stream = next((name for number, name, _ in self._events if str(number) == last_event_id), None)
        if stream is None:
            return None
        last = int(last_event_id)
        for number, name, message in [*self._events]:
            if name == stream and number > last and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def write_event(message: JSONRPCMessage, event_id: str | None = None) -> bytes:
    """A message as an event.

    `sse_starlette` splits the lines of its data with a regular expression, which takes 75 ms for 8 MB. JSON
    as it is written here has no line breaks.
    """
    data = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    name = b"id: %b\r\n" % event_id.encode() if event_id else b""
    return b"".join((name, _MESSAGE, data, _END))


_MESSAGE: Final = b"event: message\r\ndata: "
_END: Final = b"\r\n\r\n"
_LONGEST_HEAD: Final = 200
"""Within so many bytes an event's data begin: its id is a number."""
_PING: Final = b": ping"
_OF_STREAMS: Final = frozenset(
    {b"content-type", b"content-length", b"cache-control", b"connection", b"x-accel-buffering"}
)
"""Headers of an event stream that its answer does not have as JSON."""
_TO_COME: Final = "fairlead.answer_to_come"
"""The key of an ASGI scope under which the `AnswerToCome` of its request is."""


class _MessageHead(msgspec.Struct):
    method: str | UnsetType = UNSET


_decode_head = msgspec.json.Decoder(_MessageHead).decode


class AnswerToCome:
    """The response to a request of a session: an event stream if anything is sent before the answer.

    Until then the head of the stream, and the event that only names it, are held back. A ping begins the
    stream as well, so that no proxy takes a long call for a dead one.
    """

    def __init__(self, send: Send) -> None:
        """Send the response to `send`."""
        self._send = send
        self._held: list[Message] = []
        self._answer: bytes | None = None
        self._is_stream = False
        self._is_promised = False

    def promise_json(self) -> bool:
        """Have the answer sent as JSON, if nothing comes before it. Returns False if the stream has begun."""
        self._is_promised = not self._is_stream
        return self._is_promised

    async def send(self, message: Message) -> None:
        """Take a part of the response as the SDK sends it."""
        body: bytes = message.get("body", b"")
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if self._is_stream:
            await self._send(message)
        elif self._answer is not None:
            if is_last:  # nothing but pings comes between the answer and the end
                await self._send_answer(self._answer)
        elif (answer := _answer_in(body)) is not None:
            self._answer = answer
        elif not (self._is_promised and body.startswith(_PING)):
            self._held.append(message)
            if is_last or _begins_stream(message, body):
                self._is_stream = True
                for held in self._held:
                    await self._send(held)

    async def _send_answer(self, answer: bytes) -> None:
        start, *_ = self._held
        headers = [header for header in start["headers"] if header[0].lower() not in _OF_STREAMS]
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer})


def _answer_in(event: bytes) -> bytes | None:
    """The message of an event that `write_event` made, if that is an answer."""
    at = event.find(_MESSAGE, 0, _LONGEST_HEAD)
    if at < 0:
        return None
    message = event[at + len(_MESSAGE) : -len(_END)]
    return message if _decode_head(message).method is UNSET else None


def _begins_stream(message: Message, body: bytes) -> bool:
    """Whether a part of a response cannot wait: a ping, a message, or the head of what is no event stream."""
    if message["type"] == "http.response.start":
        return not any(value.startswith(b"text/event-stream") for _, value in message["headers"])
    return body.startswith(_PING) or body.find(_MESSAGE, 0, _LONGEST_HEAD) >= 0


def hold_answer(scope: Scope, send: Send) -> Send:
    """Hold back the event stream of a request until something comes before its answer. Returns the `send`."""
    if scope["method"] != "POST":
        return send
    scope[_TO_COME] = to_come = AnswerToCome(send)
    return to_come.send


def promise_json(scope: Scope) -> bool:
    """Have the answer to a request sent as JSON, if its event stream has not begun. Returns whether it is."""
    to_come: AnswerToCome | None = scope.get(_TO_COME)
    return to_come is not None and to_come.promise_json()


class SessionTransport(StreamableHTTPServerTransport):
    """The SDK's transport of a handshake session; its events are written here."""

    def _create_event_data(self, event_message: EventMessage) -> dict[str, Any]:
        # Typed as the fields of an event; bytes are an event that is written already.
        return cast("dict[str, Any]", write_event(event_message.message, event_message.event_id))


_SESSION_ID: Final = re.compile(rb"\bsession_id=([0-9a-f]{32})\b")


class SseListener:
    """A client of the HTTP+SSE transport, and the event stream that it holds open.

    It is the SDK's stream of messages to the client as well. The SDK writes a placeholder for each of them,
    which becomes the event where the bytes of the stream pass by.
    """

    def __init__(self, client: ClientSession, send: Send, seal: Callable[[bytes], str | None]) -> None:
        """Pass its events to `send`. `seal` makes the `session_id` that it gets, where it is not its own."""
        self.client = client
        self._seal = seal
        self.session_id: str | None = None
        """The `session_id` of its messages here, which the first event names."""
        self._send = send
        self._sent: Any = None
        self._placeholder = f"fairlead/{secrets.token_hex(16)}/"
        self._placeholders = re.compile(rb"%b(\d+)" % self._placeholder.encode())
        self._numbers = count()
        self._events: dict[int, bytes] = {}
        """Events whose placeholders are on their way, by number."""

    def write_to(self, sent: Any) -> None:  # noqa: ANN401 - the SDK's stream, which has no public name
        """Write messages to the SDK's stream from now on."""
        self._sent = sent

    async def send(self, item: SessionMessage) -> None:
        """Send the client a message."""
        number = next(self._numbers)
        self._events[number] = write_event(item.message)
        placeholder = JSONRPCNotification(jsonrpc="2.0", method=f"{self._placeholder}{number}")
        await self._sent.send(SessionMessage(placeholder, metadata=item.metadata))

    async def refuse(self, refusal: MessageRefusal) -> None:
        """Answer a message in its event stream that cannot be handled."""
        error = ErrorData(code=refusal.code, message=refusal.reason)
        request_id = None if isinstance(refusal.id, float) else refusal.id
        await self.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error)))

    async def aclose(self) -> None:
        """End the stream of messages."""
        await self._sent.aclose()

    async def __aenter__(self) -> "SseListener":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def send_part(self, message: Message) -> None:
        """Send a part of the HTTP response, and learn from the first event what the session is called."""
        body: bytes = message.get("body", b"")
        if self.session_id is None and (found := _SESSION_ID.search(body)):
            self.session_id = named = found[1].decode()
            if sealed := self._seal(bytes.fromhex(named)):
                message = {**message, "body": body.replace(found[1], sealed.encode())}
        elif found := self._placeholders.search(body):
            number = int(found[1])
            message = {**message, "body": self._events.pop(number)}
            # The stream keeps the order: those before it were cancelled on their way.
            for cancelled in [earlier for earlier in self._events if earlier < number]:
                del self._events[cancelled]
        await self._send(message)
