"""What a host tells those who listen: states in order, calls with their duration, changed tools."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fairlead.errors import CallRejected, ConnectFailed, ConnectionLost
from fairlead.events import (
    Event,
    EventsDropped,
    McpToolCallBegin,
    McpToolCallEnd,
    McpToolCallProgress,
    McpToolsChanged,
    StateChanged,
)
from fairlead.host.events import MAX_WAITING
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import hosting, running, unasked


async def until(events: AsyncIterator[Event], last: type[Event]) -> list[Event]:
    """The events up to the first of a kind."""
    seen: list[Event] = []
    async for event in events:
        seen.append(event)
        if isinstance(event, last):
            break
    return seen


async def states_until(events: AsyncIterator[Event], last: str) -> list[StateChanged]:
    """The changes of state up to one."""
    seen: list[StateChanged] = []
    async for event in events:
        if isinstance(event, StateChanged):
            seen.append(event)
            if event.state == last:
                break
    return seen


async def test_states_are_told_in_order(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        await host.connect("x")
        await host.close("x")
        told = await states_until(events, "idle")
        assert [event.state for event in told] == ["connecting", "ready", "idle"]
        assert {event.server_id for event in told} == {"x"}


async def test_a_failure_is_told_with_its_reason(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", exit=5)
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        with pytest.raises(ConnectFailed):
            await host.call("x", "echo")
        told = await states_until(events, "error")
        assert [event.state for event in told] == ["connecting", "error"]
        assert "code 5" in str(told[-1].reason)


async def test_a_call_is_told_from_its_start_to_its_end(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        await host.call("x", "tick", {"times": 2})
        told = [event for event in await until(events, McpToolCallEnd) if not isinstance(event, StateChanged)]
        calls = [event for event in told if not isinstance(event, McpToolsChanged)]
        assert [type(event) for event in calls] == [
            McpToolCallBegin,
            McpToolCallProgress,
            McpToolCallProgress,
            McpToolCallEnd,
        ]
        started, finished = calls[0], calls[-1]
        assert isinstance(started, McpToolCallBegin)
        assert isinstance(finished, McpToolCallEnd)
        assert (started.server_id, started.tool) == ("x", "tick")
        assert (finished.call_id, finished.error, finished.is_error) == (started.call_id, None, False)
        assert finished.seconds > 0


@pytest.mark.parametrize("values", [False, True])
async def test_a_call_is_told_with_the_shape_of_its_arguments_and_values_only_where_allowed(
    machine: Machine, tmp_path: Path, *, values: bool
) -> None:
    """Seed 004: `McpToolCallBegin` and `End` with duration and invocation details."""
    server = ScriptedServer(tmp_path / "record")
    document = unasked({"x": server.entry()}, audit={"values": values})
    async with (
        Host.open(overrides=document, env=machine.env, cwd=machine.project) as host,
        host.events() as events,
    ):
        await host.call("x", "echo", {"path": "/etc/motd", "password": "hunter2hunter2", "n": 3})
        told = await until(events, McpToolCallEnd)
    (begun,) = [event for event in told if isinstance(event, McpToolCallBegin)]
    ended = told[-1]
    assert isinstance(ended, McpToolCallEnd)
    for event in (begun, ended):
        assert (event.server_id, event.tool, event.principal) == ("x", "echo", "local")
        assert event.shape == {"path": "string(9)", "password": "string(14)", "n": "integer"}
        assert "hunter2" not in repr(event)
        if values:
            assert event.arguments["path"] == "/etc/motd"
        else:
            assert event.arguments is None
    assert ended.outcome == "ok"
    assert ended.seconds > 0


async def test_a_call_that_failed_is_told_with_the_code_of_its_error(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        for tool, error in (("refuse", CallRejected), ("crash", ConnectionLost)):
            with pytest.raises(error):
                await host.call("x", tool)
            finished = (await until(events, McpToolCallEnd))[-1]
            assert isinstance(finished, McpToolCallEnd)
            assert (finished.tool, finished.error, finished.is_error) == (tool, error.code, True)


async def test_a_cancelled_call_is_told_as_such(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        async with running(host, "x", "wait") as call:
            call.scope.cancel()
        finished = (await until(events, McpToolCallEnd))[-1]
        assert isinstance(finished, McpToolCallEnd)
        assert finished.error == "cancelled"


async def test_changed_tools_are_told_and_unchanged_ones_are_not(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        await host.connect("x")
        assert (await until(events, McpToolsChanged))[-1] == McpToolsChanged(server_id="x", tools=1)
        await host.call("x", "change_tools", {"tools": ["echo"]})
        await host.call("x", "change_tools", {"tools": ["a", "b", "c"]})
        assert (await until(events, McpToolsChanged))[-1] == McpToolsChanged(server_id="x", tools=3)
        assert [tool.key.tool for tool in await host.tools_of("x")] == ["a", "b", "c"]
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        await host.connect("x")
        assert (await until(events, McpToolsChanged))[-1] == McpToolsChanged(server_id="x", tools=1)


async def test_every_listener_hears_everything_from_when_it_began(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as first:
        await host.call("x", "echo")
        async with host.events() as second:
            await host.call("x", "pid")
        await host.call("x", "received")
        assert [event.tool async for event in second if isinstance(event, McpToolCallBegin)] == ["pid"]
        started = [
            event for event in await until(first, McpToolCallEnd) if isinstance(event, McpToolCallBegin)
        ]
        assert [event.tool for event in started] == ["echo"]


async def test_the_end_of_the_host_ends_the_events(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with AsyncExitStack() as listening:
        async with hosting(machine, x=server.entry()) as host:
            events = await listening.enter_async_context(host.events())
            await host.call("x", "echo")
            assert isinstance((await until(events, McpToolCallEnd))[-1], McpToolCallEnd)
            told = states_until(events, "never")
        assert [event.state for event in await told][-1:] == ["idle"]


async def test_a_listener_that_does_not_listen_loses_the_oldest_and_holds_up_nobody(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    calls = MAX_WAITING // 2 + 50
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        for _ in range(calls):
            await host.call("x", "echo")
        dropped, first = await anext(events), await anext(events)
        assert isinstance(dropped, EventsDropped)
        assert dropped.count > 0
        assert isinstance(first, McpToolCallBegin | McpToolCallEnd)
        assert first.call_id > 1
