"""What a command decides reaches every live client of a running gateway at once, and restarts no server."""

import json
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest
from anyio import to_thread

from fairlead.testing import ScriptedServer
from tests.conftest import Machine, Outcome
from tests.gateway.support import MODERN, Raw, text_of
from tests.host.test_quarantine import ChangingServer

if sys.platform == "win32":
    pytest.skip("it is stopped with a signal", allow_module_level=True)

from tests.cli.gateway_support import gateway

Fairlead = Callable[..., Outcome]
SECONDS = 30.0
TOOLS = [
    {"name": name, "description": "Say it.", "inputSchema": {"type": "object"}} for name in ("echo", "pid")
]
CHANGED = "notifications/tools/list_changed"


class Agent:
    """A client of one era that listens for changes."""

    def __init__(self, raw: Raw, era: str) -> None:
        self._raw = raw
        self._era = era
        self._heard = 0

    async def listen(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Count the announcements that its list changed, until cancelled."""
        if self._era == "session":
            await self._raw.begin()
            await self.names()
            opening = self._raw.http.get(self._raw.url, headers=self._raw.headers)
        else:
            await self.names()
            meta = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            }
            params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": 99, "method": "subscriptions/listen", "params": params}
            names = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
            opening = self._raw.http.post(self._raw.url, json=message, headers=self._raw.headers | names)
        async with opening as response:
            assert response.status == 200
            if self._era == "stateless":
                while b"acknowledged" not in await response.content.readline():
                    pass
            task_status.started()
            async for line in response.content:
                self._heard += CHANGED.encode() in line

    async def heard(self) -> None:
        """Wait for an announcement, and forget it."""
        with anyio.fail_after(SECONDS):
            while not self._heard:  # noqa: ASYNC110 - it comes over the network
                await anyio.sleep(0.01)
        self._heard = 0

    async def names(self) -> set[str]:
        answer = await self._request("tools/list")
        return {tool["name"] for tool in answer["result"]["tools"] if tool["name"].startswith("s_")}

    async def call(self, tool: str) -> str:
        answer = await self._request("tools/call", name=f"s_{tool}", arguments={})
        return answer["error"]["message"] if "error" in answer else text_of(answer)

    async def _request(self, method: str, **params: Any) -> Any:
        return await (self._raw.older if self._era == "session" else self._raw.modern)(method, **params)


@asynccontextmanager
async def agents(machine: Machine) -> AsyncGenerator[list[Agent]]:
    """A real gateway, with a stateless client and one in a session."""
    with gateway(machine) as up:
        async with aiohttp.ClientSession() as http, anyio.create_task_group() as tasks:
            found = [Agent(Raw(http, up.url, up.token or ""), era) for era in ("stateless", "session")]
            for agent in found:
                await tasks.start(agent.listen)
            yield found
            tasks.cancel_scope.cancel()


@pytest.mark.blocks_loop
@pytest.mark.parametrize("trust", ["untrusted", "trusted"])
@pytest.mark.parametrize("sharing", ["shared", "session"])
async def test_a_review_at_the_command_line_reaches_live_clients_at_once_and_restarts_nothing(
    machine: Machine, fairlead: Fairlead, trust: str, sharing: str
) -> None:
    server = ScriptedServer(machine.home / "record", tools=TOOLS)
    entry = server.entry(
        trust=trust, allow_tools=["pid"], approval={"tools": {"pid": "allow"}}, sharing=sharing
    )
    machine.write_user(json.dumps({"servers": {"s": entry}}, indent=1))

    async def typed(*words: str) -> None:
        outcome = await to_thread.run_sync(lambda: fairlead(*words))
        assert outcome.status == 0, outcome.err

    with anyio.fail_after(SECONDS):
        async with agents(machine) as clients:
            pids = [await agent.call("pid") for agent in clients]
            refused = [await agent.call("echo") for agent in clients]
            (hint,) = {command for said in refused for command in re.findall(r"`fairlead ([^`]+)`", said)}
            assert all("not listed in allow_tools" in said for said in refused)
            await typed(*shlex.split(hint))
            for agent in clients:
                assert await agent.call("echo") == "{}", "what the refusal names works, in the same session"
                await agent.heard()
                assert await agent.names() == {"s_echo", "s_pid"}
            await typed("review", "s", "--deny", "echo")
            for agent in clients:
                assert "listed in deny_tools" in await agent.call("echo")
                await agent.heard()
                assert await agent.names() == {"s_pid"}
            await typed("review", "s", "--allow", "echo")
            for agent in clients:
                await agent.heard()
                assert await agent.names() == {"s_echo", "s_pid"}
            assert [await agent.call("pid") for agent in clients] == pids, "no server was restarted"
            await typed("disable", "s")
            for agent in clients:
                await agent.heard()
                assert await agent.names() == set()
            await typed("enable", "s")
            for agent in clients:
                await agent.heard()
                assert await agent.names() == {"s_echo", "s_pid"}
            more = ScriptedServer(machine.home / "more", tools=TOOLS)
            await typed("add", "s_2", "--allow", "all", "--scope", "user", "--", *more.argv)
            for agent in clients:
                await agent.heard()
                assert "s_2_echo" in await agent.names()
                assert await agent.call("2_echo") == "{}"
            await typed("remove", "s_2", "--scope", "user")
            for agent in clients:
                await agent.heard()
                assert await agent.names() == {"s_echo", "s_pid"}


@pytest.mark.blocks_loop
async def test_an_approval_of_a_projects_server_and_an_edited_rule_reach_live_clients(
    machine: Machine, fairlead: Fairlead
) -> None:
    server = ScriptedServer(machine.home / "record", tools=TOOLS)
    entry = server.entry(allow_tools=["*"], approval="allow")
    machine.write_project(json.dumps({"servers": {"s": entry}}))
    machine.write_user("{}")
    with anyio.fail_after(SECONDS):
        async with agents(machine) as clients:
            for agent in clients:
                assert await agent.names() == set()
            approved = await to_thread.run_sync(lambda: fairlead("approve", "s", "--yes"))
            assert approved.status == 0, approved.err
            for agent in clients:
                await agent.heard()
                assert await agent.names() == {"s_echo", "s_pid"}
                assert await agent.call("echo") == "{}"
            machine.write_user(json.dumps({"policy": {"rules": [{"action": "deny", "tool": "ec*"}]}}))
            for agent in clients:
                await agent.heard()
                assert await agent.names() == {"s_pid"}
                assert "a rule denies it" in await agent.call("echo")


@pytest.mark.blocks_loop
@pytest.mark.parametrize("kept", [("echo",), ()])
async def test_a_tool_that_is_new_since_the_gateway_started_is_offered_once_it_is_reviewed(
    machine: Machine, fairlead: Fairlead, kept: tuple[str, ...]
) -> None:
    new = {"name": "pid", "description": "Say it.", "inputSchema": {"type": "object"}}
    server = ChangingServer(machine.home, TOOLS[0])
    entry = server.entry(trust="untrusted")
    del entry["allow_tools"], entry["approval"]
    machine.write_user(json.dumps({"servers": {"s": entry}}, indent=1))

    async def typed(*words: str) -> None:
        outcome = await to_thread.run_sync(lambda: fairlead(*words))
        assert outcome.status == 0, outcome.err

    with anyio.fail_after(SECONDS):
        await typed("review", "s", "--allow", "echo")
        async with agents(machine) as clients:
            for agent in clients:
                assert await agent.names() == {"s_echo"}
            server.say(*(TOOLS[0] for _ in kept), new)  # an upgrade, while nothing runs it
            await typed("review", "s", "--allow", "pid")
            for agent in clients:
                await agent.heard()
                assert await agent.names() == {"s_pid", *(f"s_{name}" for name in kept)}
                assert (await agent.call("pid")).isdigit()


@pytest.mark.blocks_loop
@pytest.mark.parametrize("sharing", ["shared", "session", "call"])
@pytest.mark.parametrize(
    ("words", "called"),
    [
        (("review", "s", "--deny", "echo"), False),
        (("review", "s", "--allow", "echo"), True),
        (("review", "s", "--ask", "echo"), None),
    ],
)
async def test_a_review_counts_for_calls_that_wait_for_an_answer(
    machine: Machine, fairlead: Fairlead, words: tuple[str, ...], called: bool | None, sharing: str
) -> None:
    server = ScriptedServer(machine.home / "record", tools=TOOLS)
    fields = {"allow_tools": ["echo", "pid"], "approval": {"tools": {"echo": "ask"}}}
    entry = server.entry(trust="untrusted", sharing=sharing, **fields)
    machine.write_user(json.dumps({"servers": {"s": entry}}, indent=1))

    def waiting() -> list[dict[str, Any]]:
        return json.loads(fairlead("approvals", "--json").out)["pending"]

    async def until_waiting(count: int) -> list[dict[str, Any]]:
        while len(found := await to_thread.run_sync(waiting)) != count:  # noqa: ASYNC110 - other processes
            await anyio.sleep(0.05)
        return found

    said: list[str] = []

    async def call(agent: Agent) -> None:
        said.append(await agent.call("echo"))

    with anyio.fail_after(SECONDS):
        async with agents(machine) as clients:
            async with anyio.create_task_group() as calls:
                for agent in clients:
                    calls.start_soon(call, agent)
                found = await until_waiting(2)
                reviewed = await to_thread.run_sync(lambda: fairlead(*words))
                assert reviewed.status == 0, reviewed.err
                if called is None:
                    assert len(await until_waiting(2)) == 2, "they are still to be asked about"
                    answers = [word for one in found for word in (one["id"], "once")]
                    await to_thread.run_sync(lambda: fairlead("approvals", "answer", *answers))
            assert await to_thread.run_sync(waiting) == []
    if called is False:
        assert all("listed in deny_tools" in each for each in said), said
        assert server.calls("echo") == 0
    else:
        assert said == ["{}", "{}"]


@pytest.mark.blocks_loop
async def test_calls_that_wait_are_found_from_every_folder_and_end_with_their_server(
    machine: Machine, fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ScriptedServer(machine.home / "record", tools=TOOLS)
    entry = server.entry(trust="untrusted", allow_tools=["echo"], approval="ask")
    machine.write_user(json.dumps({"servers": {"s": entry}}, indent=1))
    elsewhere = machine.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "fairlead.json").write_text('{"version": 1}')

    async def typed(*words: str) -> Outcome:
        return await to_thread.run_sync(lambda: fairlead(*words))

    async def waiting() -> list[dict[str, Any]]:
        while not (found := json.loads((await typed("approvals", "--json")).out)["pending"]):  # noqa: ASYNC110
            await anyio.sleep(0.05)
        return found

    said: list[str] = []

    async def call(agent: Agent) -> None:
        said.append(await agent.call("echo"))

    with anyio.fail_after(SECONDS):
        async with agents(machine) as (agent, _):
            monkeypatch.chdir(elsewhere)
            async with anyio.create_task_group() as calls:
                calls.start_soon(call, agent)
                (found,) = await waiting()
                assert (await typed("approvals", "answer", found["id"], "once")).status == 0
            assert said.pop() == "{}"
            monkeypatch.chdir(machine.project)
            async with anyio.create_task_group() as calls:
                calls.start_soon(call, agent)
                await waiting()
                assert (await typed("disable", "s")).status == 0
            assert "disabled or changed" in said.pop()
            assert (await typed("enable", "s")).status == 0
            async with anyio.create_task_group() as calls:
                calls.start_soon(call, agent)
                (found,) = await waiting()
                # The file that `disable` made is part of what the gateway is found by now.
                assert "as the gateway" in (await typed("status")).err
                assert (await typed("approvals", "answer", found["id"], "once")).status == 0
            assert said.pop() == "{}"


@pytest.mark.blocks_loop
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("session", "review s --ask echo"),
        ("always", "review s --ask echo"),
        ("always", "approvals forget s echo"),
    ],
)
async def test_an_answer_that_is_taken_back_ends_in_every_live_session_when_the_command_returns(
    machine: Machine, fairlead: Fairlead, answer: str, words: str
) -> None:
    server = ScriptedServer(machine.home / "record", tools=TOOLS)
    entry = server.entry(trust="untrusted", allow_tools=["echo"], approval={"tools": {"echo": "ask"}})
    machine.write_user(json.dumps({"servers": {"s": entry}}))

    async def answer_next(word: str) -> None:
        with anyio.fail_after(SECONDS):
            while True:
                listed = await to_thread.run_sync(lambda: fairlead("approvals", "list", "--json"))
                if pending := json.loads(listed.out)["pending"]:
                    break
        given = pending[0]["id"]
        said = await to_thread.run_sync(lambda: fairlead("approvals", "answer", given, word))
        assert said.status == 0, said.err

    async with agents(machine) as clients:
        for agent in clients:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer_next, answer)
                await agent.call("echo")
            before = server.calls("echo")
            await agent.call("echo")
            assert server.calls("echo") == before + 1, "the answer is remembered"
            taken_back = await to_thread.run_sync(lambda: fairlead(*words.split()))
            assert taken_back.status == 0, taken_back.err
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer_next, "no")
                assert "denied" in await agent.call("echo")
            assert server.calls("echo") == before + 1, "no one said yes to this call"


@pytest.mark.blocks_loop
@pytest.mark.parametrize("sharing", ["shared", "session"])
async def test_answers_for_a_session_are_listed_and_forgotten(
    machine: Machine, fairlead: Fairlead, sharing: str
) -> None:
    server = ScriptedServer(machine.home / "record", tools=TOOLS)
    fields = {"allow_tools": ["echo", "pid"], "approval": {"tools": {"echo": "ask"}}}
    machine.write_user(json.dumps({"servers": {"s": server.entry(sharing=sharing, **fields)}}, indent=1))

    async def typed(*words: str) -> str:
        outcome = await to_thread.run_sync(lambda: fairlead(*words))
        assert outcome.status == 0, outcome.err
        return outcome.out + outcome.err

    async def answer(said: str) -> None:
        while not (pending := json.loads(await typed("approvals", "--json"))["pending"]):  # noqa: ASYNC110 - another process
            await anyio.sleep(0.05)
        await typed("approvals", "answer", pending[0]["id"], said)

    async def held() -> list[tuple[str, object]]:
        listed = json.loads(await typed("approvals", "list", "--json"))["approvals"]
        return [(each["tool"], each["approved_at"]) for each in listed]

    with anyio.fail_after(3 * SECONDS):
        async with agents(machine) as clients:
            for agent in clients:
                async with anyio.create_task_group() as asking:
                    asking.start_soon(answer, "session")
                    assert await agent.call("echo") == "{}"
                assert await held() == [("echo", None)]
                assert "for this session" in await typed("approvals")
                assert await agent.call("echo") == "{}", "it is not asked again"
                assert "`s.echo` needs approval again" in await typed("approvals", "forget", "s.echo")
                assert await held() == []
                async with anyio.create_task_group() as asking:
                    asking.start_soon(answer, "no")
                    assert "denied" in await agent.call("echo")
            gone = await to_thread.run_sync(lambda: fairlead("approvals", "forget", "s.echo"))
            assert gone.status != 0
            assert "no answer about `s.echo` is remembered" in gone.err
