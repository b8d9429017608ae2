"""The connection of a server for its callers: tool calls and other requests, none carried out twice."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import anyio
import mcp_types as types
import msgspec
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import HEADER_MISMATCH, URL_ELICITATION_REQUIRED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from fairlead.config.models import Server
from fairlead.connection.clearance import MAX_DECISIONS, Clearance
from fairlead.connection.deadlines import Deadline
from fairlead.connection.elicitation import answer_input_requests, answer_rounds, may_need_more, wants_input
from fairlead.connection.failures import FAILURES, call_failure, calling
from fairlead.connection.link import SessionLink
from fairlead.connection.lists import list_anyway
from fairlead.connection.outcomes import AnswerUnreadable, DecisionOutdated, NotSent, RequestRejected
from fairlead.connection.peer import LoginCount
from fairlead.connection.session import Session
from fairlead.connection.supervisor import WITHDRAWN, Supervisor
from fairlead.connection.tasks import (
    UPDATE,
    Task,
    TaskElicitation,
    abandon_task,
    finish_task,
    parse_created_task,
    without_task,
)
from fairlead.connection.tracing import TRACE, SpanDetails, Tracer, carrying, is_tool_error
from fairlead.errors import (
    AuthRequired,
    CallDenied,
    CallFailed,
    CallRejected,
    CallTimedOut,
    ConnectionLost,
    FairleadError,
)

_NETWORKS: Mapping[str, Literal["pipe", "tcp"]] = {
    "stdio": "pipe",
    "streamable-http": "tcp",
    "sse": "tcp",
}

_input_requests = TypeAdapter[dict[str, types.InputRequest]](dict[str, types.InputRequest])


class _ToolCall(msgspec.Struct, frozen=True):
    """A tool call as it is sent, once or again."""

    tool: str
    arguments: Mapping[str, Any] | msgspec.Raw
    deadline: Callable[[], Deadline]
    """Makes the clock of the call, anew each time that it is sent."""
    on_progress: ProgressFnT | None
    safe_to_repeat: bool
    clearance: Clearance | None
    as_task: bool = False


class Connection:
    """Requests to one server, over the session that its supervisor keeps connected."""

    def __init__(self, supervisor: Supervisor, *, tracer: Tracer | None = None) -> None:
        limits = supervisor.limits
        self._supervisor = supervisor
        self._tracer = tracer
        self._limits = limits
        self._is_trusted = isinstance(limits, Server) and limits.trust == "trusted"
        self.server_id = supervisor.server_id
        self.vitals = supervisor.vitals
        """Its state and counters."""
        self.backoff = supervisor.backoff
        """How long it waits before the next attempt after failed ones."""

    # Its lifetime, which is the supervisor's.

    async def ready(self) -> Session:
        """Return the live session, connecting first if there is none."""
        return (await self._supervisor.connect()).session

    async def log_in(self, error: AuthRequired) -> None:
        """Have the user log in as the server demands, or raise its error."""
        await self._supervisor.log_in(error)

    def refresh(self) -> None:
        """List again what the server offers, soon; many wishes are one."""
        self._supervisor.refresh()

    def renew(self) -> None:
        """Connect anew for the next request; what is under way finishes over the connection there is."""
        self._supervisor.renew()

    def withdraw(self) -> None:
        """Send no new requests and connect no more: its server was disabled, replaced or removed.

        What is under way over the connection there is may finish.
        """
        self._supervisor.is_withdrawn = True

    async def aclose(self, *, drain: bool = False) -> None:
        """End the connection and wait until nothing of it is left. From any task, any number of times.

        Args:
            drain: Let calls under way finish; without it, they fail.
        """
        await self._supervisor.aclose(drain=drain)

    async def set_log_level(self, level: types.LoggingLevel) -> None:
        """Set the log level of a handshake server, for this and all later runs."""
        await self._supervisor.set_log_level(level)

    def take_notice(self) -> str | None:
        """Notice about this run of the server that its callers must know; it is given out once."""
        link = self._supervisor.link
        return link.session.dispatcher.take_notice() if link is not None else None

    @property
    def is_answering(self) -> bool:
        """Whether it has answered calls in this run, though its lists may not have come yet."""
        return self._supervisor.is_answering

    @property
    def up_to_date(self) -> anyio.Event:
        """Set while nothing is known to have changed since the server was last listed."""
        return self._supervisor.up_to_date

    # Requests.

    def deadline(self) -> Deadline:
        """The clock of one request, as configured."""
        return Deadline(self._limits.request_timeout_ms / 1000, self._limits.max_request_ms / 1000)

    def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any] | msgspec.Raw,
        *,
        on_progress: ProgressFnT,
        deadline: Callable[[], Deadline] | None = None,
        safe_to_repeat: bool = False,
        clearance: Clearance | None = None,
    ) -> Coroutine[Any, Any, msgspec.Raw]:
        """Call a tool. A call that the server certainly did not look into is sent again, once.

        A server that does it in the background is waited for, over as many connections as it takes.

        Args:
            tool: The tool's own name at the server.
            arguments: Its arguments, or their JSON.
            on_progress: Awaited whenever the server reports progress.
            deadline: Makes the deadline of each attempt; that of the server's entry if not given.
            safe_to_repeat: The call may be sent again even if the server may have carried it out.
            clearance: The decision that it may be sent; without one it may be as long as its server may be
                used.

        Raises:
            CallFailed: No result came; `delivery` says whether the server may have carried it out.
        """
        call = _ToolCall(
            tool,
            arguments,
            deadline or self.deadline,
            on_progress,
            safe_to_repeat,
            clearance,
        )
        return self._call(call, finishes=True)

    def begin_tool(  # noqa: PLR0913 - those of `call_tool`, and one more
        self,
        tool: str,
        arguments: Mapping[str, Any] | msgspec.Raw,
        *,
        on_progress: ProgressFnT | None = None,
        deadline: Callable[[], Deadline] | None = None,
        safe_to_repeat: bool = False,
        as_task: bool = False,
        clearance: Clearance | None = None,
    ) -> Coroutine[Any, Any, msgspec.Raw]:
        """Call a tool and return what comes first: its result, or the handle of a task (`created_task`).

        Modern servers choose between the two; older ones start a task where `as_task` is set.
        """
        call = _ToolCall(
            tool,
            arguments,
            deadline or self.deadline,
            on_progress,
            safe_to_repeat,
            clearance,
            as_task,
        )
        return self._call(call, finishes=False)

    async def _call(self, call: "_ToolCall", *, finishes: bool) -> msgspec.Raw:
        try:
            result = await self._deliver_tool(call)
        except CallRejected as exc:
            await self._visit_pages(exc)
            result = await self._deliver_tool(call)
        self.vitals.calls += 1
        if not may_need_more(result):
            return result  # as nearly all are
        if wants_input(result):
            result = await self._rounds(result, partial(self._deliver_tool, call))
        if not finishes:
            return result
        with calling(self.server_id):
            task = parse_created_task(result, modern=self.vitals.version in MODERN_PROTOCOL_VERSIONS)
        if task is None:
            return result
        return await self.finish(task, on_progress=call.on_progress, clearance=call.clearance)

    def _deliver_tool(
        self, call: "_ToolCall", more: Mapping[str, Any] | None = None, over: SessionLink | None = None
    ) -> Coroutine[Any, Any, msgspec.Raw]:
        send = partial(self._send_tool, call, more)
        return self._deliver(
            send,
            safe_to_repeat=call.safe_to_repeat,
            over=over,
            about=("tools/call", call.tool),
            clearance=call.clearance,
        )

    def _send_tool(
        self, call: "_ToolCall", more: Mapping[str, Any] | None, session: Session
    ) -> Awaitable[msgspec.Raw]:
        if session.runs_tasks:
            return self._send_as_wanted(call, session)
        return session.call_tool(
            call.tool,
            call.arguments,
            deadline=call.deadline(),
            on_progress=call.on_progress,
            more=more,
            may_send=self._may_send(call.clearance),
        )

    def _may_send(self, clearance: Clearance | None) -> Callable[[], bool]:
        return clearance.stands if clearance is not None else self._is_in_force

    def _is_in_force(self) -> bool:
        return not self._supervisor.is_withdrawn

    async def _send_as_wanted(self, call: "_ToolCall", session: Session) -> msgspec.Raw:
        """Call a tool of a server some of whose tools may have to be called as tasks."""
        support = await self._supervisor.task_support(call.tool)
        is_task = support == "required" or (call.as_task and support == "optional")
        return await session.call_tool(
            call.tool,
            call.arguments,
            deadline=call.deadline(),
            on_progress=call.on_progress,
            more={"task": {}} if is_task else None,
            may_send=self._may_send(call.clearance),
        )

    async def finish(
        self,
        task: Task,
        *,
        on_progress: ProgressFnT | None = None,
        clearance: Clearance | None = None,
    ) -> msgspec.Raw:
        """Wait for the end of a task and return its result. Cancelling the wait cancels the task.

        Args:
            task: The task.
            on_progress: Awaited whenever its state changes.
            clearance: The decision that its call may be made. Elicitations are answered while that holds; a
                task that may not go on is cancelled.
        """
        answered: set[str] = set()
        changes = 0
        seconds = self._limits.max_request_ms / 1000

        def wait(session: Session) -> Awaitable[msgspec.Raw]:
            async def answer(requests: Mapping[str, TaskElicitation]) -> Mapping[str, Any]:
                return await _answer_task_input(requests, session)

            sender = session if clearance is None else _ClearedSender(session, clearance)
            return finish_task(sender, task, answer=answer, answered=answered, on_change=report_change)

        async def report_change(now: Task) -> None:
            nonlocal changes
            changes += 1
            if on_progress is not None:
                await on_progress(changes, None, now.message or now.status)

        try:
            with anyio.move_on_after(seconds):
                # Asking for a task's state changes nothing, so that any lost connection may be replaced.
                return without_task(await self._deliver(wait, safe_to_repeat=True))
        except CallDenied as exc:
            await self._abandon(task)
            raise exc.after_sending() from exc.__cause__
        except FairleadError as exc:
            raise exc.after_sending() from exc.__cause__  # the task was accepted, whatever became of the wait
        except anyio.get_cancelled_exc_class():
            await self._abandon(task)
            raise
        await self._abandon(task)
        message = f"its task was not done after {seconds:g} s"
        raise CallTimedOut(self.server_id, message, delivery="unknown")

    async def _abandon(self, task: Task) -> None:
        """Ask the server, if it is connected, to cancel a task that is no longer waited for."""
        link = self._supervisor.link
        if link is not None:
            await abandon_task(link.session, task.id)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        on_progress: ProgressFnT | None = None,
        safe_to_repeat: bool = False,
    ) -> msgspec.Raw:
        """Send any other request. It is repeated, and elicitations are answered, as for a tool call.

        Args:
            method: The method.
            params: Its parameters.
            on_progress: Awaited whenever the server reports progress.
            safe_to_repeat: The request may be sent again even if the server may have carried it out.

        Raises:
            CallFailed: No result came.
        """

        async def send(more: Mapping[str, Any] | None = None, over: SessionLink | None = None) -> msgspec.Raw:
            whole = {**params, **(more or {})}
            return await self._deliver(
                lambda session: session.request(
                    method,
                    whole,
                    deadline=self.deadline(),
                    on_progress=on_progress,
                    may_send=self._is_in_force,
                ),
                safe_to_repeat=safe_to_repeat,
                over=over,
                about=(method, params.get("name")),
            )

        try:
            result = await send()
        except CallRejected as exc:
            await self._visit_pages(exc)
            result = await send()
        return await self._rounds(result, send) if wants_input(result) else result

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, connecting first if there is no connection."""
        session = await self.ready()
        with calling(self.server_id):
            await session.notify(method, params)

    @asynccontextmanager
    async def watching(self, uris: Sequence[str]) -> AsyncGenerator[None]:
        """Subscribe to resources for the length of the block, across reconnects."""
        subscriptions = self._supervisor.subscriptions
        with subscriptions.want(uris):
            await self.ready()
            refused = await subscriptions.wait_answered(uris)
            if refused is not None:
                raise CallFailed(self.server_id, f"it refused the subscription: {refused}", delivery="done")
            yield

    async def list_undeclared(self, method: str) -> tuple[bytes, ...]:
        """List what the server did not declare, if it has it all the same."""
        session = await self.ready()
        with calling(self.server_id):
            return await list_anyway(self.server_id, session, method, budget=self._supervisor.list_budget())

    async def _visit_pages(self, exc: CallRejected) -> None:
        """Handle a rejection that requires URL elicitations; raise any other."""
        cause = exc.__cause__
        if exc.rpc_code != URL_ELICITATION_REQUIRED or not isinstance(cause, RequestRejected):
            raise exc
        with calling(self.server_id):
            await self._supervisor.url_visits.visit(cause, seconds=self._limits.max_request_ms / 1000)

    async def _rounds(
        self, first: msgspec.Raw, send: Callable[[Mapping[str, Any], SessionLink], Awaitable[msgspec.Raw]]
    ) -> msgspec.Raw:
        try:
            link = await self._supervisor.connect()
            if not link.session.modern:
                return first  # there the words mean nothing
            link.in_flight += 1  # the call is under way, though no request is while the user is prompted
            try:
                with calling(self.server_id):
                    return await answer_rounds(first, link.session, lambda more: send(more, link))
            finally:
                link.release(time.monotonic())
        except FairleadError as exc:
            raise exc.after_sending() from exc.__cause__  # the server had the first round

    async def _deliver(
        self,
        send: Callable[[Session], Awaitable[msgspec.Raw]],
        *,
        safe_to_repeat: bool,
        over: SessionLink | None = None,
        about: tuple[str, object] | None = None,
        clearance: Clearance | None = None,
    ) -> msgspec.Raw:
        """Send a request that was decided about; decide again, here and nowhere else, as often as needed.

        A transport that finds the decision outdated sends nothing.
        """
        if self._supervisor.is_withdrawn:
            await self._decide_again(clearance)
        attempts = _Attempts()
        for _ in range(MAX_DECISIONS):
            try:
                return await self._deliver_decided(
                    send, attempts, safe_to_repeat=safe_to_repeat, over=over, about=about
                )
            except DecisionOutdated:
                await self._decide_again(clearance)
        message = "what decides about it changed again and again while it waited"
        raise CallFailed(self.server_id, message, delivery="not_sent")

    async def _decide_again(self, clearance: Clearance | None) -> None:
        """Decide again about what has to wait. Raises if it may not be sent any more."""
        if clearance is not None:
            await clearance.renew()
        if self._supervisor.is_withdrawn:
            raise CallFailed(self.server_id, WITHDRAWN, delivery="not_sent")

    async def _deliver_decided(
        self,
        send: Callable[[Session], Awaitable[msgspec.Raw]],
        attempts: "_Attempts",
        *,
        safe_to_repeat: bool,
        over: SessionLink | None,
        about: tuple[str, object] | None,
    ) -> msgspec.Raw:
        """Send a request over the live session; again, once, if the server certainly did not look into it.

        What belongs to a call under way goes `over` its link, even if that takes no new ones. What one
        request is `about`, its method and the name in it, is what a tracer records.
        """
        while True:
            link = self._supervisor.link if over is None or attempts.repeated else over
            if link is None or not (link is over or link.usable):
                link = await self._supervisor.connect()
            link.in_flight += 1
            try:
                if self._tracer is not None and about is not None:
                    return await self._send_traced(self._tracer, about, link.session, send)
                try:  # what `calling` does, which would be two more calls for every request
                    return await send(link.session)
                except FAILURES as exc:
                    raise call_failure(self.server_id, exc) from exc
            except anyio.get_cancelled_exc_class():
                # Requests of a handshake server name no call, so they are withdrawn only with the last one.
                if link.in_flight == 1:
                    link.session.withdraw_requests()
                raise
            except AuthRequired as exc:
                self._supervisor.refuse_login(link, exc)
                attempts.logins = attempts.logins or LoginCount()
                attempts.logins.add(exc)
                failure = exc
            except CallFailed as exc:
                # Once: a server that loses every session would otherwise be called for ever.
                if not await self._prepare_to_repeat(
                    exc, link, safe_to_repeat=safe_to_repeat, again=attempts.repeated
                ):
                    raise
                attempts.repeated = True
                continue
            finally:
                link.release(time.monotonic())
            await self._log_in_to_send(failure)

    async def _log_in_to_send(self, error: AuthRequired) -> None:
        await self.log_in(error)
        if self._supervisor.is_withdrawn:
            raise DecisionOutdated  # rather than connect once more to what was removed

    async def _send_traced(
        self,
        tracer: Tracer,
        about: tuple[str, object],
        session: Session,
        send: Callable[[Session], Awaitable[msgspec.Raw]],
    ) -> msgspec.Raw:
        """Send a request as part of the caller's trace, or of one that begins with it."""
        method, name = about
        details = SpanDetails(
            method=method,
            name=name if isinstance(name, str) else None,
            version=session.version,
            transport=_NETWORKS.get(session.dispatcher.kind),
            server_id=self.server_id,
        )
        with tracer.requesting(details, TRACE.get()) as span, carrying(span.trace):
            with calling(self.server_id):
                result = await send(session)
            if method == "tools/call" and is_tool_error(result):
                span.record_failure("tool_error")
            return result

    async def _prepare_to_repeat(
        self, exc: CallFailed, link: SessionLink, *, safe_to_repeat: bool, again: bool
    ) -> bool:
        """Set right what made a request fail. False where it must not be sent again, or was already."""
        if isinstance(exc, CallRejected):
            exc.untrusted = not self._is_trusted
        if not again and _is_header_mismatch(exc):
            # The headers are made from the schema of the last listing, and the server has another one by now.
            await self._supervisor.list_again(link)
            return True
        if not again and _may_repeat(exc, safe_to_repeat=safe_to_repeat):
            self._supervisor.give_up(link)
            return True
        if isinstance(exc, ConnectionLost):
            self._supervisor.note_loss(link)
        return False


