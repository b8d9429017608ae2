"""Serving on a socket: what an application gets of a request."""

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from fairlead.net.listen import bind, listening


async def test_whitespace_around_a_header_is_not_part_of_it() -> None:
    def show(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"<{request.headers['x-thing']}>")

    request = b"GET / HTTP/1.1\r\nHost: x\r\nX-Thing: \t a b \t\r\nConnection: close\r\n\r\n"
    with anyio.fail_after(20), bind("127.0.0.1", 0) as listener:
        async with (
            listening(Starlette(routes=[Route("/", show)]), listener),
            await anyio.connect_tcp("127.0.0.1", listener.getsockname()[1]) as stream,
        ):
            await stream.send(request)
            answer = b""
            while b">" not in answer:
                answer += await stream.receive()
    assert answer.endswith(b"<a b>")
