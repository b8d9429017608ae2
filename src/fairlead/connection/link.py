"""One run of a connection: its transport and session, and the task that opens and closes both."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field

import anyio
import mcp_types as types
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION

from fairlead.connection.failures import root_cause
from fairlead.connection.outcomes import ConnectionClosed, HttpRejected
from fairlead.connection.peer import ClientPeer, Introduction
from fairlead.connection.server_requests import ServerRequests, answering_session
from fairlead.connection.session import Negotiation, Session, SilentOnProbe
from fairlead.connection.transport.dispatcher import Transport, WireDispatcher
from fairlead.connection.transport.legacy_sse import is_fallback_worthy
from fairlead.errors import ServerError


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectRoute:
    """One attempt to reach a server: its transport, and whether to probe for the stateless protocol."""

    transport: int
    probe: bool


@dataclass(kw_only=True, slots=True, eq=False)
class SessionLink:
    """A session in use. After `leave` it ends with its last call, or at once in a hurry."""

    session: Session
    since: float
    last_used: float
    in_flight: int = 0
    wanted: bool = True
    hurry: bool = False
    calls_before: int = 0
    """How many calls the server had answered when it began."""
    woken: anyio.Event = field(default_factory=anyio.Event)
    listed: anyio.Event = field(default_factory=anyio.Event)
    """Set when a listing has ended, well or not, and when there will be no more."""

    @property
    def usable(self) -> bool:
        """Whether new requests may use it."""
        return self.wanted and self.session.dispatcher.ending is None

    @property
    def is_left(self) -> bool:
        """Whether it is to be closed now."""
        in_flight = self.in_flight + self.session.dispatcher.guests.calls
        return self.hurry or (not self.wanted and in_flight == 0)

    @property
    def is_used(self) -> bool:
        """Whether something is under way over it, or others than its supervisor have a session on it."""
        dispatcher = self.session.dispatcher
        return bool(self.in_flight or dispatcher.guests.calls or dispatcher.guests.sessions)

    def follow_transport(self, retire: Callable[[], None]) -> None:
        """Follow what becomes of its transport; `retire` is called when that is to be used no more."""
        dispatcher = self.session.dispatcher
        dispatcher.call_when_closed(self.wake)
        dispatcher.guests.on_left = self._note_guest_left
        dispatcher.on_retired = retire
        if dispatcher.is_retired:  # while it was being opened
            retire()

    def _note_guest_left(self) -> None:
        self.last_used = time.monotonic()
        if not self.wanted:
            self.wake()

    def leave(self, *, hurry: bool = False) -> None:
        """Take no more requests."""
        self.wanted = False
        self.hurry = self.hurry or hurry
        self.wake()

    def wake(self) -> None:
        """Wake its owner to check whether it is to be closed or refreshed."""
        self.woken.set()

    def release(self, now: float) -> None:
        """Count the end of a request."""
        self.in_flight -= 1
        self.last_used = now
        if not self.wanted:
            self.wake()


@dataclass(kw_only=True, slots=True, eq=False)
class ConnectAttempt:
    """A connect under way, and those who wait for it."""

    settled: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)
    """Set when nothing is left of it, nor of the link it led to."""
    starting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    aborted: bool = False
    began: float = 0.0
    """When the server began to start, after all waiting."""
    stderr_lines: tuple[str, ...] = ()
    """The server's stderr while it started."""
    noise: tuple[str, ...] = ()
    """Its stdout outside the protocol while it started."""
    download: str | None = None
    """What was being downloaded when its time was up."""
    fetch_command: str | None = None
    """The command that fetches the server, where there is one that can be shown."""
    link: SessionLink | None = None
    error: ServerError | None = None

    def settle(self, link: SessionLink | None, error: ServerError | None) -> None:
        """Report the outcome to those who wait, once."""
        if not self.settled.is_set():
            self.link, self.error = link, error
            self.settled.set()

    def abort(self) -> None:
        """Abort it, because the connection is no longer wanted."""
        self.aborted = True
        self.starting.cancel()


