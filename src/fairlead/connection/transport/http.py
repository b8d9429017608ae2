"""The Streamable HTTP transport: every request is a POST, answered with JSON or an event stream.

Up to 2025-11-25 a server may also keep a session, speak on a stream of its own, and resume a stream that
broke off. From 2026-07-28 on there is none of that, and closing a POST is how it is cancelled.
"""

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fairlead.connection.outcomes import (
    AnswerLost,
    AnswerTooLong,
    AnswerUnreadable,
    ConnectionEnding,
    HttpRejected,
    NotSent,
    Unreachable,
    connection_trouble,
)
from fairlead.connection.transport.calls import Call
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.http_endpoint import (
    EXCHANGE_FAILURES,
    HeaderSource,
    HttpEndpoint,
    cancel_when_answered,
    fixed_headers,
    is_stream,
    misfit,
    read_body,
    refusal,
)
from fairlead.connection.transport.inbox import MAX_INBOUND_REQUESTS
from fairlead.connection.transport.messages import notification_frame
from fairlead.connection.transport.pacing import FairReader, ReadPace
from fairlead.connection.transport.sse_parser import SseParser
from fairlead.jsonrpc.frames import Frame, UnusableLine, parse
from fairlead.jsonrpc.limits import MAX_LINE_BYTES, LineTooLong

logger = logging.getLogger(__name__)

MAX_RETRY_SECONDS = 30.0
"""The longest a server can make us wait before a stream is resumed."""

_RETRY_SECONDS = 0.5
_MIN_RETRY_SECONDS = 0.1
_RESUME_ATTEMPTS = 3
_LISTEN_SECONDS = 1.0
_GOODBYE_SECONDS = 2.0
_GONE = -1

_SESSION_ID = "Mcp-Session-Id"
_NO_OPTIONS: CallOptions = {}
_POST_HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_STREAM_HEADERS = {"Accept": "text/event-stream"}


