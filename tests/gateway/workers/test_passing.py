"""Connections that go from one worker to another with the request that came on them."""

import asyncio
import errno
import socket
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
import uvloop
from anyio.abc import SocketStream
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from fairlead.errors import ListenFailed
from fairlead.gateway.workers.passing import PassingOutcome, pass_connection, socket_of, taking_connections
from fairlead.gateway.workers.pool import make_socket_folder
from fairlead.net.listen import ConnectionServer, bind, bind_unix, detach_connection, listening, was_passed

PROOF = b"p" * 32
SECONDS = 20.0


@contextmanager
def short_folder() -> Generator[str]:
    """A folder with a short name, as paths of sockets must have."""
    with tempfile.TemporaryDirectory(prefix="fl-") as folder:
        yield folder


class Passing:
    """An application that passes what is asked of `/other` on to worker 2."""

    def __init__(self, folder: str, proof: bytes = PROOF) -> None:
        self.folder = folder
        self.proof = proof
        self.outcomes: list[PassingOutcome] = []
        self.server: ConnectionServer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = await Request(scope, receive).body()
        if scope["path"] == "/other" and not was_passed(scope):
            connection = detach_connection(scope)
            if connection is None:
                await PlainTextResponse("stays", 503)(scope, receive, send)
                return
            outcome = await pass_connection(socket_of(self.folder, 2), self.proof, connection)
            self.outcomes.append(outcome)
            if outcome in ("refused", "gone"):
                assert self.server is not None
                await self.server.serve(connection.socket, connection.received, on_end=lambda: None)
            else:
                connection.close()
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await PlainTextResponse(f"first {scope['path']} {len(body)}")(scope, receive, send)


async def other(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await Passing("")(scope, receive, send)
        return
    body = await Request(scope, receive).body()
    text = f"second {scope['path']} {len(body)} {was_passed(scope)}"
    await PlainTextResponse(text)(scope, receive, send)


@asynccontextmanager
async def two_workers(app: Passing, *, is_second_up: bool = True) -> AsyncGenerator[SocketStream]:
    """A client's connection to the first of two workers, which share a folder."""
    ended = anyio.Event()
    with anyio.fail_after(SECONDS), bind("127.0.0.1", 0) as listener:
        async with listening(app, None) as first, listening(other, None) as second:
            app.server = first

            async def adopt(connection: socket.socket, received: bytes) -> None:
                await second.serve(connection, received, on_end=ended.set)

            async def accept() -> SocketStream:
                stream = await anyio.connect_tcp("127.0.0.1", listener.getsockname()[1])
                accepted, _ = listener.accept()
                await first.serve(accepted, on_end=lambda: None)
                return stream

            if not is_second_up:
                async with await accept() as stream:
                    yield stream
                return
            async with taking_connections(socket_of(app.folder, 2), PROOF, adopt), await accept() as stream:
                yield stream


async def ask(stream: SocketStream, path: str, body: bytes = b"") -> str:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    await stream.send(head.encode() + body)
    return await answer(stream)


async def answer(stream: SocketStream) -> str:
    text = b""
    while b"\r\n\r\n" not in text:
        text += await stream.receive()
    head, _, rest = text.partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].split()[0])
    while len(rest) < size:
        rest += await stream.receive()
    return rest.decode()


async def _go_and_stay(folder: str) -> None:
    app = Passing(folder)
    async with two_workers(app) as stream:
        assert await ask(stream, "/here") == "first /here 0"
        assert await ask(stream, "/other", b"x" * 300_000) == "second /other 300000 True"
        # The connection is the other's from now on, and this request came to it directly.
        assert await ask(stream, "/other", b"y") == "second /other 1 False"
        assert await ask(stream, "/here") == "second /here 0 False"
    assert app.outcomes == ["taken"]


def test_a_connection_moves_with_its_request_and_stays_on_any_event_loop() -> None:
    for loop_factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with short_folder() as folder, asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_go_and_stay(folder))


async def test_a_request_whose_body_is_still_coming_moves_whole() -> None:
    with short_folder() as folder:
        async with two_workers(Passing(folder)) as stream:
            await stream.send(b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc")
            await stream.send(b"def")
            assert await answer(stream) == "second /other 6 True"


async def test_requests_sent_at_once_do_not_move() -> None:
    with short_folder() as folder:
        app = Passing(folder)
        async with two_workers(app) as stream:
            request = b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
            await stream.send(request * 2)
            text = await answer(stream)
            while text.count("stays") < 2:
                text += (await stream.receive()).decode()
        assert app.outcomes == []


@pytest.mark.parametrize("reason", ["no one listens", "another key"])
async def test_what_another_worker_does_not_take_is_answered_here(reason: str) -> None:
    with short_folder() as folder:
        app = Passing(folder, PROOF if reason == "no one listens" else b"q" * 32)
        async with two_workers(app, is_second_up=reason != "no one listens") as stream:
            assert await ask(stream, "/other", b"abc") == "first /other 3"
        # One that lives is asked again with the next request.
        assert app.outcomes == ["gone" if reason == "no one listens" else "refused"]


async def test_without_a_free_descriptor_a_connection_stays_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with short_folder() as folder:
        app = Passing(folder)
        async with two_workers(app) as stream:
            with monkeypatch.context() as patched:
                patched.setattr("fairlead.net.listen.os.dup", _no_descriptor)
                assert await ask(stream, "/other") == "stays"
            assert await ask(stream, "/here") == "first /here 0"
            assert await ask(stream, "/other") == "second /other 0 True"


def _no_descriptor(descriptor: int) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


async def test_other_users_cannot_reach_the_socket() -> None:
    with short_folder() as folder:
        async with two_workers(Passing(folder)):
            path = anyio.Path(socket_of(folder, 2))
            assert (await path.stat()).st_mode & 0o077 == 0
        assert not await path.exists()
    assert Path(folder).name.startswith("fl-")


@pytest.mark.parametrize("runtime", [True, False])
def test_the_folder_of_the_sockets_has_a_short_path_whatever_the_one_for_temporary_files_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: bool
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    with short_folder() as short:
        monkeypatch.setattr(tempfile, "tempdir", str(long))
        monkeypatch.setenv("XDG_RUNTIME_DIR", short if runtime else str(tmp_path / "missing"))
        folder = make_socket_folder()
        try:
            assert folder.parent == Path(short if runtime else "/tmp")
            assert folder.stat().st_mode & 0o077 == 0
            with bind_unix(socket_of(str(folder), 64)):
                pass
        finally:
            folder.rmdir()


def test_without_a_place_for_sockets_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(ListenFailed) as caught:
        make_socket_folder()
    assert "TMPDIR" in (caught.value.hint or "")
