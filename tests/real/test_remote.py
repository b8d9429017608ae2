"""The server that does everything, over Streamable HTTP and over the older SSE."""

from typing import Any

import anyio
import pytest

from fairlead.errors import ConnectionLost
from fairlead.host.host import Host
from tests.conftest import Machine
from tests.real.processes import until
from tests.real.remote import Mode, RemoteServer
from tests.real.servers import EVERYTHING_TOOLS, HANDSHAKE, open_host

pytestmark = pytest.mark.slow

LONG_OPERATION = "trigger-long-running-operation"


@pytest.fixture(params=["streamableHttp", "sse"])
def remote(request: pytest.FixtureRequest, machine: Machine) -> RemoteServer:
    mode: Mode = request.param
    return RemoteServer(mode=mode, machine=machine)


def entry(remote: RemoteServer) -> dict[str, Any]:
    transport = "http" if remote.mode == "streamableHttp" else "sse"
    return {"url": remote.url, "transport": transport, "trust": "trusted"}


async def check_echo(host: Host, message: str) -> None:
    assert message in (await host.call("remote", "echo", {"message": message})).text


@pytest.mark.requirement("NEED-6", "NEED-20")
async def test_a_server_at_a_url_is_listed_called_watched_and_cancelled(
    remote: RemoteServer, machine: Machine
) -> None:
    reports: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    with anyio.fail_after(60):
        async with remote.running(), open_host(machine, {"remote": entry(remote)}) as host:
            assert await host.connect("remote") == {}
            assert host.status()[0].version == HANDSHAKE
            assert {entry.key.tool for entry in await host.tools("remote")} == EVERYTHING_TOOLS

            await host.call(
                "remote",
                LONG_OPERATION,
                {"duration": 2, "steps": 8},
                on_progress=on_progress,
                request_timeout_ms=1500,
            )
            assert reports == [1, 2, 3, 4, 5, 6, 7, 8]

            with anyio.CancelScope() as caller:

                async def give_up(progress: float, total: float | None, message: str | None) -> None:
                    caller.cancel()

                await host.call(
                    "remote", LONG_OPERATION, {"duration": 600, "steps": 6000}, on_progress=give_up
                )
            assert caller.cancelled_caught
            await check_echo(host, "still there")
            assert host.status()[0].connects == 1


@pytest.mark.requirement("NEED-5", "NEED-21", "HARD-24")
async def test_a_server_killed_during_a_call_fails_that_call_and_serves_the_next_once_it_is_back(
    remote: RemoteServer, machine: Machine
) -> None:
    with anyio.fail_after(60):
        async with open_host(machine, {"remote": entry(remote)}) as host:
            async with remote.running(), anyio.create_task_group() as callers:
                under_way = anyio.Event()

                async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                    under_way.set()

                async def call_in_vain() -> None:
                    with pytest.raises(ConnectionLost) as lost:
                        await host.call(
                            "remote",
                            LONG_OPERATION,
                            {"duration": 600, "steps": 6000},
                            on_progress=on_progress,
                        )
                    assert lost.value.delivery == "unknown"

                callers.start_soon(call_in_vain)
                await under_way.wait()
            assert host.status()[0].connects == 1
