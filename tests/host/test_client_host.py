"""Hosts of gateway clients: what they share with the host above, and what is each one's own."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from fairlead.events import Event, McpToolCallEnd
from fairlead.host.client_host import open_client_host, open_principal_host
from fairlead.host.host import Host
from fairlead.host.operator import UNATTENDED
from fairlead.host.server_status import ServerStatus, combine
from fairlead.servers.framework.server import McpServer
from fairlead.servers.framework.tools import ToolContext, ToolDefinition, ToolModel
from fairlead.testing import ScriptedServer, open_host
from tests.host.asking import AskingServer
from tests.host.support import is_running


class Nothing(ToolModel):
    """No arguments, or no result."""


async def do_nothing(context: ToolContext, given: Nothing) -> Nothing:
    return Nothing()


def in_process() -> McpServer:
    tool = ToolDefinition(
        name="rest", description="Does nothing.", input=Nothing, output=Nothing, handler=do_nothing
    )
    return McpServer("own", tools=[tool])


async def pid(host: Host, server_id: str = "a") -> int:
    return int((await host.call(server_id, "pid")).text)


async def test_each_has_a_process_of_its_own_which_ends_with_it(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["pid"])
    async with open_host(tmp_path, a=server.entry()) as host:
        async with open_client_host(host, operator=UNATTENDED) as first:
            async with open_client_host(host, operator=UNATTENDED) as second:
                pids = [
                    await pid(first.host),
                    await pid(second.host),
                    int((await host.call("a", "pid")).text),
                ]
                assert len(set(pids)) == 3
                assert [member.server.server_id for member in second.own_servers] == ["a"]
            assert not is_running(pids[1])
            assert await pid(first.host) == pids[0]
        assert not is_running(pids[0])
        assert is_running(pids[2])


@pytest.mark.parametrize("sharing", ["shared", "auto"])
async def test_what_is_shared_is_never_closed_by_one_of_those_who_share_it(
    tmp_path: Path, sharing: str
) -> None:
    version = {"version": "2026-07-28", "probe": "answer"} if sharing == "auto" else {}
    server = ScriptedServer(tmp_path / "record", tools=["pid"], **version)
    async with open_host(tmp_path, a=server.entry(sharing=sharing), own=in_process()) as host:
        await host.connect("a")
        pids: list[int] = []
        for _ in range(2):
            async with open_client_host(host, operator=UNATTENDED) as other:
                pids.append(await pid(other.host))
                await other.host.call("own", "rest")
                await other.host.close("a")
                assert other.own_servers == ()
        assert pids[0] == pids[1]
    assert server.starts == 1


async def test_the_catalog_is_the_same_object_until_a_server_offers_one_of_them_something_else(
    tmp_path: Path,
) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["change_tools"])
    async with open_host(tmp_path, a=server.entry()) as host:
        await host.connect("a")
        async with (
            open_client_host(host, operator=UNATTENDED) as first,
            open_client_host(host, operator=UNATTENDED) as second,
        ):
            assert first.host.tools.catalog is host.tools.catalog
            async with first.host.events() as events:
                await first.host.call("a", "change_tools", {"tools": ["change_tools", "echo"]})
                while len(first.host.tools.catalog) == 1:
                    await anext(events)
            assert first.host.tools.catalog is not host.tools.catalog
            assert second.host.tools.catalog is host.tools.catalog
            assert len(host.tools.catalog) == 1


async def test_events_of_one_client_are_overheard_above_and_never_by_another_client(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record")
    async with (
        open_host(tmp_path, a=server.entry()) as host,
        open_client_host(host, operator=UNATTENDED) as first,
        open_client_host(host, operator=UNATTENDED) as second,
        host.events() as above,
        second.host.events() as next_door,
    ):
        await first.host.call("a", "echo", {})
        await second.host.call("a", "echo", {})
        assert [await finished(above), await finished(above)] == [1, 2]
        assert await finished(next_door) == 2


async def finished(events: AsyncIterator[Event]) -> int:
    """The number of the next call that is over."""
    async for event in events:
        if isinstance(event, McpToolCallEnd):
            return event.call_id
    raise AssertionError("the host closed before that")


async def test_who_watches_a_resource_of_a_shared_server_hears_of_it(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version="2026-07-28")
    async with (
        open_host(tmp_path, a=server.entry()) as host,
        open_client_host(host, operator=UNATTENDED) as first,
        open_client_host(host, operator=UNATTENDED) as second,
    ):
        await host.connect("a")
        async with first.host.resources.watch("a", "test://a") as changes:
            await second.host.call("a", "update", {"uri": "test://a"})
            assert await anext(changes) == "test://a"


async def test_one_that_is_cancelled_in_a_call_leaves_nothing_behind(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "record", tools=["pid", "wait"])
    pids: list[int] = []
    async with open_host(tmp_path, a=server.entry()) as host:
        with anyio.CancelScope() as scope:

            async def progressed(done: float, total: float | None, message: str | None) -> None:
                scope.cancel()

            async with open_client_host(host, operator=UNATTENDED) as other:
                pids.append(await pid(other.host))
                await other.host.call("a", "wait", on_progress=progressed)
        assert not is_running(pids[0])


async def test_a_connection_is_forgotten_though_its_principal_lost_the_server_first(tmp_path: Path) -> None:
    """A server that is used with a principal's login is removed from its host before its clients' hosts."""
    entry = {"url": "http://127.0.0.1:9/mcp"}
    async with (
        open_host(tmp_path, x=entry) as host,
        open_principal_host(host, host.config, "ada", lambda server_id: f"log in to {server_id}") as ada,
        open_client_host(ada, operator=UNATTENDED) as client,
    ):
        owner = ada.servers.owner("x")
        assert owner is not host.servers.owner("x")
        own = client.host.servers["x"]
        assert owner.connections_besides("x") == [own]
        without = replace(host.config, servers={})
        for each in (host, ada, client.host):
            await each.reload(without)
        assert own.is_retired
        assert owner.connections_besides("x") == []


async def test_an_error_is_forgotten_once_the_server_works_over_any_connection(tmp_path: Path) -> None:
    key = tmp_path / "key"
    server = ScriptedServer(tmp_path / "record")
    command, *args = server.argv
    wait = f"import os, sys; os.path.exists({str(key)!r}) or os._exit(3); os.execv(sys.argv[1], sys.argv[1:])"
    entry = server.entry(command=command, args=["-c", wait, command, *args])
    async with open_host(tmp_path, a=entry) as host:
        assert "a" in await host.connect("a")

        def status_of() -> ServerStatus:
            (status,) = host.status()
            return combine(status, host.statuses_besides("a"))

        assert status_of().state == "error"
        key.touch()
        async with open_client_host(host, operator=UNATTENDED) as other:
            await other.host.call("a", "echo")
            status = status_of()
            assert (status.state, status.last_error, status.hint) == ("ready", None, None)
        status = status_of()
        assert (status.state, status.last_error, status.last_error_at) == ("idle", None, None)


async def test_what_a_connection_noted_ends_with_it(tmp_path: Path) -> None:
    """A new listing or a review may have settled it since: two notes would contradict each other."""
    tools = ["echo", {"name": "bad", "inputSchema": 5}]
    server = ScriptedServer(tmp_path / "record", tools=tools)
    async with open_host(tmp_path, a=server.entry(sharing="session")) as host:
        async with open_client_host(host, operator=UNATTENDED) as client:
            await client.host.call("a", "echo")
            await client.host.connect("a")
            (during,) = host.statuses_besides("a")
            assert any("malformed" in note for note in during.notes)
        (after,) = host.statuses_besides("a")
        assert (after.calls, after.notes) == (1, ())
