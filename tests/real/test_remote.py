"""The server that does everything, over Streamable HTTP and over the older SSE."""

from typing import Any

import anyio
import pytest

from fairlead.errors import ConnectFailed, ConnectionLost
from fairlead.host.host import Host
from tests.conftest import Machine
from tests.real.processes import until
from tests.real.remote import Mode, RemoteServer
from tests.real.servers import (
    EVERYTHING_TOOLS,
    HANDSHAKE,
    LONG_OPERATION,
    open_host,
    seconds_to_give_up,
)

pytestmark = pytest.mark.slow


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
            assert {entry.key.tool for entry in await host.tools_of("remote")} == EVERYTHING_TOOLS

            await host.call(
                "remote",
                LONG_OPERATION,
                {"duration": 2.4, "steps": 8},
                on_progress=on_progress,
                request_timeout_ms=1500,
            )
            assert reports == [1, 2, 3, 4, 5, 6, 7, 8]

            assert await seconds_to_give_up(host, "remote") < 1
            await check_echo(host, "still there")
            assert host.status()[0].connects == 1


@pytest.mark.requirement("NEED-5", "NEED-21", "HARD-17", "HARD-24")
async def test_a_server_killed_during_a_call_fails_that_call_and_serves_the_next_once_it_is_back(
    remote: RemoteServer, machine: Machine
) -> None:
    under_way = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        under_way.set()

    async def call_in_vain(host: Host) -> None:
        with pytest.raises(ConnectionLost) as lost:
            await host.call(
                "remote", LONG_OPERATION, {"duration": 600, "steps": 6000}, on_progress=on_progress
            )
        assert lost.value.delivery == "unknown"

    with anyio.fail_after(60):
        async with open_host(machine, {"remote": entry(remote)}) as host:
            async with anyio.create_task_group() as callers, remote.running():
                callers.start_soon(call_in_vain, host)
                await under_way.wait()
            with pytest.raises(ConnectFailed):
                await check_echo(host, "nobody there")

            async with remote.running():
                async with anyio.create_task_group() as callers:
                    for number in range(5):
                        callers.start_soon(check_echo, host, f"back for {number}")
                assert host.status()[0].connects == 2


@pytest.mark.requirement("NEED-5", "HARD-24")
async def test_a_session_lost_with_a_restart_is_begun_anew_once_for_all_callers(machine: Machine) -> None:
    remote = RemoteServer(mode="streamableHttp", machine=machine)
    with anyio.fail_after(60):
        async with open_host(machine, {"remote": entry(remote)}) as host:
            async with remote.running():
                await check_echo(host, "before")
            async with remote.running():
                async with anyio.create_task_group() as callers:
                    for number in range(5):
                        callers.start_soon(check_echo, host, f"after {number}")
                assert host.status()[0].connects == 2
                await host.close("remote")
                # It does say goodbye, and with the new session's id.
                await until(lambda: "Received session termination request" in remote.log, 10)


async def test_a_url_that_speaks_only_the_older_sse_needs_no_word_about_it(machine: Machine) -> None:
    remote = RemoteServer(mode="sse", machine=machine)
    entry = {"url": remote.url, "trust": "trusted"}
    with anyio.fail_after(60):
        async with remote.running(), open_host(machine, {"remote": entry}) as host:
            await check_echo(host, "hello")


@pytest.mark.requirement("NEED-5", "NEED-8")
async def test_a_server_that_goes_away_while_nobody_calls_is_noticed(
    remote: RemoteServer, machine: Machine
) -> None:
    with anyio.fail_after(60):
        async with open_host(machine, {"remote": entry(remote)}) as host:
            async with remote.running():
                assert await host.connect("remote") == {}
            await until(lambda: host.status()[0].state == "error", 20)
            async with remote.running():
                await check_echo(host, "back again")
