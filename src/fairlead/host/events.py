"""The event bus of a host: bounded queues of subscribers.

A slow subscriber loses the oldest events, and gets `EventsDropped`; it never blocks the host.
"""

import asyncio
import logging
import re
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import ExitStack, contextmanager, suppress

import anyio

from fairlead.events import Event, EventsDropped, McpToolCallBegin, McpToolCallEnd, McpToolCallProgress

logger = logging.getLogger(__name__)

MAX_WAITING = 10_000

_OF_CALLS = (McpToolCallBegin, McpToolCallProgress, McpToolCallEnd)


class Subscriber:
    """The event queue of one subscriber: iterate over it."""

    def __init__(self, *, overhears: bool = True, hears_calls: bool = True) -> None:
        self.overhears = overhears
        """Whether it also gets the events of client hosts below the bus it is subscribed to."""
        self._hears_calls = hears_calls
        self._waiting: deque[Event] = deque(maxlen=MAX_WAITING)
        self._dropped = 0
        self._filled = anyio.Event()
        self._closed = False

    def put(self, event: Event) -> None:
        """Add an event. A full queue drops its oldest one."""
        if not self._hears_calls and isinstance(event, _OF_CALLS):
            return
        if len(self._waiting) == MAX_WAITING:
            self._dropped += 1
        self._waiting.append(event)
        self._filled.set()

    def close(self) -> None:
        """End the iteration after the events that are queued."""
        self._closed = True
        self._filled.set()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            if self._filled.is_set():  # else another task waits for it already
                self._filled = anyio.Event()
            await self._filled.wait()
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            return EventsDropped(count=dropped)
        return self._waiting.popleft()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<{type(self).__name__}: {state}, {len(self._waiting)} events waiting>"


class EventStream:
    """Events of a host from the moment it was made: `host.events()`.

    Iterate over it, as it is or in `async with`, which ends the subscription with the block. Without the
    block it ends when the stream is dropped, after a `break` for instance. Each stream has a queue of its
    own, and ends when the host is closed.

    ```python
    async for event in host.events():
        match event:
            case McpToolCallEnd():
                print(f"{event.server_id}.{event.tool} took {event.seconds:.1f} s")
            case EventsDropped():
                print(f"too slow: {event.count} events were lost")
    ```
    """

    def __init__(self, bus: "EventBus", *, calls: bool) -> None:
        self._subscriber = Subscriber(hears_calls=calls)
        self._subscription = ExitStack()
        self._subscription.enter_context(bus.listening_with_shared(self._subscriber))
        loop = asyncio.get_running_loop()
        self._drop = weakref.finalize(self, _close_soon, loop, self._subscription)
        self._drop.atexit = False

    def close(self) -> None:
        """End the subscription, and the iteration after the events that are queued."""
        if self._drop.detach() is not None:
            self._subscription.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        return await anext(self._subscriber)

    async def __aenter__(self) -> "EventStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<EventStream of {self._subscriber!r}>"


def _close_soon(loop: asyncio.AbstractEventLoop, subscription: ExitStack) -> None:
    """End the subscription of a stream that was dropped, perhaps in another thread or amid an event."""
    with suppress(RuntimeError):  # the loop is closed, and the host with it
        loop.call_soon_threadsafe(subscription.close)


class _SharedEvents(Subscriber):
    """Forwards the events of the bus above that are about shared servers, and not of another host below."""

    def __init__(self, to: Subscriber, has_own: Callable[[str], bool]) -> None:
        super().__init__(overhears=False)
        self._to = to
        self._has_own = has_own

    def put(self, event: Event) -> None:
        """Forward an event unless it is about a server with a connection below."""
        if not self._has_own(getattr(event, "server_id", "")):
            self._to.put(event)


class EventBus:
    """Hands every event to its subscribers, and to those of the bus above that have `overhears`.

    Args:
        above: The bus of the host above.
        has_own: Tells which servers are not shared with that host, so that their events there are of others.
    """

    def __init__(
        self,
        above: "EventBus | None" = None,
        *,
        has_own: Callable[[str], bool] = lambda _server_id: False,
    ) -> None:
        self._above = above
        self._has_own = has_own
        self._subscribers: set[Subscriber] = set()
        self._is_closed = False

    @property
    def has_listeners(self) -> bool:
        """Whether there is any subscriber, or a log of events. Without one, callers need not build events."""
        return (
            bool(self._subscribers)
            or (self._above is not None and self._above.has_listeners)
            or logger.isEnabledFor(logging.DEBUG)
        )

    def emit(self, event: Event) -> None:
        """Hand an event to all subscribers, without waiting."""
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", _describe(event))
        for subscriber in self._subscribers:
            subscriber.put(event)
        if self._above is not None:
            self._above.overhear(event)

    def overhear(self, event: Event) -> None:
        """Hand an event of a client host to the subscribers that have `overhears`, without waiting."""
        for subscriber in self._subscribers:
            if subscriber.overhears:
                subscriber.put(event)
        if self._above is not None:
            self._above.overhear(event)

    def subscribe(self, subscriber: Subscriber | None = None) -> Subscriber:
        """Add a subscriber, or a new one."""
        subscriber = subscriber or Subscriber()
        if self._is_closed:
            subscriber.close()
        else:
            self._subscribers.add(subscriber)
        return subscriber

    @contextmanager
    def listening(self, subscriber: Subscriber) -> Generator[None]:
        """Subscribe for the length of the block. The subscriber's `put` is called as events happen."""
        self.subscribe(subscriber)
        try:
            yield
        finally:
            self.unsubscribe(subscriber)

    @contextmanager
    def listening_with_shared(self, subscriber: Subscriber) -> Generator[None]:
        """Subscribe, for the length of the block, to this bus and to the events of shared servers above."""
        with self.listening(subscriber):
            if self._above is None:
                yield
            else:
                with self._above.listening_with_shared(_SharedEvents(subscriber, self._has_own)):
                    yield

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Remove a subscriber and end its iteration."""
        self._subscribers.discard(subscriber)
        subscriber.close()

    def close(self) -> None:
        """End every subscription, and take no more."""
        self._is_closed = True
        for subscriber in [*self._subscribers]:
            self.unsubscribe(subscriber)


def _describe(event: Event) -> str:
    """An event for the log, which never has arguments: what happened, and the fields that say something."""
    names: tuple[str, ...] = getattr(event, "__struct_fields__", ()) or tuple(
        getattr(event, "__dataclass_fields__", ())
    )
    found = ((name, getattr(event, name)) for name in names if name not in ("json", "arguments"))
    texts = ((name, f"{value:.3f}" if isinstance(value, float) else value) for name, value in found)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(event).__name__).lower().removeprefix("mcp ")
    return " ".join([words, *(f"{name}={value}" for name, value in texts if value not in (None, "", (), {}))])
