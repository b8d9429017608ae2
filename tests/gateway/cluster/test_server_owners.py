"""A server process that clients share, over gateways that act as one: it runs once, at its owner."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import msgspec
import pytest

from fairlead.gateway.cluster import server_owners
from fairlead.gateway.cluster.peer_transport import MEMORY_LOST
from fairlead.gateway.cluster.replica_keys import REPLICA_HEADER, PeerSignatures
from fairlead.gateway.cluster.replicas import LOOK_SECONDS, Replica, new_replica_id
from fairlead.gateway.cluster.server_owners import server_key
from tests.conftest import Machine
from tests.gateway.cluster.cluster_support import KEYS, ServedReplica, replica, replicas
from tests.gateway.support import Raw, text_of, until
from tests.host.asking import HANDSHAKE, MODERN, NAME_FORM, AskingServer

TOOLS = ["ask", "change", "crash", "echo", "hold", "log", "meet", "pid", "say"]
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


async def test_a_server_is_restarted_from_any_replica(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        clients = [client_of(http, each) for each in served]
        (before,) = {await pid_at(client) for client in clients}
        await until(lambda: all(len(each.cluster.directory.living()) == 3 for each in served))
        await served[2].gateway.close_server("a")
        (after,) = {await pid_at(client) for client in clients}
        assert after != before
        assert server.starts == 2


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


async def test_a_call_that_comes_while_others_learn_of_a_stop_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 1, a=server.entry()) as [served], aiohttp.ClientSession() as http:
        gateway, directory = served.gateway, served.cluster.directory
        gateway.options = replace(gateway.options, grace_seconds=60.0)
        client = client_of(http, served)
        await pid_at(client)
        drained = anyio.Event()

        async def leave() -> None:
            """Leave as ever; others know it once a call has come, however busy this machine is."""
            await directory.leave()
            tasks.start_soon(partial(call, client, "meet", count=2))
            await until(lambda: any("meet" in json.dumps(each) for each in server.heard("tools/call")))

        async def drain() -> None:
            await gateway.drain()
            drained.set()

        monkeypatch.setattr(served.cluster, "leave", leave)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drain)
            await until(lambda: any("meet" in json.dumps(each) for each in server.heard("tools/call")))
            with anyio.move_on_after(1):
                await drained.wait()
            assert not drained.is_set()
            await call(client_of(http, served), "meet", 8, count=2)
            await drained.wait()


async def test_a_forwarded_call_is_answered_by_a_replica_that_left_meanwhile(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        owner, other = served
        client = client_of(http, owner)
        await client.begin()
        answers: list[Any] = []

        async def hold() -> None:
            params = {"name": "a_hold", "arguments": {"until": str(tmp_path / "go")}}
            answers.append(await client.older("tools/call", 5, **params))

        async with anyio.create_task_group() as tasks:
            client.url = f"{other.url}/mcp"
            tasks.start_soon(hold)
            await until(lambda: any("hold" in json.dumps(each) for each in server.heard("tools/call")))
            await owner.gateway.drain()
            await until(
                lambda: [each.id for each in other.cluster.directory.living()] == [other.cluster.directory.id]
            )
            # The others look at what is under way again and again.
            looks = anyio.current_time() + 2 * LOOK_SECONDS
            await until(lambda: anyio.current_time() > looks)
            assert answers == []
            await anyio.to_thread.run_sync((tmp_path / "go").touch)
        assert text_of(answers[0]).isdigit()


async def test_the_owner_finishes_the_call_of_a_replica_that_left_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_owners, "_SENDER_SECONDS", 0.1)
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        owner, leaving = served
        await until(lambda: owner.cluster.directory.known(leaving.cluster.directory.id) is not None)
        await pid_at(client_of(http, owner))
        client = client_of(http, leaving)
        answers: list[Any] = []

        async def hold() -> None:
            answers.append(await call(client, "hold", until=str(tmp_path / "go")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await until(lambda: owner.cluster.owners.calls == 1)
            await leaving.cluster.directory.leave()
            await until(lambda: owner.cluster.directory.known(leaving.cluster.directory.id) is None)
            looks = anyio.current_time() + 0.5
            await until(lambda: anyio.current_time() > looks)
            await anyio.to_thread.run_sync((tmp_path / "go").touch)
        assert text_of(answers[0]).isdigit()


def test_servers_of_two_projects_are_two_however_alike_they_are(machine: Machine, tmp_path: Path) -> None:
    entry = json.dumps({"servers": {"a": {"command": "run"}}})
    elsewhere = replace(machine, project=tmp_path / "other project")
    for each in (machine, elsewhere):
        each.write_project(entry)
    first, second = (server_key(each.load().server("a")) for each in (machine, elsewhere))
    assert first != second
    # What a user configures is the same everywhere, whoever's home it is in.
    for each in (machine, elsewhere):
        each.project_file.unlink()
        each.write_user(entry)
    assert len({server_key(each.load().server("a")) for each in (machine, elsewhere)}) == 1


def shared(server: AskingServer) -> dict[str, Any]:
    return {**server.entry(), "sharing": "shared"}


async def older_call(client: Raw, tool: str, **arguments: Any) -> Any:
    return await client.older("tools/call", name=f"a_{tool}", arguments=arguments)


async def test_a_shared_server_with_sessions_runs_once_and_has_one_session(tmp_path: Path) -> None:
    server = asking(tmp_path, HANDSHAKE)
    async with replicas(tmp_path, a=shared(server)) as served, aiohttp.ClientSession() as http:
        clients = [client_of(http, each) for each in served]
        for client in clients:
            await client.begin()
        pids = {text_of(await older_call(client, "pid")) for client in clients}
        assert len(pids) == server.starts == len(server.heard("initialize")) == 1
        assert len(server.heard("notifications/initialized")) == 1
        assert [each.cluster.owners.owned for each in served] == [1, 0, 0]

        # What the server asks is refused, as in one process: it is not told that it may.
        form = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": NAME_FORM}}
        for client in clients:
            answered = json.loads(text_of(await older_call(client, "ask", questions={"q": form})))
            assert "not supported here" in answered["q"]["message"]
        assert "elicitation" not in server.declared()[-1]

        # What changes is told to all, although none of them has a request under way.
        await older_call(clients[2], "change", resources=[{"uri": "test://b", "name": "b"}])
        for client in clients:
            with anyio.fail_after(60):
                while True:
                    if "test://b" in json.dumps(await client.older("resources/list")):
                        break
                    await anyio.sleep(0.05)

        with anyio.move_on_after(1):
            await older_call(clients[1], "meet", count=2)
        with anyio.fail_after(60):
            await until(lambda: bool(server.heard("notifications/cancelled")))


async def test_a_resource_is_unsubscribed_when_the_last_replica_does_not_watch_it(tmp_path: Path) -> None:
    server = asking(tmp_path, HANDSHAKE)
    async with replicas(tmp_path, a=shared(server)) as served, aiohttp.ClientSession() as http:
        clients = [client_of(http, each) for each in served]
        for client in clients:
            await client.begin()
            await client.older("resources/subscribe", uri="test://a")
        for number, client in enumerate(clients):
            assert not server.heard("resources/unsubscribe")
            await client.older("resources/unsubscribe", uri="test://a")
            if number == 0:
                assert text_of(await older_call(clients[2], "pid")).isdigit()
        with anyio.fail_after(60):
            await until(lambda: len(server.heard("resources/unsubscribe")) == 1)


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_a_replica_that_stops_hands_its_servers_over_and_no_call_is_lost(
    tmp_path: Path, version: str
) -> None:
    server = asking(tmp_path, version)
    async with replicas(tmp_path, 2, a=shared(server)) as served, aiohttp.ClientSession() as http:
        first, second = served
        leaving, staying = (client_of(http, each) for each in served)
        before = await pid_at(leaving)
        assert await pid_at(staying) == before
        assert first.cluster.owners.owned == 1
        under_way: list[int] = []
        later: list[int] = []

        async def hold(client: Raw) -> None:
            under_way.append(int(text_of(await call(client, "hold", until=str(tmp_path / "go")))))

        async def ask_later(client: Raw) -> None:
            later.append(await pid_at(client))

        async with anyio.create_task_group() as tasks:
            for client in (leaving, staying):
                tasks.start_soon(hold, client)
            with anyio.fail_after(60):
                await until(lambda: first.gateway.load().calls == 2)
            tasks.start_soon(first.gateway.drain)
            with anyio.fail_after(60):
                await until(lambda: first.cluster.owners.is_handing_over)
            # What comes now waits for the next owner, and what is under way is answered by this one.
            for client in (leaving, staying):
                tasks.start_soon(ask_later, client)
            await anyio.to_thread.run_sync((tmp_path / "go").touch)
        assert under_way == [before, before]
        assert len({*later} - {before}) == len({*later}) == 1
        assert [first.cluster.owners.owned, second.cluster.owners.owned] == [0, 1]
        assert server.starts == 2


async def test_a_replica_that_stops_has_another_start_what_its_own_clients_alone_call(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=shared(server)) as served, aiohttp.ClientSession() as http:
        first, second = served
        client = client_of(http, first)
        before = await pid_at(client)
        go = tmp_path / "go"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(call, client, "hold", until=str(go)))
            await until(lambda: first.gateway.load().calls == 1)
            tasks.start_soon(first.gateway.drain)
            await until(lambda: first.cluster.owners.is_handing_over)
            tasks.start_soon(pid_at, client)
            await anyio.to_thread.run_sync(go.touch)
        assert second.cluster.owners.owned == 1
        assert await pid_at(client_of(http, second)) != before
        assert server.starts == 2


async def test_a_call_that_outlasts_the_drain_ends_with_its_delivery(tmp_path: Path) -> None:
    server = asking(tmp_path)
    entry = {"a": shared(server)}
    answers: list[Any] = []

    async def hold(client: Raw) -> None:
        answers.append(await call(client, "hold", until=str(tmp_path / "never")))

    with anyio.fail_after(120):
        async with aiohttp.ClientSession() as http, replica(tmp_path, "second", entry) as second:
            client = client_of(http, second)
            async with (
                anyio.create_task_group() as tasks,
                replica(tmp_path, "first", entry) as first,
            ):
                await pid_at(client_of(http, first))
                await pid_at(client)
                tasks.start_soon(hold, client)
                await until(lambda: first.cluster.owners.calls == 1)
                await first.gateway.drain()
            (told,) = answers
            assert told["result"]["isError"]
            assert told["result"]["_meta"][DELIVERY] == "unknown"
            assert MEMORY_LOST in json.dumps(await call(client, "pid"))


async def _log(client: Raw) -> list[Any]:
    """Have the server log something, and return what the client is told of it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/logLevel": "debug",
    }
    params = {"name": "a_log", "arguments": {"level": "error", "data": "private"}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
    headers = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "a_log"}
    _, _, body = await client.post(message, headers)
    came: list[Any] = [body] if isinstance(body, dict) else body
    assert text_of(came[-1]) == "logged"
    return [each for each in came if each.get("method") == "notifications/message"]


