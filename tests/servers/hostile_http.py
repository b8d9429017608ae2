"""An MCP server over HTTP that misbehaves on request. Standard library only.

Its quirks say how it behaves as a server, the name of the tool that is called says how it answers. It speaks
the handshake era and refuses `server/discover`; requests that say they are of 2026-07-28 need no session.
`python -m tests.servers.hostile_http [QUIRK…]` serves until it is killed, and prints its URL first.
"""

import asyncio
import json
import sys
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.servers.plain_http import Exchange, Message, Request, read_request

MODERN = "2026-07-28"
MEBIBYTE = b" " * 1024 * 1024


def bomb(kind: int, head: bytes, mebibytes: int) -> bytes:
    """Return what grows to that size when it is decompressed, beginning with `head`.

    Its end is missing: nobody should come that far.
    """
    packer = zlib.compressobj(wbits=kind)
    packed = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    return packed + mebibytes * (packer.compress(MEBIBYTE) + packer.flush(zlib.Z_FULL_FLUSH))


GZIP = 16 + zlib.MAX_WBITS
DEFLATE = zlib.MAX_WBITS

Tool = Callable[["HostileServer", Exchange], Awaitable[None]]
TOOLS: dict[str, Tool] = {}


def tool(function: Tool) -> Tool:
    TOOLS[function.__name__] = function
    return function


