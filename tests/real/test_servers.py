"""What every real server goes through, whoever wrote it: it is used, killed, closed, and used again."""

import os
import signal
from collections.abc import AsyncIterator

import anyio
import pytest

from fairlead.events import Event, ServerState, StateChanged
from tests.conftest import Machine
from tests.real.processes import leader, marked
from tests.real.servers import RealServer, mark_of

pytestmark = pytest.mark.slow


async def until_state(events: AsyncIterator[Event], state: ServerState) -> StateChanged:
    async for event in events:
        if isinstance(event, StateChanged) and event.state == state:
            return event
    raise AssertionError(f"the host closed before any server was {state}")


@pytest.mark.requirement("NEED-1", "NEED-5", "NEED-8", "NEED-10")
async def test_a_server_comes_back_whether_killed_or_closed_and_goes_with_the_host(
    server: RealServer, machine: Machine
) -> None:
    mark = mark_of(machine, server.server_id)
    with anyio.fail_after(60):
        async with server.open_host(machine) as host, host.events() as events:
            assert not marked(mark)
            assert await host.connect(server.server_id) == {}
            assert host.status()[0].version == server.version
            assert {entry.key.tool for entry in await host.tools_of(server.server_id)} == server.tools
            await server.check_answer(host)

            os.kill(leader(marked(mark)), signal.SIGKILL)
            with anyio.fail_after(5):
                missed = await until_state(events, "error")
            assert "SIGKILL" in (missed.reason or "")
            async with anyio.create_task_group() as callers:
                for _ in range(3):
                    callers.start_soon(server.check_answer, host)
            assert host.status()[0].connects == 2

            await host.close(server.server_id)
            assert host.status()[0].state == "idle"
            assert not marked(mark)
            await server.check_answer(host)
            assert (host.status()[0].connects, host.status()[0].version) == (3, server.version)

    assert not marked(mark)
