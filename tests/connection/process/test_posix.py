"""Our ends of a server's pipes."""

import asyncio
import os
import sys
from collections.abc import Generator
from typing import IO, Any

import anyio
import anyio.lowlevel
import pytest

from fairlead.connection.process.child import MAX_WAITING_BYTES
from fairlead.connection.process.posix import PipeReader, PipeWriter
from tests.loops import LOOPS, backend_of

SECONDS = 10
LARGE = bytes(4 * MAX_WAITING_BYTES)

Pipe = tuple[IO[bytes], IO[bytes]]


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """All of them, always: this is where our own reading and writing meets the event loop."""
    return backend_of(request.param)


@pytest.fixture
def pipe() -> Generator[Pipe]:
    """The end to read from, and the end to write to."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as reader, open(writing, "wb", buffering=0) as writer:
        yield reader, writer


class Closed:
    """Notes that a pipe was closed."""

    def __init__(self) -> None:
        self.times = 0
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self._event.set()

    async def wait(self) -> None:
        with anyio.fail_after(SECONDS):
            await self._event.wait()


def writing_to(pipe: Pipe) -> tuple[PipeWriter, Closed]:
    closed = Closed()
    return PipeWriter(pipe[1], closed), closed


def congestion(writer: PipeWriter) -> asyncio.Future[None] | None:
    """What senders have to wait for now."""
    return writer.congested


async def read(file: IO[bytes], size: int) -> None:
    """Read so many bytes, in another thread."""

    def work() -> None:
        left = size
        while left:
            left -= len(os.read(file.fileno(), left))

    with anyio.fail_after(SECONDS):
        await anyio.to_thread.run_sync(work)


async def test_what_comes_is_read_until_it_ends(pipe: Pipe) -> None:
    pieces: list[bytes] = []
    closed = Closed()
    PipeReader(pipe[0], pieces.append, closed)
    os.write(pipe[1].fileno(), b"first")
    with anyio.fail_after(SECONDS):
        while not pieces:
            await anyio.lowlevel.checkpoint()
    os.write(pipe[1].fileno(), b"last")
    pipe[1].close()
    await closed.wait()
    assert pieces == [b"first", b"last"]
    assert pipe[0].closed


async def test_a_reader_that_is_closed_reads_no_more_and_says_so_once(pipe: Pipe) -> None:
    pieces: list[bytes] = []
    closed = Closed()
    reader = PipeReader(pipe[0], pieces.append, closed)
    os.write(pipe[1].fileno(), b"too late")
    reader.close()
    reader.close()
    await closed.wait()
    assert (pieces, closed.times) == ([], 1)


async def test_what_the_pipe_does_not_take_at_once_goes_later_and_in_order(pipe: Pipe) -> None:
    writer, closed = writing_to(pipe)
    writer.write(LARGE)
    writer.write(b"end")
    writer.close()
    writer.write(b"after the end")
    assert writer.waiting_bytes
    await read(pipe[0], len(LARGE))
    await closed.wait()
    assert pipe[0].read() == b"end"


async def test_senders_wait_for_a_slow_reader_and_go_on_when_it_has_read(pipe: Pipe) -> None:
    writer, closed = writing_to(pipe)
    writer.write(b"small")
    assert congestion(writer) is None
    writer.write(LARGE)
    congested = congestion(writer)
    assert congested is not None
    await read(pipe[0], len(LARGE) + 5)
    with anyio.fail_after(SECONDS):
        await congested
    assert congestion(writer) is None
    writer.abort()
    await closed.wait()


async def test_a_pipe_nobody_reads_from_any_more_is_noticed_without_a_write(pipe: Pipe) -> None:
    writer, closed = writing_to(pipe)
    pipe[0].close()
    await closed.wait()
    assert pipe[1].closed
    writer.write(b"nobody is there")
    writer.close()
    await anyio.lowlevel.checkpoint()
    assert closed.times == 1


async def test_a_write_to_nobody_closes_the_pipe(pipe: Pipe) -> None:
    writer, closed = writing_to(pipe)
    pipe[0].close()
    writer.write(b"nobody is there")
    await closed.wait()
    assert (writer.waiting_bytes, closed.times) == (0, 1)


async def test_a_reader_that_leaves_half_way_drops_what_waits_and_keeps_senders_waiting(pipe: Pipe) -> None:
    writer, closed = writing_to(pipe)
    writer.write(LARGE)
    pipe[0].close()
    await closed.wait()
    assert writer.waiting_bytes == 0
    assert congestion(writer) is not None, "they learn from the end of the connection what became of it"
    writer.let_senders_go()
    writer.let_senders_go()
    assert congestion(writer) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what was read")
async def test_it_is_known_whether_anything_was_read_even_when_all_is_over(pipe: Pipe) -> None:
    writer, closed = writing_to(pipe)
    assert not writer.was_read
    writer.write(b"hello")
    assert not writer.was_read
    pipe[0].close()
    await closed.wait()
    assert not writer.was_read


@pytest.mark.parametrize("close_first", [False, True])
async def test_a_single_byte_that_was_read_counts(pipe: Pipe, close_first: bool) -> None:
    writer, closed = writing_to(pipe)
    writer.write(b"hello")
    await read(pipe[0], 1)
    if close_first:
        writer.abort()
        await closed.wait()
    assert writer.was_read
    writer.close()
    await closed.wait()


async def test_what_is_written_soon_goes_out_together_and_in_order(pipe: Pipe) -> None:
    writer, _ = writing_to(pipe)
    writer.write(b"1")
    for piece in (b"2", b"3", b"4"):
        writer.write_soon(piece)
    writer.write(b"5")
    assert os.read(pipe[0].fileno(), 100) == b"1", "the rest waits for the others' turn"
    assert writer.waiting_bytes == 4
    await anyio.lowlevel.checkpoint()
    assert os.read(pipe[0].fileno(), 100) == b"2345"
    writer.abort()


async def test_what_is_written_soon_is_out_before_the_pipe_is_closed(pipe: Pipe) -> None:
    writer, closed = writing_to(pipe)
    writer.write_soon(b"last words")
    writer.close()
    writer.write_soon(b"too late")
    await closed.wait()
    assert os.read(pipe[0].fileno(), 100) == b"last words"


async def test_what_was_to_be_written_soon_is_dropped_with_the_pipe(pipe: Pipe) -> None:
    writer, closed = writing_to(pipe)
    writer.write_soon(b"nobody reads this")
    writer.abort()
    await closed.wait()
    assert os.read(pipe[0].fileno(), 100) == b""
    assert not writer.was_read
    assert closed.times == 1


async def test_more_than_the_pipe_takes_is_written_soon_all_the_same(pipe: Pipe) -> None:
    writer, _ = writing_to(pipe)
    writer.write_soon(LARGE)
    assert congestion(writer) is not None
    await read(pipe[0], len(LARGE))
    assert congestion(writer) is None
    assert writer.waiting_bytes == 0
    writer.abort()
