"""Approvals that are answered in the client (`gateway.approvals: client`), by the table of permissions."""

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from anyio import to_thread
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from fairlead.gateway.gateway import Gateway, GatewayOptions, open_gateway
from fairlead.net.listen import bind, listening, url_of
from tests.conftest import Machine, Outcome
from tests.gateway.support import MODES, ByName, Raw, text_of, until
from tests.policy.permission_cells import CELLS, Cell, Table, one_of_each, require_alike

pytestmark = pytest.mark.slow

SECONDS = 90.0
MODERN_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
ERAS = ("stateless", "session")


@pytest.fixture
async def table(machine: Machine, fairlead: Callable[..., Outcome]) -> Table:
    """The table, with answers in clients counting as their user's."""
    table = Table(machine)
    await to_thread.run_sync(lambda: table.prepare(fairlead, gateway={"approvals": "client"}))
    table.forget_calls()
    return table


@asynccontextmanager
async def gateway_of(
    table: Table, machine: Machine, seconds: float = SECONDS
) -> AsyncGenerator[tuple[Gateway, str]]:
    """A gateway with the table's servers. Approvals are waited for so long."""
    options = GatewayOptions(approval_seconds=seconds)
    with anyio.fail_after(SECONDS), bind("127.0.0.1", 0) as listener:
        async with (
            open_gateway(table.load(), options, env=machine.env) as gateway,
            listening(gateway.app(ByName()), listener),
        ):
            yield gateway, f"{url_of(listener)}/mcp"


def answering(asked: list[str], action: Any, content: Any = None) -> Any:
    """A client that does the same with every form, and notes what it is asked about."""

    async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        await anyio.lowlevel.checkpoint()
        asked.append(params.message.split("`")[1])
        return types.ElicitResult(action=action, content=content)

    return elicit


async def call_all(
    url: str | StdioServerParameters, mode: Any, elicit: Any, cells: list[Cell]
) -> dict[Cell, str]:
    """Call each cell's tool as a client that answers forms so, or cannot be asked."""
    outcomes: dict[Cell, str] = {}
    async with Client(url, mode=mode, elicitation_callback=elicit) as client:
        await client.list_tools()
        for cell in cells:
            result = await client.call_tool(f"{cell.server}_{cell.tool}", {})
            assert isinstance(result.content[0], types.TextContent)
            outcomes[cell] = result.content[0].text if result.is_error else "called"
    return outcomes


def asking(cells: list[Cell]) -> list[str]:
    return [f"{cell.server}.{cell.tool}" for cell in cells if cell.verdict == "ask"]


@pytest.mark.parametrize("mode", MODES)
async def test_the_client_is_asked_about_what_asks_and_its_yes_counts(
    table: Table, machine: Machine, mode: Any
) -> None:
    asked: list[str] = []
    async with gateway_of(table, machine) as (gateway, url):
        elicit = answering(asked, "accept", {"answer": "once"})
        outcomes = await call_all(url, mode, elicit, CELLS)
        assert gateway.approvals.pending() == []
    require_alike(table, outcomes, called=lambda cell: cell.verdict in ("allow", "ask"))
    assert asked == asking(CELLS)


# The same over stdio, where there is no dashboard, and no call waits.


def over_stdio(machine: Machine) -> StdioServerParameters:
    """The command that agents start: a gateway in a process of its own."""
    words = ["-m", "fairlead", "gateway", "--stdio"]
    return StdioServerParameters(
        command=sys.executable, args=words, env=dict(machine.env), cwd=machine.project
    )


@pytest.mark.parametrize("mode", MODES)
async def test_over_stdio_the_client_is_asked_about_what_asks_and_its_yes_counts(
    table: Table, machine: Machine, mode: Any
) -> None:
    asked: list[str] = []
    cells = one_of_each(CELLS)
    with anyio.fail_after(SECONDS):
        elicit = answering(asked, "accept", {"answer": "once"})
        outcomes = await call_all(over_stdio(machine), mode, elicit, cells)
    require_alike(table, outcomes, called=lambda cell: cell.verdict in ("allow", "ask"))
    assert asked == asking(cells)


@pytest.mark.parametrize("mode", MODES)
async def test_over_stdio_what_asks_is_refused_where_the_client_cannot_be_asked(
    table: Table, machine: Machine, mode: Any
) -> None:
    cells = one_of_each(CELLS)
    with anyio.fail_after(SECONDS):
        outcomes = await call_all(over_stdio(machine), mode, None, cells)
    require_alike(table, outcomes, called=lambda cell: cell.verdict == "allow")


