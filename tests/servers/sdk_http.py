"""A well-behaved MCP server over HTTP: the SDK's own, in a thread, on a free port of this machine."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage
from starlette.applications import Starlette


class MemoryEventStore(EventStore):
    """Remembers what was sent on each stream, so that a client can come back for the rest."""

    def __init__(self) -> None:
        self._events: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(
        self, last_event_id: EventId, send_callback: EventCallback
    ) -> StreamId | None:
        last = int(last_event_id)
        stream_id = self._events[last - 1][0]
        for number, (stream, message) in enumerate(self._events[last:], start=last + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


class Tools:
    """What the server offers, and what happened to it."""

    def __init__(self) -> None:
        self.waiting = threading.Event()
        self.cancelled = threading.Event()
        self.server = MCPServer("polite")
        for tool in (self.echo, self.count, self.ping_client, self.wait, self.come_back, self.change):
            self.server.tool()(tool)

    async def echo(self, text: str) -> str:
        return text

    async def count(self, to: int, context: Context) -> str:
        """Report progress on the way."""
        for number in range(1, to + 1):
            await context.report_progress(number, to)
        return str(to)

    async def ping_client(self, context: Context) -> str:
        """Ask the client something that has nothing to do with this request."""
        await context.session.send_ping()
        return "it answered"

    async def wait(self) -> str:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()
        return "never"

    async def come_back(self, context: Context) -> str:
        """Close the stream of the answer, and give the answer to whoever comes back for it."""
        await context.close_sse_stream()
        return "resumed"

    async def change(self, context: Context) -> str:
        await context.notify_tools_changed()
        return "changed"


@contextmanager
def serving(app: Starlette) -> Generator[str]:
    """Serve in a thread of its own, and give the URL of the server's root."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=10)
            assert not thread.is_alive()
