"""Subscriptions of a connection: list changes, and the resources that callers watch.

Handshake servers take one request per resource, stateless servers one stream for all. Subscriptions outlive a
lost connection: the next one subscribes again.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND

from fairlead.connection.link import SessionLink
from fairlead.connection.outcomes import NotSent
from fairlead.connection.session import Session

logger = logging.getLogger(__name__)

LISTEN_AGAIN_SECONDS = 1.0
"""How long to wait before listening again; twice as long each time, while streams end soon."""

SUBSCRIBE_SECONDS = 30.0

_LONGEST_PAUSE_SECONDS = 10.0
OPEN_SECONDS = 1.0
"""How long lists wait for the stream that announces their changes. If it opens later, they are read again."""


@dataclass(eq=False)
class _Stream:
    """A stream of `subscriptions/listen`, opened again where it breaks off."""

    uris: frozenset[str]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    was_tried: bool = False


class Subscriptions:
    """List changes and resources that one connection is subscribed to, across its links."""

    def __init__(
        self,
        on_missed: Callable[[], None],
        on_updated: Callable[[str], None],
        on_stirred: Callable[[], None],
    ) -> None:
        self._on_missed = on_missed
        """Called when lists may have changed unheard."""
        self._on_updated = on_updated
        """Called with a resource that a modern server says has changed."""
        self._on_stirred = on_stirred
        """Called when other things are wanted than before, for links that need no `keep` until then."""
        self._uris: Counter[str] = Counter()
        self._stirred = anyio.Event()
        """Set when other things are wanted than before."""
        self._answers: dict[str, str | None] = {}
        """The server's answer to each subscription: None if it was granted, else the reason."""
        self._answered = anyio.Event()
        self._stream: _Stream | None = None
        """The modern stream that was opened last."""
        self._opened = anyio.Event()
        """Set when the first stream of a link is open, or will not be."""
        self._was_overtaken = False
        """Whether the server was listed before that."""

    @property
    def are_wanted(self) -> bool:
        """Whether any resource is watched."""
        return bool(+self._uris)

    @contextmanager
    def want(self, uris: Iterable[str]) -> Generator[None]:
        """Subscribe to resources for the length of the block."""
        self._count(uris, +1)
        try:
            yield
        finally:
            self._count(uris, -1)

    async def wait_answered(self, uris: Iterable[str]) -> str | None:
        """Wait until the server has answered every subscription. Returns why it refused one, if it did."""
        with anyio.move_on_after(SUBSCRIBE_SECONDS) as patience:
            while not all(uri in self._answers for uri in uris):
                await self._answered.wait()
        if patience.cancelled_caught:
            return "it did not answer"
        return next((reason for uri in uris if (reason := self._answers[uri]) is not None), None)

    def begin(self) -> None:
        """Forget the streams of an earlier link: to be called before `wait_open` and `keep`."""
        self._opened = anyio.Event()
        self._was_overtaken = False
        self._answers.clear()
        self._stream = None

    def are_needed(self, link: SessionLink) -> bool:
        """Whether there is anything to subscribe to, so that `keep` has to run."""
        return self.are_wanted or (link.session.modern and announces_changes(link.session))

    async def wait_open(self, link: SessionLink) -> None:
        """Wait until list changes are announced to us: earlier changes are in the lists read next."""
        if link.session.modern and announces_changes(link.session):
            with anyio.move_on_after(OPEN_SECONDS) as patience:
                await self._opened.wait()
            self._was_overtaken = patience.cancelled_caught

    def _count(self, uris: Iterable[str], step: int) -> None:
        before = set(+self._uris)
        for uri in uris:
            self._uris[uri] += step
        if set(+self._uris) != before:
            self._stirred.set()
            self._on_stirred()

    def _answer(self, uri: str, reason: str | None) -> None:
        self._answers[uri] = reason
        self._answered.set()
        self._answered = anyio.Event()

    async def keep(self, link: SessionLink) -> None:
        """Keep the server's subscriptions up to date for as long as the link is used."""
        if link.session.modern:
            await self._keep_listening(link)
        else:
            await self._keep_subscribed(link)

    # Handshake servers: each resource is subscribed to, list changes are announced without a request.

    async def _keep_subscribed(self, link: SessionLink) -> None:
        while True:
            self._stirred = anyio.Event()
            wanted = set(+self._uris)
            watched = link.session.dispatcher.guests.watched
            for uri in self._answers.keys() - wanted:
                watched[uri] -= 1
                if not watched[uri]:  # others may use the connection, too
                    await self._tell(link.session, "resources/unsubscribe", uri)
                del self._answers[uri]
            for uri in wanted - self._answers.keys():
                watched[uri] += 1
                self._answer(uri, await self._tell(link.session, "resources/subscribe", uri))
            await self._stirred.wait()

    async def _tell(self, session: Session, method: str, uri: str) -> str | None:
        try:
            await session.request(method, {"uri": uri}, seconds=SUBSCRIBE_SECONDS)
        except (MCPError, NotSent) as exc:
            return str(exc)
        return None

    # Stateless servers: one stream has everything. The next one is opened before it ends: nothing is missed.

    async def _keep_listening(self, link: SessionLink) -> None:
        attempt: _Stream | None = None
        async with anyio.create_task_group() as tasks:
            while True:
                self._stirred = anyio.Event()
                uris = frozenset(+self._uris)
                for uri in self._answers.keys() - uris:
                    del self._answers[uri]
                if attempt is not None and attempt is not self._stream:
                    attempt.scope.cancel()  # it was overtaken before it was open
                if uris or announces_changes(link.session):
                    attempt = _Stream(uris)
                    tasks.start_soon(self._listen, attempt, link.session)
                elif self._stream is not None:
                    self._stream.scope.cancel()
                await self._stirred.wait()

    async def _listen(self, stream: _Stream, session: Session) -> None:
        """Listen until the stream is not wanted any more, or the server will not have it."""
        pause = LISTEN_AGAIN_SECONDS
        with stream.scope:
            while True:
                began = anyio.current_time()
                try:
                    await self._follow(stream, session)
                except MCPError as exc:
                    if exc.code != CONNECTION_CLOSED:
                        for uri in stream.uris - self._answers.keys():
                            self._answer(uri, str(exc))
                    if exc.code in (METHOD_NOT_FOUND, INVALID_PARAMS):
                        self._opened.set()
                        return
                except SubscriptionLost:
                    logger.debug("a subscription stream broke off")
                stream.was_tried = True
                self._opened.set()  # it may never be open
                if anyio.current_time() - began > _LONGEST_PAUSE_SECONDS:
                    pause = LISTEN_AGAIN_SECONDS
                await anyio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _follow(self, stream: _Stream, session: Session) -> None:
        """Take in what a stream brings, until it ends."""
        async with listen(
            session.sdk,
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=sorted(stream.uris),
        ) as news:
            last, self._stream = self._stream, stream
            if last is not None and last is not stream:
                last.scope.cancel()
            if stream.was_tried or self._was_overtaken:
                self._was_overtaken = False
                self._on_missed()
            self._opened.set()
            honoured = news.honored.resource_subscriptions or ()
            for uri in stream.uris:
                self._answer(uri, None if uri in honoured else "it does not watch this")
            async for event in news:  # of changed lists, the message handler hears as well
                if isinstance(event, ResourceUpdated):
                    self._on_updated(event.uri)


def announces_changes(session: Session) -> bool:
    """Whether the server declares that it announces list changes."""
    offers = session.capabilities
    return any(
        offered is not None and offered.list_changed
        for offered in (offers.tools, offers.prompts, offers.resources)
    )
