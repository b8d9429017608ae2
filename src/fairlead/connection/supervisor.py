"""The supervisor of a connection: connects on demand, lists, subscribes, reconnects, and closes when idle."""

import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from functools import partial

import anyio
from anyio.abc import TaskGroup
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    LoggingLevel,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from fairlead.catalog.tools import Listing
from fairlead.config.models import ExtensionServer, RemoteServer, Server, ServerLimits, StdioServer
from fairlead.connection.deadlines import Backoff
from fairlead.connection.elicitation import UrlVisits
from fairlead.connection.failure_hints import NOT_MCP, hint_for_transport
from fairlead.connection.failures import SlowStart, calling, connecting, lost_error, start_timed_out
from fairlead.connection.link import ConnectAttempt, SessionLink, open_session
from fairlead.connection.lists import ListBudget, ListedServer, Lister, read_header_maps
from fairlead.connection.peer import ClientPeer, LogIn, LoginCount, RefusingPeer, detach_from_caller
from fairlead.connection.session import Session
from fairlead.connection.start_limit import StartLimit
from fairlead.connection.state import ConnectionStatus, check_move
from fairlead.connection.subscriptions import Subscriptions
from fairlead.connection.tasks import Support, known_task_support, listed_task_support
from fairlead.connection.transport.dispatcher import Transport, WireDispatcher
from fairlead.errors import (
    AuthRequired,
    ClientRegistrationRequired,
    ConnectFailed,
    ConnectionLost,
    ConsentRequired,
    FairleadError,
    ListFailed,
    ServerError,
    StoreError,
)
from fairlead.events import DOWN, ServerState
from fairlead.wording import without_server

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 8.0
SETTING_SECONDS = 30.0
REFRESH_DEBOUNCE_SECONDS = 0.2
WITHDRAWN = "it was disabled or changed meanwhile"
MAX_REFRESH_PAUSE_SECONDS = 10.0
_REFRESH_DUTY = 4.0
"""How much longer than the last listing took nothing is listed again."""

_LIST_CHANGES = (ToolListChangedNotification, ResourceListChangedNotification, PromptListChangedNotification)