class HttpDispatcher(WireDispatcher):
    """The conversation with a server at a URL. Leave it to end the session the server may keep.

    An answer is read in the task that waits for it.
    """

    kind = "streamable-http"

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
        self.session_id: str | None = None
        self._endpoint = HttpEndpoint(url, client, headers or fixed_headers({}))
        self._max_message_bytes = max_message_bytes
        self._version: str | None = None
        self._listening = anyio.CancelScope()
        self._listening_pace = ReadPace()  # of the server's own stream, however often it is opened

    async def __aenter__(self) -> Self:
        """Nothing is sent yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Send the DELETE request that ends the session, in bounded time."""
        self._end(ConnectionEnding(kind="closed", message="the connection was closed"))
        if self.session_id is None:
            return
        with anyio.move_on_after(_GOODBYE_SECONDS, shield=True):
            try:
                response = await self._endpoint.request("DELETE", self._headers(_STREAM_HEADERS))
                response.close()
            except EXCHANGE_FAILURES as failure:
                logger.debug("a session could not be ended", extra={"reason": str(failure)})

    def _end(self, ending: ConnectionEnding) -> None:
        super()._end(ending)
        self._endpoint.close()

    # What we send.

    def _headers(self, base: Mapping[str, str], opts: CallOptions = _NO_OPTIONS) -> dict[str, str]:
        headers = dict(base)
        if self.session_id is not None:
            headers[_SESSION_ID] = self.session_id
        if self._version is not None:
            headers[MCP_PROTOCOL_VERSION_HEADER] = self._version
        return headers | opts.get("headers", {})

    async def _send(self, call: Call, frame: bytes, opts: CallOptions) -> None:
        if call.method == "initialize":
            # What an earlier session or a probe for the protocol's version left behind ends here.
            self.session_id = self._version = None
            self._listening.cancel()
        elif (version := _version(opts)) is not None:
            self._version = version
        with cancel_when_answered(call):
            try:
                await self._ask(call, frame, opts)
            except NotSent as exc:
                if call.method != "subscriptions/listen":
                    raise
                # The SDK's session ends altogether if a subscription fails with anything but an `MCPError`.
                raise AnswerLost(str(exc), "not_sent") from exc

    async def _ask(self, call: Call, frame: bytes, opts: CallOptions) -> None:
        headers = self._headers(_POST_HEADERS, opts)
        events = SseParser(self._max_message_bytes, last_id=opts.get("resumption_token", ""))
        if events.last_id:
            call.sent = True
            await self._read_stream(call, await self._resume(events, pause=False), events, opts)
            return
        response = await self._endpoint.request("POST", headers, frame, call.begin_sending)
        if response.status >= 300:
            raise await refusal(
                response,
                self._endpoint.credential_origin,
                request_id=call.id,
                session_id=headers.get(_SESSION_ID),
            )
        if call.method == "initialize":
            self.session_id = response.headers.get(_SESSION_ID)
        if is_stream(response):
            await self._read_stream(call, response, events, opts)
        elif response.status == 202:
            response.close()
            raise HttpRejected(202, "the server accepted the request and gave no answer")
        elif "json" in response.headers.get("Content-Type", "json").lower():
            await self._read_body(call, response)
        else:
            raise misfit(response, "JSON")

    async def post(self, frame: bytes, opts: CallOptions = _NO_OPTIONS) -> None:
        """Send a message that has no answer. The failure of one is no failure of the connection."""
        self._version = _version(opts) or self._version
        if self._version in MODERN_PROTOCOL_VERSIONS and not opts:
            return  # There, a client sends nothing but requests of its own.
        await self._endpoint.tell(self._headers(_POST_HEADERS, opts), frame)

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification. After the one that opens a session, listen to what the server has to say."""
        await super().notify(method, params, opts)
        if method == "notifications/initialized" and self.session_id is not None and self._running:
            # What the server says before it is listened to is lost. Yet some let a listener know only with
            # their first message, so this does not wait for long.
            opened = asyncio.Event()
            self._listening = anyio.CancelScope()
            self._tasks.start_soon(self._listen, self._listening, opened)
            with anyio.move_on_after(_LISTEN_SECONDS):
                await opened.wait()

    def _cancel(self, call: Call, reason: str, opts: CallOptions) -> None:
        resumable = "resumption_token" in opts or "on_resumption_token" in opts
        if (_version(opts) or self._version) not in MODERN_PROTOCOL_VERSIONS and not resumable:
            params = {"requestId": call.id, "reason": reason}
            self.post_now(notification_frame("notifications/cancelled", params))

    # What we get.

    def _receive_for(self, call: Call | None, message: bytes | bytearray) -> None:
        """Take in a message from the response to `call`, or from the server's own stream.

        A response answers its own request and no other: a server or proxy that crosses its replies costs an
        error, and never brings one caller what was meant for another. The server's own stream answers none.
        """
        for item in parse(message):
            answers = item.answers if isinstance(item, UnusableLine) else None if item.method else item.id
            if answers is None or (call is not None and self._calls.get(answers) is call):
                self._handle(item)
            else:
                logger.debug("an answer came where its request was not made")

    async def _read_body(self, call: Call, response: aiohttp.ClientResponse) -> None:
        body = await read_body(response, self._max_message_bytes)
        self._receive_for(call, body)
        if not call.answer.done():
            call.settle(_read_unmatched_answer(body))

    async def _read_stream(
        self, call: Call, response: aiohttp.ClientResponse, events: SseParser, opts: CallOptions
    ) -> None:
        """Take in a stream until it brings the answer, resuming it where it breaks off if it can be."""
        resumable = (_version(opts) or self._version) not in MODERN_PROTOCOL_VERSIONS
        try:
            await self._follow(response, events, call, opts)
            while not call.answer.done():
                if not (resumable and events.last_id):
                    raise AnswerLost("the stream ended without the answer")
                await self._follow(await self._resume(events), events, call, opts)
        except LineTooLong as exc:
            raise AnswerTooLong(exc.limit) from exc

    async def _resume(self, events: SseParser, *, pause: bool = True) -> aiohttp.ClientResponse:
        for _ in range(_RESUME_ATTEMPTS):
            if pause:
                await anyio.sleep(_retry_seconds(events))
            pause = True
            try:
                response = await self._open_stream(events)
            except Unreachable as exc:
                raise AnswerLost(f"the server went away: {exc}") from exc
            except EXCHANGE_FAILURES as exc:
                logger.debug("a stream could not be resumed", extra={"reason": str(exc)})
                continue
            if is_stream(response):
                return response
            response.close()
            if response.status < 500:
                break
        raise AnswerLost("the stream ended without the answer and could not be resumed")

    async def _open_stream(self, events: SseParser) -> aiohttp.ClientResponse:
        headers = self._headers(_STREAM_HEADERS)
        if events.last_id:
            headers["Last-Event-ID"] = events.last_id
        return await self._endpoint.request("GET", headers)

    async def _follow(
        self,
        response: aiohttp.ClientResponse,
        events: SseParser,
        call: Call | None = None,
        opts: CallOptions = _NO_OPTIONS,
    ) -> bool:
        """Take in a stream until it ends or brings the answer to `call`. Return whether anything came."""
        events.restart()
        on_token, token = opts.get("on_resumption_token"), events.last_id
        heard = is_left = False
        pace = self._listening_pace if call is None else ReadPace()
        reader = FairReader(response.content, pace, lambda: call is not None)
        try:
            while piece := await reader.read():
                heard = True
                for event in events.feed(piece):
                    answers = self._answers
                    if event.name == "message":
                        self._receive_for(call, event.data)
                    await reader.count_message(len(event.data), is_answer=self._answers > answers)
                if call is not None and call.answer.done():
                    self._endpoint.let_go(response)
                    is_left = True
                    break
                if on_token is not None and events.last_id != token:
                    token = events.last_id
                    await on_token(token)
        except aiohttp.ClientError as exc:
            logger.debug("a stream broke off", extra={"reason": connection_trouble(exc)})
        finally:
            if not is_left:  # as when the call ran out of time
                response.close()
        return heard

    async def _listen(self, scope: anyio.CancelScope, opened: asyncio.Event) -> None:
        """Take in what the server says on its own, until it will not speak or another session begins."""
        events = SseParser(self._max_message_bytes)
        opened_once, failures = False, 0
        with scope:
            while True:
                status, heard = await self._listen_once(events, opened)
                opened_once = opened_once or status == 200
                if status == 404 and opened_once:
                    self._end(
                        ConnectionEnding(kind="hung_up", message="the server no longer knows the session")
                    )
                if status == _GONE and opened_once and not len(self._calls):
                    self._end(ConnectionEnding(kind="hung_up", message="the server went away"))
                if 300 <= status < 500:
                    return
                failures = 0 if heard else failures + 1
                await anyio.sleep(_retry_seconds(events, failures))

    async def _listen_once(self, events: SseParser, opened: asyncio.Event) -> tuple[int, bool]:
        """Return the status the stream was opened with, 0 if it was not, and whether anything came."""
        try:
            response = await self._open_stream(events)
        except Unreachable:
            return _GONE, False
        except EXCHANGE_FAILURES as exc:
            logger.debug("the server cannot be listened to", extra={"reason": str(exc)})
            return 0, False
        finally:
            opened.set()
        if not is_stream(response):
            response.close()
            return max(response.status, 300), False
        try:
            return 200, await self._follow(response, events)
        except LineTooLong:
            logger.warning("a message was skipped: it is too long", extra={"limit": self._max_message_bytes})
            events.last_id = ""
            return 200, False


def _version(opts: CallOptions) -> str | None:
    return opts.get("headers", {}).get(MCP_PROTOCOL_VERSION_HEADER)


def _retry_seconds(events: SseParser, failures: int = 0) -> float:
    seconds = _RETRY_SECONDS if events.retry_ms is None else events.retry_ms / 1000
    return min(max(seconds, _MIN_RETRY_SECONDS) * 2 ** min(failures, 10), MAX_RETRY_SECONDS)


def _read_unmatched_answer(body: bytes) -> Frame | AnswerUnreadable:
    """Return what an answer means that names no request, or another one."""
    for item in parse(body):
        if isinstance(item, UnusableLine):
            return AnswerUnreadable(item.reason)
        if item.id is None and item.error:
            return item  # The server did not get as far as the request's id.
    return AnswerUnreadable("it does not answer the request" if body.strip() else "it is empty")
