"""An MCP server that counts what it executes, and misbehaves on demand. Standard library only.

    python -I -S upstream_program.py stdio NAME ERA RECORD MARK
    python -I -S upstream_program.py web RECORD MARK

The first is one server of an era (`handshake`, `stateless`). The second prints its port and is as many
servers as there are paths: `/NAME/handshake`, `/NAME/stateless`, `/NAME/sse` (the older transport), and
`/NAME/guarded`, which wants a token of `/token`. MARK is for who looks for the process.

Its one tool, `run`, appends `KEY NAME PID TIME` to RECORD, in one write, and answers `NAME:KEY`. What else
happens is in the argument `fault`: see `FAULTS`. A fault that only HTTP has is none over stdio. One that
happens is recorded, too: `faulted FAULT PID TIME`. NAMEs end with a number, by which servers with a handshake
differ in the protocol version they answer with: see `version_of`.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from typing import Any

Message = dict[str, Any]

FAULTS = ("slow", "hang", "garbage", "storm", "drop", "404", "401", "500")
TOKEN_SECONDS = 6
REFRESHED = "refreshed"
"""The first word of the record's line about a token that was issued."""
FAULTED = "faulted"
"""The first word of the record's line about a fault that happened."""
_STORM = 2_000
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSION = "2026-07-28"
_COMPLETE: Message = {"resultType": "complete", "ttlMs": 300_000, "cacheScope": "private"}
TOOL: Message = {
    "name": "run",
    "inputSchema": {
        "type": "object",
        "properties": {
            "key": {"type": "integer"},
            "fault": {"type": "string"},
            "seconds": {"type": "number"},
        },
        "required": ["key"],
    },
}


def version_of(name: str, era: str) -> str:
    """The protocol version that a server speaks: by its number, so that all of them are spoken."""
    if era == "stateless":
        return STATELESS_VERSION
    return HANDSHAKE_VERSIONS[int(name.lstrip("abcdefghijklmnopqrstuvwxyz")) % len(HANDSHAKE_VERSIONS)]


class Upstream:
    """One server: what it answers, whatever it is reached over."""

    def __init__(self, name: str, era: str, record: int) -> None:
        self.name = name
        self._era = era
        self.record = record

    async def answer(self, request: Message) -> Message | None:
        """The answer to a message; None where it gets none, now or ever."""
        if "id" not in request or "method" not in request:
            return None
        method, answer = request["method"], {"jsonrpc": "2.0", "id": request["id"]}
        if method == "tools/call":
            return await self._run(request["params"].get("arguments", {}), answer)
        result = self._results(method)
        if result is None:
            return answer | {"error": {"code": -32601, "message": "Method not found"}}
        return answer | {"result": result}

    def _results(self, method: str) -> Message | None:
        described = {"capabilities": {"tools": {"listChanged": True}, "logging": {}}}
        if method == "tools/list":
            return {"tools": [TOOL], **_COMPLETE}
        if method in ("ping", "logging/setLevel"):
            return {}
        if method == "initialize" and self._era == "handshake":
            info = {"serverInfo": {"name": self.name, "version": "1"}}
            return {"protocolVersion": version_of(self.name, self._era), **info, **described}
        if method == "server/discover" and self._era == "stateless":
            return {"supportedVersions": [version_of(self.name, self._era)], **described, **_COMPLETE}
        return None

    async def _run(self, arguments: Message, answer: Message) -> Message | None:
        line = f"{arguments['key']} {self.name} {os.getpid()} {time.monotonic():.3f}\n"
        os.write(self.record, line.encode())
        if arguments.get("fault") == "hang":
            record_fault(self.record, "hang")
            return None
        if seconds := arguments.get("seconds"):
            if arguments.get("fault") == "slow":
                record_fault(self.record, "slow")
            await asyncio.sleep(seconds)
        content = [{"type": "text", "text": f"{self.name}:{arguments['key']}"}]
        return answer | {"result": {"content": content, "resultType": "complete"}}


