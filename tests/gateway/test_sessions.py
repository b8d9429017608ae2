"""Stateless clients: which of them share a server, what runs at once, and what becomes of questions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client
from starlette.types import Scope

from fairlead.connection.peer import SESSION_META_KEY
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.gateway import GatewayOptions
from fairlead.net.listen import bind, listening, url_of
from tests.gateway.support import HANDSHAKE, Raw, Served, serving, text_of, until
from tests.gateway.test_tools import scripted
from tests.host.asking import NAME_FORM, AskingServer
from tests.host.support import is_running

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
ASKABLE: dict[str, Any] = {CAPABILITIES: {"elicitation": {}}}
TOOLS = ["ask", "change", "echo", "meet", "pid", "update"]
WHO = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": NAME_FORM}}
ADA = {"action": "accept", "content": {"name": "Ada", "city": "Kiel"}}


def asking(tmp_path: Path) -> AskingServer:
    return AskingServer(tmp_path / "record", version=HANDSHAKE, tools=TOOLS)


async def call(client: Raw, tool: str, meta: Mapping[str, Any] = ASKABLE, **arguments: Any) -> Any:
    return _last(await client.modern("tools/call", meta=meta, name=f"a_{tool}", arguments=arguments))


def _last(came: Any) -> Any:
    """The answer itself, where other events came before it."""
    return cast("list[Any]", came)[-1] if isinstance(came, list) else came


async def pid(client: Raw, meta: Mapping[str, Any]) -> int:
    return int(text_of(await call(client, "pid", {**ASKABLE, **meta})))


async def answer(client: Raw, asked: Any, **more: Any) -> Any:
    """Come back to a call of the tool that asks, with the answer."""
    result = asked["result"]
    arguments = {"questions": {"who": WHO}}
    back: Any = await client.modern(
        "tools/call",
        meta={**ASKABLE, **more},
        name="a_ask",
        arguments=arguments,
        inputResponses=dict.fromkeys(result["inputRequests"], ADA),
        requestState=result["requestState"],
    )
    return _last(back)


# What runs at once.


@pytest.mark.requirement("HARD-89")
@pytest.mark.parametrize("meta", [{}, {SESSION_META_KEY: "one"}], ids=["by name", "in a session"])
async def test_calls_of_a_client_that_can_be_asked_are_under_way_at_once(
    tmp_path: Path, meta: dict[str, str]
) -> None:
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        done: list[str] = []

        async def meet() -> None:
            done.append(text_of(await call(client, "meet", {**ASKABLE, **meta}, count=5)))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(meet)
        assert done == ["met"] * 5


@pytest.mark.requirement("HARD-89")
async def test_an_unanswered_question_holds_up_no_other_call(tmp_path: Path) -> None:
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        left = [await call(client, "ask", questions={"who": WHO}) for _ in range(3)]
        assert {asked["result"]["resultType"] for asked in left} == {"input_required"}
        assert text_of(await call(client, "echo", a=1)) == '{"a": 1}'
        assert "Ada" in text_of(await answer(client, left[1]))
        assert "Ada" in text_of(await answer(client, left[0]))


@pytest.mark.requirement("HARD-89")
@pytest.mark.parametrize("meta", [{}, {SESSION_META_KEY: "one"}], ids=["by name", "in a session"])
async def test_an_elicitation_that_is_never_answered_stalls_nothing_else(
    tmp_path: Path, meta: dict[str, str]
) -> None:
    other = AskingServer(tmp_path / "other", version=HANDSHAKE, tools=TOOLS, resources=[], templates=[])
    async with (
        serving(tmp_path, a=asking(tmp_path).entry(), b=other.entry()) as served,
        aiohttp.ClientSession() as http,
        Client(f"{served.url}/mcp", mode="legacy") as session,
    ):
        client, second = Raw(http, f"{served.url}/mcp"), Raw(http, f"{served.url}/mcp", "second")
        meta = {**ASKABLE, **meta}
        left = [await call(client, "ask", meta, questions={"who": WHO}) for _ in range(3)]
        assert {asked["result"]["resultType"] for asked in left} == {"input_required"}
        with anyio.fail_after(20):  # a parked elicitation is kept for two minutes
            for each in (client, second):
                assert text_of(await call(each, "echo", meta, a=1)) == '{"a": 1}'
                assert text_of(await call(each, "echo", {CAPABILITIES: {}}, a=2)) == '{"a": 2}'
                for name in ("a_pid", "b_pid"):
                    assert text_of(_last(await each.modern("tools/call", meta=meta, name=name, arguments={})))
                assert _last(await each.modern("tools/list", meta=meta))["result"]["tools"]
                read = _last(await each.modern("resources/read", meta=meta, uri="test://a"))
                assert read["result"]["contents"][0]["text"] == "test://a"
                prompt: dict[str, Any] = {"name": "a_greet", "arguments": {"who": "Ada"}}
                assert _last(await each.modern("prompts/get", meta=meta, **prompt))["result"]["messages"]
                asked = await call(each, "ask", meta, questions={"who": WHO})
                assert "Ada" in text_of(await answer(each, asked, **meta))
            assert not (await session.call_tool("a_echo", {})).is_error
            assert not (await session.call_tool("b_echo", {})).is_error


@pytest.mark.requirement("HARD-89")
async def test_a_question_ends_with_a_client_that_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.gateway.request_context.PARKED_SECONDS", 0.5)
    server = asking(tmp_path)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        asked = await call(client, "ask", questions={"who": WHO})
        # The server hears that its question is over, and that nobody waits for the call any more.
        await until(lambda: any("error" in message for message in server.heard()))
        await until(lambda: bool(server.heard("notifications/cancelled")))
        assert all(each.is_idle for each in served.gateway.clients())
        late = await answer(client, asked)
        assert late["error"]["code"] == types.INVALID_PARAMS


@pytest.mark.requirement("HARD-89")
async def test_a_question_ends_with_the_call_that_a_session_cancels(tmp_path: Path) -> None:
    server = asking(tmp_path)
    asked = anyio.Event()

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    async with (
        serving(tmp_path, a=server.entry()) as served,
        Client(f"{served.url}/mcp", mode="legacy", elicitation_callback=elicit) as client,
    ):
        await client.list_tools()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "a_meet", {"count": 2})  # stays under way
            await until(lambda: any("meet" in json.dumps(each) for each in server.heard("tools/call")))
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as asking_tasks:
                    asking_tasks.start_soon(client.call_tool, "a_ask", {"questions": {"who": WHO}})
                    await asked.wait()
                    scope.cancel()
            await until(lambda: any("error" in message for message in server.heard()))
            await client.call_tool("a_meet", {"count": 2})


async def test_a_question_that_names_no_request_goes_to_the_latest_one(
    tmp_path: Path,
) -> None:
    meta = {SESSION_META_KEY: "one"}
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(client, "meet", {**ASKABLE, **meta}, count=2))
            await until(lambda: any(one.requests for one in served.gateway.clients()))
            asked = await call(client, "ask", {**ASKABLE, **meta}, questions={"who": WHO})
            assert "Ada" in text_of(await answer(client, asked, **meta))
            await call(client, "meet", {**ASKABLE, **meta}, count=2)


async def test_no_other_session_is_asked_what_a_server_asks(tmp_path: Path) -> None:
    sessions = [{SESSION_META_KEY: name} for name in ("one", "two", "three")]
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        rounds = [await call(client, "ask", {**ASKABLE, **meta}, questions={"who": WHO}) for meta in sessions]
        stolen = await answer(client, rounds[0], **sessions[1])
        assert stolen["error"]["code"] == types.INVALID_PARAMS
        for asked, meta in zip(rounds, sessions, strict=True):
            assert "Ada" in text_of(await answer(client, asked, **meta))


async def test_a_client_that_cannot_be_asked_is_not_asked_for_another_of_its_name(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        asked = await call(client, "ask", questions={"who": WHO})
        unable = await call(client, "ask", {CAPABILITIES: {}}, questions={"who": WHO})
        assert "input_required" not in json.dumps(unable)
        assert "Ada" in text_of(await answer(client, asked))


# Who shares a server.


async def test_stateless_clients_share_a_server_by_token_and_name_unless_they_name_a_session(
    tmp_path: Path,
) -> None:
    def named(name: str, **more: str) -> dict[str, Any]:
        return {CLIENT_INFO: {"name": name, "version": "1"}, **more}

    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        ada, bob = (Raw(http, f"{served.url}/mcp", name) for name in ("ada", "bob"))
        first = await pid(ada, named("editor"))
        assert await pid(ada, named("editor")) == first
        one = named("editor", **{SESSION_META_KEY: "1"})
        two = named("editor", **{SESSION_META_KEY: "2"})
        others = [
            await pid(ada, named("terminal")),
            await pid(bob, named("editor")),
            await pid(ada, one),
            await pid(ada, two),
            await pid(bob, one),
        ]
        assert len({first, *others}) == 6
        assert await pid(ada, named("another", **{SESSION_META_KEY: "1"})) == others[2], "it is its session"
        assert await pid(ada, {**one, CAPABILITIES: {}}) == others[2], "what it can be asked is no part of it"
        assert len(served.gateway.sessions()) == 6


class ByToken:
    """One principal with as many tokens as there are."""

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        token = dict(scope["headers"])[b"authorization"].decode()
        return AuthenticatedRequest(principal="local", credential=token, label=token)


async def test_each_token_of_a_principal_has_servers_of_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        with bind("127.0.0.1", 0) as listener:
            async with listening(served.gateway.app(ByToken()), listener):
                one, two = (Raw(http, f"{url_of(listener)}/mcp", name) for name in ("one", "two"))
                pids = [await pid(client, {}) for client in (one, two, one)]
                assert pids[0] == pids[2] != pids[1]
                shared = {SESSION_META_KEY: "the same"}
                assert await pid(one, shared) != await pid(two, shared)


@pytest.mark.parametrize("key", ["", "x" * 129, 7, ["a"], {"a": 1}, True])
async def test_what_is_no_session_key_is_refused(tmp_path: Path, key: object) -> None:
    entry = scripted(tmp_path, "a").entry()
    async with serving(tmp_path, a=entry) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        for method in ("tools/list", "prompts/list"):
            refused = await client.modern(method, meta={SESSION_META_KEY: key})
            assert refused["error"]["code"] == types.INVALID_PARAMS
            assert SESSION_META_KEY in refused["error"]["message"]


async def test_sessions_are_bounded_and_the_oldest_idle_one_makes_room(tmp_path: Path) -> None:
    options = GatewayOptions(max_sessions_of_principal=2)
    server = asking(tmp_path)
    async with (
        serving(tmp_path, options=options, a=server.entry()) as served,
        aiohttp.ClientSession() as http,
    ):
        client = Raw(http, f"{served.url}/mcp")
        first, second = [await pid(client, {SESSION_META_KEY: key}) for key in "ab"]
        await pid(client, {SESSION_META_KEY: "c"})
        await until(lambda: not is_running(first))
        assert is_running(second)
        for key in "bc":  # now both wait for answers
            await call(client, "ask", {**ASKABLE, SESSION_META_KEY: key}, questions={"who": WHO})
        refused = await call(client, "echo", {**ASKABLE, SESSION_META_KEY: "d"})
        assert "too many sessions" in refused["error"]["message"]
        assert "result" in await Raw(http, f"{served.url}/mcp", "bob").modern("tools/list")


async def test_a_server_of_single_calls_is_started_for_each_and_ends_after_it(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with serving(tmp_path, a=server.entry(sharing="call")) as served, aiohttp.ClientSession() as http:
        client, older = Raw(http, f"{served.url}/mcp"), Raw(http, f"{served.url}/mcp")
        await older.begin()
        pids = [await pid(client, {}) for _ in range(3)]
        pids.append(int(text_of(await older.older("tools/call", name="a_pid", arguments={}))))
        assert len(set(pids)) == 4
        await until(lambda: not any(map(is_running, pids)))
        assert "result" in await older.older("resources/read", uri="test://a")
        asked = await call(client, "ask", questions={"who": WHO})
        assert "Ada" in text_of(await answer(client, asked))


# How it is seen.


def of(served: Served, server_id: str = "a") -> Any:
    return next(status for status in served.gateway.status() if status.server_id == server_id)


async def test_the_status_of_a_server_counts_the_connections_of_sessions(tmp_path: Path) -> None:
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        clients = [Raw(http, f"{served.url}/mcp", name) for name in ("local", "bob")]
        await clients[0].modern("tools/list")
        before = of(served)
        pids = [await pid(client, {SESSION_META_KEY: key}) for client in clients for key in ("1", "2")]
        now = of(served)
        assert now.state == "ready"
        assert (now.session_connections, now.calls - before.calls) == (4, 4)
        assert now.connects == before.connects + 4
        await served.gateway.close_server("a")
        await until(lambda: not any(map(is_running, pids)))
        assert of(served).session_connections == 0
        assert "result" in await call(clients[1], "echo", {**ASKABLE, SESSION_META_KEY: "1"})


async def test_counts_of_a_session_outlast_it(tmp_path: Path) -> None:
    async with serving(tmp_path, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp")
        await client.begin()
        await client.older("tools/call", name="a_echo", arguments={})
        assert (of(served).calls, of(served).session_connections) == (1, 1)
        await client.end()
        await until(lambda: not served.gateway.sessions())
        await until(lambda: of(served).session_connections == 0)
        assert of(served).calls == 1


async def test_a_server_that_answers_calls_is_ready_though_its_list_hangs(tmp_path: Path) -> None:
    server = scripted(tmp_path, "a", tools=["echo"])
    async with serving(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        await Raw(http, f"{served.url}/mcp").modern("tools/list")  # it is known from now on
    silent = scripted(tmp_path, "a", tools=["echo"], list_silence=True)
    async with serving(tmp_path, a=silent.entry(approval="allow")) as served:
        await served.gateway.host.call("a", "echo", {})
        assert of(served).state == "ready"
