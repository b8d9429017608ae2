"""What a session's streams brought, for a client that comes back to one."""

from collections import deque
from typing import Final

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage

MAX_KEPT: Final = 256


class EventLog(EventStore):
    """The latest events of one session, in memory."""

    def __init__(self, *, kept: int = MAX_KEPT) -> None:
        self._events: deque[tuple[int, StreamId, JSONRPCMessage | None]] = deque(maxlen=kept)
        self._count = 0

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep an event, and name it."""
        self._count += 1
        self._events.append((self._count, stream_id, message))
        return str(self._count)

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        """Send what came on the same stream after an event. None where nobody knows it any more."""
        stream = next((name for number, name, _ in self._events if str(number) == last_event_id), None)
        if stream is None:
            return None
        last = int(last_event_id)
        for number, name, message in [*self._events]:
            if name == stream and number > last and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream
