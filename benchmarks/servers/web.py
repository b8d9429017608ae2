"""A fast HTTP server on a port of its own, which it prints: `python -m benchmarks.servers.web`.

A POST to `/json` is answered with a JSON body, one to `/events` with a stream of one event. A GET of
`/connects` says how many connections have been made so far.
"""

import asyncio
import socket

from benchmarks.servers.answers import Answers

_ANSWERS = Answers(1)
_connects = 0


class _Conversation(asyncio.Protocol):
    """One connection. Requests come one after the other, each whole with its `Content-Length`."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        global _connects
        _connects += 1
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while True:
            head, found, rest = self._received.partition(b"\r\n\r\n")
            length = _length(head)
            if not found or len(rest) < length:
                return
            self._received = rest[length:]
            self._transport.write(_respond(head, rest[:length]))


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


def _respond(head: bytes, body: bytes) -> bytes:
    method, path = head.split(b" ", 2)[:2]
    if path == b"/connects":
        return _response(b"200 OK", b"text/plain", b"%d" % _connects)
    if method != b"POST":
        return _response(b"405 Method Not Allowed", b"text/plain", b"")
    answer = _ANSWERS.answer(body)
    if answer is None:
        return _response(b"202 Accepted", b"text/plain", b"")
    if path == b"/json":
        return _response(b"200 OK", b"application/json", answer)
    event = b"event: message\ndata: " + answer + b"\n\n"
    start = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return start + b"%x\r\n%b\r\n0\r\n\r\n" % (len(event), event)


def _response(status: bytes, kind: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
    return head + body


async def main() -> None:
    """Serve until it is ended."""
    server = await asyncio.get_running_loop().create_server(_Conversation, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