@asynccontextmanager
async def open_session(  # noqa: PLR0913 - what a session is opened with
    transports: Sequence[Transport],
    *,
    probe: bool,
    seconds: float,
    peer: ClientPeer,
    log_level: types.LoggingLevel | None,
    session_key: str | None = None,
    on_message: Callable[[IncomingMessage], None],
    on_opened: Callable[[WireDispatcher], AbstractContextManager[None]] = lambda _dispatcher: nullcontext(),
    on_closing: Callable[[WireDispatcher], None] = lambda _dispatcher: None,
) -> AsyncGenerator[Session]:
    """Open a transport and negotiate on it; where one way fails as old servers fail, try the next.

    Everything is opened and closed in the caller's task.

    Args:
        transports: The ways to reach the server, the preferred one first.
        probe: Begin with `server/discover` (2026-07-28) rather than the handshake of older versions.
        seconds: How long the negotiation may take on each way.
        peer: Answers the server's requests.
        log_level: The level of log messages to ask for.
        session_key: Names the session to a gateway that keeps sessions for stateless requests.
        on_message: Called with each notification and server request.
        on_opened: What it returns for a transport is entered while its session is negotiated.
        on_closing: Called with each transport before it is closed: closing may take long, and makes some
            servers write about that to stderr.
    """
    introduction = Introduction(peer, session_key)
    way: ConnectRoute | None = ConnectRoute(transport=0, probe=probe)
    refusal: HttpRejected | None = None
    async with AsyncExitStack() as stack:
        session: Session | None = None
        while session is None:
            assert way is not None
            try:
                async with AsyncExitStack() as attempt:
                    dispatcher = await attempt.enter_async_context(transports[way.transport]())
                    requests = ServerRequests(dispatcher.clocks_held)
                    sdk = answering_session(dispatcher, peer, introduction, requests, on_message)
                    await attempt.enter_async_context(sdk)
                    attempt.callback(on_closing, dispatcher)
                    with on_opened(dispatcher):
                        await Negotiation(dispatcher, sdk, introduction).run(probe=way.probe, seconds=seconds)
                    session = Session(dispatcher, sdk, introduction, requests, log_level)
                    stack.push_async_exit(attempt.pop_all())
            except Exception as exc:
                failure, tried = root_cause(exc), way
                way = another_way(way, failure, transports=len(transports))
                if way is None:
                    if refusal is not None and _says_less(failure, refusal):
                        raise refusal from None
                    raise
                if way.transport != tried.transport and isinstance(failure, HttpRejected):
                    refusal = failure
        yield session


def another_way(way: ConnectRoute, failure: BaseException, *, transports: int) -> ConnectRoute | None:
    """The next attempt after a failure that may come from another protocol version or transport."""
    if way.probe and _is_due_to_probe(failure):
        return ConnectRoute(transport=way.transport, probe=False)
    if not way.probe and isinstance(failure, MCPError) and failure.code == UNSUPPORTED_PROTOCOL_VERSION:
        return ConnectRoute(transport=way.transport, probe=True)
    if is_fallback_worthy(failure) and way.transport + 1 < transports:
        return ConnectRoute(transport=way.transport + 1, probe=False)
    return None


_NOT_THERE = frozenset({400, 404, 405, 406, 410, 415, 501})


def _says_less(failure: BaseException, refusal: HttpRejected) -> bool:
    """Whether the failure of the older transport says less than the `refusal` of the newer one before it.

    A server that calls the request bad says why; of the older transport it knows nothing. Where neither is
    there, what was said of the newer one counts.
    """
    return isinstance(failure, HttpRejected) and (refusal.status == 400 or failure.status in _NOT_THERE)


def _is_due_to_probe(failure: BaseException) -> bool:
    """Whether a handshake server may have failed because of the probe: not if it never read it."""
    if isinstance(failure, ConnectionClosed):
        return not failure.ending.unheard
    return isinstance(failure, SilentOnProbe)
