"""Servers that die, restart, forget sessions or are stopped: the next call works, once for all who wait."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from fairlead.errors import ConnectFailed, ConnectionLost
from fairlead.events import StateChanged
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.fixtures.hostile_http import HostileServer, Request, serving
from tests.host.support import hosting, is_running, running

PARALLEL = 20


async def pid_of(host: Host) -> int:
    return int((await host.call("x", "pid")).text)


async def call_in_parallel(host: Host, tool: str, count: int = PARALLEL) -> list[Any]:
    """Call a tool many times at once, each with a number; return the numbers that came back, or errors."""
    outcomes: list[Any] = []

    async def call(number: int) -> None:
        try:
            outcomes.append(json.loads((await host.call("x", tool, {"n": number})).text)["n"])
        except (ConnectFailed, ConnectionLost) as exc:
            outcomes.append(exc)

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(call, number)
    return outcomes


@pytest.mark.requirement("NEED-5", "NEED-6")
async def test_a_server_that_was_killed_is_noticed_at_once_and_the_next_call_works(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        pid = await pid_of(host)
        os.kill(pid, signal.SIGKILL)
        async for event in events:
            if isinstance(event, StateChanged) and event.state == "error":
                break
        [status] = host.status()
        assert status.state == "error"
        assert "SIGKILL" in str(status.last_error)
        assert await pid_of(host) != pid
    assert server.starts == 2


@pytest.mark.requirement("NEED-5")
async def test_many_calls_after_a_death_cause_one_restart(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        with pytest.raises(ConnectionLost):
            await host.call("x", "crash")
        assert sorted(await call_in_parallel(host, "echo")) == [*range(PARALLEL)]
        assert host.status()[0].connects == 2
    assert server.starts == 2
    assert server.calls("echo") == PARALLEL


@pytest.mark.requirement("NEED-5")
async def test_many_first_calls_cause_one_start(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        assert sorted(await call_in_parallel(host, "echo")) == [*range(PARALLEL)]
    assert server.starts == 1


@pytest.mark.requirement("NEED-5")
async def test_many_calls_share_the_failure_of_one_start(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", broken_starts=1)
    async with hosting(machine, x=server.entry()) as host:
        outcomes = await call_in_parallel(host, "echo")
        assert {type(outcome) for outcome in outcomes} == {ConnectFailed}
        assert (server.starts, server.calls("echo")) == (1, 0)
        assert sorted(await call_in_parallel(host, "echo")) == [*range(PARALLEL)]
    assert server.starts == 2


@pytest.mark.requirement("NEED-5")
async def test_crash_after_crash_leaves_one_process_and_loses_no_call(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        for crashes in range(1, 4):
            with pytest.raises(ConnectionLost):
                await host.call("x", "crash")
            assert sorted(await call_in_parallel(host, "echo", 5)) == [*range(5)]
            assert server.starts == crashes + 1
            assert host.status()[0].connects == crashes + 1


# Sessions over HTTP.


def carried_out(server: HostileServer) -> list[Request]:
    """The calls that came with a session the server knew."""
    return [
        call for call in server.seen("tools/call") if call.headers.get("mcp-session-id") in server.sessions
    ]


@pytest.mark.requirement("HARD-24", "NEED-5")
@pytest.mark.parametrize("quirks", [(), ("forgets-with-400",)])
async def test_a_forgotten_session_is_begun_anew_once_and_each_call_is_carried_out_once(
    machine: Machine, quirks: tuple[str, ...]
) -> None:
    async with (
        serving("no-stream", *quirks) as server,
        hosting(machine, x={"url": server.url, "trust": "trusted"}) as host,
    ):
        await host.connect("x")
        server.sessions.clear()
        assert sorted(await call_in_parallel(host, "echo")) == [*range(PARALLEL)]
        assert sorted(call.arguments["n"] for call in carried_out(server)) == [*range(PARALLEL)]
        assert len(server.seen("initialize")) == 2
        assert host.status()[0].connects == 2


@pytest.mark.requirement("HARD-24")
async def test_a_server_that_forgets_every_session_is_asked_twice_and_no_more(machine: Machine) -> None:
    async with serving("no-stream") as server:
        async with hosting(machine, x={"url": server.url, "trust": "trusted"}) as host:
            await host.connect("x")
            with pytest.raises(ConnectionLost) as raised:
                await host.call("x", "forget_session")
            assert raised.value.delivery == "not_sent"
        assert len(server.seen("tools/call")) == 2


@pytest.mark.requirement("NEED-21")
@pytest.mark.parametrize("tool", ["drop_at_once", "drop_in_body"])
async def test_a_connection_lost_after_sending_is_unknown_and_not_repeated(
    machine: Machine, tool: str
) -> None:
    async with serving("no-stream") as server:
        async with hosting(machine, x={"url": server.url, "trust": "trusted"}) as host:
            await host.connect("x")
            with pytest.raises(ConnectionLost) as raised:
                await host.call("x", tool)
            assert raised.value.delivery == "unknown"
            assert "check before you repeat it" in str(raised.value.hint)
            assert (await host.call("x", "echo")).text == "{}"
        assert [call.tool for call in server.seen("tools/call")] == [tool, "echo"]


# Stopping.


async def test_an_idle_server_is_stopped_and_the_next_call_starts_it(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry(idle_stop_ms=200)) as host, host.events() as events:
        pid = await pid_of(host)
        async for event in events:
            if isinstance(event, StateChanged) and event.state == "idle":
                break
        assert host.status()[0].last_error is None
        assert await pid_of(host) != pid
    assert server.starts == 2


async def test_a_server_at_work_is_not_idle(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry(idle_stop_ms=100)) as host:
        assert (await host.call("x", "tick", {"times": 10})).text == "done"
    assert server.starts == 1


async def test_a_closed_server_starts_again_when_it_is_used(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        pid = await pid_of(host)
        await host.close("x")
        assert host.status()[0].state == "idle"
        assert not is_running(pid)
        assert await pid_of(host) != pid


async def test_a_call_under_way_when_its_server_is_closed_fails_with_delivery_unknown(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        async with running(host, "x", "wait") as call:
            await host.close("x")
        assert isinstance(call.error, ConnectionLost)
        assert call.error.delivery == "unknown"
    assert server.calls("wait") == 1
