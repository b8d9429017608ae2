"""Whole requests and responses: one packet each where nothing is unusual, else plain ASGI."""

import asyncio
from collections.abc import Iterable

import pytest
from starlette.types import Message, Receive, Scope, Send

from fairlead.net.exchange import PacketTransport, read_body, send_response
from tests.net.test_listen import connected, received

HEAD = b"content-type: application/json\r\nmcp-session-id: one\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body of the request, at the length that its path says at least."""
    if scope["type"] == "http":
        body = await read_body(receive)
        assert body is not None
        await send_response(send, 200, HEAD, b"<" + body.ljust(int(scope["path"][1:]), b".") + b">")


def request(body: bytes, *lines: bytes, size: int = 0, method: bytes = b"POST") -> bytes:
    head = [b"%b /%d HTTP/1.1" % (method, size), b"Host: x", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


async def test_a_whole_response_has_all_headers_once() -> None:
    async with connected(echo) as stream:
        for text in (b"one", b"two"):
            await stream.send(request(text))
            head, _, body = (await received(stream, b">")).partition(b"\r\n\r\n")
            status, *lines = head.split(b"\r\n")
            names = [line.partition(b": ")[0] for line in lines]
            assert status == b"HTTP/1.1 200 OK"
            assert sorted(names) == [b"content-length", b"content-type", b"date", b"mcp-session-id"]
            assert b"content-length: 5" in lines
            assert body == b"<%b>" % text


@pytest.mark.parametrize("size", [0, 10_000, 100_000])
async def test_a_body_of_any_size_arrives_whole_and_the_connection_goes_on(size: int) -> None:
    async with connected(echo) as stream:
        for _ in range(3):
            await stream.send(request(b"x", size=size))
            answer = await received(stream, b">")
            assert len(answer.partition(b"\r\n\r\n")[2]) == max(size, 1) + 2


async def test_a_body_that_comes_in_pieces_or_after_a_continue_is_read_to_its_end() -> None:
    async with connected(echo) as stream:
        whole = request(b"in pieces")
        await stream.send(whole[:-5])
        await stream.send(whole[-5:])
        assert (await received(stream, b">")).endswith(b"<in pieces>")
        await stream.send(request(b"waited for", b"Expect: 100-continue")[: -len(b"waited for")])
        assert (await received(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 100 Continue")
        await stream.send(b"waited for")
        assert (await received(stream, b">")).endswith(b"<waited for>")


async def test_requests_in_one_packet_are_answered_in_order() -> None:
    async with connected(echo) as stream:
        await stream.send(b"".join(request(b"%d" % number) for number in range(5)))
        answers = await received(stream, b"<4>")
    places = [answers.find(b"<%d>" % number) for number in range(5)]
    assert places == sorted(places)
    assert -1 not in places


async def test_a_connection_that_the_client_wants_closed_is_closed_after_the_response() -> None:
    async with connected(echo) as stream:
        await stream.send(request(b"last", b"Connection: close"))
        answer = await received(stream, b">")
    assert b"\r\nconnection: close\r\n" in answer
    assert b"\r\ncontent-type: application/json\r\n" in answer
    assert answer.endswith(b"<last>")


async def test_head_is_answered_without_a_body() -> None:
    async with connected(echo) as stream:
        await stream.send(request(b"x", method=b"HEAD") + request(b"next"))
        answers = await received(stream, b">")
    assert answers.count(b"content-length: ") == 2
    assert b"<x>" not in answers


async def test_another_server_gets_plain_messages() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await send_response(send, 404, HEAD, b"{}")
    assert sent == [
        {
            "type": "http.response.start",
            "status": 404,
            "headers": [
                (b"content-length", b"2"),
                (b"content-type", b"application/json"),
                (b"mcp-session-id", b"one"),
            ],
        },
        {"type": "http.response.body", "body": b"{}"},
    ]


class WrittenParts(asyncio.Transport):
    """A transport that keeps what it is to send."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.parts.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.parts += map(bytes, list_of_data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.parts.append(b"closed")


def test_no_part_of_what_is_sent_is_empty() -> None:
    # Since Python 3.12, asyncio keeps an empty part of several and tries to send it for ever, at full load.
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
    wire = WrittenParts()
    transport = PacketTransport(wire)
    transport.write(head)
    transport.flush()
    transport.write(head)
    transport.write(b"")
    transport.write(head)
    transport.write(b"whole")
    transport.write_response(head, b"")
    transport.write(head)
    transport.close()
    assert wire.parts == [head, head, head, b"whole", head, head, b"closed"]
