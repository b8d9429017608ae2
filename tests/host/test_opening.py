"""A host that is awaited rather than entered, and streams of events that are iterated as they are."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from fairlead import ConnectFailed, Event, FairleadError, Host, McpToolCallBegin, McpToolCallEnd
from fairlead.host.opening import HostOpening
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import SECONDS, hosting, is_running, unasked
from tests.loops import LOOPS

pytestmark = pytest.mark.requirement("HARD-88")


async def opened(machine: Machine, **servers: dict[str, Any]) -> Host:
    return await Host.open(overrides=unasked(servers), env=machine.env, cwd=machine.project)


def pids(server: ScriptedServer) -> list[int]:
    return [note["pid"] for note in server.notes("started")]


@pytest.mark.parametrize("anyio_backend", LOOPS, indirect=True)
async def test_an_awaited_host_runs_until_it_is_closed_in_whatever_task(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["pid"])
    with anyio.fail_after(SECONDS):
        hosts: list[Host] = []

        async def begin() -> None:
            hosts.append(await opened(machine, a=server.entry()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin)
        (host,) = hosts
        pid = int((await host.call("a", "pid")).text)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.aclose)
            tasks.start_soon(host.aclose)
        await host.aclose()
        with pytest.raises(ConnectFailed, match="closed"):
            await host.call("a", "pid")
    assert not is_running(pid)


async def test_a_caller_that_is_cancelled_leaves_nothing_behind(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["pid"])
    with anyio.fail_after(SECONDS):
        host = await opened(machine, a=server.entry())
        pid = int((await host.call("a", "pid")).text)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await host.aclose()
    assert not is_running(pid)


async def test_a_host_that_cannot_be_opened_leaves_nothing_behind(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", broken_starts=100)
    before = asyncio.all_tasks()
    with anyio.fail_after(SECONDS), pytest.raises(ConnectFailed):
        await opened(machine, a=server.entry(required=True))
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("first", ["entered", "awaited"])
@pytest.mark.parametrize("second", ["entered", "awaited"])
async def test_what_opened_a_host_opens_no_other_and_says_so(
    machine: Machine, first: str, second: str
) -> None:
    async def use(opening: HostOpening[Host], how: str) -> None:
        if how == "entered":
            async with opening:
                return
        await (await opening).aclose()

    opening = Host.open(env=machine.env, cwd=machine.project)
    with anyio.fail_after(SECONDS):
        await use(opening, first)
        with pytest.raises(FairleadError, match="used already") as caught:
            await use(opening, second)
    assert caught.value.hint == "call `Host.open()` again for another host"


USES: dict[str, Callable[[Host], Awaitable[Any]]] = {
    "call": lambda host: host.call("a", "pid"),
    "tools_of": lambda host: host.tools_of("a"),
    "list_now": lambda host: host.list_now("a"),
    "tools": lambda host: host.tools.call("a_pid", {}),
    "resources": lambda host: host.resources.list("a"),
    "describe": lambda host: host.describe("a"),
    "require": lambda host: host.require(["a"]),
    "reload": lambda host: host.reload(host.config),
    "close": lambda host: host.close("a"),
    "aclose": lambda host: host.aclose(),
}


def test_a_host_that_is_not_open_yet_says_how_to_open_it(machine: Machine) -> None:
    opening: Any = Host.open(env=machine.env)
    with pytest.raises(AttributeError, match=r"no `call` before .*`async with Host\.open\(\) as host`"):
        opening.call("time", "now")
    with pytest.raises(TypeError, match=r"lacks its `async`.*`with fairlead\.open\(\) as host`"), opening:
        pass
    assert not hasattr(opening, "__len__")


async def test_a_host_says_that_it_belongs_to_another_event_loop_and_goes_on_in_its_own(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["pid"])
    async with hosting(machine, a=server.entry()) as host:
        pid = (await host.call("a", "pid")).text

        def use_elsewhere(use: Callable[[Host], Awaitable[Any]]) -> None:
            async def main() -> None:
                async with asyncio.timeout(SECONDS):
                    await use(host)

            asyncio.run(main())

        for use in USES.values():
            with pytest.raises(FairleadError, match="opened in another event loop") as caught:
                await anyio.to_thread.run_sync(use_elsewhere, use)
            assert caught.value.hint is not None
            assert caught.value.delivery == "not_sent"
        assert (await host.call("a", "pid")).text == pid


def test_a_host_that_ended_with_its_loop_can_be_closed_in_the_next(machine: Machine) -> None:
    async def run() -> Host:
        return await Host.open(env=machine.env, cwd=machine.project)

    host = asyncio.run(run())
    asyncio.run(host.aclose())


UNCLOSED = """
import asyncio, os, sys
from pathlib import Path
from fairlead import Host
from fairlead.testing import ScriptedServer

home = Path(sys.argv[1])
server = ScriptedServer(home / "record", tools=["pid"])
document = {"servers": {"a": server.entry()}, "policy": {"approval": "allow"}}
env = {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}

async def main():
    host = await Host.open(overrides=document, env=env, cwd=home)
    print((await host.call("a.pid")).text)
    return host

kept = asyncio.run(main())
"""


def test_a_host_that_is_never_closed_ends_with_its_loop(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(UNCLOSED)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not is_running(int(done.stdout))


async def test_events_are_iterated_without_a_block(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        told: list[Event] = []
        first, second = host.events(), host.events()
        await host.call("a", "echo")
        for stream in (first, second):
            async for event in stream:
                if isinstance(event, McpToolCallEnd):
                    break
                told.append(event)
        assert [event.tool for event in told if isinstance(event, McpToolCallBegin)] == ["echo", "echo"]


async def test_a_stream_that_is_dropped_is_not_subscribed_any_more(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    async with hosting(machine, a=server.entry()) as host:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.call, "a", "echo")
            async for event in host.events():
                if isinstance(event, McpToolCallEnd):
                    break
        host.events()
        gc.collect()
        await anyio.lowlevel.checkpoint()
        assert not host.bus.has_listeners


async def test_two_tasks_can_share_a_stream_and_both_end_with_it(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["echo"])
    told: list[Event] = []

    async def read(stream: Any) -> None:
        told.extend([event async for event in stream])

    async with hosting(machine, a=server.entry()) as host:
        stream = host.events()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read, stream)
            tasks.start_soon(read, stream)
            await anyio.lowlevel.checkpoint()
            await host.call("a", "echo")
            stream.close()
    assert [type(event) for event in told].count(McpToolCallEnd) == 1


async def test_events_of_a_closed_host_end_at_once(machine: Machine) -> None:
    with anyio.fail_after(SECONDS):
        host = await opened(machine)
        before = host.events()
        await host.aclose()
        assert [event async for event in before] == []
        assert [event async for event in host.events()] == []
