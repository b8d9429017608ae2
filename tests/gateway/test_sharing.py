"""Who shares a server's process with whom, and that nothing crosses from one client to another."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client

from fairlead.testing import ScriptedServer
from tests.gateway.support import HANDSHAKE, MODERN, MODES, Raw, serving, text_of, until
from tests.gateway.test_tools import scripted
from tests.host.asking import AskingServer, form
from tests.host.support import is_running


async def pid_of(client: Raw, tool: str, *, older: bool = True) -> int:
    call = client.older if older else client.modern
    return int(text_of(await call("tools/call", name=tool, arguments={})))


@pytest.mark.requirement("NEED-27")
async def test_twenty_sessions_share_one_process_where_the_server_says_shared(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["pid"])
    pids: set[int] = set()
    async with (
        serving(tmp_path, a=server.entry(sharing="shared")) as served,
        aiohttp.ClientSession() as http,
    ):

        async def ask() -> None:
            client = Raw(http, f"{served.url}/mcp")
            await client.begin()
            pids.add(await pid_of(client, "a_pid"))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert len(served.gateway.sessions()) == 20
        assert all(session.upstreams == () for session in served.gateway.sessions())
    assert len(pids) == 1
    assert server.starts == 1


@pytest.mark.requirement("NEED-27", "NEED-29")
async def test_a_server_that_keeps_a_session_has_one_process_per_session(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["pid"])
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        first, second = Raw(http, f"{served.url}/mcp"), Raw(http, f"{served.url}/mcp")
        await first.begin()
        await second.begin()
        await first.older("tools/list")
        pids = [await pid_of(first, "a_pid"), await pid_of(second, "a_pid")]
        assert pids[0] != pids[1]
        assert await pid_of(first, "a_pid") == pids[0]
        assert [session.upstreams for session in served.gateway.sessions()] == [("a",), ("a",)]
        assert {session.client for session in served.gateway.sessions()} == {"raw 1"}
        await first.end()
        await until(lambda: not is_running(pids[0]))
        assert is_running(pids[1])
        assert len(served.gateway.sessions()) == 1
        gone = await first.older("tools/call", name="a_pid", arguments={})
        assert "unknown session" in gone["error"]["message"]
    assert not is_running(pids[1])


async def test_without_sessions_every_principal_has_a_process_of_its_own(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["pid"])
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        ada, bob = (Raw(http, f"{served.url}/mcp", name) for name in ("ada", "bob"))
        await ada.modern("tools/list")
        pids = [await pid_of(client, "a_pid", older=False) for client in (ada, bob, ada)]
        assert pids[0] == pids[2] != pids[1]
        sessions = served.gateway.sessions()
        assert [(session.principal, session.client) for session in sessions] == [
            ("ada", "raw 1"),
            ("bob", "raw 1"),
        ]


async def test_a_server_without_state_is_shared_by_all(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", MODERN, tools=["pid"])
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        ada, bob = (Raw(http, f"{served.url}/mcp", name) for name in ("ada", "bob"))
        await ada.modern("tools/list")
        await bob.begin()
        assert await pid_of(ada, "a_pid", older=False) == await pid_of(bob, "a_pid")
    again = ScriptedServer(tmp_path / "again", version=MODERN, probe="answer", tools=["pid"])
    async with (
        serving(tmp_path, a=again.entry(sharing="session")) as served,
        aiohttp.ClientSession() as http,
    ):
        ada, bob = (Raw(http, f"{served.url}/mcp", name) for name in ("ada", "bob"))
        await ada.modern("tools/list")
        assert await pid_of(ada, "a_pid", older=False) != await pid_of(bob, "a_pid", older=False)


async def test_a_session_is_only_for_who_began_it(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, a=scripted(tmp_path, "a").entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        ada = Raw(http, f"{served.url}/mcp", "ada")
        await ada.begin()
        thief = Raw(http, f"{served.url}/mcp", "eve")
        thief.headers |= {name: ada.headers[name] for name in ("Mcp-Session-Id", "Mcp-Protocol-Version")}
        for method in ("tools/list", "prompts/list"):
            stolen = await thief.older(method)
            assert "unknown session" in stolen["error"]["message"]
        assert "result" in await ada.older("tools/list")


class Person:
    """Somebody at a client, who fills in their name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": self.name})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("version", "sharing"), [(HANDSHAKE, "auto"), (MODERN, "auto"), (MODERN, "session")])
