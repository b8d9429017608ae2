"""The dashboard through a tunnel such as `ssh -L 9000:localhost:8130`: another port, the same machine."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketAttribute, SocketStream

from tests.conftest import Machine
from tests.web.support import NAME, TOKEN, Client, Dashboard, dashboard

SERVERS = {"x": {"command": "true"}}


@asynccontextmanager
async def tunnel_to(port: int) -> AsyncGenerator[int]:
    """Forward every connection to another local port; yields the port to connect to."""

    async def carry(source: ByteReceiveStream, target: ByteSendStream) -> None:
        async for data in source:
            await target.send(data)

    async def forward(near: SocketStream) -> None:
        async with (
            near,
            await anyio.connect_tcp("127.0.0.1", port) as far,
            anyio.create_task_group() as directions,
        ):
            directions.start_soon(carry, near, far)
            await carry(far, near)
            directions.cancel_scope.cancel()

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, forward)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


def port_of(board: Dashboard) -> int:
    return int(board.url.rpartition(":")[2])


@pytest.mark.requirement("HARD-49", "HARD-82")
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_people_log_in_and_send_forms_through_a_tunnel(machine: Machine, name: str) -> None:
    async with (
        dashboard(machine, SERVERS) as board,
        tunnel_to(port_of(board)) as port,
        board.visited(logged_in=False) as client,
    ):
        client.url = f"http://{name}:{port}"
        assert (await client.log_in()).status == 303
        assert (await client.send("/", "/servers/x", do="disable")).status == 303
        assert not board.configuration.loaded.server("x").enabled
        fields = {"form_token": (await client.get("/")).form_token, "do": "enable"}
        for other in (board.url, "http://localhost:1", "http://evil.example", "null"):
            assert (await client.post("/servers/x", fields, Origin=other)).status == 403
        assert not board.configuration.loaded.server("x").enabled


@pytest.mark.requirement("HARD-49", "HARD-82")
async def test_the_dashboard_s_own_name_works_with_the_tunnel_s_port(machine: Machine) -> None:
    async with (
        dashboard(machine, SERVERS) as board,
        tunnel_to(port_of(board)) as port,
        board.visited(logged_in=False) as client,
    ):
        client.url = f"http://127.0.0.1:{port}"
        assert await status_of(client, f"{NAME}:{port}") == 200
        assert await status_of(client, f"x{NAME}:{port}") == 421
        assert await status_of(client, f"evil.example:{port}") == 421
        link = (await board.login_sessions.links(TOKEN))[0].replace(f":{port_of(board)}/", f":{port}/")
        entered = await client.get(link.removeprefix(f"http://{NAME}:{port}"), Host=f"{NAME}:{port}")
        assert entered.status == 303
        assert entered.headers["location"].startswith("/~")


async def status_of(client: Client, host: str) -> int:
    return (await client.get("/login", Host=host)).status
