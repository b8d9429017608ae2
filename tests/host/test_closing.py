"""Closing from any task, in any order, at any moment: in bounded time, and nothing is left behind."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from fairlead.errors import ConnectFailed, ConnectionLost, FairleadError, ListFailed
from fairlead.host.background import task_owner
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.conftest import Machine
from tests.host.support import Running, begin, hosting, is_running, running, unasked

CLOSE_SECONDS = 10.0


async def outcome_of(use: Callable[[], Awaitable[object]]) -> object:
    try:
        return await use()
    except FairleadError as exc:
        return exc


@pytest.mark.requirement("HARD-21", "NEED-6")
async def test_servers_are_closed_in_any_order_from_any_task(machine: Machine, tmp_path: Path) -> None:
    servers = {name: ScriptedServer(tmp_path / name) for name in "abcd"}
    async with hosting(machine, **{name: server.entry() for name, server in servers.items()}) as host:
        assert await host.connect_all() == {}
        async with anyio.create_task_group() as tasks:
            for name in "cabd":
                tasks.start_soon(host.close, name)
        await host.close("a")
        await host.connect("b", "d")
        await host.close("b")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.close, "d")
            tasks.start_soon(host.close, "d")
        assert {status.state for status in host.status()} == {"idle"}
        for server in servers.values():
            assert not any(map(is_running, server.notes("started")))


@pytest.mark.requirement("HARD-21")
async def test_closing_a_server_that_connects_ends_the_wait_for_it(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", silent_after=0)
    async with hosting(machine, x=server.entry()) as host, host.events() as events:
        outcomes: list[object] = []

        async def use(one: Callable[[], Awaitable[object]]) -> None:
            outcomes.append(await outcome_of(one))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use, lambda: host.call("x", "echo"))
            tasks.start_soon(use, lambda: host.tools_of("x"))
            tasks.start_soon(use, lambda: host.require(["x"]))
            await anext(events)
            await anext(events)  # it connects, and a call waits for it
            with anyio.fail_after(CLOSE_SECONDS):
                await host.close("x")
        assert [type(outcome) for outcome in outcomes] == [ConnectFailed] * 3
        assert host.status()[0].state == "idle"


@pytest.mark.requirement("HARD-21")
async def test_closing_a_server_that_is_being_listed_ends_the_wait_for_its_list(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record", list_silence=True)
    async with hosting(machine, x=server.entry()) as host:
        outcomes: list[object] = []

        async def list_tools() -> None:
            outcomes.append(await outcome_of(lambda: host.tools_of("x")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(list_tools)
            assert (await host.call("x", "echo")).text == "{}"
            with anyio.fail_after(CLOSE_SECONDS):
                await host.close("x")
        assert isinstance(outcomes[0], ListFailed)


@pytest.mark.requirement("HARD-21")
async def test_a_host_that_closes_while_servers_connect_does_not_wait_for_them(
    machine: Machine, tmp_path: Path
) -> None:
    servers = [ScriptedServer(tmp_path / name, silent_after=0) for name in "ab"]
    entries = {f"s{number}": server.entry(lazy=False) for number, server in enumerate(servers)}
    with anyio.fail_after(CLOSE_SECONDS):
        async with hosting(machine, **entries) as host, host.events() as events:
            await anext(events)
    for server in servers:
        assert not any(map(is_running, server.notes("started")))


@pytest.mark.requirement("HARD-21")
async def test_a_host_that_closes_while_a_call_runs_fails_that_call(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    call: Running | None = None
    async with anyio.create_task_group() as tasks, hosting(machine, x=server.entry()) as host:
        call = await begin(tasks, host, "x", "wait")
    assert call is not None
    assert isinstance(call.error, ConnectionLost)
    assert call.error.delivery == "unknown"
    assert not any(map(is_running, server.notes("started")))


@pytest.mark.requirement("HARD-21")
async def test_a_host_may_be_closed_twice(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        await host.call("x", "echo")
        await host.aclose()
        await host.aclose()
    await host.aclose()


@pytest.mark.requirement("HARD-21")
async def test_a_closed_host_refuses_to_work_in_our_words(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with hosting(machine, x=server.entry()) as host:
        pass
    with pytest.raises(ConnectFailed, match="closed"):
        await host.call("x", "echo")
    assert isinstance((await host.connect("x"))["x"], ConnectFailed)
    assert server.starts == 0


@pytest.mark.requirement("HARD-21")
async def test_an_error_of_the_users_block_comes_out_as_it_is(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")

    async def divide() -> None:
        async with hosting(machine, x=server.entry(lazy=False)) as host:
            await host.call("x", "echo")
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await divide()
    assert not any(map(is_running, server.notes("started")))


@pytest.mark.requirement("HARD-21")
async def test_a_cancelled_block_leaves_nothing_behind(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    with anyio.CancelScope() as scope:
        async with hosting(machine, x=server.entry()) as host, running(host, "x", "wait"):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert server.starts == 1
    assert not any(map(is_running, server.notes("started")))


@pytest.mark.requirement("HARD-21", "NEED-6")
async def test_failures_of_many_servers_at_once_come_one_by_one_and_not_as_a_group(
    machine: Machine, tmp_path: Path
) -> None:
    servers = {name: ScriptedServer(tmp_path / name, exit=1).entry() for name in "abc"}
    async with hosting(machine, **servers) as host:
        failures = await host.connect_all()
        assert sorted(failures) == ["a", "b", "c"]
        assert {type(failure) for failure in failures.values()} == {ConnectFailed}


@pytest.mark.requirement("HARD-21")
async def test_a_host_opened_in_one_task_is_used_from_others(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    texts: list[str] = []

    async def use(host: Host) -> None:
        texts.append((await host.call("x", "echo")).text)
        await host.close("x")

    async with hosting(machine, x=server.entry()) as host:
        for _ in range(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(use, host)
    assert texts == ["{}"] * 3


@pytest.mark.requirement("HARD-21", "NEED-6")
async def test_a_host_is_closed_from_another_task_than_opened_it(machine: Machine, tmp_path: Path) -> None:
    """As fixtures of tests and lifespans of web frameworks do."""
    server = ScriptedServer(tmp_path / "record")
    stack = AsyncExitStack()
    opened: list[Host] = []

    async def open_it() -> None:
        host = Host.open(overrides=unasked({"x": server.entry()}), env=machine.env, cwd=machine.project)
        opened.append(await stack.enter_async_context(host))

    async def use_it() -> None:
        assert "here" in (await opened[0].call("x", "echo", {"text": "here"})).text

    for step in (open_it, use_it, stack.aclose):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step)
    assert not any(map(is_running, server.notes("started")))
    with pytest.raises(FairleadError):
        await opened[0].call("x", "echo")


async def test_an_error_in_the_block_of_a_host_comes_out_as_it_is(machine: Machine, tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")

    async def fail() -> None:
        async with hosting(machine, x=server.entry()) as host:
            await host.connect("x")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()
    assert not any(map(is_running, server.notes("started")))


async def test_a_host_whose_opener_is_cancelled_leaves_nothing_behind(
    machine: Machine, tmp_path: Path
) -> None:
    server = ScriptedServer(tmp_path / "record")
    with anyio.move_on_after(30) as scope:
        async with hosting(machine, x=server.entry()) as host:
            await host.connect("x")
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert server.notes("started")
    assert not any(map(is_running, server.notes("started")))


async def test_a_failed_task_of_a_host_is_named_at_the_end_of_the_block() -> None:
    async def fail() -> None:
        raise LookupError("in the background")

    async def own() -> None:
        async with task_owner("test") as tasks:
            tasks.start_soon(fail)
            await anyio.lowlevel.checkpoint()

    with pytest.raises(ExceptionGroup) as caught:
        await own()
    assert caught.group_contains(LookupError, match="in the background")