async def test_a_question_goes_to_the_client_whose_call_it_is_about(
    tmp_path: Path, mode: Any, version: str, sharing: str
) -> None:
    server = AskingServer(tmp_path / "record", version=version)
    async with serving(tmp_path, a=server.entry(sharing=sharing)) as served:
        people = [Person("Ada"), Person("Bob")]

        async def ask(person: Person) -> None:
            async with Client(f"{served.url}/mcp", mode=mode, elicitation_callback=person) as client:
                await client.list_tools()
                for _ in range(3):
                    asked = await client.call_tool("a_ask", {"questions": {"q": form(f"{person.name}?")}})
                    answer = json.loads(asked.content[0].model_dump()["text"])["q"]
                    assert answer["content"]["name"] == person.name
                    assert answer["action"] == "accept"

        if mode == "auto" and sharing == "session":
            await ask(people[0])  # one principal without sessions has one process, which asks one at a time
            await ask(people[1])
        else:
            async with anyio.create_task_group() as tasks:
                for person in people:
                    tasks.start_soon(ask, person)
    assert people[0].asked == ["Ada?"] * 3
    assert people[1].asked == ["Bob?"] * 3


async def test_an_older_server_that_is_shared_is_told_that_nobody_can_be_asked(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE)
    person = Person("Ada")
    async with (
        serving(tmp_path, a=server.entry(sharing="shared")) as served,
        Client(f"{served.url}/mcp", mode="legacy", elicitation_callback=person) as client,
    ):
        asked = await client.call_tool("a_ask", {"questions": {"q": form()}})
        assert "not supported" in asked.content[0].model_dump()["text"]
    assert all("elicitation" not in declared for declared in server.declared() if "roots" not in declared)
    assert person.asked == []


async def test_what_servers_are_told_of_a_client_is_what_the_client_said(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN)
    async with serving(tmp_path, a=server.entry()) as served:
        async with Client(f"{served.url}/mcp", elicitation_callback=Person("Ada")) as client:
            await client.list_tools()
            await client.call_tool("a_echo", {"who": "able"})
        async with Client(f"{served.url}/mcp") as client:
            await client.call_tool("a_echo", {"who": "unable"})
    calls = [call["params"] for call in server.heard("tools/call")]
    declared = {
        call["arguments"]["who"]: call["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        for call in calls
    }
    assert "form" in declared["able"]["elicitation"]
    assert "elicitation" not in declared["unable"]


async def test_a_client_undoes_its_own_edits_only(tmp_path: Path) -> None:
    edit = {"builtin": "edit", "trust": "trusted"}
    async with serving(tmp_path, edit=edit) as served, aiohttp.ClientSession() as http:
        ada, bob = (Raw(http, f"{served.url}/mcp", name) for name in ("ada", "bob"))
        listed = (await ada.modern("tools/list"))["result"]["tools"]
        write, undo = (
            next(tool["name"] for tool in listed if tool["name"].endswith(end))
            for end in ("writeFile", "undo")
        )
        written = {"path": "a.txt", "content": "x\n"}
        await ada.modern("tools/call", name=write, arguments=written)
        refused = await bob.modern("tools/call", name=undo, arguments={})
        assert "there is no change to undo" in text_of(refused)
        assert (tmp_path / "project" / "a.txt").read_text() == "x\n"
        await ada.modern("tools/call", name=undo, arguments={})
        assert not (tmp_path / "project" / "a.txt").exists()
