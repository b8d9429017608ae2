"""Request contexts: what is known of one downstream request, and elicitations in its course."""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import anyio
import mcp_types as types
import msgspec
from anyio.abc import TaskGroup
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import TypeAdapter, ValidationError

from fairlead.catalog.results import DELIVERY
from fairlead.catalog.sanitize import gate
from fairlead.connection.peer import INPUT_REQUEST, TooManyElicitations
from fairlead.host.operator import Ability

Context = ServerRequestContext[Any, Any]
ResultT = TypeVar("ResultT")
ProtocolFamily = Literal["session", "stateless"]

PARKED_SECONDS: Final = 120.0
"""How long a parked request waits for its client to come back with answers."""
MAX_ASKED: Final = 64
"""Limit of elicitations and other requests of servers in the course of one request."""
MAX_PARKED: Final = 100
"""How many requests of one client may wait for its answers."""

DISCONNECT_SECONDS: Final = 0.2
"""After how long a disconnect is looked for: most answers come sooner."""

_STATE_KEY: Final = secrets.token_bytes(32)
"""Seals request states: those of another process or an earlier run are refused."""

_GATHERING_TICKS: Final = 5
"""A server's elicitations come together, and are sent together: so often others get their turn first."""

_level = TypeAdapter[types.LoggingLevel](types.LoggingLevel)

ServerRequest = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
ClientResult = types.ElicitResult | types.CreateMessageResult | types.ListRootsResult

_ANSWERS: Final[Mapping[str, type[ClientResult]]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResult,
    "roots/list": types.ListRootsResult,
}


def abilities_of(capabilities: types.ClientCapabilities | None) -> frozenset[Ability]:
    """Return the requests of servers that a client takes. Approvals need no client."""
    able: set[Ability] = {"approve"}
    if capabilities is not None and (elicitation := capabilities.elicitation) is not None:
        if elicitation.form is not None or elicitation.url is None:
            able.add("form")  # older versions have no URL elicitation
        if elicitation.url is not None:
            able.add("url")
    if capabilities is not None and capabilities.sampling is not None:
        able.add("sample")
    if capabilities is not None and capabilities.roots is not None:
        able.add("roots")
    return frozenset(able)


UNASKABLE: Final = abilities_of(None)


class ContextNotifier(Protocol):
    """A client's notifier, as its request contexts know it."""

    async def tell(self, notification: types.ServerNotification) -> None:
        """Send a notification that belongs to no request."""
        ...

    def announce_completed_page(self, context: "RequestContext", elicitation_id: str) -> None:
        """Send that a URL elicitation is completed."""
        ...

    async def settle_logs(self) -> None:
        """Wait for what servers logged just before they answered."""
        ...


class ContextTracker(Protocol):
    """A client's open requests, as its request contexts know them."""

    def track(self, context: "RequestContext") -> AbstractContextManager[None]:
        """Count a request for the length of a block."""
        ...

    async def enter(self, context: "RequestContext", server_id: str) -> None:
        """Wait until the request may be the latest that its server is sent."""
        ...


class ContextClient(Protocol):
    """A client session, as its request contexts know it."""

    @property
    def principal(self) -> str:
        """The client's principal."""
        ...

    @property
    def version(self) -> str | None:
        """Its protocol version, where that is known."""
        ...

    @property
    def log_level(self) -> types.LoggingLevel | None:
        """From which level on it gets log messages."""
        ...

    @property
    def parked(self) -> "dict[str, MultiRoundContext[Any]]":
        """Its requests that wait for its answers, by `requestState`."""
        ...

    def new_state_nonce(self) -> str | None:
        """Return the nonce that tells replicas that its request waits here; None where there are none."""
        ...

    @property
    def requests(self) -> ContextTracker:
        """Its requests that are being handled."""
        ...

    @property
    def notifier(self) -> ContextNotifier:
        """Sends it notifications."""
        ...

    @property
    def may_approve(self) -> bool:
        """Whether an approval that is answered in it counts as its user's."""
        ...

    @property
    def has_many_servers(self) -> bool:
        """Whether it has several servers, so that an elicitation must name its own."""
        ...


