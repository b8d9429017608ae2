"""The base of all transports: the SDK's `Dispatcher` with requests, inbound messages and closing.

A transport subclasses `WireDispatcher`, says how to send a message, and hands every message it gets to
`_receive`, or to `_receive_soon` in a callback of the event loop. Above it, the SDK's
`ClientSession(dispatcher=…)` uses `run`, `send_raw_request` and `notify`; the hot path uses `call_raw`, which
gives the result's bytes with no dict and no model built.
"""

import asyncio
import logging
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar

import anyio
import anyio.abc
import msgspec
from mcp.shared.dispatcher import (
    CallOptions,
    Dispatcher,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
)
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.transport_context import TransportContext
from mcp_types import INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fairlead.connection.deadlines import Deadline, DeadlineClock
from fairlead.connection.frame_log import log_received, log_sent
from fairlead.connection.outcomes import (
    AnswerUnreadable,
    ConnectionClosed,
    ConnectionEnding,
    RequestExpired,
)
from fairlead.connection.process.downloads import DownloadWatch
from fairlead.connection.process.stderr import MAX_LINES, OutputTail, excerpt
from fairlead.connection.transport.calls import Call, ProgressReports
from fairlead.connection.transport.inbox import MAX_INBOUND_REQUESTS, Inbox
from fairlead.connection.transport.messages import (
    PendingRequests,
    notification_frame,
    object_of,
    progress_of,
    request_frame,
    result_of,
    with_progress_token,
)
from fairlead.jsonrpc.frames import Frame, UnusableLine, parse
from fairlead.jsonrpc.limits import MAX_DECODED_BYTES

logger = logging.getLogger(__name__)

_MAX_POSTS_UNDER_WAY = 1_000
_MAX_ANSWERS_AT_ONCE = 64
_SLICE_SECONDS = 0.005
_MAX_ARRIVED_BYTES = 1024 * 1024
_MAX_ARRIVED = 10_000
_MAX_NOISE_BYTES = 4096
_NO_OPTIONS: CallOptions = {}


@dataclass(slots=True, eq=False)
class Guests:
    """Others than its supervisor that use a connection."""

    calls: int = 0
    """Their requests under way."""
    sessions: int = 0
    """Those that are to be told what the server announces."""
    watched: Counter[str] = field(default_factory=Counter[str])
    """How many users, the supervisor among them, watch each resource of a handshake server."""
    on_left: Callable[[], object] = lambda: None
    """Called when there is one request or session less."""