@dataclass
class HostileServer:
    """The server, and what it saw."""

    quirks: frozenset[str]
    url: str = ""
    requests: list[Request] = field(default_factory=list[Request])
    connections: int = 0
    sessions: set[str] = field(default_factory=set[str])
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    listener: Exchange | None = None
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    replies: asyncio.Queue[Message] = field(default_factory=asyncio.Queue[Message])
    unsaid: dict[str, Message] = field(default_factory=dict[str, Message])
    arrival: asyncio.Event = field(default_factory=asyncio.Event)

    def seen(self, method: str) -> list[Request]:
        """The requests that called this JSON-RPC method."""
        return [
            request for request in self.requests if request.body and request.message.get("method") == method
        ]

    async def saw(self, method: str) -> Request:
        """Wait for the first request that calls this JSON-RPC method."""
        while not (requests := self.seen(method)):
            self.arrival.clear()
            await self.arrival.wait()
        return requests[0]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await read_request(reader)) is not None:
                self.requests.append(request)
                self.arrival.set()
                await self.respond(Exchange(request, reader, writer))
        except ConnectionError:
            pass  # Whoever called has gone, which is what many tests are about.
        finally:
            writer.close()

    async def respond(self, exchange: Exchange) -> None:
        request = exchange.request
        match request.method:
            case "DELETE" if "delete-hangs" in self.quirks:
                await exchange.hung_up()
            case "DELETE":
                self.sessions.discard(request.headers.get("mcp-session-id", ""))
                await exchange.reply(status=204)
            case "GET" if request.path == "/sse":
                await self.open_older_stream(exchange)
            case "GET":
                await self.respond_to_get(exchange)
            case _ if request.path == "/messages":
                await self.respond_to_message(exchange, request.message)
            case _ if self.is_stranger(request):
                await exchange.reply(status=401, headers={"WWW-Authenticate": 'Bearer realm="hostile"'})
            case _:
                await self.respond_to_post(exchange, request.message)

    def is_stranger(self, request: Request) -> bool:
        return "token" in self.quirks and request.headers.get("authorization") != "Bearer right"

    async def respond_to_get(self, exchange: Exchange) -> None:
        last_id = exchange.request.headers.get("last-event-id", "")
        if last_id in self.unsaid:
            await exchange.open_stream()
            await exchange.event(self.unsaid.pop(last_id), event_id=f"{last_id}+")
            await exchange.end()
        elif "no-stream" in self.quirks:
            await exchange.reply(status=405)
        elif exchange.request.headers.get("mcp-session-id") not in self.sessions:
            await exchange.reply(status=404)
        else:
            await exchange.open_stream()
            self.listener = exchange
            self.listening.set()
            await exchange.hung_up()

    async def respond_to_post(self, exchange: Exchange, message: Message) -> None:
        modern = exchange.request.headers.get("mcp-protocol-version") == MODERN
        session = exchange.request.headers.get("mcp-session-id")
        if "method" not in message:
            self.replies.put_nowait(message)
            await exchange.reply(status=202)
        elif message["method"] == "initialize":
            await self.initialize(exchange, message)
        elif not modern and session not in self.sessions:
            await self.refuse_session(exchange)
        elif "id" not in message:
            await exchange.reply(status=202)
        elif message["method"] == "tools/call":
            await TOOLS[exchange.request.tool](self, exchange)
        elif message["method"] == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            await exchange.reply_json({"id": message["id"], "result": {"tools": tools}})
        else:
            error = {"code": -32601, "message": "Method not found"}
            await exchange.reply_json({"id": message["id"], "error": error}, status=404)

    async def initialize(self, exchange: Exchange, message: Message) -> None:
        session = f"session-{len(self.seen('initialize'))}"
        self.sessions.add(session)
        await exchange.reply_json(
            {"id": message["id"], "result": self.greeting(message)}, headers={"Mcp-Session-Id": session}
        )

    def greeting(self, message: Message) -> Message:
        return {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }

    async def open_older_stream(self, exchange: Exchange) -> None:
        """Speak the transport of 2024-11-05, in which all answers come on one stream."""
        if "sse-refused" in self.quirks:
            await exchange.reply(b"not here", status=404, content="text/plain")
            return
        if "sse-html" in self.quirks:
            await exchange.reply(b"<html>", content="text/html")
            return
        await exchange.open_stream()
        if "sse-silent" in self.quirks:
            await exchange.end()
            return
        place = "http://evil.test/messages" if "sse-elsewhere" in self.quirks else "/messages"
        await exchange.chunk(f"event: endpoint\ndata: {place}\n\n".encode())
        self.listener = exchange
        await exchange.hung_up()
        self.abandoned.set()

    async def respond_to_message(self, exchange: Exchange, message: Message) -> None:
        assert self.listener is not None
        match message:
            case {"method": "tools/call", "params": {"name": "not_found"}}:
                await exchange.reply(b"Could not find session", status=404, content="text/plain")
            case {"method": "tools/call", "params": {"name": "hang_up"}}:
                await exchange.reply(status=202)
                self.listener.drop()
            case {"method": "tools/call", "params": {"name": "endless_event"}}:
                await exchange.reply(status=202)
                await self.listener.chunk(b"data: ")
                with suppress(ConnectionError):
                    while not self.listener.writer.is_closing():
                        await self.listener.chunk(MEBIBYTE)
            case {"method": "tools/call", "params": {"name": "oversize", "arguments": arguments}}:
                await exchange.reply(status=202)
                await self.listener.chunk(oversize_event(message["id"], **arguments))
            case {"method": "tools/call", "params": {"name": "answer_first"}}:
                await self.listener.event(exchange.answer_message())
                await exchange.hung_up()
            case {"method": "tools/call", "params": {"name": "wait"}} | {"method": "notifications/cancelled"}:
                await exchange.reply(status=202)
            case {"method": "initialize"}:
                await exchange.reply(status=202)
                await self.listener.event({"id": message["id"], "result": self.greeting(message)})
            case {"id": _}:
                await exchange.reply(b"Accepted", status=202, content="text/plain")
                await self.listener.event(exchange.answer_message())
            case _:
                await exchange.reply(status=202)

    async def refuse_session(self, exchange: Exchange) -> None:
        """Say that the session is unknown, as the protocol has it or as many servers have it."""
        if "forgets-with-400" in self.quirks:
            error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            await exchange.reply_json({"id": None, "error": error}, status=400)
        else:
            error = {"code": -32600, "message": "Session not found"}
            await exchange.reply_json({"id": "server-error", "error": error}, status=404)


