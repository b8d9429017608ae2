"""What a modern server wants in headers as well as in the request is there, however its tools are known."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

import anyio
import msgspec
import pytest
from mcp.server.mcpserver import MCPServer
from pydantic import Field
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from fairlead.catalog.tools import Listing
from fairlead.connection.deadlines import Deadline
from fairlead.connection.link import open_session
from fairlead.connection.lists import ListBudget, ListedServer, Lister
from fairlead.connection.peer import RefusingPeer
from fairlead.connection.session import Session
from fairlead.connection.transport.http import HttpDispatcher
from fairlead.host.host import Host
from fairlead.net.http import open_client
from tests.conftest import Machine
from tests.fixtures.sdk_http import serving

SECONDS = 30


class Deployer:
    """A server with one tool, whose argument `region` has to be in a header. Others it refuses."""

    def __init__(self) -> None:
        self.regions: list[str | None] = []
        """The header of each `tools/call` that arrived."""
        self.deployed = 0
        self.server = MCPServer("deployer")
        self.server.tool()(self.deploy)
        self.server.prompt()(self.plan)
        self.server.resource("deployer://log")(self.log)

    async def deploy(
        self, region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]
    ) -> str:
        self.deployed += 1
        return f"deployed to {region}"

    def plan(self) -> str:
        return "deploy on Mondays"

    def log(self) -> str:
        return "nothing was deployed"

    def noting(self, app: ASGIApp) -> ASGIApp:
        async def note(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                headers = Headers(scope=scope)
                if headers.get("mcp-method") == "tools/call":
                    self.regions.append(headers.get("mcp-param-region"))
            await app(scope, receive, send)

        return note


@pytest.fixture
def deployer() -> Generator[tuple[Deployer, str]]:
    deployer = Deployer()
    app = deployer.server.streamable_http_app(json_response=True)
    app.add_middleware(deployer.noting)
    with serving(app) as root:
        yield deployer, f"{root}/mcp"


@asynccontextmanager
async def hosting(machine: Machine, url: str) -> AsyncGenerator[Host]:
    servers = {"deployer": {"url": url, "trust": "trusted"}}
    with anyio.fail_after(SECONDS):
        document = {"servers": servers, "policy": {"approval": "allow"}}
        async with Host.open(overrides=document, env=machine.env, cwd=machine.project) as host:
            yield host


@asynccontextmanager
async def talking(url: str) -> AsyncGenerator[Session]:
    with anyio.fail_after(SECONDS):
        async with open_client() as client:
            transport = partial(HttpDispatcher, url, client)
            async with open_session(
                [transport],
                probe=True,
                seconds=SECONDS,
                peer=RefusingPeer(),
                log_level=None,
                on_message=lambda _: None,
            ) as session:
                yield session


async def ignore(progress: float, total: float | None, message: str | None) -> None:
    """A call that reports progress to nobody."""


@pytest.mark.requirement("HARD-27")
async def test_a_call_before_listing_that_lacked_its_headers_is_sent_again_with_them(
    machine: Machine, deployer: tuple[Deployer, str]
) -> None:
    server, url = deployer
    async with hosting(machine, url) as host:
        result = await host.call("deployer", "deploy", {"region": "eu-north"})
    assert result.text == "deployed to eu-north"
    assert server.regions[-1] == "eu-north"
    assert server.deployed == 1


async def test_tools_known_from_an_earlier_run_get_their_headers_at_the_first_try(
    machine: Machine, deployer: tuple[Deployer, str]
) -> None:
    server, url = deployer
    async with hosting(machine, url) as host:
        await host.tools_of("deployer")
    async with hosting(machine, url) as host:
        await host.call("deployer", "deploy", {"region": "eu-north"})
    assert server.regions == ["eu-north"]


async def test_a_new_connection_to_a_known_server_sends_headers_at_once(
    machine: Machine, deployer: tuple[Deployer, str]
) -> None:
    server, url = deployer
    async with hosting(machine, url) as host:
        await host.tools_of("deployer")
        await host.close("deployer")
        await host.call("deployer", "deploy", {"region": "eu-south"})
    assert server.regions == ["eu-south"]


async def test_arguments_that_are_passed_on_unread_are_mirrored_too(deployer: tuple[Deployer, str]) -> None:
    server, url = deployer
    async with talking(url) as session:
        found: list[ListedServer] = []
        budget = ListBudget(max_items=100, max_bytes=1024 * 1024)

        async def publish(listed: ListedServer) -> None:
            found.append(listed)

        await Lister("deployer", session, budget, Listing(), publish).run()
        session.learn_headers(found[0].header_maps)
        await session.call_tool(
            "deploy",
            msgspec.Raw(b'{"region": "eu-west"}'),
            deadline=Deadline(SECONDS, SECONDS),
            on_progress=ignore,
        )
    assert server.regions == ["eu-west"]


@pytest.mark.parametrize(
    ("method", "params"),
    [("prompts/get", {"name": "plan"}), ("resources/read", {"uri": "deployer://log"})],
)
async def test_requests_for_a_named_thing_name_it_in_a_header(
    method: str, params: dict[str, str], deployer: tuple[Deployer, str]
) -> None:
    async with talking(deployer[1]) as session:
        answer = await session.request(method, params, seconds=SECONDS)
    assert b"deploy" in bytes(answer)