class RequestContext:
    """Context of a request whose client takes no requests of servers."""

    names_servers = False
    """Whether an elicitation names its server apart from the message."""
    has_streamed = False
    """Whether a message was sent in its course, so that the answer comes on a stream of events."""

    def __init__(
        self,
        client: ContextClient,
        *,
        abilities: frozenset[Ability] = UNASKABLE,
        log_level: types.LoggingLevel | None = None,
    ) -> None:
        self._client = client
        self.abilities = abilities
        self.log_level: types.LoggingLevel | None = log_level
        self.server_id: str | None = None
        """The server that works on it, once that is known."""
        self.open_elicitations: set[anyio.CancelScope] | None = None
        """The elicitations in its course; None before the first."""
        self.is_ended = False
        self._request_count = 0

    @property
    def client(self) -> ContextClient:
        """The session of the client that made the request."""
        return self._client

    @property
    def is_parked(self) -> bool:
        """Whether it waits for the client's answers."""
        return False

    @property
    def may_ask_elsewhere(self) -> bool:
        """Whether its elicitations may be sent in another request: not if the client saw them."""
        return False

    async def put(self, request: ServerRequest, server_id: str) -> ClientResult | None:
        """Send a server's request to the client while this one is open. Returns None where it ended before.

        Raises:
            TooManyElicitations: The limit of the request is reached.
        """
        if self.is_ended:
            return None
        if self._request_count >= MAX_ASKED:
            raise TooManyElicitations(MAX_ASKED)
        self._request_count += 1
        if self.open_elicitations is None:
            self.open_elicitations = set()
        with anyio.CancelScope() as scope:
            self.open_elicitations.add(scope)
            try:
                return await self.ask(request, server_id)
            finally:
                self.open_elicitations.discard(scope)
        return None

    def end(self) -> None:
        """Withdraw its elicitations: they live no longer than their request."""
        self.is_ended = True
        for scope in self.open_elicitations or ():
            scope.cancel()

    async def ask(self, request: ServerRequest, server_id: str) -> ClientResult:
        """Send a server's request to the client."""
        raise MCPError(INTERNAL_ERROR, "the client does not take this request")

    async def tell(self, notification: types.ServerNotification) -> None:
        """Send a notification that belongs to the request, if there is a way."""
        await self.client.notifier.tell(notification)


