"""What a server may cost: bytes, memory and connections, whatever it sends."""

import tracemalloc

import anyio
import pytest
from mcp.shared.dispatcher import CallOptions

from fairlead.connection.outcomes import AnswerTooLong
from tests.connection.http_support import LEGACY, MODERN, call, call_text, connected
from tests.fixtures.hostile_http import serving

MEBIBYTE = 1024 * 1024


@pytest.mark.requirement("HARD-22")
@pytest.mark.parametrize("tool", ["gzip_bomb", "deflate_bomb", "gzip_bomb_on_stream"])
async def test_what_grows_to_400_mebibytes_is_cut_off_before_it_has_grown(tool: str) -> None:
    async with serving() as server, connected(server, max_message_bytes=MEBIBYTE) as dispatcher:
        tracemalloc.start()
        try:
            with pytest.raises(AnswerTooLong) as caught:
                await call(dispatcher, tool, mebibytes=400)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert caught.value.limit == MEBIBYTE
        assert caught.value.delivery == "done"
        assert peak < 12 * MEBIBYTE
        assert await call_text(dispatcher, "echo") == "{}"


@pytest.mark.requirement("HARD-22", "HARD-23")
@pytest.mark.parametrize("tool", ["endless_body", "endless_event"])
async def test_what_never_ends_is_cut_off(tool: str) -> None:
    async with serving() as server, connected(server) as dispatcher:
        with pytest.raises(AnswerTooLong, match="longer than the limit of 8388608 bytes"):
            await call(dispatcher, tool)
        await server.abandoned.wait()
        assert await call_text(dispatcher, "echo") == "{}"


@pytest.mark.requirement("HARD-22", "HARD-23")
@pytest.mark.parametrize("tool", ["large", "large_stream"])
async def test_a_large_answer_is_a_matter_of_the_limit(tool: str) -> None:
    size = 3 * MEBIBYTE
    async with serving() as server, connected(server, max_message_bytes=MEBIBYTE) as dispatcher:
        with pytest.raises(AnswerTooLong):
            await call(dispatcher, tool, bytes=size)
    async with serving() as server, connected(server, max_message_bytes=4 * MEBIBYTE) as dispatcher:
        assert len(await call_text(dispatcher, tool, bytes=size)) == size


async def test_a_large_request_is_sent_without_complaint() -> None:
    async with serving() as server, connected(server) as dispatcher:
        assert len(await call_text(dispatcher, "echo", text="x" * 3 * MEBIBYTE)) > 3 * MEBIBYTE


@pytest.mark.parametrize("opts", [LEGACY, MODERN], ids=["2025", "2026"])
@pytest.mark.parametrize("tool", ["echo", "stream"])
async def test_connections_are_used_again(tool: str, opts: CallOptions) -> None:
    async with serving() as server, connected(server) as dispatcher:
        before = server.connections
        for _ in range(300):
            await call(dispatcher, tool, opts)
        assert server.connections - before <= 3


async def test_connections_are_used_again_by_many_callers_at_once() -> None:
    async def calls() -> None:
        for _ in range(100):
            await call(dispatcher, "stream")

    async with serving() as server, connected(server) as dispatcher:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(calls)
        # What was needed for the session, and for each caller one in use and one about to be free again.
        assert server.connections <= 4 + 2 * 8


async def test_a_stream_that_does_not_end_with_its_answer_holds_nobody_up() -> None:
    async with serving() as server, connected(server) as dispatcher:
        assert await call_text(dispatcher, "endless_stream") == "fine"
        assert not server.abandoned.is_set()
        assert await call_text(dispatcher, "echo") == "{}"
        await server.abandoned.wait()