def fault_of(request: Message) -> str:
    """What is to go wrong with a request."""
    if request.get("method") != "tools/call":
        return ""
    return request["params"].get("arguments", {}).get("fault", "")


def record_fault(record: int, fault: str) -> None:
    """Note that a fault happens: one that was only asked for may not."""
    os.write(record, f"{FAULTED} {fault} {os.getpid()} {time.monotonic():.3f}\n".encode())


def storm() -> list[Message]:
    """Notifications, far more than anyone reads."""
    log = {"method": "notifications/message", "params": {"level": "info", "data": "x" * 50}}
    changed = {"method": "notifications/tools/list_changed"}
    return [{"jsonrpc": "2.0", **(changed if number % 50 == 0 else log)} for number in range(_STORM)]


# Over stdio.


async def serve_stdio(upstream: Upstream) -> None:
    """Answer until stdin ends, each request when it is done."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    async with asyncio.TaskGroup() as tasks:
        waiting: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            request = json.loads(line)
            task = tasks.create_task(_answer_line(upstream, request))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        for task in waiting:
            task.cancel()


async def _answer_line(upstream: Upstream, request: Message) -> None:
    fault = fault_of(request)
    answer = await upstream.answer(request)
    if answer is None:
        return
    line = json.dumps(answer).encode() + b"\n"
    if fault in ("drop", "garbage", "storm"):
        record_fault(upstream.record, fault)
    if fault == "drop":
        _write(line[: len(line) // 2])
        os._exit(1)
    if fault == "garbage":
        _write(b'\xff\xfe not JSON\n{"jsonrpc": "2.0", "id": {"a": []}}\n[]\n{"id":\n')
    if fault == "storm":
        _write(b"".join(json.dumps(each).encode() + b"\n" for each in storm()))
    _write(line)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


# Over HTTP.


class Web:
    """Many servers on one port, with sessions where an era has them."""

    def __init__(self, record: int) -> None:
        self._record = record
        self._sessions: set[str] = set()
        self._streams: dict[str, asyncio.StreamWriter] = {}
        self._ids = itertools.count(1)
        self._tokens: dict[str, float] = {}

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                method, path, _ = first.split(" ")
                await self._respond(method, path, headers, body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            return
        finally:
            writer.close()

    async def _respond(
        self, method: str, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        if path == "/token":
            return self._issue(writer)
        name, _, kind = path.strip("/").partition("/")
        kind, _, query = kind.partition("?")
        if kind == "guarded" and not self._is_open(headers):
            return _send(writer, 401, b"", "WWW-Authenticate: Bearer")
        if kind == "sse" and method == "GET":
            return self._begin_stream(name, writer)
        if method == "DELETE":
            self._sessions.discard(headers.get("mcp-session-id", ""))
            return _send(writer, 200)
        if kind == "sse" or method != "POST":
            return _send(writer, 405)
        request = json.loads(body)
        if (fault := fault_of(request)) in ("404", "401", "500"):
            record_fault(self._record, fault)
            return _send(writer, int(fault))
        return await self._take(name, kind, query, request, headers, writer)

    async def _take(
        self,
        name: str,
        kind: str,
        query: str,
        request: Message,
        headers: dict[str, str],
        writer: asyncio.StreamWriter,
    ) -> None:
        """Answer a message, in its session where there are any."""
        era = "stateless" if kind in ("stateless", "guarded") else "handshake"
        upstream = Upstream(name, era, self._record)
        if kind == "messages":
            _send(writer, 202)
            await self._answer_on_stream(upstream, request, query)
            return
        session = ""
        if era == "handshake":
            if request.get("method") == "initialize":
                session = f"Mcp-Session-Id: {name}-{next(self._ids)}-{os.urandom(4).hex()}"
                self._sessions.add(session.partition(": ")[2])
            elif headers.get("mcp-session-id") not in self._sessions:
                _send(writer, 404)
                return
        await self._answer(upstream, request, writer, session)

    async def _answer(
        self, upstream: Upstream, request: Message, writer: asyncio.StreamWriter, session: str
    ) -> None:
        fault = fault_of(request)
        answer = await upstream.answer(request)
        if answer is None:
            if "id" not in request or "method" not in request:
                _send(writer, 202, b"", session)
            else:
                await asyncio.sleep(3600)  # hangs, until its client has enough
            return
        data = json.dumps(answer).encode()
        if fault in ("drop", "garbage", "storm"):
            record_fault(self._record, fault)
        if fault == "garbage":
            _send(writer, 200, b"\xff{" + data[:20], "Content-Type: application/json")
        elif fault in ("storm", "drop"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            events = [b"data: " + json.dumps(each).encode() + b"\n\n" for each in storm()]
            writer.write(b"".join(events if fault == "storm" else events[:3]))
            writer.write(b"data: " + (data + b"\n\n" if fault == "storm" else data[:20]))
            await writer.drain()
            writer.close()
        else:
            _send(writer, 200, data, "Content-Type: application/json", session)

    def _begin_stream(self, name: str, writer: asyncio.StreamWriter) -> None:
        stream = f"{next(self._ids)}"
        self._streams[stream] = writer
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(f"event: endpoint\ndata: /{name}/messages?{stream}\n\n".encode())

    async def _answer_on_stream(self, upstream: Upstream, request: Message, stream: str) -> None:
        writer = self._streams.get(stream)
        answer = await upstream.answer(request)
        if writer is None or answer is None:
            return
        data = json.dumps(answer).encode()
        fault = fault_of(request)
        if fault in ("drop", "garbage", "storm"):
            record_fault(self._record, fault)
        if fault == "storm":
            writer.write(
                b"".join(b"event: message\ndata: " + json.dumps(e).encode() + b"\n\n" for e in storm())
            )
        if fault in ("drop", "garbage"):
            writer.write(b"event: message\ndata: \xff" + data[:20] + (b"\n\n" if fault == "garbage" else b""))
            if fault == "drop":
                self._streams.pop(stream, None)
                writer.close()
                return
        writer.write(b"event: message\ndata: " + data + b"\n\n")

    # Tokens.

    def _issue(self, writer: asyncio.StreamWriter) -> None:
        token = f"token-{next(self._ids)}"
        self._tokens[token] = time.monotonic() + TOKEN_SECONDS
        os.write(self._record, f"{REFRESHED} token {os.getpid()} {time.monotonic():.3f}\n".encode())
        said = {"access_token": token, "token_type": "Bearer", "expires_in": TOKEN_SECONDS}
        _send(writer, 200, json.dumps(said).encode(), "Content-Type: application/json")

    def _is_open(self, headers: dict[str, str]) -> bool:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        return self._tokens.get(token, 0.0) > time.monotonic()


def _send(writer: asyncio.StreamWriter, status: int, body: bytes = b"", *headers: str) -> None:
    lines = "".join(f"{line}\r\n" for line in headers if line)
    head = f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def serve_web(record: int) -> None:
    """Serve until stdin ends."""
    web = Web(record)
    server = await asyncio.start_server(web.converse, "127.0.0.1", 0, limit=1 << 24)
    os.write(1, b"%d\n" % server.sockets[0].getsockname()[1])
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    await reader.read()
    os._exit(0)  # connections that are open would be waited for


def main() -> None:
    """Serve as the arguments say."""
    kind = sys.argv[1]
    path = sys.argv[4] if kind == "stdio" else sys.argv[2]
    record = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if kind == "stdio":
        asyncio.run(serve_stdio(Upstream(sys.argv[2], sys.argv[3], record)))
    else:
        asyncio.run(serve_web(record))


if __name__ == "__main__":
    main()
