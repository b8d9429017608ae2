"""A server over HTTP that never stops sending, as a program: `endless_http.py <flood> <where> <record>`.

It prints its port and ends with its stdin. `where` is what never ends: the GET stream (`get`), the answer to
a tool call (`post`) or to a DELETE (`delete`), or the one stream of the older transport (`sse`). The file
`record` is there once the flood was asked for, with how many bytes the other side's system took.
"""

import itertools
import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

Flood = Callable[[int, int], bytes]

_PROGRESS = (
    b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%d}}'
)


def _notification(method: bytes, params: bytes) -> bytes:
    return b'data: {"jsonrpc":"2.0","method":"notifications/%b","params":%b}\n\n' % (method, params)


def _numbered(make: Callable[[int], bytes]) -> Flood:
    return lambda number, _t: b"".join(make(number * 200 + i) for i in range(200))


def _keep_silent() -> bytes:
    threading.Event().wait(3600)
    return b""


FLOODS: dict[str, Flood] = {
    "comments": lambda _n, _t: b": ping\n" * 1000,
    "pings": lambda _n, _t: b"event: ping\ndata: x\n\n" * 500,
    "blank-lines": lambda _n, _t: b"\n" * 60_000,
    "carriage-returns": lambda _n, _t: b"\r" * 60_000,
    "logs": _numbered(lambda n: _notification(b"message", b'{"level":"info","data":%d}' % n)),
    "one-log": lambda _n, _t: _notification(b"message", b'{"level":"info","data":1}') * 400,
    "list-changed": lambda _n, _t: _notification(b"tools/list_changed", b"{}") * 400,
    "updates": _numbered(lambda n: _notification(b"resources/updated", b'{"uri":"a:%d"}' % n)),
    "progress": lambda number, token: (
        b"\n\n".join(_PROGRESS % (token, number * 200 + i) for i in range(200)) + b"\n\n"
    ),
    "requests": _numbered(
        lambda n: b'data: {"jsonrpc":"2.0","id":"r%d","method":"sampling/createMessage","params":{}}\n\n' % n
    ),
    "answers": _numbered(lambda n: b'data: {"jsonrpc":"2.0","id":"never-%d","result":{}}\n\n' % n),
    "garbage": lambda _n, _t: b"data: {not json\n\n" * 1000,
    "batches": lambda _n, _t: b"data: [" + b",".join([b'{"jsonrpc":"2.0","method":"a"}'] * 2000) + b"]\n\n",
    "event-ids": lambda number, _t: b"id: %d\n\n" % number * 2000,
    "retry-fields": lambda _n, _t: b"retry: 1\n\n" * 2000,
    "one-event": lambda number, _t: b"x" * 60_000 if number else b"data: x",
    "one-event-of-lines": lambda _n, _t: b"data: x\n" * 6000,
    "large-messages": lambda _n, _t: _notification(b"a", b'{"a":"' + b"x" * 4_000_000 + b'"}'),
    "one-byte-chunks": lambda _n, _t: b": ping\n" * 1000,
    "one-byte-packets": lambda _n, _t: b": ping\n" * 100,
    "silence": lambda _n, _t: _keep_silent(),
}

_answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
"""What waits to be sent on the one stream of the older transport."""


def _send_endless(connection: socket.socket, flood: str, *, token: int = 0, first: bytes = b"") -> None:
    is_chunked = flood == "one-byte-chunks"
    coding = b"Transfer-Encoding: chunked\r\n" if is_chunked else b""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + coding + b"\r\n")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    descriptor = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT, 0o600)
    sent = 0
    for piece in itertools.chain((first,), _pieces(flood, token)):
        os.pwrite(descriptor, b"%d" % sent, 0)
        sent += len(piece)
        if is_chunked:
            connection.sendall(b"".join(b"1\r\n%c\r\n" % byte for byte in piece))
        elif flood == "one-byte-packets":
            for position in range(len(piece)):
                connection.sendall(piece[position : position + 1])
        else:
            connection.sendall(piece)


def _pieces(flood: str, token: int) -> Iterator[bytes]:
    for number in itertools.count():
        while not _answers.empty():
            yield b"\n\nevent: message\ndata: " + _answers.get() + b"\n\n"
        yield FLOODS[flood](number, token)


def _answer_to(method: str) -> dict[str, Any]:
    tool = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}, "logging": {}},
            "serverInfo": {"name": "endless", "version": "1"},
        },
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "echoed"}]},
        "logging/setLevel": {},
        "ping": {},
    }
    if method in results:
        return {"result": results[method]}
    return {"error": {"code": -32601, "message": "no such method"}}


def _read_request(stream: BinaryIO) -> tuple[str, str, bytes]:
    method, path, _ = stream.readline().decode().split(" ", 2)
    length = 0
    while header := stream.readline().strip():
        name, _, value = header.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return method, path, stream.read(length)


def _answer(connection: socket.socket, status: str, body: bytes = b"") -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nMcp-Session-Id: s1\r\n"
    connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def _serve(connection: socket.socket, flood: str, where: str) -> None:
    stream = connection.makefile("rb")
    while True:
        method, path, body = _read_request(stream)
        if method == "GET" and where in ("get", "sse"):
            first = b"event: endpoint\ndata: /post\n\n" if where == "sse" else b""
            _send_endless(connection, flood, first=first)
        elif method == "DELETE" and where == "delete":
            _send_endless(connection, flood)
        elif method != "POST" or (where == "sse" and path != "/post"):
            _answer(connection, "405 Method Not Allowed")
        else:
            _serve_post(connection, flood, where, json.loads(body))


def _serve_post(connection: socket.socket, flood: str, where: str, message: dict[str, Any]) -> None:
    method = message.get("method")
    if "id" not in message or method is None:
        _answer(connection, "202 Accepted")
        return
    if method == "tools/call" and where == "post":
        _send_endless(connection, flood, token=message["params"].get("_meta", {}).get("progressToken", 0))
    answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **_answer_to(method)}).encode()
    if where == "sse":
        _answers.put(answer)
        _answer(connection, "202 Accepted")
    else:
        _answer(connection, "200 OK", answer)


def _serve_until_gone(connection: socket.socket, flood: str, where: str) -> None:
    with connection:
        try:
            _serve(connection, flood, where)
        except (OSError, ValueError):
            return  # the client went away


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    flood, where = sys.argv[1:3]
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve_until_gone, args=(connection, flood, where), daemon=True).start()


if __name__ == "__main__":
    main()
