"""Serving on a socket: what an application gets of a request."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
import uvloop
from anyio.abc import SocketStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.errors import ListenFailed
from fairlead.net.listen import bind, listening
from fairlead.net.port_owner import port_owner


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who listens")
def test_a_port_that_is_taken_is_told_with_the_process_that_has_it() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ListenFailed, match=rf"in use by `.*` \(process {os.getpid()}\)") as raised:
            bind("127.0.0.1", port)
        assert "`--port 0`" in (raised.value.hint or "")
    assert port_owner(port) is None


async def test_whitespace_around_a_header_is_not_part_of_it() -> None:
    def show(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"<{request.headers['x-thing']}>")

    request = b"GET / HTTP/1.1\r\nHost: x\r\nX-Thing: \t a b \t\r\nConnection: close\r\n\r\n"
    async with connected(Starlette(routes=[Route("/", show)])) as stream:
        await stream.send(request)
        answer = await received(stream, b">")
    assert answer.endswith(b"<a b>")


async def test_an_answer_is_one_packet_with_its_head() -> None:
    def show(request: Request) -> PlainTextResponse:
        return PlainTextResponse("the body")

    async with connected(Starlette(routes=[Route("/", show)])) as stream:
        for _ in range(20):
            await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await stream.receive()
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert answer.endswith(b"\r\n\r\nthe body")


async def test_an_answer_without_its_body_is_sent_all_the_same() -> None:
    def show(request: Request) -> PlainTextResponse:
        return PlainTextResponse("" if request.method == "POST" else "the body")

    async with connected(Starlette(routes=[Route("/", show, methods=["GET", "POST"])])) as stream:
        for method in (b"HEAD", b"POST", b"HEAD"):
            await stream.send(b"%b / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % method)
            answer = await received(stream, b"\r\n\r\n")
            assert b"content-length: %d\r\n" % (8 if method == b"HEAD" else 0) in answer


async def test_requests_sent_at_once_are_answered_in_order_and_whole() -> None:
    def show(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"<{request.url.path}>")

    async with connected(Starlette(routes=[Route("/{name}", show)])) as stream:
        asked = [b"GET /1", b"HEAD /2", b"GET /3", b"GET /4"]
        await stream.send(b"".join(b"%b HTTP/1.1\r\nHost: x\r\n\r\n" % each for each in asked))
        answers = await received(stream, b"</4>")
    assert answers.count(b"HTTP/1.1 200 OK") == 4
    assert [answers.find(each) > 0 for each in (b"</1>", b"</2>", b"</3>")] == [True, False, True]


async def test_the_head_of_a_stream_does_not_wait_for_what_comes_in_it() -> None:
    go_on = anyio.Event()

    async def words() -> AsyncGenerator[bytes]:
        await go_on.wait()
        yield b"at last"

    def show(request: Request) -> StreamingResponse:
        return StreamingResponse(words())

    async with connected(Starlette(routes=[Route("/", show)])) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await received(stream, b"\r\n\r\n")
        go_on.set()
        assert b"at last" in await received(stream, b"0\r\n\r\n")


async def test_an_application_that_breaks_off_says_so_by_hanging_up() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await Starlette()(scope, receive, send)
            return
        headers = [(b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async with connected(broken) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"content-length: 100" in await received(stream, b"\r\n\r\n")
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


@asynccontextmanager
async def connected(app: ASGIApp) -> AsyncGenerator[SocketStream]:
    """A connection to an application that is served."""
    with anyio.fail_after(20), bind("127.0.0.1", 0) as listener:
        async with (
            listening(app, listener),
            await anyio.connect_tcp("127.0.0.1", listener.getsockname()[1]) as stream,
        ):
            yield stream


async def received(stream: SocketStream, ending: bytes) -> bytes:
    """What comes, up to and with an ending."""
    answer = b""
    while ending not in answer:
        answer += await stream.receive()
    return answer


@pytest.mark.requirement("HARD-21")
def test_an_error_in_the_block_leaves_no_socket_open_on_any_event_loop() -> None:
    async def fail() -> None:
        with bind("127.0.0.1", 0) as listener:
            async with listening(Starlette(), listener):
                raise LookupError("in the block")

    for loop_factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with pytest.raises(BaseExceptionGroup) as caught, asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(fail())
        assert caught.group_contains(LookupError, match="in the block")
