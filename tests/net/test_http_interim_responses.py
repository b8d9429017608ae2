"""A flood of interim responses (1xx) ends its connection; a few of them are passed over."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import aiohttp
import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from fairlead.net.http import open_client, open_vetted_client
from fairlead.testing import watch_loop

FINAL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLIENTS = [open_client, lambda: open_vetted_client(lambda _host, _address: None)]
INTERIM = {
    "short": b"HTTP/1.1 100 Continue\r\n\r\n",
    "long": b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 400 + b"\r\n\r\n",
}


@asynccontextmanager
async def answering(*parts: bytes) -> AsyncGenerator[str]:
    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            try:
                for part in parts:
                    await stream.send(part)
            except anyio.BrokenResourceError:
                return  # the client has closed the connection

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/"
        tasks.cancel_scope.cancel()
    await listener.aclose()


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("kind", INTERIM)
@pytest.mark.parametrize("open_session", CLIENTS, ids=["shared", "vetted"])
async def test_a_flood_of_interim_responses_ends_the_connection(
    open_session: Callable[[], aiohttp.ClientSession], kind: str
) -> None:
    flood = [INTERIM[kind] * 100] * 2_000
    with anyio.fail_after(30), watch_loop():
        async with answering(*flood) as url, open_session() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(url)


@pytest.mark.parametrize("open_session", CLIENTS, ids=["shared", "vetted"])
async def test_a_few_interim_responses_are_passed_over(
    open_session: Callable[[], aiohttp.ClientSession],
) -> None:
    with anyio.fail_after(30):
        async with (
            answering(INTERIM["short"] * 3 + INTERIM["long"] + FINAL) as url,
            open_session() as session,
            session.get(url) as response,
        ):
            assert (response.status, await response.text()) == (200, "ok")
