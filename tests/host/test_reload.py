"""A configuration that changes under a running host: only what changed restarts, calls under way finish."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from msgspec import structs

from fairlead.config.load import LoadedConfig
from fairlead.errors import CallDenied, ConnectionLost, FairleadError, UnknownServer
from fairlead.events import StateChanged
from fairlead.host.host import Host
from fairlead.policy.lockfile import Lock, lock_server, lock_text
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import SECONDS, Running, begin, hosting, is_running, running, unasked


def loaded(machine: Machine, **servers: dict[str, Any]) -> LoadedConfig:
    return machine.load(overrides=unasked(servers))


async def pid_of(host: Host, server_id: str) -> str:
    return (await host.call(server_id, "pid")).text


@pytest.mark.requirement("NEED-18")
async def test_only_the_changed_server_restarts(machine: Machine, tmp_path: Path) -> None:
    first, second = ScriptedServer(tmp_path / "first"), ScriptedServer(tmp_path / "second")
    async with hosting(machine, a=first.entry(), b=second.entry()) as host:
        pids = [await pid_of(host, "a"), await pid_of(host, "b")]
        await host.reload(loaded(machine, a=first.entry(), b=second.entry(env={"NEW": "1"})))
        assert await pid_of(host, "a") == pids[0]
        assert await pid_of(host, "b") != pids[1]
    assert (first.starts, second.starts) == (1, 2)


@pytest.mark.requirement("NEED-18")
async def test_the_changed_servers_call_under_way_finishes(machine: Machine, tmp_path: Path) -> None:
    server, gate = ScriptedServer(tmp_path / "record"), tmp_path / "gate"
    os.mkfifo(gate)
    async with hosting(machine, x=server.entry()) as host:
        async with running(host, "x", "hold", file=str(gate)) as call:
            await host.reload(loaded(machine, x=server.entry(env={"NEW": "1"})))
            assert (await host.call("x", "echo")).text == "{}"  # by the new one, while the old one works
            assert server.starts == 2
            await to_thread.run_sync(gate.write_text, "held", abandon_on_cancel=True)
        assert call.text == "held"
    assert server.calls("hold") == 1


@pytest.mark.requirement("NEED-18")
async def test_the_old_process_is_gone_once_its_calls_are_over(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        pid = await pid_of(host, "x")
        await host.reload(loaded(machine))
        assert host.status() == []
        async for event in events:
            if isinstance(event, StateChanged) and event.state == "idle":
                break
        with anyio.fail_after(10):
            while is_running(int(pid)):  # noqa: ASYNC110 - another process says nothing when it ends
                await anyio.sleep(0.01)


@pytest.mark.requirement("NEED-18")
async def test_a_host_that_closes_does_not_wait_for_calls_of_retired_servers(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    call: Running | None = None
    async with anyio.create_task_group() as tasks, hosting(machine, x=server.entry()) as host:
        call = await begin(tasks, host, "x", "wait")
        await host.reload(loaded(machine))
    assert call is not None
    assert isinstance(call.error, ConnectionLost)


async def test_a_change_that_only_narrows_takes_effect(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        assert (await host.call("x", "echo")).text == "{}"
        await host.reload(loaded(machine, x=server.entry(deny_tools=["echo"])))
        with pytest.raises(CallDenied, match="deny_tools"):
            await host.call("x", "echo")


@pytest.mark.requirement("NEED-18")
async def test_what_tools_may_do_changes_without_a_restart(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")

    async def outcome(tool: str) -> str:
        try:
            return (await host.call("x", tool)).text
        except CallDenied as exc:
            return str(exc)

    async with hosting(machine, x=server.entry()) as host:
        pid = await pid_of(host, "x")
        for fields, refused in (
            ({"deny_tools": ["echo"]}, "listed in deny_tools"),
            ({"allow_tools": ["pid"]}, "not listed in allow_tools"),
            ({"allow_tools": ["pid", "echo"], "approval": {"tools": {"echo": "deny"}}}, "approval"),
            ({"allow_tools": ["pid", "echo"]}, ""),
        ):
            await host.reload(loaded(machine, x=server.entry(**fields)))
            assert refused in await outcome("echo")
            offered = {tool.key.tool for tool in host.catalog(host.tools.selection).tools}
            assert ("echo" in offered) is (not refused)
            assert await pid_of(host, "x") == pid


async def test_a_server_that_was_switched_off_is_stopped(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        await host.call("x", "echo")
        await host.reload(loaded(machine, x=server.entry(enabled=False)))
        assert host.status()[0].state == "disabled"
        await host.reload(loaded(machine, x=server.entry()))
        assert host.status()[0].state == "idle"
        assert (await host.call("x", "echo")).text == "{}"
    assert server.starts == 2


async def test_servers_are_added_and_removed_while_the_host_runs(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine) as host:
        with pytest.raises(UnknownServer):
            await host.call("x", "echo")
        definition = loaded(machine, x=server.entry()).servers["x"]
        await host.add(definition)
        assert (await host.call("x", "echo")).text == "{}"
        await host.add(loaded(machine, x=server.entry()).servers["x"])
        assert (await host.call("x", "echo")).text == "{}"
        assert server.starts == 1
        host.remove("x")
        with pytest.raises(UnknownServer):
            await host.call("x", "echo")
        with pytest.raises(UnknownServer):
            host.remove("x")


async def test_a_reload_starts_the_servers_that_are_not_lazy(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine) as host, host.events() as events:
        await host.reload(loaded(machine, x=server.entry(lazy=False)))
        async for event in events:
            if isinstance(event, StateChanged) and event.state == "ready":
                break
    assert server.starts == 1


def lock_of(host: Host, *, without: str = "") -> str:
    """The text of a lock of the server `x` as it is, less one tool."""
    (member,) = host.servers
    assert member.snapshot is not None
    locked = lock_server(member.server, member.snapshot.listing, protocol="2025-11-25", reported=None)
    tools = {tool: each for tool, each in locked.tools.items() if tool != without}
    return lock_text(Lock(servers={"x": structs.replace(locked, tools=tools)}))


@pytest.mark.requirement("HARD-40")
@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
async def test_a_reload_holds_servers_to_their_lock_file_as_it_is_now(
    machine: Machine, tmp_path: Path, trust: str
) -> None:
    server = ScriptedServer(tmp_path / "record")
    entry = {**server.entry(), "trust": trust, "allow_tools": ["*"]}
    lock = machine.write_user(json.dumps(unasked({"x": entry}))).with_name("fairlead.lock")
    with anyio.fail_after(SECONDS):
        async with Host.open(env=machine.env, cwd=machine.project) as host:
            await host.tools_of("x")
            assert (await host.call("x", "echo")).text == "{}"
            for text in (lock_of(host, without="echo"), "no lock", "{}", lock_of(host, without="echo")):
                lock.write_text(text)
                await host.reload(machine.load())
                if text == "{}":  # a lock that does not know the server does not narrow it
                    assert (await host.call("x", "echo")).text == "{}"
                    continue
                calls = server.calls("echo")
                with pytest.raises(FairleadError, match="lock"):
                    await host.call("x", "echo")
                assert server.calls("echo") == calls
                assert "echo" not in {tool.key.tool for tool in host.catalog(host.tools.selection).tools}
            lock.write_text(lock_of(host))
            await host.reload(machine.load())
            assert (await host.call("x", "echo")).text == "{}"
            lock.unlink()
            await host.reload(machine.load())
            assert (await host.call("x", "echo")).text == "{}"
    assert server.starts == 1
