"""Fast path of uvicorn's connections: whole HTTP requests and responses, without its steps in between.

A small request comes in one packet, and its response leaves in one. By ASGI alone, each takes several
messages, which uvicorn checks anew: that is more than all else that a gateway does with most of them. What is
unusual in any way, or another server's, goes by ASGI.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Send

_SMALL_BYTES: Final = 16 * 1024
"""A body that is copied, so that it and its head are one write of one part."""


class PacketTransport:
    """Transport that sends a response's head and the body that follows in one packet rather than two.

    Each costs a system call, and wakes up the client.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data; a head with a content length is held back for the body, which comes next."""
        if self._head and data:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif self._head:
            self.flush()
        elif data.startswith(b"HTTP/1.1 ") and b"\r\ncontent-length: " in data:
            self._head = data
        else:
            self._transport.write(data)

    def write_response(self, head: bytes, body: bytes) -> None:
        """Send a whole response."""
        if len(body) <= _SMALL_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def close(self) -> None:
        """Close once everything is sent."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send what is held back: a response may have no body, although its head says so."""
        # By itself: an empty part of several is never sent by asyncio since Python 3.12; it tries for ever.
        head, self._head = self._head, b""
        if head:
            self._transport.write(head)


async def read_body(receive: "Receive") -> bytes | None:
    """Read the body of a request, which is limited elsewhere; None where the client disconnected."""
    cycle = getattr(receive, "__self__", None)
    if type(cycle) is RequestResponseCycle and _has_whole_body(cycle):
        body = bytes(cycle.body)
        cycle.body.clear()
        cycle.message_event.clear()  # the next thing to hear of is that the client disconnected
        cycle.flow.resume_reading()
        return body
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


def _has_whole_body(cycle: RequestResponseCycle) -> bool:
    is_whole = bool(cycle.body) and not cycle.more_body
    return is_whole and not (cycle.disconnected or cycle.response_complete or cycle.waiting_for_100_continue)


async def send_response(send: "Send", status: int, head: bytes, body: bytes) -> None:
    r"""Send a response whose body is there as a whole, with one write where that can be done.

    Args:
        send: Where it goes, by ASGI.
        status: Its status.
        head: Its headers without the content length, each with `\r\n`, names in lower case. They are sent as
            they are: no part of them may be a client's or a server's.
        body: Its body.
    """
    cycle: Any = getattr(send, "__self__", None)
    if type(cycle) is not RequestResponseCycle or not _takes_whole_response(cycle):
        headers = [(b"content-length", b"%d" % len(body))]
        for line in head.splitlines():
            name, _, value = line.partition(b": ")
            headers.append((name, value))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    # What `RequestResponseCycle.send` does for a start and the only part of a body.
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    lines = [STATUS_LINE[status]]
    for header in cycle.default_headers:
        lines.append(b"%b: %b\r\n" % header)  # noqa: PERF401 - a comprehension would be one more frame
    lines.append(b"%bcontent-length: %d\r\n\r\n" % (head, len(body)))
    transport: Any = cycle.transport
    transport.write_response(b"".join(lines), body)
    cycle.message_event.set()
    cycle.on_response()


def _takes_whole_response(cycle: RequestResponseCycle) -> bool:
    is_unusual = cycle.response_started or cycle.disconnected or not cycle.keep_alive or cycle.access_log
    transport: Any = cycle.transport
    is_held_up = cycle.flow.write_paused or not isinstance(transport, PacketTransport)
    return not (is_unusual or is_held_up or cycle.scope["method"] == "HEAD")


def close_connection_after(send: "Send") -> "Send":
    """Have a connection closed after its response: the client's next request goes to another process."""

    async def send_closing(message: "Message") -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"connection"]
            message = {**message, "headers": [*kept, (b"connection", b"close")]}
        await send(message)

    return send_closing


def replay_body(body: bytes, receive: "Receive") -> "Receive":
    """Return a `receive` that brings a body which was read already."""
    is_read = False

    async def again() -> "Message":
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