class SessionContext(RequestContext):
    """Context of a handshake request: elicitations are sent while the client waits."""

    def __init__(self, client: ContextClient, context: Context) -> None:
        abilities = abilities_of(context.session.client_capabilities)
        super().__init__(client, abilities=abilities, log_level=client.log_level)
        self._context = context
        self.answers_as_json = False
        """Whether the answer is on its way, as JSON: there is no stream for anything that comes late."""

    async def ask(self, request: ServerRequest, server_id: str) -> ClientResult:
        """Send it on the stream that the answer comes on."""
        if self.answers_as_json:
            return await super().ask(request, server_id)
        self.has_streamed = True
        related = ServerMessageMetadata(related_request_id=self._context.request_id)
        return await self._context.session.send_request(request, _ANSWERS[request.method], metadata=related)

    async def tell(self, notification: types.ServerNotification) -> None:
        """Send it on the stream that the answer comes on."""
        if self.answers_as_json:
            await super().tell(notification)
            return
        self.has_streamed = True
        await self._context.session.send_notification(notification, self._context.request_id)

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report progress on the stream that the answer comes on."""
        if not self.answers_as_json:
            # Without a token the SDK sends nothing.
            self.has_streamed |= "progress_token" in (self._context.meta or {})
            await self._context.session.report_progress(done, total, message)


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """Identity of a request: what a later round of it must have in common."""

    method: str
    name: str
    """The tool, prompt or resource."""
    arguments: Mapping[str, object] | None = None


def seal_state(principal: str, about: RequestIdentity, nonce: str | None = None) -> str:
    """Make the `requestState` of one round: unguessable, and bound to principal, request and time.

    A nonce may be given, without a period in it, which tells other replicas where the request waits.
    """
    nonce, expires = nonce or secrets.token_hex(16), int(time.monotonic() + PARKED_SECONDS)
    return f"{nonce}.{expires}.{_seal(nonce, expires, principal, about)}"


def check_state(state: str, principal: str, about: RequestIdentity) -> MCPError | None:
    """Return why a `requestState` is refused; None for one made for this principal and request, in time."""
    nonce, _, rest = state.partition(".")
    said, _, seal = rest.partition(".")
    expires = int(said) if said.isascii() and said.isdigit() and len(said) < 16 else 0
    expected = _seal(nonce, expires, principal, about)
    if not hmac.compare_digest(seal.encode(), expected.encode()):
        return MCPError(INVALID_PARAMS, "`requestState` was not made for this request of this client")
    if time.monotonic() > expires:
        return lost_request("`requestState` came too late: the request was given up")
    return None


def lost_request(message: str) -> MCPError:
    """Return the error for a client that comes back to a request that is no longer there."""
    return MCPError(INVALID_PARAMS, message, {DELIVERY: "unknown"})


def _seal(nonce: str, expires: int, principal: str, about: RequestIdentity) -> str:
    call = [about.method, about.name, about.arguments or {}]
    sealed = msgspec.json.encode([nonce, expires, principal, call], order="deterministic")
    return hmac.new(_STATE_KEY, sealed, hashlib.sha256).hexdigest()


@dataclass(eq=False, slots=True)
class _OpenElicitation:
    request: ServerRequest
    answer: ClientResult | None = None
    answered: anyio.Event = field(default_factory=anyio.Event)


class MultiRoundContext(RequestContext, Generic[ResultT]):
    """Context of a stateless request: it ends with `inputRequests`, and goes on when the client comes back.

    It runs in a task of its own, which waits while the client has the elicitations.
    """

    def __init__(
        self,
        client: ContextClient,
        about: "RequestIdentity",
        abilities: frozenset[Ability],
        context: Context | None = None,
        given: Mapping[str, object] | None = None,
    ) -> None:
        """Begin one; `given` are answers that came with the request, by the server's keys."""
        level = _read_log_level(context) if context is not None else None
        super().__init__(client, abilities=abilities, log_level=level)
        self.about = about
        """What it is about: a client that comes back must want the same."""
        self.state = ""
        """What a client comes back with: another one in each round."""
        self._context = context
        self._given = dict(given or {})
        self._elicitations: dict[str, _OpenElicitation] = {}
        self._count = 0
        self._stirred = anyio.Event()
        self._scope = anyio.CancelScope()
        self._result: ResultT | None = None
        self._error: Exception | None = None
        self._is_over = False
        self._is_fetched = anyio.Event()
        """Set when the client has come back for a result that waited for it."""
        self._was_abandoned = False

    @property
    def is_parked(self) -> bool:
        """Whether the client has its `inputRequests` and may come back."""
        return self.state in self.client.parked

    @property
    def may_ask_elsewhere(self) -> bool:
        """Whether its elicitations may be sent in another request: not if the client left them."""
        return not self._scope.cancel_called and not self._was_abandoned

    def end(self) -> None:
        """Withdraw its elicitations, unless the client has them and may come back."""
        if not self.is_parked:
            super().end()

    async def run(self, work: Callable[[], Awaitable[ResultT]]) -> None:
        """Do the work. What comes of it is for `next_round`."""
        try:
            with self._scope, self.client.requests.track(self):
                self._result = await work()
                if self.log_level is not None:
                    await self.client.notifier.settle_logs()
        except Exception as exc:  # noqa: BLE001 - raised by `next_round`
            self._error = exc
        finally:
            self._is_over = True
            self._stirred.set()
            if self._scope.cancelled_caught:
                self._abandon()
        if self.is_parked:
            # It was done before its elicitation was answered: the result waits for the client, for a while.
            with anyio.move_on_after(PARKED_SECONDS):
                await self._is_fetched.wait()
                return
            self._abandon()

    def _abandon(self) -> None:
        """Give up waiting for the client: its elicitations end with the request."""
        self._was_abandoned = True
        self.client.parked.pop(self.state, None)
        self.end()

    async def ask(self, request: ServerRequest, server_id: str) -> ClientResult:
        """Send a server's request with the next `inputRequests`, and wait until the client comes back."""
        key = INPUT_REQUEST.get()
        if key is not None and isinstance(given := self._given.pop(key, None), _ANSWERS[request.method]):
            return given
        # The server names its requests. A name that is not safe to show, or is taken, is replaced by ours.
        while key is None or key in self._elicitations or gate.content(key, gate.MAX_TEXT_BYTES) != key:
            self._count += 1
            key = f"request-{self._count}"
        elicitation = self._elicitations[key] = _OpenElicitation(request)
        self._stirred.set()
        try:
            await elicitation.answered.wait()
        finally:
            if self._elicitations.get(key) is elicitation:  # it was withdrawn
                del self._elicitations[key]
        await self.client.requests.enter(self, server_id)  # the server may ask once more about this one
        assert elicitation.answer is not None
        return elicitation.answer

    async def tell(self, notification: types.ServerNotification) -> None:
        """Send it on the stream that the present answer comes on."""
        if self._context is not None:
            self.has_streamed = True
            await self._context.session.send_notification(notification, self._context.request_id)

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report progress on the stream that the present answer comes on."""
        if self._context is not None:
            self.has_streamed = True
            await self._context.session.report_progress(done, total, message)

    async def next_round(self) -> ResultT | types.InputRequiredResult:
        """Wait for the result, or for elicitations. Cancelling the wait cancels the request."""
        self._scope.deadline = float("inf")
        try:
            while not self._is_over:
                if not self._elicitations:
                    self._stirred = anyio.Event()
                    await self._stirred.wait()
                    continue
                for _ in range(_GATHERING_TICKS):
                    await anyio.lowlevel.checkpoint()
                if self._elicitations:
                    break
        except anyio.get_cancelled_exc_class():
            self._scope.cancel()
            raise
        if not self._is_over and len(self.client.parked) >= MAX_PARKED:
            self._scope.cancel()
            message = "too many requests wait for answers: answer some of them first"
            raise MCPError(INTERNAL_ERROR, message, {DELIVERY: "unknown"})
        if not self._is_over:
            self._scope.deadline = anyio.current_time() + PARKED_SECONDS
            self.state = seal_state(self.client.principal, self.about, self.client.new_state_nonce())
            self.client.parked[self.state] = self
            return types.InputRequiredResult(
                input_requests={key: elicitation.request for key, elicitation in self._elicitations.items()},
                request_state=self.state,
            )
        self._is_fetched.set()
        if self._error is not None:
            raise self._error
        if self._result is None:
            gone = self._scope.cancelled_caught
            reason = "the client did not come back with answers" if gone else "the client's session ended"
            # How far it got is not known here: its server may have had it.
            raise MCPError(INTERNAL_ERROR, f"the request was given up: {reason}", {DELIVERY: "unknown"})
        return self._result

    def resume(self, context: Context, answers: Mapping[str, object]) -> None:
        """Go on with a client's answers. What it left unanswered it gets again."""
        for key, elicitation in self._elicitations.items():
            if key in answers and not isinstance(answers[key], _ANSWERS[elicitation.request.method]):
                self.client.parked[self.state] = self
                raise MCPError(INVALID_PARAMS, f"the answer to `{key}` is not of the requested type")
        self._context = context
        for key in [key for key in self._elicitations if key in answers]:
            elicitation = self._elicitations.pop(key)
            elicitation.answer = answers[key]  # pyright: ignore[reportAttributeAccessIssue] - checked above
            elicitation.answered.set()