class Supervisor:
    """Keeps one server connected: opens on first use, once for all who wait, and closes when stopped or idle.

    Each run is opened and closed by one task of the owner's group; callers never touch its lifetime. They use
    its `link`, or `connect`, and report what they find wrong with one (`give_up`, `refuse_login`).
    """

    def __init__(  # noqa: PLR0913 - everything a connection depends on, named once
        self,
        server_id: str,
        limits: ServerLimits,
        transports: Sequence[Transport],
        *,
        tasks: TaskGroup,
        admission: StartLimit | None = None,
        known_version: str | None = None,
        known_listing: Listing | None = None,
        peer: ClientPeer | None = None,
        log_level: LoggingLevel | None = None,
        log_in: LogIn | None = None,
        backoff: Backoff | None = None,
        on_state: Callable[[ServerState, str | None], None] = lambda _state, _reason: None,
        on_connected: Callable[[], None] = lambda: None,
        on_download: Callable[[str | None], None] = lambda _what: None,
        prepare: Callable[[Listing], Awaitable[None]] | None = None,
        on_listed: Callable[[Listing, str], None] = lambda _listing, _version: None,
    ) -> None:
        self.server_id = server_id
        self.vitals = ConnectionStatus()
        self.backoff = backoff or Backoff()
        self.limits = limits
        """Timeouts and limits of the server's entry."""
        self._is_local = not isinstance(limits, Server) or isinstance(limits, StdioServer | ExtensionServer)
        self._transport_hint = hint_for_transport(limits) if isinstance(limits, RemoteServer) else None
        self._transports = transports
        self._tasks = tasks
        self._admission = admission
        self._known_version = known_version
        self._listing = known_listing or Listing()
        """What the server listed last, in this run or an earlier one."""
        self._peer = peer or RefusingPeer()
        self._log_level: LoggingLevel | None = log_level
        self._log_in = log_in
        self._on_state = on_state
        self._on_connected = on_connected
        self._on_download = on_download
        self._prepare = prepare
        self._on_listed = on_listed
        self.is_withdrawn = False
        """Whether it may not connect again: its server was disabled, replaced or removed."""
        self.link: SessionLink | None = None
        """The session that new requests use, if it is usable."""
        self._links: set[SessionLink] = set()
        self._attempt: ConnectAttempt | None = None
        self._runs: set[ConnectAttempt] = set()
        self.up_to_date = anyio.Event()
        """Set while nothing is known to have changed since the server was last listed."""
        self._changed = anyio.Event()
        self._task_support: Mapping[str, Support] = {}
        """Tools of an older server that can, or must, be called as tasks."""
        self.subscriptions = Subscriptions(self.refresh, self._peer.handle_update, self._wake_links)
        self._session_key = secrets.token_hex(16)
        """The session id for gateways that keep sessions, the same in all runs."""
        self.url_visits = UrlVisits(self._peer)
        """The pages of the server that the user is visiting."""

    # What callers use.

    async def connect(self) -> SessionLink:
        """The live link, connecting first, with a login if the server demands one, if there is none."""
        logins = LoginCount()
        while True:
            try:
                return await self._ensure_connected()
            except AuthRequired as exc:
                logins.add(exc)
                failure = exc
            await self.log_in(failure)

    async def log_in(self, error: AuthRequired) -> None:
        """Have the user log in as the server demands, or raise its error."""
        if self._log_in is None:
            raise error
        try:
            await self._log_in(error)
        except ClientRegistrationRequired as exc:
            # Found out in the middle of a login: the issuer refused to register this client.
            if self.vitals.state == "auth_required":
                self._note_error(exc)
                self._move("needs_client_registration", str(exc))
            raise

    def refuse_login(self, link: SessionLink, error: AuthRequired) -> None:
        """Note that the server refused the login of a link, unless it only wants more scopes."""
        if not error.wants_more:
            self._note_error(error)
            self.give_up(link, error)

    def note_loss(self, link: SessionLink) -> None:
        """Note that a link ended by itself: a request may find out before the owner does, or in its place."""
        ending = link.session.dispatcher.ending
        if ending is not None and self.link is link:
            error = lost_error(self.server_id, ending)
            self._note_error(error)
            self.give_up(link, error)

    def refresh(self) -> None:
        """List again what the server offers, soon; many wishes are one."""
        if self.link is not None and self.link.usable and self.vitals.state in DOWN:
            self._move("connecting")  # the list that failed is no longer the last word
        self._changed.set()
        if self.up_to_date.is_set():
            self.up_to_date = anyio.Event()

    @property
    def is_answering(self) -> bool:
        """Whether it has answered calls in this run, though its lists may not have come yet."""
        link = self.link
        answered = link is not None and link.usable and self.vitals.calls > link.calls_before
        return answered and self.vitals.state == "connecting"

    def renew(self) -> None:
        """Connect anew for the next request; what is under way finishes over the connection there is."""
        if self.link is not None:
            self.give_up(self.link)

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Set the log level of a handshake server, for this and all later runs."""
        if level != self._log_level:
            self._log_level = level
            await self._set_log_level((await self.connect()).session, level)

    async def aclose(self, *, drain: bool = False) -> None:
        """End the connection and wait until nothing of it is left. From any task, any number of times.

        With `drain`, calls under way are let finish; without, they fail.
        """
        if self._attempt is not None:
            self._attempt.abort()
        for link in self._links:
            link.leave(hurry=not drain)
        if self.link is not None:
            self.give_up(self.link)
        with anyio.move_on_after(math.inf if drain else CLOSE_SECONDS):
            for run in [*self._runs]:  # and not those that begin in the meantime
                await run.over.wait()

    # Connecting.

    async def _ensure_connected(self) -> SessionLink:
        if self.link is not None and self.link.usable:
            return self.link
        attempt = self._attempt
        if attempt is None:
            if self._tasks.cancel_scope.cancel_called:
                raise ConnectFailed(self.server_id, "the host is closed")
            if self.is_withdrawn:
                raise ConnectFailed(self.server_id, WITHDRAWN)
            if self.backoff.is_open:
                raise self._too_many_failures()
            attempt = self._attempt = ConnectAttempt()
            self.link = None  # one that is lost, and not closed yet, has no say any more
            self._runs.add(attempt)
            self._tasks.start_soon(self._own, attempt, name=f"connection {self.server_id}")
        await attempt.settled.wait()
        if attempt.link is None:
            assert attempt.error is not None
            raise attempt.error
        if not attempt.link.wanted:
            # It was left before this caller's turn came: on a busy machine that is later than its idle limit.
            # It closes without a call under way, and a request sent over it now would be lost.
            return await self._ensure_connected()
        return attempt.link

    def _too_many_failures(self) -> ConnectFailed:
        last = self.vitals.last_error
        wait = math.ceil(self.backoff.wait_seconds)
        reason = f"it failed {self.backoff.failures} times in a row; not tried again for {wait} s"
        if last is not None:
            reason += f"; the last error was: {without_server(str(last), self.server_id)}"
        return ConnectFailed(self.server_id, reason, hint=last.hint if last else None)

    async def _own(self, attempt: ConnectAttempt) -> None:
        """Open the connection, watch over it, close it: all in this one task."""
        detach_from_caller()  # the first caller is not the client that the connection serves
        self._move("connecting")
        error: ServerError | None = None
        try:
            with connecting(self.server_id, is_local=self._is_local, transport_hint=self._transport_hint):
                await self._run(attempt)
        except ServerError as exc:
            error = exc
        except FairleadError as exc:
            error = ConnectFailed(self.server_id, str(exc), hint=exc.hint)
            error.__cause__ = exc
        finally:
            self._finish(attempt, error)

    async def _run(self, attempt: ConnectAttempt) -> None:
        seconds = self.limits.startup_timeout_ms / 1000
        async with AsyncExitStack() as admitted:
            with attempt.starting as starting:
                if (pause := self.backoff.wait_seconds) > 0:
                    await anyio.sleep(pause)
                if self._admission is not None:
                    await admitted.enter_async_context(self._admission.start())
                attempt.began = anyio.current_time()
                starting.deadline = attempt.began + seconds
                async with self._open(attempt, seconds) as session:
                    starting.deadline = math.inf  # it bounds the start, not the session
                    await admitted.aclose()
                    await self._serve(attempt, session)
        if starting.cancelled_caught and not attempt.aborted:
            self._expire(attempt)
            assert attempt.error is not None
            raise attempt.error

    @contextmanager
    def _hold_clock(
        self, attempt: ConnectAttempt, seconds: float, dispatcher: WireDispatcher
    ) -> Generator[None]:
        """Have the clock of the start stand still while a download is seen, and tell of that."""
        downloads = dispatcher.downloads

        def report() -> None:
            self.vitals.download = downloads.current
            self._on_download(downloads.current)

        downloads.listen(report)
        try:
            with downloads.holding(attempt.starting, seconds, is_whole=True):
                yield
        finally:
            downloads.on_change = lambda: None
            self.vitals.download = None

    def _prepare_close(self, attempt: ConnectAttempt, dispatcher: WireDispatcher) -> None:
        """Keep what the server wrote while it started; tell callers of a timeout before all is closed."""
        if attempt.settled.is_set():
            return
        attempt.stderr_lines = dispatcher.stderr_lines() or attempt.stderr_lines
        attempt.noise = dispatcher.noise_lines() or attempt.noise
        attempt.download, attempt.fetch_command = dispatcher.downloads.current, dispatcher.fetch_command
        if attempt.starting.cancel_called and not attempt.aborted:
            self._expire(attempt)

    def _expire(self, attempt: ConnectAttempt) -> None:
        if attempt.settled.is_set():
            return
        slow = SlowStart(
            allowed=self.limits.startup_timeout_ms / 1000,
            took=anyio.current_time() - attempt.began,
            is_local=self._is_local,
            stderr_lines=attempt.stderr_lines,
            noise=attempt.noise,
            download=attempt.download,
            command=attempt.fetch_command,
        )
        error = start_timed_out(self.server_id, slow)
        self._note_error(error)
        self.backoff.note_failure()
        attempt.settle(None, error)
        if self._attempt is attempt:
            self._move("error", str(error))

    def _note_error(self, error: ServerError) -> None:
        self.vitals.last_error, self.vitals.last_error_at = error, time.time()

    def _forget_error(self) -> None:
        self.vitals.last_error = self.vitals.last_error_at = None

    def _open(self, attempt: ConnectAttempt, seconds: float) -> AbstractAsyncContextManager[Session]:
        probe = self._known_version not in HANDSHAKE_PROTOCOL_VERSIONS
        return open_session(
            self._transports,
            probe=probe,
            seconds=seconds,
            peer=self._peer,
            log_level=self._log_level,
            session_key=self._session_key,
            on_message=self._on_message,
            on_opened=partial(self._hold_clock, attempt, seconds),
            on_closing=partial(self._prepare_close, attempt),
        )

    async def _serve(self, attempt: ConnectAttempt, session: Session) -> None:
        """Be there for callers until the connection is lost or no longer wanted."""
        await session.send_sandbox_state()
        now = time.monotonic()
        link = SessionLink(session=session, since=now, last_used=now, calls_before=self.vitals.calls)
        if session.mirrors_arguments:
            session.learn_headers(read_header_maps(self._listing.tools))
        self._links.add(link)
        self.link, self._attempt = link, None
        self._known_version = self.vitals.version = session.version
        self.vitals.keeps_sessions = session.keeps_sessions
        info = session.sdk.server_info
        self.vitals.server = f"{info.name} {info.version}" if info else None
        self.vitals.connects += 1
        self.vitals.last_connected_at = time.time()
        self._forget_error()
        self._on_connected()
        attempt.settle(link, None)
        self.subscriptions.begin()
        try:
            async with anyio.create_task_group() as tasks:
                link.follow_transport(partial(self._retire, link))
                tasks.start_soon(self._keep_listed, link)
                if self._log_level is not None:
                    tasks.start_soon(self._set_log_level, session, self._log_level)
                await self._until_over(link, tasks)
                tasks.cancel_scope.cancel()
        finally:
            self._links.discard(link)
            link.listed.set()
        ending = session.dispatcher.ending
        if ending is not None and not link.hurry:
            self.vitals.losses += 1
            raise lost_error(self.server_id, ending)

    def _finish(self, attempt: ConnectAttempt, error: ServerError | None) -> None:
        link = attempt.link
        current = self._attempt is attempt or (link is not None and self.link is link)
        if current:
            self._attempt = self.link = None
        if link is not None:
            served = self.vitals.calls > link.calls_before
            self.backoff.note_success(time.monotonic() - link.since, served=served)
        if error is not None and error is not attempt.error:  # else it was noted when it was raised
            if self.link is None:  # the end of an earlier run says nothing of the one that is up
                self._note_error(error)
            needs_user = isinstance(error, AuthRequired | ClientRegistrationRequired | ConsentRequired)
            if not needs_user and not isinstance(error.__cause__, StoreError):
                # Nothing gets better by waiting where the user has to act, or the store is away, which says
                # by itself when it is tried again.
                self.backoff.note_failure()
        if current:
            self._move(_state_after(error), str(error) if error else None)
        is_users = isinstance(error, AuthRequired | ClientRegistrationRequired)
        if error is not None and not is_users and self.subscriptions.are_wanted:
            self._tasks.start_soon(self._come_back)
        attempt.settle(None, error or ConnectFailed(self.server_id, "it was closed while it connected"))
        self._runs.discard(attempt)
        attempt.over.set()

    async def _come_back(self) -> None:
        """Reconnect after a loss, because resources are watched. A failure leads here again."""
        await anyio.sleep(self.backoff.wait_seconds)
        if self.subscriptions.are_wanted:
            with suppress(ServerError):
                await self.connect()

    # Watching.

    async def _until_over(self, link: SessionLink, tasks: TaskGroup) -> None:
        """Wait until a link is lost, left or idle for too long."""
        idle = self.limits.idle_stop_ms
        keeps_subscriptions = False
        while link.session.dispatcher.ending is None and not link.is_left:
            if not keeps_subscriptions and self.subscriptions.are_needed(link):
                # Not before: to most servers there is nothing to say, and a task costs as much as a request.
                keeps_subscriptions = True
                tasks.start_soon(self.subscriptions.keep, link)
            if link.is_used or self.subscriptions.are_wanted:
                link.last_used = time.monotonic()
            patience = math.inf if idle is None else link.last_used + idle / 1000 - time.monotonic()
            if patience <= 0:
                self.give_up(link)
                return
            with anyio.move_on_after(max(patience, 0.05)):
                await link.woken.wait()
            link.woken = anyio.Event()

    def _wake_links(self) -> None:
        for link in self._links:
            link.wake()

    def _retire(self, link: SessionLink) -> None:
        self.give_up(link)
        if self.subscriptions.are_wanted:
            self._tasks.start_soon(self._come_back)

    def give_up(self, link: SessionLink, error: ServerError | None = None) -> None:
        """Stop using a link. Its calls finish; the next caller connects anew, once for all who come."""
        link.leave()
        if self.link is link:
            self.link = None
            self._move(_state_after(error), str(error) if error else None)

    def _move(self, state: ServerState, reason: str | None = None) -> None:
        if state != self.vitals.state:
            check_move(self.vitals.state, state)
            self.vitals.state = state
            self.vitals.connecting_since = time.monotonic() if state == "connecting" else None
            self._on_state(state, reason)

    async def _set_log_level(self, session: Session, level: LoggingLevel) -> None:
        """Set the log level of a handshake server; a stateless one gets it in every request."""
        if session.modern or session.capabilities.logging is None:
            return
        try:
            await session.request("logging/setLevel", {"level": level}, seconds=SETTING_SECONDS)
        except MCPError:
            logger.info("a server would not set its log level", extra={"server_id": self.server_id})

    # Listing.

    def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, _LIST_CHANGES):
            self.refresh()
        self.url_visits.handle_message(message)

    async def _keep_listed(self, link: SessionLink) -> None:
        await self.subscriptions.wait_open(link)
        while True:
            self._changed = anyio.Event()
            published = anyio.Event()
            began = anyio.current_time()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._list, link, published)
                await published.wait()
                ended = anyio.current_time()
                await self._changed.wait()
                # A server that says all the time that its list changed costs a fraction of our time; one that
                # was quiet since it was listed is listed at once.
                pause = min((ended - began) * _REFRESH_DUTY, MAX_REFRESH_PAUSE_SECONDS)
                await anyio.sleep(max(ended + pause - anyio.current_time(), REFRESH_DEBOUNCE_SECONDS))
                tasks.cancel_scope.cancel()  # a list that hangs does not keep the others from being renewed

    async def _list(self, link: SessionLink, published: anyio.Event) -> None:
        """List the server. `published` is set once its tools are known, or cannot be; the rest may follow."""

        async def publish(listed: ListedServer) -> None:
            if self._prepare is not None and link is self.link:
                await self._prepare(listed.listing)
            self._take_listing(link, listed)
            if listed.is_interim:
                return
            if listed.failure is not None:
                self._handle_list_error(link, listed.failure)
            self._note_listed(link)
            published.set()

        lister = Lister(self.server_id, link.session, self.list_budget(), self._listing, publish)
        try:
            await lister.run()
        except Exception as exc:  # noqa: BLE001 - what is no failure of a server is raised again there
            self._handle_list_error(link, exc)
        self._note_listed(link)
        published.set()

    def _handle_list_error(self, link: SessionLink, failure: Exception) -> None:
        try:
            with calling(self.server_id):
                raise failure
        except ServerError as exc:
            if link is self.link and link.usable:
                self._note_list_error(link, exc)

    def list_budget(self) -> ListBudget:
        """The limits of its listing."""
        return ListBudget(
            self.limits.max_list_items,
            self.limits.max_list_bytes,
            request_seconds=self.limits.request_timeout_ms / 1000,
        )

    def _note_listed(self, link: SessionLink) -> None:
        link.listed.set()
        if not self._changed.is_set():
            self.up_to_date.set()

    def _take_listing(self, link: SessionLink, listed: ListedServer) -> None:
        link.session.learn_headers(listed.header_maps)
        if link is self.link:
            self._listing = listed.listing
            is_older = link.session.runs_tasks
            self._task_support = listed_task_support(listed.listing.tools) if is_older else {}
            self._note_noise(link)
            self._on_listed(listed.listing, link.session.version)
            if not listed.listing.is_partial:
                self._forget_error()
                self._move("ready")

    def _note_noise(self, link: SessionLink) -> None:
        dispatcher = link.session.dispatcher
        noise = dispatcher.noise_lines() if dispatcher.kind == "stdio" else ()
        self.vitals.noise = noise[-1] if noise else None

    def _note_list_error(self, link: SessionLink, failure: ServerError) -> None:
        error = failure
        if not isinstance(failure, AuthRequired | ConnectionLost | ListFailed):
            reason = f"listing failed: {failure.__cause__}"
            error = ListFailed(self.server_id, reason, hint=failure.hint)
        if isinstance(error, ListFailed):
            error.hint = error.hint or NOT_MCP
        self._note_error(error)
        if isinstance(error, ConnectionLost):
            self.give_up(link, error)
        else:
            self._move(_state_after(error), str(error))

    async def task_support(self, tool: str) -> Support:
        """The task support that an older server declares for a tool: in this run's list, or an earlier one.

        A tool of which neither is known waits for the list: it cannot be called in the wrong way and again.
        """
        link = self.link
        if link is not None and not link.listed.is_set():
            if known := known_task_support(self._listing.tools, tool):
                return known
            await self.list_again(link)
        return self._task_support.get(tool) or known_task_support(self._listing.tools, tool) or "forbidden"

    async def list_again(self, link: SessionLink) -> None:
        """Wait for the listing under way, or for another if the last one has ended."""
        if link is not self.link:
            return  # the next try goes over another, which is listed anyway
        if link.listed.is_set():
            link.listed = anyio.Event()
            self.refresh()
        with anyio.move_on_after(self.limits.request_timeout_ms / 1000):
            await link.listed.wait()


def _state_after(error: ServerError | None) -> ServerState:
    if error is None:
        return "idle"
    if isinstance(error, ClientRegistrationRequired):
        return "needs_client_registration"
    return "auth_required" if isinstance(error, AuthRequired) else "error"