def oversize_event(request_id: object, shape: str, size: int) -> bytes:
    """An event of more than `size` bytes that answers a request, or none."""
    pad = "x" * size
    result = {"content": [{"type": "text", "text": pad}]}
    plain: Message = {"jsonrpc": "2.0", "id": request_id, "result": result}
    messages: dict[str, Message] = {
        "id last": {"jsonrpc": "2.0", "result": result, "id": request_id},
        "error": {"jsonrpc": "2.0", "id": request_id, "error": {"code": 1, "message": pad}},
        "notification": {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": pad}},
        "request": {"jsonrpc": "2.0", "id": "s1", "method": "roots/list", "params": {"x": pad}},
        "many lines": {**plain, "result": {"content": ["x" * 1000] * (size // 1000)}},
    }
    data = json.dumps(messages.get(shape, plain), indent=1 if shape == "many lines" else None)
    lines = "".join(f"data: {line}\n" for line in data.splitlines())
    events = {
        "no space": f"data:{data}\n\n",
        "carriage returns": f"event: message\r\ndata: {data}\r\n\r\n",
        "comment": f": {pad}\n\nevent: message\ndata: {json.dumps(answer_to(request_id))}\n\n",
    }
    return events.get(shape, f"id: 7\nevent: message\n{lines}\n").encode()


def answer_to(request_id: object) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "result": {"content": [{"type": "text", "text": "fine"}]}}


# ── tools that answer, if in their own way ──


@tool
async def echo(server: HostileServer, exchange: Exchange) -> None:
    await exchange.answer(json.dumps(exchange.request.arguments))


@tool
async def stream(server: HostileServer, exchange: Exchange) -> None:
    """Answer on a stream, after some progress."""
    await exchange.open_stream()
    token = exchange.request.message["params"].get("_meta", {}).get("progressToken")
    if token is not None:
        params = {"progressToken": token, "progress": 1, "total": 2}
        await exchange.event({"method": "notifications/progress", "params": params})
    await exchange.event(exchange.answer_message())
    await exchange.end()


@tool
async def endless_stream(server: HostileServer, exchange: Exchange) -> None:
    """Answer on a stream and never end it."""
    await exchange.open_stream()
    await exchange.event(exchange.answer_message())
    await exchange.hung_up()
    server.abandoned.set()


@tool
async def large(server: HostileServer, exchange: Exchange) -> None:
    await exchange.answer("x" * exchange.request.arguments["bytes"])


@tool
async def large_stream(server: HostileServer, exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.event(exchange.answer_message("x" * exchange.request.arguments["bytes"]))
    await exchange.end()


@tool
async def answer_elsewhere(server: HostileServer, exchange: Exchange) -> None:
    """Answer on the stream for everything else, and once the client has read that, where it belongs."""
    assert server.listener is not None
    await server.listener.event(exchange.answer_message("from elsewhere"))
    await server.listener.event({"jsonrpc": "2.0", "id": "read", "method": "ping"})
    while (await server.replies.get()).get("id") != "read":
        pass
    await exchange.answer("where it belongs")


@tool
async def ask_first(server: HostileServer, exchange: Exchange) -> None:
    """Ask the client something on the stream for everything else, and answer with what it said."""
    assert server.listener is not None
    await server.listener.event({"id": "question", "method": "roots/list"})
    await exchange.answer(json.dumps(await server.replies.get()))


@tool
async def ask_on_own_stream(server: HostileServer, exchange: Exchange) -> None:
    """Ask the client something on the stream of the answer, which the protocol no longer allows."""
    await exchange.open_stream()
    await exchange.event({"id": "question", "method": "roots/list"})
    await exchange.event(exchange.answer_message())
    await exchange.end()


@tool
async def break_off_and_go_on(server: HostileServer, exchange: Exchange) -> None:
    """Break a stream off, having said how to resume it."""
    await exchange.open_stream()
    event_id = f"event-{exchange.request.message['id']}"
    server.unsaid[event_id] = exchange.answer_message("resumed")
    await exchange.event(None, event_id=event_id, retry=exchange.request.arguments.get("retry", 0))
    exchange.writer.close()


@tool
async def break_off_for_good(server: HostileServer, exchange: Exchange) -> None:
    """Say how a stream can be resumed, break it off, and have nothing more to say."""
    await exchange.open_stream()
    await exchange.event(None, event_id="last", retry=0)
    exchange.writer.close()


@tool
async def null_id(server: HostileServer, exchange: Exchange) -> None:
    await exchange.reply_json({"id": None, "error": {"code": -32602, "message": "cannot be read"}})


# ── tools that do not answer ──


@tool
async def wait(server: HostileServer, exchange: Exchange) -> None:
    await exchange.hung_up()
    server.abandoned.set()


@tool
async def wait_on_stream(server: HostileServer, exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.chunk(b": here\r\n\r\n")
    await exchange.hung_up()
    server.abandoned.set()


@tool
async def accept(server: HostileServer, exchange: Exchange) -> None:
    await exchange.reply(status=202)


@tool
async def html(server: HostileServer, exchange: Exchange) -> None:
    await exchange.reply(b"<html><h1>Welcome!</h1></html>", content="text/html; charset=utf-8")


@tool
async def empty(server: HostileServer, exchange: Exchange) -> None:
    await exchange.reply()


@tool
async def garbage(server: HostileServer, exchange: Exchange) -> None:
    await exchange.reply(b'{"jsonrpc": "2.0", "id": ')


@tool
async def wrong_id(server: HostileServer, exchange: Exchange) -> None:
    await exchange.reply_json({"id": 987654, "result": {}})


@tool
async def status(server: HostileServer, exchange: Exchange) -> None:
    code = exchange.request.arguments["code"]
    headers = {"WWW-Authenticate": 'Bearer scope="more"'} if code in (401, 403) else {}
    await exchange.reply(b"no \x1b[31mway\x1b[0m\n", status=code, content="text/plain", headers=headers)


@tool
async def stray_bytes(server: HostileServer, exchange: Exchange) -> None:
    """Refuse with headers that are no text."""
    code = b"%d" % exchange.request.arguments["code"]
    headers = b"Location: /\xff\r\nWWW-Authenticate: Bearer \xff\r\nContent-Type: \xff\r\nContent-Length: 0"
    await exchange.send(b"HTTP/1.1 " + code + b" \xff\r\n" + headers + b"\r\n\r\n")


@tool
async def forget_session(server: HostileServer, exchange: Exchange) -> None:
    server.sessions.clear()
    await server.refuse_session(exchange)


@tool
async def redirect(server: HostileServer, exchange: Exchange) -> None:
    """Redirect to where the argument says, and answer there."""
    if exchange.request.path.endswith("/moved"):
        await exchange.answer("moved")
    else:
        arguments = exchange.request.arguments
        await exchange.reply(status=arguments["code"], headers={"Location": arguments["location"]})


@tool
async def drop_at_once(server: HostileServer, exchange: Exchange) -> None:
    exchange.drop()


@tool
async def drop_in_body(server: HostileServer, exchange: Exchange) -> None:
    await exchange.head(200, {"Content-Type": "application/json", "Content-Length": "1000"})
    await exchange.send(b'{"jsonrpc": "2.0", ')
    exchange.writer.close()


@tool
async def drop_in_stream(server: HostileServer, exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.chunk(b"data: {")
    exchange.writer.close()


@tool
async def end_of_stream(server: HostileServer, exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.end()


@tool
async def gzip_bomb(server: HostileServer, exchange: Exchange) -> None:
    body = bomb(GZIP, b"{", exchange.request.arguments["mebibytes"])
    await exchange.reply(body, headers={"Content-Encoding": "gzip"})


@tool
async def deflate_bomb(server: HostileServer, exchange: Exchange) -> None:
    body = bomb(DEFLATE, b"{", exchange.request.arguments["mebibytes"])
    await exchange.reply(body, headers={"Content-Encoding": "deflate"})


@tool
async def gzip_bomb_on_stream(server: HostileServer, exchange: Exchange) -> None:
    body = bomb(GZIP, b"data: ", exchange.request.arguments["mebibytes"])
    await exchange.reply(body, content="text/event-stream", headers={"Content-Encoding": "gzip"})


@tool
async def other_protocol(server: HostileServer, exchange: Exchange) -> None:
    await exchange.send(b"SSH-2.0-OpenSSH\r\n\r\n")


@tool
async def endless_headers(server: HostileServer, exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await exchange.send(b"X: %b\r\n" % (b"x" * 1000))


@tool
async def unknown_encoding(server: HostileServer, exchange: Exchange) -> None:
    await exchange.reply(b"\x28\xb5\x2f\xfd", headers={"Content-Encoding": "br"})


@tool
async def broken_gzip(server: HostileServer, exchange: Exchange) -> None:
    await exchange.reply(b"this is no gzip", headers={"Content-Encoding": "gzip"})


@tool
async def endless_body(server: HostileServer, exchange: Exchange) -> None:
    await exchange.head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    with suppress(ConnectionError):
        while True:
            await exchange.chunk(MEBIBYTE)
    server.abandoned.set()


@tool
async def endless_event(server: HostileServer, exchange: Exchange) -> None:
    await exchange.open_stream()
    await exchange.chunk(b"data: ")
    with suppress(ConnectionError):
        while True:
            await exchange.chunk(MEBIBYTE)
    server.abandoned.set()


@asynccontextmanager
async def serving(*quirks: str) -> AsyncGenerator[HostileServer]:
    """Serve on a free port of the loopback interface, in this event loop."""
    hostile = HostileServer(frozenset(quirks))
    listener = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
    hostile.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
    try:
        yield hostile
    finally:
        listener.close()


async def main() -> None:
    async with serving(*sys.argv[1:]) as hostile:
        sys.stdout.write(f"{hostile.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
