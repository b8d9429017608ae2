"""Servers that cross their replies: a call ends once, over HTTP only with the answer in its own response."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.errors import FairleadError
from fairlead.testing.fixtures import open_host
from fairlead.testing.watchdog import watch_loop
from tests.gateway.support import Raw, serving
from tests.hostile import crossed_program
from tests.hostile.exam import LIMIT_SECONDS, neighbour

FAILED = "failed"
Call = Callable[[str], Awaitable[str]]
"""Calls the hostile tool with a tag; the text of the result, or `FAILED`."""

LIMITS = {"trust": "trusted", "approval": "allow", "startup_timeout_ms": 10_000, "request_timeout_ms": 3_000}

FAILURES = {
    ("http", "swapped"): 2,
    ("http", "both-in-the-first"): 1,
    ("http", "both-in-the-second"): 1,
    ("http", "both-in-a-batch"): 1,
    ("http", "one-unanswered"): 1,
    ("stdio", "one-unanswered"): 1,
}
"""How many of the two calls fail; which one is the first is up to the scheduler."""
LIES_OVER_STDIO = {
    "other-first",
    "other-failed-first",
    "other-as-text",
    "other-as-fraction",
    "other-unreadable",
    "next-ids",  # one of these is the id of the other call
}
"""Over one pipe, an answer with the id of a call is that call's answer, whatever the server had in mind."""


@contextmanager
def entry_of(transport: str, mode: str, record: Path) -> Generator[dict[str, Any]]:
    """Return the entry of a server that runs as long as the block."""
    arguments = ["-I", "-S", crossed_program.__file__, transport, mode, str(record)]
    if transport == "stdio":
        yield {"command": sys.executable, "args": arguments, "sharing": "shared", **LIMITS}
        return
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield {"url": f"http://127.0.0.1:{port}/mcp", "sharing": "shared", **LIMITS}
        finally:
            process.kill()


@asynccontextmanager
async def in_a_host(folder: Path, entry: dict[str, Any]) -> AsyncGenerator[tuple[Call, Call]]:
    async with open_host(folder, seconds=90, hostile=entry, neighbour=neighbour()) as host:
        await host.connect("hostile")

        async def call(tag: str) -> str:
            try:
                return (await host.call("hostile", "attack", {"tag": tag})).text
            except FairleadError:
                return FAILED

        async def call_neighbour(_: str) -> str:
            return (await host.call("neighbour", "answer")).text

        yield call, call_neighbour


@asynccontextmanager
async def behind_a_gateway(folder: Path, entry: dict[str, Any]) -> AsyncGenerator[tuple[Call, Call]]:
    """Let each call come from a client of its own; all use one connection to the server."""
    servers: dict[str, Any] = {"hostile": entry, "neighbour": neighbour()}
    async with serving(folder, seconds=90, **servers) as served, aiohttp.ClientSession() as http:
        await Raw(http, served.url + "/mcp").modern("tools/list")
        ids = iter(range(1, 1_000))

        async def ask(name: str, **arguments: str) -> Any:
            request_id = next(ids)
            client = Raw(http, served.url + "/mcp")
            answered = await client.modern("tools/call", request_id, name=name, arguments=arguments)
            assert answered["id"] == request_id
            return answered

        async def call(tag: str) -> str:
            answered = await ask("hostile_attack", tag=tag)
            if "error" in answered or answered["result"].get("isError"):
                return FAILED
            return answered["result"]["content"][0]["text"]

        async def call_neighbour(_: str) -> str:
            return str((await ask("neighbour_answer"))["result"])

        yield call, call_neighbour


SURFACES: dict[str, Callable[[Path, dict[str, Any]], AbstractAsyncContextManager[tuple[Call, Call]]]] = {
    "host": in_a_host,
    "gateway": behind_a_gateway,
}


@pytest.mark.requirement("HARD-52")
@pytest.mark.parametrize("mode", crossed_program.STREAM_MODES)
@pytest.mark.parametrize("surface", SURFACES)
async def test_an_answer_on_the_stream_of_a_get_answers_no_call(
    surface: str, mode: str, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    outcomes: dict[str, str] = {}
    with entry_of("http", mode, record) as entry:
        async with SURFACES[surface](tmp_path, entry) as (call, _):

            async def run(tag: str) -> None:
                outcomes[tag] = await call(tag)

            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run, "a")
                    tasks.start_soon(run, "b")
                await run("c")
    assert len(set(json.loads(record.read_text()))) == 2
    assert outcomes == {"a": "a", "b": "b", "c": "c"}


@pytest.mark.requirement("HARD-52")
@pytest.mark.parametrize("mode", crossed_program.MODES)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_call_ends_with_its_own_answer_or_an_error(
    surface: str, transport: str, mode: str, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    outcomes: dict[str, str] = {}

    with entry_of(transport, mode, record) as entry:
        async with SURFACES[surface](tmp_path, entry) as (call, call_neighbour):

            async def run(tag: str, how: Call) -> None:
                outcomes[tag] = await how(tag)

            with anyio.fail_after(30), watch_loop(LIMIT_SECONDS * 4):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run, "a", call)
                    tasks.start_soon(run, "b", call)
                    tasks.start_soon(run, "neighbour", call_neighbour)
                await run("c", call)

    assert len(set(json.loads(record.read_text()))) == 2  # both replies were sent
    assert FAILED not in outcomes.pop("neighbour")
    assert outcomes["c"] == "c"
    if transport == "stdio" and mode in LIES_OVER_STDIO:
        assert set(outcomes.values()) <= {"a", "b", "c", crossed_program.FORGED, FAILED}
        return
    assert all(outcome in (tag, FAILED) for tag, outcome in outcomes.items()), outcomes
    assert list(outcomes.values()).count(FAILED) == FAILURES.get((transport, mode), 0), outcomes