def _read_log_level(context: Context) -> types.LoggingLevel | None:
    meta: Mapping[str, Any] = context.meta or {}
    try:
        return _level.validate_python(meta.get(types.LOG_LEVEL_META_KEY))
    except ValidationError:
        return None


class PlainCall:
    """The call that the current task makes. A cancel scope would do, at twenty times the price."""

    __slots__ = ("_is_cancelled", "_is_over", "_task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.current_task(loop)
        assert task is not None, "every request has a task"
        self._task = task
        self._is_cancelled = False
        self._is_over = False

    def end(self) -> None:
        """End it: the task goes on to other things."""
        self._is_over = True

    def cancel(self) -> None:
        """Cancel it, if it is not over: its client said so, or is gone."""
        if not self._is_over and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()

    def was_cancelled(self) -> bool:
        """Return whether this is why the task was interrupted: it goes on then, and ends otherwise."""
        return self._is_cancelled and self._task.uncancel() == 0


class TaskStarter:
    """Starts tasks for callbacks of the event loop, in which anyio does not work."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., Coroutine[Any, Any, None]], tuple[object, ...]]] = deque()
        self._filled = asyncio.Event()

    def start_soon(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Have `work(*args)` run as a task, if `run` runs."""
        self._waiting.append((work, args))
        self._filled.set()

    async def run(self, tasks: TaskGroup) -> None:
        """Start what is wanted, in `tasks`, until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                work, args = self._waiting.popleft()
                tasks.start_soon(work, *args)