ANSWERS: dict[str, tuple[str, Any, str]] = {
    "no": ("accept", {"answer": "no"}, "the user denied it"),
    "decline": ("decline", None, "the user denied it"),
    "cancel": ("cancel", None, "was not answered"),
    "accept without an answer": ("accept", {}, "was not answered"),
    "accept of nothing": ("accept", None, "was not answered"),
    "accept of a word that was not offered": ("accept", {"answer": "yes"}, "was not answered"),
    "accept of a yes": ("accept", {"answer": True}, "was not answered"),
    "accept in another field": ("accept", {"approve": "once"}, "was not answered"),
    "cancel with a yes": ("cancel", {"answer": "once"}, "was not answered"),
    "decline with a yes": ("decline", {"answer": "once"}, "the user denied it"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("answer", ANSWERS)
async def test_what_is_no_yes_calls_nothing_and_says_what_settles_it(
    table: Table, machine: Machine, mode: Any, answer: str
) -> None:
    action, content, said = ANSWERS[answer]
    asked: list[str] = []
    cells = CELLS if answer in ("decline", "cancel") else one_of_each(CELLS)
    async with gateway_of(table, machine) as (gateway, url):
        outcomes = await call_all(url, mode, answering(asked, action, content), cells)
        assert gateway.approvals.pending() == []
    assert asked == asking(cells)
    for cell in cells:
        if cell.verdict == "ask":
            assert said in outcomes[cell], outcomes[cell]
            if said == "the user denied it":
                del outcomes[cell]
    require_alike(table, outcomes, called=lambda cell: cell.verdict == "allow")


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_without_elicitation_has_its_calls_wait_for_the_user(
    table: Table, machine: Machine, mode: Any
) -> None:
    cells, waited = one_of_each(CELLS), list[str]()
    async with gateway_of(table, machine) as (gateway, url):
        answered: set[str] = set()

        def answer() -> None:
            for waiting in gateway.approvals.pending():
                if waiting.id not in answered:
                    answered.add(waiting.id)
                    waited.append(f"{waiting.request.name}")
                    gateway.tasks.start_soon(gateway.approvals.answer, waiting.id, "once")

        gateway.approvals.on_change = answer
        outcomes = await call_all(url, mode, None, cells)
    require_alike(table, outcomes, called=lambda cell: cell.verdict in ("allow", "ask"))
    assert waited == asking(cells)


async def test_a_client_that_fails_at_its_form_has_its_calls_wait_for_the_user(
    table: Table, machine: Machine
) -> None:
    async def elicit(context: Any, params: types.ElicitRequestParams) -> Any:
        await anyio.lowlevel.checkpoint()
        raise MCPError(types.METHOD_NOT_FOUND, "there is no form here")

    cell = next(cell for cell in CELLS if cell.verdict == "ask")
    async with gateway_of(table, machine, 0.2) as (_, url):
        outcomes = await call_all(url, "legacy", elicit, [cell])
    assert "no one approved it" in outcomes[cell]
    cell.require_message(outcomes[cell])
    assert table.calls() == set()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.requirement("HARD-81")
async def test_the_answers_of_clients_do_not_count_while_the_setting_says_person(
    machine: Machine, fairlead: Callable[..., Outcome], mode: Any
) -> None:
    table = Table(machine)
    await to_thread.run_sync(lambda: table.prepare(fairlead, gateway={"approvals": "person"}))
    table.forget_calls()
    asked: list[str] = []
    async with gateway_of(table, machine, 0.02) as (_, url):
        outcomes = await call_all(url, mode, answering(asked, "accept", {"answer": "always"}), CELLS)
    require_alike(table, outcomes, called=lambda cell: cell.verdict == "allow")
    assert asked == []


# One tool that asks, and a setting that changes while the gateway runs.


def one_asking() -> Cell:
    return next(cell for cell in CELLS if (cell.server, cell.state, cell.rule) == ("u", "ask", "none"))


def change_setting(machine: Machine, approvals: str) -> None:
    document = json.loads(machine.user_file.read_text())
    document["gateway"]["approvals"] = approvals
    machine.write_user(json.dumps(document))


@pytest.mark.parametrize("word", ["session", "always"])
@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_in_a_client_holds_for_its_session_and_while_the_setting_does(
    table: Table, machine: Machine, fairlead: Callable[..., Outcome], mode: Any, word: str
) -> None:
    cell, asked = one_asking(), list[str]()
    elicit = answering(asked, "accept", {"answer": word})
    name = f"{cell.server}_{cell.tool}"
    async with gateway_of(table, machine) as (gateway, url):
        async with Client(url, mode=mode, elicitation_callback=elicit) as client:
            await client.list_tools()
            results = [await client.call_tool(name, {}) for _ in range(3)]
            assert [result.is_error for result in results] == [False] * 3
            assert len(asked) == 1
            change_setting(machine, "person")
            await gateway.reload(table.load())
            gateway.approvals.seconds = 0.02
            result = await client.call_tool(name, {})
            assert result.is_error
            assert len(asked) == 1, "neither the form nor the earlier answer counts now"
        kept = await to_thread.run_sync(lambda: fairlead("approvals", "list", "--json"))
        assert json.loads(kept.out)["approvals"] == [], "nothing is remembered for good"


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_counts_for_nothing_once_the_setting_changed_while_the_form_was_open(
    table: Table, machine: Machine, mode: Any
) -> None:
    cell = one_asking()
    async with gateway_of(table, machine) as (gateway, url):

        async def elicit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            change_setting(machine, "person")
            await gateway.reload(table.load())
            gateway.approvals.seconds = 0.02
            return types.ElicitResult(action="accept", content={"answer": "once"})

        outcomes = await call_all(url, mode, elicit, [cell])
    assert "no one approved it" in outcomes[cell]
    assert table.calls() == set()


# A client that is asked, and is gone.


async def begin_call(http: aiohttp.ClientSession, url: str, era: str, cell: Cell) -> Raw:
    """A client that can be asked, which has listed its tools."""
    client = Raw(http, url, "ada")
    if era == "session":
        await client.begin(FORMS)
        await client.older("tools/list")
    else:
        await client.modern("tools/list")
    return client


async def be_asked_and_leave(client: Raw, era: str, cell: Cell) -> None:
    """Make a call, wait for the form, and answer nothing: hang up in the midst of the request."""
    name = f"{cell.server}_{cell.tool}"
    if era == "stateless":
        meta = {MODERN_CAPABILITIES: FORMS}
        answer = await client.modern("tools/call", name=name, arguments={}, meta=meta)
        assert answer["result"]["resultType"] == "input_required", answer
        return
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": name, "arguments": {}},
    }
    async with client.http.post(client.url, json=message, headers=client.headers) as response:
        async for line in response.content:
            if b"elicitation/create" in line:
                return


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_is_gone_approves_nothing_and_holds_up_no_one(
    table: Table, machine: Machine, era: str, ends: bool
) -> None:
    cell = one_asking()
    async with gateway_of(table, machine, 0.3) as (gateway, url), aiohttp.ClientSession() as http:
        client = await begin_call(http, url, era, cell)
        await be_asked_and_leave(client, era, cell)
        if ends and era == "session":
            await client.end()
        # Another client of the same principal is asked about its own call.
        asked: list[str] = []
        elicit = answering(asked, "accept", {"answer": "once"})
        outcomes = await call_all(url, "legacy" if era == "session" else "auto", elicit, [cell])
        assert outcomes == {cell: "called"}
        await until(lambda: not any(each.requests for each in gateway.clients()))
        assert gateway.approvals.pending() == []
    assert asked == asking([cell])


async def test_a_form_that_is_answered_too_late_says_what_settles_the_call(
    table: Table, machine: Machine
) -> None:
    cell = one_asking()
    name = f"{cell.server}_{cell.tool}"
    meta = {MODERN_CAPABILITIES: FORMS}
    async with gateway_of(table, machine, 0.05) as (gateway, url), aiohttp.ClientSession() as http:
        client = await begin_call(http, url, "stateless", cell)
        answer = await client.modern("tools/call", name=name, arguments={}, meta=meta)
        asked = answer["result"]["inputRequests"]
        await until(lambda: not any(each.requests for each in gateway.clients()))
        late = await client.modern(
            "tools/call",
            name=name,
            arguments={},
            meta=meta,
            requestState=answer["result"]["requestState"],
            inputResponses={key: {"action": "accept", "content": {"answer": "once"}} for key in asked},
        )
        cell.require_message(text_of(late))
    assert table.calls() == set()


async def test_the_form_offers_what_can_be_answered_and_names_what_settles_it(
    table: Table, machine: Machine
) -> None:
    cell = one_asking()
    meta = {MODERN_CAPABILITIES: FORMS}
    async with gateway_of(table, machine) as (_, url), aiohttp.ClientSession() as http:
        client = await begin_call(http, url, "stateless", cell)
        answer = await client.modern(
            "tools/call", name=f"{cell.server}_{cell.tool}", arguments={"a": 1}, meta=meta
        )
        (form,) = answer["result"]["inputRequests"].values()
    assert form["params"]["requestedSchema"]["properties"]["answer"]["enum"] == ["once", "session", "no"]
    assert '{"a":1}' in form["params"]["message"]
    assert f"`fairlead review u --allow {cell.tool}`" in form["params"]["message"]
