"""The requests of one client that are being handled, and which of them a server's elicitation belongs to.

A handshake server over stdio sends elicitations and log messages without saying which request they are about.
"""

from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from fairlead.connection.peer import CALLER
from fairlead.gateway.request_context import RequestContext
from fairlead.host.operator import Ability

ATTRIBUTION_SECONDS: Final = 0.2
"""How long an elicitation is taken to be about the latest request, while others wait to be sent."""


class OpenRequests:
    """The request contexts of one client, in the order in which they began."""

    def __init__(self, *, is_one_agent: bool, on_end: Callable[[], None]) -> None:
        """Begin with none.

        Args:
            is_one_agent: Whether all requests of the client are known to come from one agent.
            on_end: Called after each request that ended.
        """
        self.attribution = RequestAttribution()
        self._contexts: dict[RequestContext, None] = {}
        self._is_one_agent = is_one_agent
        self._on_end = on_end

    def __iter__(self) -> Iterator[RequestContext]:
        return iter(tuple(self._contexts))

    def __len__(self) -> int:
        return len(self._contexts)

    def __contains__(self, context: object) -> bool:
        return context in self._contexts

    def track(self, context: RequestContext) -> "_Tracking":
        """Handle a request in a block: it is the current one there, and its server's elicitations find it."""
        return _Tracking(self, context)

    async def enter(self, context: RequestContext, server_id: str) -> None:
        """Wait until the request may be the latest that its server is sent."""
        await self.attribution.enter(context, server_id)

    def begin(self, context: RequestContext) -> None:
        """Begin to count a request."""
        self._contexts[context] = None

    def end(self, context: RequestContext) -> None:
        """End a request, and with it every elicitation that belongs to it."""
        del self._contexts[context]
        context.end()
        self._on_end()

    def find_for_elicitation(
        self, server_id: str, ability: Ability, tried: Collection[RequestContext] = ()
    ) -> RequestContext | None:
        """Return the request that an elicitation belongs to which does not name one.

        Only a request that the server works on and whose client has the ability: the one that the server was
        sent last and may ask about now, else the latest. A request that waits for its client's answers counts
        only where the server works on no other.
        """
        latest = self.attribution.take(server_id)
        if latest is not None and not latest.is_ended and ability in latest.abilities and latest not in tried:
            return latest
        running = self.running_at(server_id) or [
            context for context in self._contexts if context.server_id == server_id
        ]
        able = [context for context in running if ability in context.abilities and context not in tried]
        return able[-1] if able else None

    def running_at(self, server_id: str) -> list[RequestContext]:
        """Return the requests that a server works on, without those that wait for their client's answers."""
        return [
            context for context in self._contexts if context.server_id == server_id and not context.is_parked
        ]

    def find_for_log(self, server_id: str) -> RequestContext | None:
        """Return the request that a log message belongs to; None where it may be another agent's."""
        running = self.running_at(server_id)
        if not running or (len(running) > 1 and not self._is_one_agent):
            return None
        return running[-1]


# A class rather than a generator, which takes three times as long: every call is in this block.


class _Tracking:
    __slots__ = ("_context", "_requests", "_token")

    def __init__(self, requests: OpenRequests, context: RequestContext) -> None:
        self._requests = requests
        self._context = context

    def __enter__(self) -> None:
        self._token = CALLER.set(self._context)
        self._requests.begin(self._context)

    def __exit__(self, *exc: object) -> None:
        self._requests.end(self._context)
        # A pipelined HTTP request begins in the context of the one before it.
        CALLER.reset(self._token)


class RequestAttribution:
    """Tells which of several requests an elicitation is about that does not name one.

    Several agents may use one token and client name. So that none gets an elicitation of another, their
    requests go to such a server a moment apart: an elicitation that comes while a request is the latest
    belongs to that one. Requests are held up for that moment, and never for an answer.
    """

    def __init__(self) -> None:
        self._servers: dict[str, _LatestRequest] = {}

    @contextmanager
    def space(self, context: RequestContext, server_id: str, *, is_wanted: bool) -> Generator[None]:
        """Send requests to a server a moment apart while this one is under way, if that is wanted."""
        if not is_wanted:
            yield
            return
        latest = self._servers.setdefault(server_id, _LatestRequest())
        latest.users += 1
        try:
            yield
        finally:
            latest.leave(context)
            latest.users -= 1
            if not latest.users and self._servers.get(server_id) is latest:
                del self._servers[server_id]

    async def enter(self, context: RequestContext, server_id: str) -> None:
        """Wait until the request may be the latest that its server is sent."""
        if (latest := self._servers.get(server_id)) is not None:
            await latest.enter(context)

    def take(self, server_id: str) -> RequestContext | None:
        """Return the request that the server asks about, if that is known. The next may be sent now."""
        latest = self._servers.get(server_id)
        context = latest.context if latest is not None else None
        if latest is not None and context is not None:
            latest.quiet = 0
            latest.leave(context)
        return context


class _LatestRequest:
    """The latest request that a server was sent, while its elicitations are taken to be about it."""

    def __init__(self) -> None:
        self.context: RequestContext | None = None
        self.users = 0
        self.quiet = 0
        """How many requests in a row brought no elicitation. The next is waited for less."""
        self._since = 0.0
        self._left = anyio.Event()

    async def enter(self, context: RequestContext) -> None:
        while self.context is not None:
            with anyio.move_on_after(
                self._since + ATTRIBUTION_SECONDS / (1 + self.quiet) - anyio.current_time()
            ):
                await self._left.wait()
                continue
            self.quiet += 1
            self.leave(self.context)
        self.context, self._since, self._left = context, anyio.current_time(), anyio.Event()

    def leave(self, context: RequestContext) -> None:
        if self.context is context:
            self.context = None
            self._left.set()
