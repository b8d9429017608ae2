"""Calls that a person is asked about: by a form at the client, or by whoever looks at those that wait."""

from pathlib import Path
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client

from fairlead.errors import ApprovalRequired
from fairlead.gateway.gateway import GatewayOptions
from fairlead.gateway.pending_approvals import PendingApprovals
from fairlead.host.operator import ApprovalRequest
from tests.gateway.support import MODES, Raw, serving, text_of, until
from tests.gateway.test_tools import scripted

DESTRUCTIVE = {
    "name": "echo",
    "inputSchema": {"type": "object"},
    "annotations": {"destructiveHint": True},
}
TRUSTED = {"gateway": {"approvals": "client"}}
"""Has answers that are given in the agent count as its user's."""
QUESTION = ApprovalRequest(server_id="a", tool="echo", arguments={}, reason="because", principal="ada")


async def test_a_reviewed_tool_is_called_without_asking(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a")
    entry = server.entry(trust="untrusted", allow_tools=["echo"], approval={"tools": {"echo": "allow"}})
    async with serving(tmp_path, approval=None, a=entry) as served, aiohttp.ClientSession() as http:
        called = await Raw(http, f"{served.url}/mcp").modern("tools/call", name="a_echo", arguments={})
        assert text_of(called) == "{}"


@pytest.mark.parametrize(
    ("entry", "config"),
    [
        ({"approval": "ask"}, {}),
        ({}, {"gateway": {"approval": "ask"}}),
        ({}, {"policy": {"rules": [{"action": "ask", "tool": "echo"}]}}),
    ],
)
async def test_what_must_be_asked_about_waits_for_a_person(
    tmp_path: Path, entry: dict[str, Any], config: dict[str, Any]
) -> None:
    server = scripted(tmp_path, "a")
    answers: list[Any] = []
    async with (
        serving(tmp_path, config=config, a=server.entry(**entry)) as served,
        aiohttp.ClientSession() as http,
        anyio.create_task_group() as tasks,
    ):
        approvals, asked = served.gateway.approvals, anyio.Event()
        approvals.on_change = asked.set

        async def call() -> None:
            client = Raw(http, f"{served.url}/mcp", "ada")
            answers.append(await client.modern("tools/call", name="a_echo", arguments={"x": 1}))

        tasks.start_soon(call)
        await asked.wait()
        (waiting,) = approvals.pending()
        assert (waiting.request.server_id, waiting.request.tool) == ("a", "echo")
        assert waiting.request.arguments == {"x": 1}
        assert waiting.request.principal == "ada"
        assert approvals.pending("eve") == []
        assert not await approvals.answer(waiting.id, "once", principal="eve")
        assert await approvals.answer(waiting.id, "once", principal="ada")
        await until(lambda: bool(answers))
        assert not await approvals.answer(waiting.id, "once")
    assert text_of(answers[0]) == '{"x": 1}'


async def test_a_destructive_tool_of_a_trusted_server_is_asked_about(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=[DESTRUCTIVE])
    options = GatewayOptions(approval_seconds=0.05)
    async with (
        serving(tmp_path, options=options, approval=None, a=server.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        await client.modern("tools/list")
        called = await client.modern("tools/call", name="a_echo", arguments={})
        assert called["result"]["isError"] is True
        assert "no one approved it" in text_of(called)
        assert "annotated destructive" in text_of(called)
        assert "`fairlead review a --allow echo`" in text_of(called)
    assert server.calls("echo") == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.requirement("HARD-47")
async def test_a_client_that_can_is_asked_itself(tmp_path: Path, mode: Any) -> None:
    server = scripted(tmp_path, "a")
    asked: list[str] = []
    answers = ["once", "no", "session"]

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": answers[len(asked) - 1]})

    async with (
        serving(tmp_path, config=TRUSTED, a=server.entry(approval="ask")) as served,
        Client(f"{served.url}/mcp", mode=mode, elicitation_callback=elicit) as client,
    ):
        await client.list_tools()
        results = [await client.call_tool("a_echo", {"number": number}) for number in range(5)]
    assert [result.is_error for result in results] == [False, True, False, False, False]
    assert len(asked) == 3  # the last answer held for the session
    assert '{"number":0}' in asked[0]
    assert "a.echo" in asked[0]


@pytest.mark.requirement("HARD-81")
@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_that_answers_forms_does_not_approve_its_own_call(tmp_path: Path, mode: Any) -> None:
    server = scripted(tmp_path, "a")
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "always"})

    options = GatewayOptions(approval_seconds=0.2)
    async with (
        serving(tmp_path, options=options, a=server.entry(approval="ask")) as served,
        Client(f"{served.url}/mcp", mode=mode, elicitation_callback=elicit) as client,
    ):
        await client.list_tools()
        result = await client.call_tool("a_echo", {})
    assert result.is_error
    assert asked == []


async def test_a_question_that_nobody_answers_is_refused_with_the_reason() -> None:
    approvals = PendingApprovals(0.01)
    with anyio.fail_after(10), pytest.raises(ApprovalRequired, match="because"):
        await approvals.ask(QUESTION)
    assert approvals.pending() == []


@pytest.mark.requirement("HARD-47")
async def test_calls_of_two_tools_wait_at_once_and_those_of_one_tool_in_line(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["echo", "pid"])
    answers: list[str] = []
    async with (
        serving(tmp_path, a=server.entry(approval="ask")) as served,
        aiohttp.ClientSession() as http,
        anyio.create_task_group() as tasks,
    ):
        approvals, client = served.gateway.approvals, Raw(http, f"{served.url}/mcp")

        async def call(tool: str) -> None:
            called = await client.modern("tools/call", name=f"a_{tool}", arguments={})
            assert not called["result"].get("isError"), called
            answers.append(tool)

        for tool in ("echo", "echo", "pid"):
            tasks.start_soon(call, tool)
        await until(lambda: len(approvals.pending()) == 2)
        waiting = {pending.request.tool: pending.id for pending in approvals.pending()}
        assert waiting.keys() == {"echo", "pid"}
        await approvals.answer(waiting["echo"], "session")  # which is an answer to the other call as well
        await until(lambda: answers == ["echo", "echo"])
        assert [pending.request.tool for pending in approvals.pending()] == ["pid"]
        await approvals.answer(waiting["pid"], "once")
    assert answers == ["echo", "echo", "pid"]
