"""How a connection asks to be told: in each era's way, nothing missed while wishes change or streams end."""

import socket
import threading
import time
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ResourceUpdated

from fairlead.connection import subscriptions
from fairlead.errors import ConnectionLost
from fairlead.host.host import Host
from tests.conftest import Machine
from tests.host.asking import HANDSHAKE, MODERN, AskingServer, hosting

Context = ServerRequestContext[Any]

SECONDS = 30


def wire(server: AskingServer) -> list[str]:
    """What the server heard of subscriptions, in short."""
    said: list[str] = []
    for message in server.heard():
        params = message.get("params", {})
        match message.get("method", "").rpartition("/")[2]:
            case "listen":
                uris = params["notifications"].get("resourceSubscriptions", [])
                said.append(" ".join(["listen", *uris]))
            case "subscribe" | "unsubscribe" as what:
                said.append(f"{what} {params['uri']}")
            case "cancelled":
                said.append("cancel")
            case _:
                continue
    return said


def count_asked(server: AskingServer) -> int:
    """How often the server was asked to tell of `test://a`."""
    return sum(said in ("subscribe test://a", "listen test://a") for said in wire(server))


async def settle(host: Host) -> None:
    """Let the server hear everything that is on its way to it."""
    await anyio.wait_all_tasks_blocked()
    await host.call("x", "echo", {})


async def test_an_older_server_is_told_of_each_resource_once_and_when_it_is_no_longer_wanted(
    machine: Machine, tmp_path: Path
) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE)
    async with hosting(machine, x=server.entry()) as host:
        async with host.resources.watch("x", "test://a"):
            async with host.resources.watch("x", "test://a", "test://b"):
                assert sorted(wire(server)) == ["subscribe test://a", "subscribe test://b"]
            await settle(host)
            assert wire(server)[2:] == ["unsubscribe test://b"]
        await settle(host)
    assert wire(server)[3:] == ["unsubscribe test://a"]


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_a_resource_that_is_watched_only_later_is_asked_for_then_and_again_after_a_reconnect(
    machine: Machine, tmp_path: Path, version: str
) -> None:
    server = AskingServer(tmp_path / "record", version=version)
    async with hosting(machine, x=server.entry()) as host:
        with anyio.fail_after(SECONDS):
            await host.connect("x")
            await settle(host)
            assert count_asked(server) == 0
            for times in (1, 2):
                async with host.resources.watch("x", "test://a"):
                    assert count_asked(server) == times
                await settle(host)
            await host.close("x")
            async with host.resources.watch("x", "test://a"):  # what the run before answered counts no more
                assert count_asked(server) == 3


async def test_a_modern_stream_is_open_before_the_one_it_replaces_is_closed(
    machine: Machine, tmp_path: Path
) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with hosting(machine, x=server.entry()) as host:
        async with host.resources.watch("x", "test://a"), host.resources.watch("x", "test://b"):
            await settle(host)
            assert wire(server) == ["listen test://a", "listen test://a test://b", "cancel"]
        await settle(host)
        assert wire(server)[-2:] == ["listen", "cancel"]


async def test_a_modern_server_that_announces_nothing_is_listened_to_only_while_somebody_watches(
    machine: Machine, tmp_path: Path
) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN, capabilities={"tools": {}, "resources": {}})
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        await settle(host)
        assert wire(server) == []
        async with host.resources.watch("x", "test://a"):
            assert wire(server) == ["listen test://a"]
        await settle(host)
        assert wire(server) == ["listen test://a", "cancel"]


async def test_what_is_watched_stays_watched_when_another_wish_is_refused(
    machine: Machine, tmp_path: Path
) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN, unhonoured=["test://b"])
    async with hosting(machine, x=server.entry()) as host, host.resources.watch("x", "test://a") as changed:
        with pytest.raises(Exception, match="it does not watch this"):
            async with host.resources.watch("x", "test://b"):
                raise AssertionError("it is not watched")
        await settle(host)
        await host.call("x", "update", {"uri": "test://a"})
        assert await anext(changed) == "test://a"