async def test_a_log_message_reaches_a_client_only_where_its_request_alone_can_be_the_cause(
    tmp_path: Path,
) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        at_owner, elsewhere = (client_of(http, each) for each in served)
        await pid_at(at_owner)
        await pid_at(elsewhere)
        for client in (at_owner, elsewhere):
            assert len(await _log(client)) == 1
        for number, (waiting, logging) in enumerate(((at_owner, elsewhere), (elsewhere, at_owner))):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(call, waiting, "meet", 8, count=9))
                with anyio.fail_after(60):
                    await until(
                        lambda number=number: json.dumps(server.heard()).count('"meet"') == number + 1
                    )
                assert await _log(logging) == []
                tasks.cancel_scope.cancel()
            with anyio.fail_after(60):
                await until(lambda: served[0].gateway.load().calls == 0)


@pytest.mark.parametrize("params", [None, {"_meta": None}, {"_meta": [1]}, {"_meta": "x"}, {"_meta": 7}])
async def test_a_notification_with_odd_parameters_costs_no_call_of_a_replica(
    tmp_path: Path, params: object
) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        first, second = (client_of(http, each) for each in served)
        pid = await pid_at(first)
        said = [{"method": "notifications/tools/list_changed", "params": params}]
        assert text_of(await call(second, "say", messages=said)) == "said"
        assert await pid_at(second) == pid


