"""A gateway decides by the table of permissions, for stateless clients and in sessions."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest
from anyio import to_thread

from fairlead.gateway.gateway import Gateway, GatewayOptions, open_gateway
from fairlead.net.listen import bind, listening, url_of
from tests.conftest import Machine, Outcome
from tests.gateway.support import ByName, Raw, text_of
from tests.policy.permission_cells import CELLS, Cell, Table, require_alike

SECONDS = 90.0
ERAS = ("stateless", "session")


@pytest.fixture
def table(machine: Machine, fairlead: Callable[..., Outcome]) -> Table:
    table = Table(machine)
    table.prepare(fairlead)
    table.forget_calls()
    return table


@asynccontextmanager
async def client_of(
    table: Table, machine: Machine, era: str, seconds: float = 0.02
) -> AsyncGenerator[tuple[Gateway, Raw]]:
    """A gateway and one client of it, which has listed its tools. Approvals are waited for so long."""
    options = GatewayOptions(approval_seconds=seconds)
    with anyio.fail_after(SECONDS), bind("127.0.0.1", 0) as listener:
        async with (
            open_gateway(table.load(), options, env=machine.env) as gateway,
            listening(gateway.app(ByName()), listener),
            aiohttp.ClientSession() as http,
        ):
            client = Raw(http, f"{url_of(listener)}/mcp")
            if era == "session":
                await client.begin()
            await request(client, era, "tools/list")
            yield gateway, client


async def request(client: Raw, era: str, method: str, **params: Any) -> Any:
    return await (client.older if era == "session" else client.modern)(method, **params)


async def call(client: Raw, era: str, cell: Cell) -> str:
    answer = await request(client, era, "tools/call", name=f"{cell.server}_{cell.tool}", arguments={})
    assert "error" not in answer, answer
    return text_of(answer) if answer["result"].get("isError") else "called"


@pytest.mark.parametrize("era", ERAS)
async def test_where_no_user_answers_the_error_names_the_command_that_settles_it(
    table: Table, machine: Machine, era: str
) -> None:
    async with client_of(table, machine, era) as (_, client):
        outcomes = {cell: await call(client, era, cell) for cell in CELLS}
    require_alike(table, outcomes, called=lambda cell: cell.verdict == "allow")
    for cell, said in outcomes.items():
        if cell.verdict == "ask":
            assert "in the gateway's dashboard, or with `fairlead approvals`" in said


@pytest.mark.parametrize("era", ERAS)
async def test_a_user_is_asked_about_what_asks_and_about_nothing_else(
    table: Table, machine: Machine, era: str
) -> None:
    asked: list[str] = []
    async with client_of(table, machine, era, SECONDS) as (gateway, client):
        answered: set[str] = set()

        def answer() -> None:
            for waiting in gateway.approvals.pending():
                if waiting.id not in answered:
                    answered.add(waiting.id)
                    asked.append(f"{waiting.request.server_id}/{waiting.request.tool}")
                    gateway.tasks.start_soon(gateway.approvals.answer, waiting.id, "once")

        gateway.approvals.on_change = answer
        outcomes = {cell: await call(client, era, cell) for cell in CELLS}
    require_alike(table, outcomes, called=lambda cell: cell.verdict in ("allow", "ask"))
    assert asked == [f"{cell.server}/{cell.tool}" for cell in CELLS if cell.verdict == "ask"]


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_denied_or_held_back_is_not_listed(table: Table, machine: Machine, era: str) -> None:
    async with client_of(table, machine, era) as (gateway, client):
        await gateway.host.connect("t", "u")
        answer = await request(client, era, "tools/list")
    tools = answer["result"]["tools"]
    listed = {tool["name"] for tool in tools if tool["name"].startswith(("t_", "u_"))}
    expected = {f"{cell.server}_{cell.tool}" for cell in CELLS if cell.verdict in ("allow", "ask")}
    assert listed == expected


@pytest.mark.parametrize("mode", ["allow", "ask", "auto", "deny"])
async def test_lists_calls_and_explain_agree_on_the_approval_mode_of_a_gateway(
    machine: Machine, fairlead: Callable[..., Outcome], mode: str
) -> None:
    table = Table(machine)
    await to_thread.run_sync(lambda: table.prepare(fairlead, gateway={"approval": mode}))
    table.forget_calls()
    offered = {f"{cell.server}_{cell.tool}" for cell in CELLS if cell.verdict_with(mode) in ("allow", "ask")}
    for era in ERAS:
        async with client_of(table, machine, era) as (gateway, client):
            await gateway.host.connect("t", "u")
            answer = await request(client, era, "tools/list")
            outcomes = {cell: await call(client, era, cell) for cell in CELLS}
            own = {tool.name for tool in await gateway.host.tools.list()}
        listed = {tool["name"] for tool in answer["result"]["tools"]}
        assert {name for name in listed if name.startswith(("t_", "u_"))} == offered
        assert len(own) == sum(cell.verdict in ("allow", "ask") for cell in CELLS), "of the gateway alone"
        for cell, said in outcomes.items():
            assert (said == "called") is (cell.verdict_with(mode) == "allow"), (cell, said)
    for server in ("t", "u"):
        said = {tool["tool"]: tool for tool in json.loads(fairlead("explain", server, "--json").out)["tools"]}
        another = fairlead("explain", server, "--as", "token:x", "--json")
        said_to_another = {tool["tool"]: tool for tool in json.loads(another.out)["tools"]}
        for cell in (cell for cell in CELLS if cell.server == server and cell.verdict != "held back"):
            assert said[cell.tool]["verdict"] == cell.verdict
            assert said[cell.tool]["gateway_verdict"] == cell.verdict_with(mode)
            assert said_to_another[cell.tool]["verdict"] == cell.verdict_with(mode)
            is_hidden = said_to_another[cell.tool]["state"] == "denied"
            assert is_hidden is (cell.verdict_with(mode) == "deny")


async def test_a_call_that_the_mode_of_the_gateway_denies_is_settled_by_the_hint(
    machine: Machine, fairlead: Callable[..., Outcome]
) -> None:
    table = Table(machine)
    await to_thread.run_sync(lambda: table.prepare(fairlead, gateway={"approval": "deny"}))
    cell = next(cell for cell in CELLS if (cell.server, cell.state, cell.rule) == ("u", "byhand", "none"))
    async with client_of(table, machine, "stateless") as (_, client):
        said = await call(client, "stateless", cell)
    assert "approval is `deny`" in said
    assert f"`fairlead review u --allow {cell.tool}`" in said
    reviewed = await to_thread.run_sync(lambda: fairlead("review", "u", "--allow", cell.tool))
    assert reviewed.status == 0
    async with client_of(table, machine, "stateless") as (_, client):
        assert await call(client, "stateless", cell) == "called"
