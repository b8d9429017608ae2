"""The HTTP+SSE transport of 2024-11-05: one event stream in, POST requests out."""

from types import TracebackType
from typing import Self

import aiohttp
from mcp.shared.dispatcher import CallOptions

from fairlead.connection.outcomes import (
    AnswerLost,
    AnswerTooLong,
    ConnectionEnding,
    HttpRejected,
    connection_trouble,
)
from fairlead.connection.transport.calls import Call
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.http_endpoint import (
    HeaderSource,
    HttpEndpoint,
    cancel_when_answered,
    escape_text,
    fixed_headers,
    is_stream,
    misfit,
    refusal,
)
from fairlead.connection.transport.inbox import MAX_INBOUND_REQUESTS
from fairlead.connection.transport.messages import notification_frame
from fairlead.connection.transport.pacing import FairReader, ReadPace
from fairlead.connection.transport.sse_parser import SseParser
from fairlead.jsonrpc.frames import too_long
from fairlead.jsonrpc.limits import MAX_LINE_BYTES, LineTooLong
from fairlead.net.ssrf import within_origin

_NO_OPTIONS: CallOptions = {}
_STREAM_HEADERS = {"Accept": "text/event-stream"}
_POST_HEADERS = {"Content-Type": "application/json"}


def is_fallback_worthy(failure: BaseException) -> bool:
    """Whether a URL that refused Streamable HTTP like this may speak the older transport instead.

    One that answers with a JSON-RPC error, at any status, speaks Streamable HTTP.
    """
    return isinstance(failure, HttpRejected) and failure.status in (400, 404, 405)


class SseDispatcher(WireDispatcher):
    """The conversation with a server at a URL. Enter it to open the stream, leave it to close it."""

    kind = "sse"

    def __init__(
        self,
        url: str,
        client: aiohttp.ClientSession,
        *,
        headers: HeaderSource | None = None,
        max_message_bytes: int = MAX_LINE_BYTES,
        max_inbound_requests: int = MAX_INBOUND_REQUESTS,
    ) -> None:
        super().__init__(max_inbound_requests=max_inbound_requests)
        self._source = HttpEndpoint(url, client, headers or fixed_headers({}))
        self._max_message_bytes = max_message_bytes
        self._events = SseParser(max_message_bytes, skips=True)
        self._response: aiohttp.ClientResponse
        self._reader: FairReader
        self._sink: HttpEndpoint | None = None

    async def __aenter__(self) -> Self:
        """Open the stream and wait until the server says where to post.

        For how long is for the caller to say. Raises `NotSent` or `RequestFailed`.
        """
        response = await self._source.request("GET", _STREAM_HEADERS)
        if response.status >= 300:
            raise await refusal(response, self._source.credential_origin)
        if not is_stream(response):
            raise misfit(response, "an event stream")
        self._response = response
        self._reader = FairReader(response.content, ReadPace(), lambda: len(self._calls) > 0)
        try:
            while self._sink is None:
                await self._hear()
        except LineTooLong as exc:
            raise AnswerTooLong(exc.limit) from exc
        finally:
            if self._sink is None:
                response.close()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the stream."""
        self._end(ConnectionEnding(kind="closed", message="the connection was closed"))
        self._response.close()

    def _end(self, ending: ConnectionEnding) -> None:
        super()._end(ending)
        if self._sink is not None:
            self._sink.close()

    # What we hear.

    async def _hear(self) -> None:
        """Take in what comes next. Raises `AnswerLost` at the end of it, `LineTooLong` past the limit."""
        try:
            piece = await self._reader.read()
        except aiohttp.ClientError as exc:
            raise AnswerLost(connection_trouble(exc)) from exc
        if not piece:
            raise AnswerLost("the server closed the stream")
        for event in self._events.feed(piece):
            answers = self._answers
            if event.name == "message" and event.is_too_long:
                self._handle(too_long(event.data, self._max_message_bytes))
            elif event.name == "message":
                self._receive(event.data)
            elif event.name == "endpoint" and self._sink is None:
                self._sink = self._endpoint_at(event.data.decode(errors="replace").strip())
            await self._reader.count_message(len(event.data), is_answer=self._answers > answers)

    def _endpoint_at(self, reference: str) -> HttpEndpoint:
        url = within_origin(self._source.url, reference)
        if url is None:
            message = f"the server names an endpoint of another origin, {escape_text(reference)!r}"
            raise HttpRejected(200, message, location=escape_text(reference))
        return self._source.at(url)

    def _start_receiving(self) -> None:
        self._tasks.start_soon(self._listen)

    async def _listen(self) -> None:
        try:
            while True:
                await self._hear()
        except AnswerLost as exc:
            self._end(ConnectionEnding(kind="hung_up", message=exc.message))
        except LineTooLong as exc:
            self._end(ConnectionEnding(kind="overflow", message=str(exc)))
        finally:
            self._response.close()

    # What we say.

    async def _send(self, call: Call, frame: bytes, opts: CallOptions) -> None:
        assert self._sink is not None
        with cancel_when_answered(call):
            response = await self._sink.request("POST", _POST_HEADERS, frame, call.begin_sending)
            if response.status >= 300:
                raise await refusal(
                    response,
                    self._sink.credential_origin,
                    request_id=call.id,
                    session_id=str(self._sink.url),
                )
            self._sink.let_go(response)

    async def post(self, frame: bytes, opts: CallOptions = _NO_OPTIONS) -> None:
        """Send a message that has no answer. The failure of one is no failure of the connection."""
        assert self._sink is not None
        await self._sink.tell(_POST_HEADERS, frame)

    def _cancel(self, call: Call, reason: str, opts: CallOptions) -> None:
        params = {"requestId": call.id, "reason": reason}
        self.post_now(notification_frame("notifications/cancelled", params))