async def test_a_modern_server_is_listed_once_changes_would_be_heard_of(
    machine: Machine, tmp_path: Path
) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with hosting(machine, x=server.entry()) as host:
        await host.connect("x")
        heard = [message.get("method") for message in server.heard()]
        assert heard.index("subscriptions/listen") < heard.index("tools/list")
        assert heard.count("tools/list") == 1


async def test_a_server_that_opens_no_stream_is_listed_all_the_same(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "OPEN_SECONDS", 0.1)
    for refused in ({"subscriptions/listen": -32601}, {"subscriptions/listen": -32603}):
        server = AskingServer(tmp_path / "record", version=MODERN, refused=refused)
        async with hosting(machine, x=server.entry()) as host:
            await host.connect("x")
            assert host.listing("x") is not None


# Over HTTP, where a stream can end and the server be there all the same.


class Newsroom:
    """A modern server over HTTP, at the same address each time it is open."""

    def __init__(self) -> None:
        self.streams = 0
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port: int = probe.getsockname()[1]

    @property
    def entry(self) -> dict[str, Any]:
        return {"url": f"http://127.0.0.1:{self._port}/mcp", "trust": "trusted"}

    def make_server(self) -> Server[Any]:
        bus = InMemorySubscriptionBus()
        handler = ListenHandler(bus)

        async def listen(context: Context, params: types.SubscriptionsListenRequestParams) -> Any:
            self.streams += 1
            return await handler(context, params)

        async def list_tools(context: Context, params: object) -> types.ListToolsResult:
            return types.ListToolsResult(tools=[])

        async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
            if params.name == "announce":
                await bus.publish(ResourceUpdated("news://a"))
            else:
                handler.close()
            return types.CallToolResult(content=[])

        return Server(
            "newsroom", on_subscriptions_listen=listen, on_list_tools=list_tools, on_call_tool=call_tool
        )

    @contextmanager
    def open(self) -> Generator[None]:
        app = self.make_server().streamable_http_app()
        config = uvicorn.Config(app, port=self._port, log_level="critical", timeout_graceful_shutdown=0)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            deadline = time.monotonic() + SECONDS
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.01)
            yield
        finally:
            server.should_exit = True
            thread.join(timeout=SECONDS)
            assert not thread.is_alive()


@pytest.fixture
def newsroom(monkeypatch: pytest.MonkeyPatch) -> Newsroom:
    monkeypatch.setattr(subscriptions, "LISTEN_AGAIN_SECONDS", 0.05)
    return Newsroom()


async def hear(host: Host, changed: AsyncIterator[str]) -> None:
    """Hear of a change, which is announced until it is heard."""
    async with anyio.create_task_group() as tasks:

        async def announce() -> None:
            while True:
                with suppress(ConnectionLost):  # it was away
                    await host.call("x", "announce")
                await anyio.sleep(0.02)

        tasks.start_soon(announce)
        assert await anext(changed) == "news://a"
        tasks.cancel_scope.cancel()


async def test_a_stream_that_ends_is_opened_again(machine: Machine, newsroom: Newsroom) -> None:
    with newsroom.open():
        async with (
            hosting(machine, x=newsroom.entry) as host,
            host.resources.watch("x", "news://a") as changed,
        ):
            await hear(host, changed)
            before = newsroom.streams
            await host.call("x", "close")
            await hear(host, changed)
            assert newsroom.streams > before
            assert host.status()[0].connects == 1


async def test_a_server_that_was_away_is_listened_to_again(machine: Machine, newsroom: Newsroom) -> None:
    with ExitStack() as stack:
        stack.enter_context(newsroom.open())
        async with (
            hosting(machine, x=newsroom.entry) as host,
            host.resources.watch("x", "news://a") as changed,
        ):
            await hear(host, changed)
            stack.close()
            stack.enter_context(newsroom.open())
            await hear(host, changed)
