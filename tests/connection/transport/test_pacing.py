"""Servers that never stop sending: reading is fair, what they cost is bounded, and closing always wins."""

import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import anyio
import pytest
from mcp.shared.dispatcher import CallOptions

from fairlead.connection.outcomes import RequestExpired
from fairlead.connection.transport.legacy_sse import SseDispatcher
from fairlead.connection.transport.pacing import ReadPace
from fairlead.errors import CallTimedOut
from fairlead.host.host import Host
from tests.conftest import Machine
from tests.fixtures import endless_http, endless_stdio
from tests.host.support import hosting

LONGEST_BLOCK = 0.25 * float(os.environ.get("FAIRLEAD_LOOP_FACTOR", "1"))
"""Seconds by the clock, so longer where other tests run beside this one."""


@contextmanager
def endless(flood: str, where: str) -> Generator[dict[str, Any]]:
    """Run such a server; the entry for it. Fails at its end if there was no flood."""
    with TemporaryDirectory() as folder:
        record = Path(folder, "record")
        with _running(flood, where, record) as entry:
            yield entry
        assert record.exists(), "the server was not asked for what it floods"
        assert (int(record.read_text()) > 0) == (flood != "silence")


@contextmanager
def _running(flood: str, where: str, record: Path) -> Generator[dict[str, Any]]:
    command = [sys.executable, str(endless_http.__file__), flood, where, str(record)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            transport = "sse" if where == "sse" else "http"
            url = f"http://127.0.0.1:{port}/mcp"
            yield {"transport": transport, "url": url, "trust": "trusted", "approval": "allow"}
        finally:
            process.stdin.close()
            process.kill()


async def longest_block(seconds: float) -> float:
    """How long the event loop was blocked at most, less what this process waited for a processor."""
    longest, end = 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        began, spent = time.monotonic(), time.process_time()
        await anyio.sleep(0.01)
        late = time.monotonic() - began - 0.01
        longest = max(longest, min(late, time.process_time() - spent))
    return longest


async def close_in_time(host: Host) -> None:
    with anyio.fail_after(10):
        await host.close("x")


@pytest.mark.requirement("HARD-67")
@pytest.mark.parametrize("flood", [flood for flood in endless_http.FLOODS if flood != "progress"])
async def test_an_endless_stream_of_a_server_keeps_nobody_from_calling_and_closing(
    machine: Machine, flood: str
) -> None:
    with endless(flood, "get") as entry:
        async with hosting(machine, x=entry) as host:
            with anyio.fail_after(30):
                assert (await host.call("x", "echo")).text == "echoed"
            began = time.process_time()
            assert await longest_block(1.0) < LONGEST_BLOCK
            assert time.process_time() - began < 1.0  # of one second, with a burst in it
            with anyio.fail_after(30):
                assert (await host.call("x", "echo")).text == "echoed"
            await close_in_time(host)


@pytest.mark.requirement("HARD-67")
@pytest.mark.parametrize(
    "flood",
    ["comments", "blank-lines", "logs", "progress", "answers", "one-byte-chunks", "silence", "garbage"],
)
async def test_an_answer_that_never_ends_is_given_up_in_time(machine: Machine, flood: str) -> None:
    with endless(flood, "post") as entry:
        limits = {"request_timeout_ms": 500, "max_request_ms": 1_500}
        async with hosting(machine, x={**entry, **limits}) as host:
            with anyio.fail_after(30), pytest.raises(CallTimedOut):
                await host.call("x", "echo")
            await close_in_time(host)


@pytest.mark.requirement("HARD-67")
@pytest.mark.parametrize("flood", ["comments", "silence", "logs", "one-byte-chunks"])
async def test_a_goodbye_that_never_ends_keeps_nobody_from_closing(machine: Machine, flood: str) -> None:
    with endless(flood, "delete") as entry:
        async with hosting(machine, x=entry) as host:
            with anyio.fail_after(30):
                assert (await host.call("x", "echo")).text == "echoed"
            await close_in_time(host)


@pytest.mark.requirement("HARD-67")
@pytest.mark.parametrize(
    "flood",
    [
        "comments",
        "logs",
        "requests",
        *(
            pytest.param(flood, marks=pytest.mark.long)
            for flood in ("blank-lines", "pings", "one-byte-chunks")
        ),
    ],
)
async def test_the_older_transport_brings_answers_amid_a_flood(flood: str) -> None:
    async def answer(*_: object) -> dict[str, Any]:
        return {}

    async def hear(*_: object) -> None:
        return

    with endless(flood, "sse") as entry, anyio.fail_after(240):
        async with aiohttp.ClientSession() as client, anyio.create_task_group() as tasks:
            async with SseDispatcher(entry["url"], client) as dispatcher:
                await tasks.start(dispatcher.run, answer, hear)
                # Its answers stand in line behind its own requests, each of which is answered: it may be late
                # by its own doing, and then the deadline of the call is what ends it.
                options: CallOptions = {"timeout": 5.0} if flood == "requests" else {}
                with suppress(*((RequestExpired,) if flood == "requests" else ())):
                    answer_bytes = bytes(await dispatcher.call_raw("tools/call", {"name": "echo"}, options))
                    assert b"echoed" in answer_bytes
            with anyio.fail_after(10):
                await dispatcher.wait_closed()


@pytest.mark.requirement("HARD-67")
@pytest.mark.parametrize("flood", endless_stdio.FLOODS)
async def test_a_process_that_floods_its_stdout_keeps_nobody_from_calling_and_closing(
    machine: Machine, flood: str, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    entry = {
        "command": sys.executable,
        "args": [endless_stdio.__file__, flood, str(record)],
        "trust": "trusted",
        "approval": "allow",
    }
    async with hosting(machine, x=entry) as host:
        with anyio.fail_after(60):
            assert (await host.call("x", "echo")).text == "echoed"
        assert await longest_block(1.0) < LONGEST_BLOCK
        with anyio.fail_after(60):
            assert (await host.call("x", "echo")).text == "echoed"
        await close_in_time(host)
    # A pipe holds 64 KiB: more than that was read by us.
    assert int(record.read_text()) > 256 * 1024


@pytest.mark.requirement("HARD-67")
async def test_a_flood_costs_little_of_a_processor_once_its_burst_is_over(machine: Machine) -> None:
    with endless("logs", "get") as entry:
        async with hosting(machine, x=entry) as host:
            with anyio.fail_after(30):
                await host.call("x", "echo")
            await anyio.sleep(2)  # the burst
            spent, began = time.process_time(), time.monotonic()
            await anyio.sleep(3)
            assert time.process_time() - spent < 0.5 * (time.monotonic() - began)
            await close_in_time(host)


@pytest.mark.requirement("HARD-67")
def test_a_stream_pauses_after_its_burst_and_goes_on_at_its_rate() -> None:
    now = 0.0
    pace = ReadPace(clock=lambda: now)
    pace.spend(4 * 1024 * 1024)
    assert pace.pause_seconds() == 0
    pace.spend(5 * 1024 * 1024)
    assert 0 < pace.pause_seconds() <= 0.25
    now = 1.5
    assert pace.pause_seconds() == 0


@pytest.mark.requirement("HARD-67")
def test_answers_to_calls_never_make_a_stream_pause() -> None:
    pace = ReadPace(clock=lambda: 0.0)
    for _ in range(100):
        pace.spend(1024 * 1024)
        pace.refund(1024 * 1024)
    assert pace.pause_seconds() == 0


@pytest.mark.requirement("HARD-67")
def test_a_stream_that_calls_wait_for_may_bring_much_more() -> None:
    pace = ReadPace(clock=lambda: 0.0)
    pace.spend(64 * 1024 * 1024, busy=True)
    pace.spend_on_messages(4096, busy=True)
    assert pace.pause_seconds(busy=True) == 0
    pace.spend_on_messages(4096)
    assert pace.pause_seconds() > 0
