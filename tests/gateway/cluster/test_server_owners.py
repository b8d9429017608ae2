"""A server process that clients share, over gateways that act as one: it runs once, at its owner."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.gateway.cluster.replica_keys import REPLICA_HEADER
from fairlead.gateway.cluster.server_owners import MEMORY_LOST, server_key
from tests.gateway.cluster.cluster_support import ServedReplica, replica, replicas
from tests.gateway.support import Raw, text_of, until
from tests.host.asking import HANDSHAKE, MODERN, NAME_FORM, AskingServer

TOOLS = ["ask", "change", "crash", "echo", "log", "meet", "pid", "say"]
HEADER = REPLICA_HEADER.decode()
DELIVERY = "fairlead/delivery"


def asking(tmp_path: Path, version: str = MODERN) -> AskingServer:
    return AskingServer(tmp_path / "record", version=version, tools=TOOLS)


def client_of(http: aiohttp.ClientSession, at: ServedReplica, name: str = "local") -> Raw:
    return Raw(http, f"{at.url}/mcp", name)


async def call(client: Raw, tool: str, request_id: int = 7, **arguments: Any) -> Any:
    return await client.modern("tools/call", request_id, name=f"a_{tool}", arguments=arguments)


async def pid_at(client: Raw) -> int:
    return int(text_of(await call(client, "pid")))


async def test_all_replicas_use_one_process_of_a_server(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        clients = [client_of(http, each) for each in served]
        pids = {await pid_at(client) for client in clients}
        assert len(pids) == 1
        assert server.starts == 1
        assert [each.cluster.owners.owned for each in served] == [1, 0, 0]

        # Many at once, each with its own answer.
        answers: dict[int, Any] = {}

        async def echo(number: int) -> None:
            answers[number] = json.loads(text_of(await call(clients[number % 3], "echo", number, n=number)))

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(echo, number)
        assert answers == {number: {"n": number} for number in range(30)}

        # What else a server offers.
        other = clients[1]
        read = await other.modern("resources/read", uri="test://a")
        assert read["result"]["contents"][0]["text"] == "test://a"
        prompt = await other.modern("prompts/get", name="a_greet", arguments={"who": "Ada"})
        assert "Ada" in json.dumps(prompt["result"])


async def test_progress_questions_and_changes_pass_through_the_owner(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        first, second = (client_of(http, each) for each in served)
        assert await pid_at(first) == await pid_at(second)

        said = [{"method": "notifications/progress", "params": {"progressToken": "$token", "progress": 1}}]
        message = {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {
                "name": "a_say",
                "arguments": {"messages": said},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": MODERN,
                    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "progressToken": "mine",
                },
            },
        }
        headers = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "a_say"}
        _, _, came = await second.post(message, headers)
        assert [each["params"]["progress"] for each in came if "method" in each] == [1]
        assert came[0]["params"]["progressToken"] == "mine"
        assert text_of(came[-1]) == "said"

        # A question is answered with the next request, which goes to the same process.
        meta: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        form = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": NAME_FORM}}
        asked = await second.modern(
            "tools/call", 4, meta=meta, name="a_ask", arguments={"questions": {"q": form}}
        )
        assert asked["result"]["resultType"] == "input_required"
        (key,) = asked["result"]["inputRequests"]
        answer = {key: {"action": "accept", "content": {"name": "Ada", "city": "Kiel"}}}
        state = {"requestState": asked["result"]["requestState"]} if "requestState" in asked["result"] else {}
        done = await second.modern(
            "tools/call",
            5,
            meta=meta,
            name="a_ask",
            arguments={"questions": {"q": form}},
            inputResponses=answer,
            **state,
        )
        assert "Ada" in text_of(done)

        # What changes is told to both replicas.
        changed = [{"uri": "test://b", "name": "b"}]
        await call(second, "change", resources=changed)
        for client in (first, second):
            with anyio.fail_after(30):
                while True:
                    listed = await client.modern("resources/list")
                    if "test://b" in json.dumps(listed):
                        break
                    await anyio.sleep(0.05)


async def test_a_call_that_is_given_up_is_cancelled_at_the_owner(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        first, second = (client_of(http, each) for each in served)
        await pid_at(first)
        await pid_at(second)
        with anyio.move_on_after(1):
            await call(second, "meet", count=2)
        with anyio.fail_after(30):
            await until(lambda: bool(server.heard("notifications/cancelled")))
            await until(lambda: served[0].cluster.owners.calls == 0)


async def test_a_process_that_dies_leaves_the_call_unknown_and_the_next_one_starts_it_anew(
    tmp_path: Path,
) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        first, second = (client_of(http, each) for each in served)
        before = await pid_at(first)
        assert await pid_at(second) == before
        failed = await call(second, "crash")
        assert failed["result"]["isError"]
        assert failed["result"]["_meta"][DELIVERY] == "unknown"
        assert len([each for each in server.heard("tools/call") if "crash" in json.dumps(each)]) == 1
        after = await pid_at(second)
        assert after != before
        assert await pid_at(first) == after


@pytest.mark.slow
async def test_another_replica_takes_over_when_the_owner_stops(tmp_path: Path) -> None:
    server = asking(tmp_path)
    with anyio.fail_after(120):
        async with (
            aiohttp.ClientSession() as http,
            replica(tmp_path, "second", {"a": server.entry()}) as second,
        ):
            async with replica(tmp_path, "first", {"a": server.entry()}) as first:
                before = await pid_at(client_of(http, first))
                assert await pid_at(client_of(http, second)) == before
                assert second.cluster.owners.owned == 0
                await first.gateway.drain()
            client = client_of(http, second)
            told = await call(client, "pid")
            assert int(text_of(told)) != before
            assert MEMORY_LOST in told["result"]["content"][-1]["text"]
            assert second.cluster.owners.owned == 1
            assert server.starts == 2
            assert "memory" not in json.dumps(await call(client, "pid")), "it is said once"


async def test_a_server_with_sessions_is_started_by_each_replica_that_needs_it(tmp_path: Path) -> None:
    server = asking(tmp_path, HANDSHAKE)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        pids: set[int] = set()
        for each in served:
            client = client_of(http, each)
            await client.begin()
            pids.add(int(text_of(await client.older("tools/call", name="a_pid", arguments={}))))
        assert len(pids) == 2


async def test_only_replicas_reach_the_processes_of_others(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        await pid_at(client_of(http, served[0]))
        loaded = served[0].gateway.loaded.servers["a"]
        url = f"{served[0].url}/replica/servers/{server_key(loaded)}"
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pid"}}
        for headers, status in (({}, 404), ({"Authorization": "Bearer local"}, 404), ({HEADER: "1 x"}, 403)):
            async with http.post(url, json=call, headers=headers) as response:
                assert response.status == status
        assert len(server.heard("tools/call")) == 1