class WireDispatcher(Dispatcher[TransportContext]):
    """One connection to one server, usable while `run` runs. `ending` says why it is over, once it is."""

    kind: ClassVar[str]

    def __init__(self, *, max_inbound_requests: int = MAX_INBOUND_REQUESTS) -> None:
        self.ending: ConnectionEnding | None = None
        self.noise = OutputTail()
        """The last things the server sent that are no messages, for diagnosis."""
        self.downloads = DownloadWatch()
        """What is downloaded before the server starts, as far as that is seen."""
        self.sandbox_state: Mapping[str, Any] | None = None
        """The sandbox of its process, as `sandbox_state.py` describes it; None of other transports."""
        self.notice: str | None = None
        """What callers have to know about this run of the server; the first result says it."""
        self.negotiated = asyncio.Event()
        """Set when it is known how the server is to be spoken to, and when the connection has ended."""
        self.handshake: Mapping[str, Any] | None = None
        """The server's answer to `initialize`; None of one without sessions."""
        self.guests = Guests()
        self.on_retired: Callable[[], object] = lambda: None
        """Called when it is to be used no more, except by what is under way."""
        self.is_retired = False
        self.listeners: list[Callable[[str, Mapping[str, Any]], object]] = []
        """Called with the method and parameters of each notification, besides the handlers."""
        self._max_inbound_requests = max_inbound_requests
        self._calls: PendingRequests[Call] = PendingRequests()
        self._clock = DeadlineClock()
        self._running = False
        self._closed = asyncio.Event()
        self._on_closed: list[Callable[[], object]] = []
        self._loop = asyncio.get_running_loop()
        self._posts_under_way = 0
        self._answers = 0
        """Number of our calls that were answered: all other messages are unsolicited."""
        self._arrived: deque[bytes | bytearray | list[Frame | UnusableLine] | ConnectionEnding] = deque()
        self._arrived_bytes = 0
        self._something_arrived = asyncio.Event()
        self._tasks: anyio.abc.TaskGroup
        self._inbox: Inbox

    # What a transport says.

    @abstractmethod
    def _send(self, call: Call, frame: bytes, opts: CallOptions) -> Awaitable[None] | None:
        """Send a request and set `call.sent` as soon as the server may see it.

        What has to be waited for is returned. That may take until `call.answer` is done, but not longer.
        Just before anything leaves, `call.begin_sending` or `call.require_decision` is called.
        """

    @abstractmethod
    async def post(self, frame: bytes, opts: CallOptions = _NO_OPTIONS) -> None:
        """Send a message that has no answer. Raise nothing if the connection is gone."""

    @abstractmethod
    def _cancel(self, call: Call, reason: str, opts: CallOptions) -> None:
        """Send a cancellation of a request that the server may have seen, without waiting."""

    def _start_receiving(self) -> None:
        """Start receiving, once `run` has its handlers."""

    def _hold_reading(self, *, hold: bool) -> None:
        """Read no more from the server for now, or go on: for a transport that uses `_receive_soon`."""

    # What the session and the host use.

    def take_notice(self) -> str | None:
        """Return what callers have to know about this run of the server; it is given out once."""
        notice, self.notice = self.notice, None
        return notice

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve the connection until it ends. Cancelling this ends it."""
        handlers = (on_request, on_notify, on_notify_intercept)
        try:
            async with anyio.create_task_group() as self._tasks:
                self._inbox = Inbox(self, self.kind, self._tasks, handlers, self._max_inbound_requests)
                self._running = self.ending is None
                self._start_receiving()
                task_status.started()
                await self._receive_arrived()
                self._tasks.cancel_scope.cancel()
        finally:
            self._end(ConnectionEnding(kind="closed", message="the connection was closed"))

    async def wait_closed(self) -> ConnectionEnding:
        """Wait until the connection is over and return why."""
        await self._closed.wait()
        assert self.ending is not None
        return self.ending

    def note_negotiated(self, handshake: Mapping[str, Any] | None) -> None:
        """Note the outcome of the negotiation: the answer to `initialize`, or None without sessions."""
        self.handshake = handshake
        self.negotiated.set()

    def retire(self) -> None:
        """Take no new requests: those under way finish, the next one gets another connection."""
        if not self.is_retired:
            self.is_retired = True
            self.on_retired()

    @property
    def requests_under_way(self) -> int:
        """Number of requests that the server works on now, without streams of subscriptions."""
        return sum(call.method != "subscriptions/listen" for call in self._calls)

    def call_when_closed(self, callback: Callable[[], object]) -> None:
        """Register a function to be called, in any context, when the connection ends."""
        if self.ending is not None:
            callback()
        else:
            self._on_closed.append(callback)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and return its result as a dict. Raises `RequestFailed` or `NotEncodable`."""
        opts = opts or _NO_OPTIONS
        raw = await self.call_raw(method, params, opts)
        try:
            result = object_of(raw, MAX_DECODED_BYTES)
        except ValueError as exc:
            raise AnswerUnreadable(str(exc)) from exc
        version = opts.get("headers", {}).get(MCP_PROTOCOL_VERSION_HEADER)
        if version in MODERN_PROTOCOL_VERSIONS:
            # Absent means complete, says the protocol; the SDK's session takes it for an error.
            result.setdefault("resultType", "complete")
        return result

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification; one that comes too late is dropped."""
        if self.ending is None:
            await self.post(notification_frame(method, params), opts or _NO_OPTIONS)

    def stderr_lines(self) -> tuple[str, ...]:
        """The server's stderr, for diagnosis, oldest line first."""
        return ()

    def noise_lines(self) -> tuple[str, ...]:
        """Output of the server that is no message, for diagnosis, oldest line first."""
        waiting = OutputTail()
        for arrived in islice(self._arrived, MAX_LINES):  # before `run`, or in a flood
            items = arrived if isinstance(arrived, list) else parse(_start_of(arrived))
            for item in items:
                if isinstance(item, UnusableLine):
                    waiting.keep(item.excerpt)
        return (*self.noise.lines, *waiting.lines)

    @property
    def fetch_command(self) -> str | None:
        """The command that fetches the server before it runs it, where there is one that can be shown."""
        return None

    @contextmanager
    def start_clock(self, seconds: float) -> Generator[None]:
        """Raise `TimeoutError` after so many seconds of the block, those of a download not counted."""
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as scope:
            with self.downloads.holding(scope, seconds, is_whole=False):
                yield
        if scope.cancelled_caught:
            raise TimeoutError

    def clocks_held(self) -> AbstractContextManager[None]:
        """Stop the time of our requests for the length of a block: the server waits for us."""
        return self._clock.hold()

    # Requests of ours.

    async def call_raw(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions = _NO_OPTIONS,
        deadline: Deadline | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> msgspec.Raw:
        """Send a request and return its result, an object, as the bytes that came.

        Args:
            method: The method.
            params: Its parameters. A `msgspec.Raw` anywhere in them goes out as it is.
            opts: The options of the SDK: headers, timeout, progress.
            deadline: A clock that progress resets, in place of the option `timeout`.
            may_send: Asked just before it is sent, whether what decided that it may be still holds.

        Raises:
            DecisionOutdated: `may_send` said no; nothing was sent.
            RequestFailed: No result came.
            NotEncodable: The parameters are no JSON.
        """
        call = self._open_call(method, opts, deadline)
        call.may_send = may_send
        if call.on_progress is not None:
            params = with_progress_token(params, call.id)
        frame = request_frame(call.id, method, params)
        log_sent(frame)
        self._calls.add(call.id, call)
        if (deadline := call.deadline) is not None:
            deadline.start(self._clock, call.expire)
        try:
            if (sending := self._send(call, frame, opts)) is not None:
                await sending
            outcome = await call.answer
            if call.reports is not None and isinstance(outcome, Frame):
                await call.reports.finish()  # progress that came before the answer is reported before it, too
        except asyncio.CancelledError:
            if call.answer.cancelled() or not call.answer.done():
                self._abandon(call, "the caller gave up", opts)
            raise
        finally:
            self._calls.remove(call.id)
            if deadline is not None:
                deadline.stop()
                # They know each other, and so the answer would stay until the garbage collector comes by.
                call.deadline = None
        if isinstance(outcome, Frame):
            log_received(outcome)
            return result_of(outcome)
        if isinstance(outcome, RequestExpired):
            self._abandon(call, outcome.message, opts)
        raise outcome

    def _open_call(self, method: str, opts: CallOptions, deadline: Deadline | None) -> Call:
        if not self._running:
            if self.ending is None:
                raise RuntimeError("a request was sent before run()")
            raise ConnectionClosed(self.ending, "not_sent")
        request_id = opts.get("request_id")
        if deadline is None and (seconds := opts.get("timeout")) is not None:
            deadline = Deadline(seconds, seconds)
        return Call(
            self._calls.mint() if request_id is None else request_id,
            method,
            self._loop.create_future(),
            opts.get("on_progress"),
            deadline=deadline,
        )

    def _abandon(self, call: Call, reason: str, opts: CallOptions) -> None:
        if call.sent and self._running and opts.get("cancel_on_abandon", True):
            self._cancel(call, reason, opts)

    def _end(self, ending: ConnectionEnding) -> None:
        """End the connection: every waiter learns it now. Only the first reason counts."""
        if self.ending is not None:
            return
        if ending.kind in ("exited", "hung_up"):
            ending = replace(ending, noise=self.noise_lines())
        self.ending, self._running = ending, False
        for call in self._calls:
            call.settle(ConnectionClosed(ending, call.delivery))
        self._closed.set()
        self.negotiated.set()
        self._something_arrived.set()  # which `run` waits for
        for callback in self._on_closed:
            callback()
        self._on_closed.clear()

    # Messages from the server.

    def _receive(self, message: bytes | bytearray) -> None:
        """Take in one message, in a task. This never waits: what was sent in order is seen in order."""
        for item in parse(message):
            self._handle(item)

    def _receive_soon(self, messages: Iterable[bytes | bytearray | UnusableLine]) -> None:
        """Take in messages in a callback of the event loop, in order.

        Answers, and most reads bring nothing else, reach their callers at once. All else is left to a task,
        because handlers use anyio, which does not work in callbacks, and because a flood has to be handled in
        slices.
        """
        quickly = _MAX_ANSWERS_AT_ONCE
        try:
            for message in messages:
                if isinstance(message, UnusableLine):
                    self._put_off([message], len(message.excerpt))
                    continue
                if self._arrived or not quickly:
                    self._put_off(message, len(message))
                    continue
                quickly -= 1
                items = parse(message)
                if len(items) == 1 and isinstance(items[0], Frame) and items[0].method is None:
                    self._on_answer(items[0], message)
                else:
                    # Before `run`, too: a server may speak first, and `run` takes it in when it begins.
                    self._put_off(items, len(message))
        finally:
            if self._arrived:
                self._something_arrived.set()
                if self._is_behind():
                    self._hold_reading(hold=True)

    def _put_off(self, message: bytes | bytearray | list[Frame | UnusableLine], size: int) -> None:
        self._arrived.append(message)
        self._arrived_bytes += size

    def _keep_for_run(self, item: Frame) -> None:
        """Keep what a server says before `run` has handlers for it, as far as there is room."""
        if self.ending is None and not self._is_behind():
            self._put_off([item], len(item.params))
            self._something_arrived.set()

    def _is_behind(self) -> bool:
        return self._arrived_bytes > _MAX_ARRIVED_BYTES or len(self._arrived) > _MAX_ARRIVED

    def _end_soon(self, ending: ConnectionEnding) -> None:
        """End the connection after everything that arrived before."""
        if self._arrived and self._running:
            self._arrived.append(ending)
        else:
            self._end(ending)

    async def _receive_arrived(self) -> None:
        """Handle what callbacks put off, until the connection is over.

        In slices, so that a flood leaves others their turn.
        """
        while self.ending is None:
            await self._something_arrived.wait()
            self._something_arrived.clear()
            slice_ends = self._loop.time() + _SLICE_SECONDS
            while self._arrived:
                arrived = self._arrived[0]
                if isinstance(arrived, ConnectionEnding):
                    self._end(arrived)
                    return
                for item in arrived if isinstance(arrived, list) else parse(arrived):
                    self._handle(item)
                    if self.ending is not None:
                        return
                    if self._loop.time() >= slice_ends:
                        await asyncio.sleep(0)
                        slice_ends = self._loop.time() + _SLICE_SECONDS
                # Only now, so that nothing that came later overtakes it.
                self._arrived.popleft()
            self._arrived_bytes = 0
            self._hold_reading(hold=False)

    def _note_unsolicited(self) -> None:
        """Count a message that answers no call: for a transport that limits their rate."""

    def _handle(self, item: Frame | UnusableLine) -> None:
        if isinstance(item, UnusableLine):
            self._note_unsolicited()
            self._unusable(item)
            return
        if item.method is None:
            self._on_answer(item)
            return
        self._note_unsolicited()
        if not self._running:
            self._keep_for_run(item)
            return
        if item.id is None:
            self._on_notification(item.method, item.params)
        else:
            self._inbox.handle_request(item.id, item.method, item.params)

    def _on_answer(self, frame: Frame, line: bytes | bytearray = b"") -> None:
        call = None if frame.id is None else self._calls.get(frame.id)
        if call is not None:
            self._answers += 1
            call.settle(frame)
        elif frame.id is None:
            self.noise.keep(bytes(frame.error) or excerpt(line))

    def _unusable(self, item: UnusableLine) -> None:
        self.noise.keep(item.excerpt)
        call = None if item.answers is None else self._calls.get(item.answers)
        if call is not None:
            call.settle(AnswerUnreadable(item.reason))
        if item.asks is not None and self._running:
            self._inbox.refuse(item.asks, INVALID_REQUEST, "the request cannot be read")

    def _on_notification(self, method: str, raw: msgspec.Raw) -> None:
        try:
            params = object_of(raw, MAX_DECODED_BYTES) if raw else None
        except ValueError:
            self.noise.keep(excerpt(memoryview(raw)))
            return
        if method == "notifications/progress" and (progress := progress_of(params or {})) is not None:
            token, report = progress
            call = self._calls.get(token)
            if call is not None and call.on_progress is not None:
                if call.deadline is not None:
                    call.deadline.touch()
                reports = call.reports = call.reports or ProgressReports(call.on_progress)
                if reports.put(report):
                    self._tasks.start_soon(reports.deliver)
        for listener in self.listeners:
            listener(method, params or {})
        self._inbox.handle_notification(method, bytes(raw), params)

    def post_now(self, frame: bytes) -> None:
        """Send a message without waiting, or drop it where the server does not keep up."""
        if self._posts_under_way < _MAX_POSTS_UNDER_WAY:
            self._posts_under_way += 1
            self._tasks.start_soon(self._post_counted, frame)

    async def _post_counted(self, frame: bytes) -> None:
        try:
            await self.post(frame)
        finally:
            self._posts_under_way -= 1


Transport = Callable[[], AbstractAsyncContextManager[WireDispatcher]]
"""Opens a connection to a server, for the length of a block."""


def _start_of(arrived: bytes | bytearray | ConnectionEnding) -> bytes | bytearray:
    """Part of a line that is checked for noise. A longer line than noise may be counts as a message."""
    return b"{}" if isinstance(arrived, ConnectionEnding) or len(arrived) > _MAX_NOISE_BYTES else arrived
