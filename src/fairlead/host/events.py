"""Events on their way to whoever listens. A slow listener loses the oldest; it never holds up the host."""

from collections import deque
from collections.abc import AsyncIterator

import anyio

from fairlead.events import Event, McpToolCallBegin, McpToolCallEnd, McpToolCallProgress

MAX_WAITING = 10_000

_OF_CALLS = (McpToolCallBegin, McpToolCallProgress, McpToolCallEnd)


class Subscriber:
    """One listener's queue: iterate over it."""

    def __init__(self, *, overhears: bool = True, hears_calls: bool = True) -> None:
        self.overhears = overhears
        """Does it hear of what happens in hosts beside this one, too?"""
        self._hears_calls = hears_calls
        self._waiting: deque[Event] = deque(maxlen=MAX_WAITING)
        self._filled = anyio.Event()
        self._closed = False

    def put(self, event: Event) -> None:
        """Add an event; the oldest goes where there are too many."""
        if not self._hears_calls and isinstance(event, _OF_CALLS):
            return
        self._waiting.append(event)
        self._filled.set()

    def close(self) -> None:
        """End the iteration, after what is waiting."""
        self._closed = True
        self._filled.set()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._filled = anyio.Event()
            await self._filled.wait()
        return self._waiting.popleft()


class EventBus:
    """Hands every event to every subscriber, and to those of the bus above who want to overhear."""

    def __init__(self, above: "EventBus | None" = None) -> None:
        self._above = above
        self._subscribers: set[Subscriber] = set()

    @property
    def has_listeners(self) -> bool:
        """Is anybody there to hear? An event that nobody hears need not be made."""
        return bool(self._subscribers) or (self._above is not None and self._above.has_listeners)

    def emit(self, event: Event) -> None:
        """Tell everybody, without waiting."""
        for subscriber in self._subscribers:
            subscriber.put(event)
        if self._above is not None:
            self._above.overhear(event)

    def overhear(self, event: Event) -> None:
        """Tell of what happens beside, without waiting."""
        for subscriber in self._subscribers:
            if subscriber.overhears:
                subscriber.put(event)
        if self._above is not None:
            self._above.overhear(event)

    def subscribe(self, subscriber: Subscriber | None = None) -> Subscriber:
        """Begin to listen."""
        subscriber = subscriber or Subscriber()
        self._subscribers.add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop listening."""
        self._subscribers.discard(subscriber)
        subscriber.close()

    def close(self) -> None:
        """End every subscription."""
        for subscriber in [*self._subscribers]:
            self.unsubscribe(subscriber)