class _Attempts:
    """What was tried for one request, however often it is decided again: the limits hold for all of it."""

    __slots__ = ("logins", "repeated")

    def __init__(self) -> None:
        self.logins: LoginCount | None = None
        self.repeated = False


class _ClearedSender:
    """A session that sends a task answers to its elicitations only while its call may be made."""

    def __init__(self, session: Session, clearance: Clearance) -> None:
        self.modern = session.modern
        self._session = session
        self._clearance = clearance

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, seconds: float | None = None
    ) -> msgspec.Raw:
        if method != UPDATE:
            return await self._session.request(method, params, seconds=seconds)
        for _ in range(MAX_DECISIONS):
            try:
                return await self._session.request(
                    method, params, seconds=seconds, may_send=self._clearance.stands
                )
            except DecisionOutdated:
                await self._clearance.renew()
        raise NotSent("what decides about it changed again and again while it waited")


async def _answer_task_input(requests: Mapping[str, TaskElicitation], session: Session) -> Mapping[str, Any]:
    try:
        parsed = _input_requests.validate_python({key: request.read() for key, request in requests.items()})
    except (ValidationError, msgspec.DecodeError) as exc:
        raise AnswerUnreadable("its task's request for input cannot be parsed") from exc
    return await answer_input_requests(parsed, session)


def _is_header_mismatch(exc: CallFailed) -> bool:
    """Whether the server rejected a call unread, because its argument headers were outdated."""
    return isinstance(exc, CallRejected) and exc.rpc_code == HEADER_MISMATCH


def _may_repeat(exc: CallFailed, *, safe_to_repeat: bool) -> bool:
    # Only what was certainly not sent is sent again by itself: tools may have effects, and no one would know.
    return isinstance(exc, ConnectionLost) and (exc.delivery == "not_sent" or safe_to_repeat)
