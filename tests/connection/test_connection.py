"""One supervised connection, with transports the test can hold up."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from fairlead.config.models import ServerLimits
from fairlead.connection import deadlines
from fairlead.connection.connection import Connection
from fairlead.connection.deadlines import OPEN_SECONDS, TRIES_BEFORE_OPEN, Backoff
from fairlead.connection.process.child import Command
from fairlead.connection.supervisor import CLOSE_SECONDS, Supervisor
from fairlead.connection.transport.dispatcher import WireDispatcher
from fairlead.connection.transport.stdio import StdioDispatcher
from fairlead.errors import ConnectFailed, ConnectionLost
from fairlead.events import ServerState
from fairlead.testing import FakeClock, ScriptedServer
from tests.host.support import SECONDS

LIMITS = ServerLimits()


@asynccontextmanager
async def supervised() -> AsyncGenerator[TaskGroup]:
    """A group for the connections of a test, in which all of them end."""
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()


def transport(server: ScriptedServer) -> Callable[[], AbstractAsyncContextManager[WireDispatcher]]:
    @asynccontextmanager
    async def open_transport() -> AsyncGenerator[WireDispatcher]:
        async with StdioDispatcher(Command(argv=server.argv)) as dispatcher:
            yield dispatcher

    return open_transport


async def call(connection: Connection, tool: str, arguments: Mapping[str, Any] | None = None) -> bytes:
    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        return None

    return bytes(await connection.call_tool(tool, arguments or {}, on_progress=ignore))


class SlowToClose:
    """A transport whose first connection closes only when it is let."""

    def __init__(self, server: ScriptedServer) -> None:
        self._open = transport(server)
        self.opened = 0
        self.may_close = anyio.Event()

    @asynccontextmanager
    async def __call__(self) -> AsyncGenerator[WireDispatcher]:
        self.opened += 1
        first = self.opened == 1
        async with self._open() as dispatcher:
            try:
                yield dispatcher
            finally:
                if first:
                    with anyio.CancelScope(shield=True):
                        await self.may_close.wait()


@pytest.mark.requirement("NEED-5")
async def test_a_lost_connection_that_is_slow_to_close_does_not_get_in_the_way_of_the_next(
    tmp_path: Path,
) -> None:
    server = ScriptedServer(tmp_path / "record")
    slow = SlowToClose(server)
    states: list[ServerState] = []
    async with supervised() as tasks:
        connection = Connection(
            Supervisor("x", LIMITS, [slow], tasks=tasks, on_state=lambda state, _: states.append(state))
        )
        with pytest.raises(ConnectionLost):
            await call(connection, "crash")
        async with anyio.create_task_group() as callers:
            callers.start_soon(call, connection, "echo")
            callers.start_soon(call, connection, "echo")
            slow.may_close.set()
        await call(connection, "echo")
        assert slow.opened == server.starts == 2
        assert connection.vitals.connects == 2
        assert connection.vitals.losses == 1
        await connection.aclose()
        # The loss is told at once, and not again when the first connection has closed at last.
        assert states[-1] == "idle"
        assert states.count("error") == 1
        assert states.index("error") < states.index("connecting", 1)


@pytest.mark.requirement("HARD-21")
@pytest.mark.parametrize("drain", [True, False])
async def test_closing_does_not_wait_for_a_connection_that_is_begun_in_the_meantime(
    tmp_path: Path, drain: bool
) -> None:
    server = ScriptedServer(tmp_path / "record")
    slow = SlowToClose(server)
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", LIMITS, [slow], tasks=tasks))
        await connection.ready()
        with anyio.fail_after(CLOSE_SECONDS - 1):
            async with anyio.create_task_group() as closing:
                closing.start_soon(partial(connection.aclose, drain=drain))
                await checkpoint()
                await call(connection, "echo")
                slow.may_close.set()
        await call(connection, "echo")
        assert connection.vitals.connects == 2


@pytest.mark.requirement("HARD-17")
async def test_repeated_crashes_open_the_circuit_and_time_half_opens_it(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", broken_starts=TRIES_BEFORE_OPEN)
    clock = FakeClock()
    async with supervised() as tasks:
        connection = Connection(
            Supervisor(
                "x", LIMITS, [transport(server)], tasks=tasks, backoff=Backoff(clock, jitter=lambda: 0.0)
            )
        )
        for failures in range(1, TRIES_BEFORE_OPEN + 1):
            with pytest.raises(ConnectFailed, match="exited with code 1"):
                await call(connection, "echo")
            assert connection.backoff.failures == failures
            if failures < TRIES_BEFORE_OPEN:
                clock.now += OPEN_SECONDS
        starts = server.starts
        with pytest.raises(ConnectFailed, match=f"failed {TRIES_BEFORE_OPEN} times") as raised:
            await call(connection, "echo")
        assert "the last error was: the server exited with code 1" in str(raised.value)
        assert server.starts == starts, "an open circuit starts nothing"
        clock.now += OPEN_SECONDS
        await call(connection, "echo")
        assert server.starts == starts + 1


@pytest.mark.requirement("HARD-17")
async def test_a_server_that_works_until_it_crashes_is_started_again_each_time(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", LIMITS, [transport(server)], tasks=tasks))
        for _ in range(TRIES_BEFORE_OPEN + 1):
            await call(connection, "echo")
            with pytest.raises(ConnectionLost):
                await call(connection, "crash")
        await call(connection, "echo")
        assert connection.backoff.failures == 1


async def test_a_server_that_crashes_before_it_was_of_use_opens_the_circuit(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    clock = FakeClock()
    async with supervised() as tasks:
        connection = Connection(
            Supervisor(
                "x", LIMITS, [transport(server)], tasks=tasks, backoff=Backoff(clock, jitter=lambda: 0.0)
            )
        )
        for _ in range(TRIES_BEFORE_OPEN):
            clock.now += OPEN_SECONDS  # so that none has to wait
            with pytest.raises(ConnectionLost):
                await call(connection, "crash")
        await connection.aclose(drain=True)
        assert connection.backoff.is_open


async def test_a_person_who_knows_better_resets_the_circuit(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", LIMITS, [transport(server)], tasks=tasks))
        for _ in range(TRIES_BEFORE_OPEN):
            connection.backoff.note_failure()
        with pytest.raises(ConnectFailed):
            await call(connection, "echo")
        assert server.starts == 0
        connection.backoff.reset()
        await call(connection, "echo")


async def test_a_start_that_took_long_to_fail_is_not_a_connection_that_lasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "STABLE_SECONDS", 0.1)
    server = ScriptedServer(tmp_path / "record", silent_after=0)
    async with supervised() as tasks:
        connection = Connection(
            Supervisor("x", ServerLimits(startup_timeout_ms=200), [transport(server)], tasks=tasks)
        )
        connection.backoff.note_failure()
        with pytest.raises(ConnectFailed, match=r"0\.2 s"):
            await call(connection, "echo")
        assert connection.backoff.failures == 2


async def test_a_second_transport_is_not_tried_where_the_first_fails_for_its_own_reasons(
    tmp_path: Path,
) -> None:
    broken, other = ScriptedServer(tmp_path / "broken", exit=1), ScriptedServer(tmp_path / "other")
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", LIMITS, [transport(broken), transport(other)], tasks=tasks))
        with pytest.raises(ConnectFailed):
            await connection.ready()
    assert other.starts == 0


async def test_a_call_safe_to_repeat_is_repeated_once_after_a_loss(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", LIMITS, [transport(server)], tasks=tasks))

        async def ignore(progress: float, total: float | None, message: str | None) -> None:
            return None

        with pytest.raises(ConnectionLost):
            await connection.call_tool("crash", {}, on_progress=ignore, safe_to_repeat=True)
    assert server.calls("crash") == 2


async def test_closing_is_remembered_by_nobody_and_the_next_call_connects(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with supervised() as tasks:
        connection = Connection(Supervisor("x", LIMITS, [transport(server)], tasks=tasks))
        await connection.aclose()
        await call(connection, "echo")
        await connection.aclose()
        await connection.aclose()
        assert connection.vitals.state == "idle"
        await call(connection, "echo")
        await connection.aclose(drain=True)
        assert (connection.vitals.connects, connection.vitals.losses) == (2, 0)


async def test_a_failed_start_is_forgotten_once_a_later_one_works(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", broken_starts=1)
    states: list[tuple[ServerState, str | None]] = []
    async with supervised() as tasks:
        connection = Connection(
            Supervisor(
                "x",
                LIMITS,
                [transport(server)],
                tasks=tasks,
                on_state=lambda state, reason: states.append((state, reason)),
            )
        )
        with pytest.raises(ConnectFailed):
            await connection.ready()
        assert states[-1][0] == "error"
        assert "exited with code 1" in str(states[-1][1])
        await connection.ready()
        assert connection.vitals.version == "2025-11-25"


async def test_a_connection_that_was_idle_before_its_first_caller_ran_is_not_used(tmp_path: Path) -> None:
    """A machine so busy that the idle limit passes before the caller that waits gets its turn."""
    server = ScriptedServer(tmp_path / "record")
    stalls = [0.2]

    def stall_once() -> None:
        if stalls:
            time.sleep(stalls.pop())

    limits = ServerLimits(idle_stop_ms=100)
    async with supervised() as tasks:
        connection = Connection(
            Supervisor("x", limits, [transport(server)], tasks=tasks, on_connected=stall_once)
        )
        answer = await call(connection, "echo", {"a": 1})
        assert b"a" in answer
        assert connection.vitals.connects == 2
    assert server.calls("echo") == 1
