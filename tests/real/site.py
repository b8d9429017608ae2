"""A web site on loopback: a page, one that never comes, and a `robots.txt` that forbids a third."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import SocketAttribute, SocketStream

_PAGES = {
    b"/robots.txt": b"User-agent: *\nDisallow: /forbidden\n",
    b"/page": b"a page of the test\n",
}
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where the site is, and what became of the page that never comes."""

    url: str
    slow_page_asked_for: anyio.Event = field(default_factory=anyio.Event)
    slow_page_given_up: anyio.Event = field(default_factory=anyio.Event)

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            head = await stream.receive()
            path = head.split(b" ", 2)[1]
            if path == b"/slow":
                self.slow_page_asked_for.set()
                try:
                    await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    self.slow_page_given_up.set()
                return
            body = _PAGES.get(path, b"")
            await stream.send(_HEAD % len(body) + body)


@asynccontextmanager
async def open_site() -> AsyncGenerator[Site]:
    """Serve the site for the length of the block."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        site = Site(url=f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}")
        tasks.start_soon(listener.serve, site.serve)
        yield site
        tasks.cancel_scope.cancel()
