"""A hostile MCP server over HTTP, on raw sockets: well-behaved up to one step, where its mode takes over.

Run as `python -I -S http_program.py MODE RECORD`; prints its port. It speaks the handshake era with a session
and a GET stream. Modes are in `MODES`, by name: the step at which they act, and what they do with the
connection. The file `RECORD` proves that it came to that: a line `step bytes` at the beginning of each
attack, with 0, and whenever it has sent something.
"""

import asyncio
import gzip
import json
import sys
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
MIB = 1024 * 1024


class Connection:
    """The connection of a request under attack. What is sent over it is recorded."""

    def __init__(self, writer: asyncio.StreamWriter, record: str, step: str) -> None:
        self._writer = writer
        self._record = record
        self._step = step
        self._written = self._noted = 0
        self._note()

    def write(self, data: bytes) -> None:
        self._writer.write(data)
        self._written += len(data)

    async def drain(self) -> None:
        try:
            await self._writer.drain()
        finally:  # a client may close the connection before it has read everything
            if self._written >= 2 * self._noted and self._written:  # an endless attack makes a short record
                self._noted = self._written
                self._note()

    def _note(self) -> None:
        with open(self._record, "a") as file:
            file.write(f"{self._step} {self._noted}\n")


Act = Callable[[Message, Connection], Awaitable[None]]
ATTACK = b'{"name":"attack","inputSchema":{"type":"object"}}'


def head(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode()


def json_response(body: bytes, *headers: str) -> bytes:
    return head("200 OK", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers) + body


def good_body(request: Message) -> bytes:
    method = request.get("method")
    if method == "initialize":
        result = (
            b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
            b'"serverInfo":{"name":"hostile","version":"1"}}'
        )
    elif method == "tools/list":
        result = b'{"tools":[' + ATTACK + b"]}"
    elif method == "tools/call":
        result = b'{"content":[{"type":"text","text":"done"}]}'
    else:
        error = {"code": -32601, "message": "no such method"}
        return json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "error": error}).encode()
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request["id"], result)


def event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


STREAM = head("200 OK", "Content-Type: text/event-stream", "Connection: close")
CHUNKED = head("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked")


# What a mode does with a request.


def raw(*parts: bytes) -> Act:
    """Write something, and close the connection."""

    async def act(_: Message, connection: Connection) -> None:
        for part in parts:
            connection.write(part)
            await connection.drain()

    return act


def raw_then_hang(*parts: bytes) -> Act:
    """Write something, and keep the connection open."""

    async def act(request: Message, connection: Connection) -> None:
        await raw(*parts)(request, connection)
        await asyncio.sleep(600)

    return act


def endless(start: bytes, chunk: bytes) -> Act:
    async def act(_: Message, connection: Connection) -> None:
        connection.write(start)
        while True:
            connection.write(chunk)
            await connection.drain()

    return act


def slow(start: bytes, chunk: bytes, seconds: float) -> Act:
    async def act(_: Message, connection: Connection) -> None:
        connection.write(start)
        while True:
            connection.write(chunk)
            await connection.drain()
            await asyncio.sleep(seconds)

    return act


def body(make: Callable[[Message], bytes], *headers: str) -> Act:
    """Answer with a body and headers of its own making."""

    async def act(request: Message, connection: Connection) -> None:
        connection.write(json_response(make(request), *headers))
        await connection.drain()

    return act


def framed(make: Callable[[bytes], bytes]) -> Act:
    """Answer with the right body in a response of its own making."""

    async def act(request: Message, connection: Connection) -> None:
        connection.write(make(good_body(request)))
        await connection.drain()

    return act


def result(value: Callable[[], bytes]) -> Act:
    return body(lambda request: b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request["id"], value()))


def events(make: Callable[[bytes], bytes]) -> Act:
    """Answer with a stream in which the right answer comes last."""
    return framed(lambda answer: STREAM + make(answer) + event(answer))


def redirect(location: str, status: str = "307 Temporary Redirect") -> Act:
    return raw(head(status, f"Location: {location}", "Content-Length: 0"))


def deflated(data: bytes) -> bytes:
    return zlib.compress(data, 9)


def bomb(size: int) -> bytes:
    return b'{"a":"' + b"a" * size + b'"}'


NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%d"}}'
SILENT = {
    "no-response",
    "hang",
    "get-hang",
    "delete-hangs",
    "hang-at-initialize",
    "hang-at-list",
    "close-at-initialize",
    "close-at-list",
    "initialized-hangs",
}
"""The modes that attack by sending nothing."""
MODES: dict[str, tuple[str, Act]] = {
    # Statuses and bodies.
    "html": ("call", raw(head("200 OK", "Content-Type: text/html", "Content-Length: 6") + b"<html>")),
    "html-404": (
        "initialize",
        raw(head("404 Not Found", "Content-Type: text/html", "Content-Length: 3") + b"<p>"),
    ),
    "plain-500": ("call", raw(head("500 Oops", "Content-Type: text/plain", "Content-Length: 4") + b"oops")),
    "429": ("call", raw(head("429 Too Many Requests", "Retry-After: 99999", "Content-Length: 0"))),
    "accepted-without-answer": ("call", raw(head("202 Accepted", "Content-Length: 0"))),
    "no-content": ("call", raw(head("204 No Content"))),
    "empty-body": ("call", body(lambda _: b"")),
    "not-json": ("call", body(lambda _: b"not json")),
    "invalid-utf8": ("call", body(lambda _: b'{"id":1,"result":{"content":[],"x":"\xff\xfe"}}')),
    "other-id": ("call", body(lambda _: b'{"jsonrpc":"2.0","id":4711,"result":{}}')),
    "two-answers": ("call", body(lambda r: b"[" + good_body(r) + b"," + good_body(r) + b"]")),
    "oversized-body": ("call", body(lambda _: bomb(9 * MIB))),
    "deep-body": ("call", result(lambda: b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")),
    "wide-error": (
        "call",
        body(lambda r: b'{"id":%d,"error":{"code":1,"data":[' % r["id"] + b"[]," * 500_000 + b"1]}}"),
    ),
    "huge-error-page": ("call", endless(head("500 Oops", "Content-Type: text/plain"), b"e" * 65_536)),
    # Bombs.
    "gzip-bomb": (
        "call",
        framed(lambda _: json_response(gzip.compress(bomb(50 * MIB)), "Content-Encoding: gzip")),
    ),
    "deflate-bomb": (
        "call",
        framed(lambda _: json_response(deflated(bomb(50 * MIB)), "Content-Encoding: deflate")),
    ),
    "double-gzip": (
        "call",
        framed(lambda a: json_response(gzip.compress(gzip.compress(a)), "Content-Encoding: gzip, gzip")),
    ),
    "broken-gzip": ("call", body(lambda _: b"\x1f\x8b\x08garbage", "Content-Encoding: gzip")),
    "unknown-encoding": ("call", body(lambda _: b"x", "Content-Encoding: zip9")),
    "gzip-bomb-error": (
        "call",
        framed(
            lambda _: (
                head(
                    "400 Bad", "Content-Encoding: gzip", "Content-Type: application/json", "Connection: close"
                )
                + gzip.compress(bomb(50 * MIB))
            )
        ),
    ),
    # Framing.
    "no-response": ("call", raw()),
    "hang": ("call", raw_then_hang()),
    "garbage": ("call", raw(b"\x00\x01\x02 this is no HTTP\r\n\r\n")),
    "status-line-only": ("call", raw_then_hang(b"HTTP/1.1 200 OK\r\n")),
    "header-flood": ("call", raw(head("200 OK", *[f"X-{number}: y" for number in range(20_000)]))),
    "endless-headers": ("call", endless(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 1_000)),
    "long-header": ("call", raw(head("200 OK", "X-Long: " + "a" * 5 * MIB))),
    "long-status-line": ("call", raw(b"HTTP/1.1 200 " + b"a" * MIB + b"\r\n\r\n")),
    "length-too-long": (
        "call",
        framed(
            lambda a: head("200 OK", "Content-Type: application/json", f"Content-Length: {len(a) + 50}") + a
        ),
    ),
    "length-too-long-hang": (
        "call",
        raw_then_hang(head("200 OK", "Content-Type: application/json", "Content-Length: 99") + b"{"),
    ),
    "length-too-short": (
        "call",
        framed(lambda a: head("200 OK", "Content-Type: application/json", "Content-Length: 5") + a),
    ),
    "length-negative": (
        "call",
        raw(head("200 OK", "Content-Type: application/json", "Content-Length: -5") + b"{}"),
    ),
    "length-huge": (
        "call",
        raw_then_hang(
            head("200 OK", "Content-Type: application/json", "Content-Length: 99999999999999") + b"{"
        ),
    ),
    "two-lengths": ("call", raw(head("200 OK", "Content-Length: 2", "Content-Length: 5") + b"{}")),
    "chunked-garbage": ("call", raw(CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n")),
    "chunk-too-large": ("call", raw(CHUNKED + b"ffffffffffffffff\r\n{}\r\n")),
    "endless-chunks": ("call", endless(CHUNKED, b"1\r\n \r\n" * 1_000)),
    "slow-body": ("call", slow(CHUNKED, b"1\r\n \r\n", 0.05)),
    "slow-headers": ("call", slow(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n", 0.05)),
    "half-closed": ("call", raw_then_hang(CHUNKED + b"2\r\n{}\r\n")),
    "continue-flood": ("call", endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100)),
    # Redirects.
    "redirect-loop": ("call", redirect("/mcp")),
    "redirect-to-file": ("call", redirect("file:///etc/passwd")),
    "redirect-cross-origin": ("call", redirect("http://127.0.0.1:1/mcp")),
    "redirect-to-metadata": ("call", redirect("http://169.254.169.254/latest")),
    "redirect-to-nothing": ("call", redirect("")),
    "redirect-garbage": ("call", redirect("http://[::bad")),
    "redirect-as-get": ("call", redirect("/other", "303 See Other")),
    # Streams as answers.
    "stream-without-answer": ("call", raw(STREAM + event(b'{"jsonrpc":"2.0","method":"x"}'))),
    "stream-that-hangs": ("call", raw_then_hang(STREAM)),
    "endless-stream": ("call", endless(STREAM, event(NOTE % 1) * 100)),
    "endless-comments": ("call", endless(STREAM, b": hello\n\n" * 1_000)),
    "endless-event-line": ("call", endless(STREAM + b"data: ", b"a" * 65_536)),
    "endless-data-lines": ("call", endless(STREAM, b"data: a\n" * 8_000)),
    "endless-ids": ("call", endless(STREAM, b"id: 5\n\n" * 1_000)),
    "slow-stream": ("call", slow(STREAM, b":\n", 0.05)),
    "stream-storm": ("call", events(lambda _: b"".join([event(NOTE % number) for number in range(20_000)]))),
    "stream-garbage": ("call", events(lambda _: b"\xff\xfe\x00garbage\n\n" * 1_000)),
    "stream-garbage-data": ("call", events(lambda _: event(b"not json") * 1_000)),
    "stream-retry-bomb": ("call", raw(STREAM + b"id: 1\nretry: 99999999999999999999\n\n")),
    "stream-wide-notification": (
        "call",
        events(lambda _: event(b'{"method":"x","params":{"a":[' + b"[]," * 900_000 + b"1]}}")),
    ),
    "stream-double-answer": ("call", events(event)),
    "stream-other-answers": (
        "call",
        events(lambda _: event(b'{"jsonrpc":"2.0","id":9999,"result":{}}') * 20_000),
    ),
    # The stream of the server's own.
    "get-endless": ("get", endless(STREAM, event(NOTE % 1) * 100)),
    "get-endless-distinct": (
        "get",
        endless(STREAM, b"".join([event(NOTE % number) for number in range(500)])),
    ),
    "get-endless-line": ("get", endless(STREAM + b"data: ", b"a" * 65_536)),
    "get-closed-at-once": ("get", raw(STREAM)),
    "get-500": ("get", raw(head("500 Oops", "Content-Length: 0"))),
    "get-hang": ("get", raw_then_hang()),
    "get-list-changed-storm": (
        "get",
        endless(STREAM, event(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}') * 100),
    ),
    "get-request-storm": ("get", endless(STREAM, event(b'{"jsonrpc":"2.0","id":"s1","method":"ping"}') * 50)),
    # Sessions.
    "delete-hangs": ("delete", raw_then_hang()),
    "delete-endless": ("delete", endless(head("200 OK", "Content-Type: text/plain"), b"x" * 65_536)),
    "session-lost": ("call", raw(head("404 Not Found", "Content-Length: 0"))),
    "session-id-flood": ("initialize", body(good_body, "Mcp-Session-Id: " + "s" * 7_000)),
    "session-id-garbage": ("initialize", body(good_body, "Mcp-Session-Id: \x01\x02é")),
    "hang-at-initialize": ("initialize", raw_then_hang()),
    "hang-at-list": ("list", raw_then_hang()),
    "close-at-initialize": ("initialize", raw()),
    "close-at-list": ("list", raw()),
    "initialized-hangs": ("initialized", raw_then_hang()),
    "unauthorized-flood": (
        "call",
        raw(head("401 Unauthorized", "WWW-Authenticate: " + "Bearer x=y, " * 400, "Content-Length: 0")),
    ),
}

STEPS = {
    "initialize": "initialize",
    "tools/list": "list",
    "tools/call": "call",
    "notifications/initialized": "initialized",
}


async def read_request(reader: asyncio.StreamReader) -> tuple[str, Message] | None:
    """Return the method and the message of a request, or None at the end of the connection."""
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        length = next(
            (int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0
        )
        sent = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return lines[0].split(" ")[0], json.loads(sent) if sent else {}


async def serve(mode: str, record: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    step, act = MODES[mode]
    try:
        while (received := await read_request(reader)) is not None:
            method, message = received
            at = STEPS.get(message.get("method", ""), "") if method == "POST" else method.lower()
            if at == step:
                await act(message, Connection(writer, record, step))
                return
            if method == "GET":
                writer.write(STREAM)
                await writer.drain()
                await asyncio.sleep(600)
            elif "id" not in message:
                writer.write(head("202 Accepted", "Content-Length: 0"))
            else:
                session = ("Mcp-Session-Id: s1",) if message["method"] == "initialize" else ()
                writer.write(json_response(good_body(message), *session))
            await writer.drain()
    except ConnectionError:
        pass  # the other side has gone, as it may
    finally:
        writer.close()


async def main(mode: str, record: str) -> None:
    server = await asyncio.start_server(lambda r, w: serve(mode, record, r, w), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