async def test_a_server_that_a_replica_of_another_version_runs_is_refused_and_never_started_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_owners, "CLAIM_SECONDS", 0.5)
    server = asking(tmp_path)
    async with replicas(tmp_path, 1, a=server.entry()) as (only,), aiohttp.ClientSession() as http:
        store = only.gateway.host.store
        assert store is not None
        key = server_key(only.gateway.loaded.servers["a"])
        other = Replica(
            id=new_replica_id(), address="http://127.0.0.1:1", version="9.9", protocol=99, started=0.0
        )
        await store.put("replicas", other.id, msgspec.json.encode(other), expect=None, expires_in=60)
        record = msgspec.json.encode({"replica": other.id, "token": 1})
        async with store.lock(f"server {key}", lease_seconds=60):
            await store.put("server owners", key, record, expect=None)
            failures = await only.gateway.host.connect("a")
            assert "another version of Fairlead (9.9)" in str(failures["a"])
            assert server.starts == 0
        assert await only.gateway.host.connect("a") == {}
        assert await pid_at(client_of(http, only))
        assert server.starts == 1


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
        # Not even with what a replica signed, once that was used.
        body = json.dumps(call).encode()
        signed = [(b"content-length", b"%d" % len(body))]
        signatures = PeerSignatures(KEYS.peers, new_replica_id())
        owner = served[0].cluster.directory.id
        value, _ = signatures.sign(owner, b"POST", url.removeprefix(served[0].url).encode(), signed)
        for status in (200, 403):
            sent = {HEADER: value.decode(), "Content-Type": "application/json"}
            async with http.post(url, data=body, headers=sent) as response:
                assert response.status == status
                assert (b'"result"' in await response.read()) is (status == 200)
        assert len(server.heard("tools/call")) == 2
