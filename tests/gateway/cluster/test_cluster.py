"""A session of a handshake client, over gateways that act as one: every request at another replica."""

import json
import string
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from mcp_types import INVALID_PARAMS

from fairlead.gateway.cluster.forwarding import REFUSAL_HEADER
from fairlead.gateway.cluster.replica_keys import REPLICA_HEADER, PeerSignatures, ReplicaKeys
from fairlead.gateway.cluster.replicas import REPLICA_ID_BYTES, new_replica_id
from fairlead.gateway.cluster.session_ids import SessionIds
from tests.gateway.cluster.cluster_support import (
    KEYS,
    Rounds,
    ServedReplica,
    initialize,
    replica,
    replicas,
)
from tests.gateway.support import MODERN, Raw, text_of, until
from tests.host.asking import HANDSHAKE, NAME_FORM, AskingServer

TOOLS = ["ask", "echo", "say", "meet"]
WHO: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"message": "Who?", "requestedSchema": NAME_FORM},
}
SAMPLE: dict[str, Any] = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 10}}
ADA = {"action": "accept", "content": {"name": "Ada", "city": "Kiel"}}
KIEL = {"role": "assistant", "content": {"type": "text", "text": "Kiel"}, "model": "m"}


def asking(tmp_path: Path) -> AskingServer:
    return AskingServer(tmp_path / "record", version=HANDSHAKE, tools=TOOLS)


def called(tool: str, request_id: int = 7, *, meta: dict[str, Any] | None = None, **arguments: Any) -> Any:
    params: dict[str, Any] = {"name": f"a_{tool}", "arguments": arguments}
    if meta:
        params["_meta"] = meta
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


@asynccontextmanager
async def streamed(client: Raw, message: Any) -> AsyncGenerator[AsyncIterator[Any]]:
    """Send a message; what comes on the stream of its answer, one after the other."""
    async with client.http.post(client.url, json=message, headers=client.headers) as response:
        assert response.status == 200
        yield _events(response)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    if response.content_type == "application/json":
        yield await response.json()
        return
    async for line in response.content:
        if line.startswith(b"data:") and line[5:].strip():
            yield json.loads(line[5:])


async def test_a_session_works_whichever_replica_each_request_comes_to(tmp_path: Path) -> None:
    server = asking(tmp_path)
    entry = server.entry(sampling={"max_tokens": 10_000})
    async with replicas(tmp_path, a=entry) as served, aiohttp.ClientSession() as http:
        client = Rounds(http, served)
        await client.begin({"elicitation": {}, "sampling": {}})
        listed = await client.older("tools/list")
        assert "a_echo" in {tool["name"] for tool in listed["result"]["tools"]}
        for number in range(6):
            assert text_of(await client.older("tools/call", number, name="a_echo", arguments={"a": number}))

        # Progress comes on the stream of its call.
        progress = {"progressToken": "$token", "progress": 1, "total": 2}
        said: dict[str, Any] = {"messages": [{"method": "notifications/progress", "params": progress}]}
        async with streamed(client, called("say", meta={"progressToken": "p"}, **said)) as events:
            came = [event async for event in events]
        assert [event["params"]["progress"] for event in came if "params" in event] == [1]
        assert text_of(came[-1]) == "said"

        # A server asks; the answer comes to yet another replica.
        for question, answer, text in ((WHO, ADA, "Ada"), (SAMPLE, KIEL, "Kiel")):
            async with streamed(client, called("ask", questions={"q": question})) as events:
                asked = await anext(events)
                assert asked["method"] == question["method"]
                status, _, _ = await client.post({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
                assert status == 202
                assert text in text_of(await anext(events))

        # A cancellation reaches the server.
        async with anyio.create_task_group() as tasks:
            answers: list[Any] = []

            async def call() -> None:
                answers.append(await client.post(called("meet", 30, count=2)))

            tasks.start_soon(call)
            await until(lambda: len(server.heard("tools/call")) == 10)
            cancelled = {"method": "notifications/cancelled", "params": {"requestId": 30}}
            await client.post({"jsonrpc": "2.0", **cancelled})
            await until(lambda: bool(server.heard("notifications/cancelled")))

        # The owner has no open exchanges left, and the others have forwarded.
        counted = [each.cluster.forwarder.outcomes for each in served]
        assert sum(outcomes["answered"] for outcomes in counted) > 5
        assert not any(outcomes["unknown"] for outcomes in counted)

        # The end of the session, at another replica.
        await client.end()
        for _ in served:
            assert (await client.post(called("echo")))[0] == 404


async def test_a_stateless_request_goes_on_where_it_waits_whichever_replica_its_client_comes_back_to(
    tmp_path: Path,
) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN, tools=TOOLS)
    meta: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    answers: dict[str, Any] = {}
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Rounds(http, served)
        call: dict[str, Any] = {"name": "a_ask", "arguments": {"questions": {"q": WHO}}}
        for _ in range(2):
            asked = await client.modern("tools/call", meta=meta, **call)
            assert asked["result"]["resultType"] == "input_required"
            answers = {"inputResponses": {"q": ADA}, "requestState": asked["result"]["requestState"]}
            assert "Ada" in text_of(await client.modern("tools/call", meta=meta, **call, **answers))
        # Once, and for its principal alone.
        other = Rounds(http, served, "bob")
        for each in (client, other):
            refused = await each.modern("tools/call", meta=meta, **call, **answers)
            assert refused["error"]["code"] == INVALID_PARAMS


async def test_replicas_of_one_machine_forward_over_unix_sockets(tmp_path: Path) -> None:
    entry = asking(tmp_path).entry()
    async with replicas(tmp_path, over="unix", a=entry) as served, aiohttp.ClientSession() as http:
        client = Rounds(http, served)
        await client.begin()
        for number in range(6):
            assert text_of(await client.older("tools/call", number, name="a_echo", arguments={}))
        await client.end()
        assert sum(each.cluster.forwarder.outcomes["answered"] for each in served) > 4


async def test_the_stream_of_a_session_is_open_at_any_replica(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[0].url}/mcp")
        await client.begin()
        other = f"{served[1].url}/mcp"
        async with http.get(other, headers={**client.headers, "Accept": "text/event-stream"}) as stream:
            assert stream.status == 200
            assert stream.content_type == "text/event-stream"
            # A second one is refused by the owner, wherever it is asked for.
            async with http.get(other, headers={**client.headers, "Accept": "text/event-stream"}) as second:
                assert second.status == 409


async def test_a_client_that_disconnects_cancels_its_call_at_the_owner(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[0].url}/mcp")
        await client.begin()
        client.url = f"{served[1].url}/mcp"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.post, called("meet", count=2))
            await until(lambda: bool(server.heard("tools/call")))
            tasks.cancel_scope.cancel()
        await until(lambda: bool(server.heard("notifications/cancelled")))
        await until(lambda: served[1].cluster.forwarder.outcomes["cancelled"] == 1)


async def test_ids_that_were_made_up_or_are_of_others_are_unknown_everywhere(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        own = Raw(http, f"{served[0].url}/mcp", "ada")
        await own.begin()
        sealed = own.headers["Mcp-Session-Id"]
        foreign = ReplicaKeys.derive([b"x" * 32]).session_ids
        gone = "0" * 16
        wrong = [
            ("ada", "/mcp", sealed[:-1]),
            ("ada", "/mcp", sealed[:20] + ("A" if sealed[20] != "A" else "B") + sealed[21:]),
            ("ada", "/mcp", "fl1_"),
            ("ada", "/mcp", "é"),
            ("ada", "/mcp", SessionIds(foreign, served[0].cluster.directory.id).seal("ada", None)),
            ("ada", "/mcp", SessionIds(KEYS.session_ids, gone).seal("ada", None)),
            ("ada", "/mcp", SessionIds(KEYS.session_ids, served[0].cluster.directory.id).seal("ada", None)),
            ("bob", "/mcp", sealed),
            ("ada", "/mcp/work", sealed),
        ]
        for name, path, session_id in wrong:
            for each in served:
                client = Raw(http, f"{each.url}{path}", name)
                client.headers |= {"Mcp-Session-Id": session_id, "Mcp-Protocol-Version": HANDSHAKE}
                status, _, answer = await client.post(called("echo"))
                assert (status, answer["error"]["code"]) == (404, -32600), (name, path, session_id)
        own.url = f"{served[1].url}/mcp"
        assert "result" in await own.older("tools/list")


async def test_only_replicas_may_say_that_they_forward(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[0].url}/mcp")
        await client.begin()
        owner, other = (each.cluster.directory.id for each in served)
        header = REPLICA_HEADER.decode()
        body = json.dumps(called("echo")).encode()
        signed = [
            (b"authorization", client.headers["Authorization"].encode()),
            (b"mcp-session-id", client.headers["Mcp-Session-Id"].encode()),
            (b"content-length", b"%d" % len(body)),
        ]

        def sign(key: bytes, receiver: str, target: bytes = b"/mcp", age: float = 0.0) -> str:
            signatures = PeerSignatures([key], new_replica_id(), clock=lambda: time.time() - age)
            return signatures.sign(receiver, b"POST", target, signed, ("10.0.0.1", 80))[0].decode()

        key = KEYS.peers[0]
        forged = [
            "",
            "1",
            sign(b"x" * 32, owner),
            sign(key, other),
            sign(key, owner, b"/mcp/work"),
            sign(key, owner, age=60),
            sign(key, owner)[:-1] + "g",
            sign(key, owner).replace("/", "/9", 1),
            sign(key, owner).replace(" 0 ", " 1 ", 1),
        ]
        for value in forged:
            sent = {**client.headers, header: value}
            async with http.post(client.url, data=body, headers=sent) as response:
                assert response.status == 403, value
        sent = {**client.headers, header: sign(key, owner)}
        async with http.post(client.url, data=body, headers=sent) as one:
            assert one.status == 200
        # Recorded on the way and sent again, it is refused, and not as one that was never sent.
        async with http.post(client.url, data=body, headers=sent) as again:
            assert again.status == 403
            assert REFUSAL_HEADER.decode() not in again.headers
        # What a client calls so never reaches another replica.
        async with http.post(
            f"{served[1].url}/mcp", data=body, headers={**client.headers, header: "made up"}
        ) as refused:
            assert refused.status == 403


def test_a_signature_is_accepted_once_in_whatever_order_they_come() -> None:
    sender, receiver = (PeerSignatures(KEYS.peers, name) for name in ("a" * 16, "b" * 16))
    signed = [sender.sign("b" * 16, b"POST", b"/mcp", ())[0] for _ in range(3)]
    found = [receiver.check(signed[number], b"POST", b"/mcp", ()) for number in (1, 0, 2, 2, 0, 1)]
    assert [each.is_repeated for each in found if each] == [False, False, False, True, True, True]
    # One that so many overtook may have come before, for all that is remembered.
    late = sender.sign("b" * 16, b"POST", b"/mcp", ())[0]
    last = [sender.sign("b" * 16, b"POST", b"/mcp", ())[0] for _ in range(70_000)][-1]
    for value, is_repeated in ((last, False), (late, True), (last, True)):
        request = receiver.check(value, b"POST", b"/mcp", ())
        assert request is not None
        assert request.is_repeated is is_repeated


async def test_a_forwarded_request_is_never_forwarded_on(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[0].url}/mcp")
        await client.begin()
        # The second takes the third for the owner, which it is not.
        third = served[2].cluster.directory
        found = await third.find(third.id)
        assert found is not None
        session = SessionIds(KEYS.session_ids, served[0].cluster.directory.id)
        assert session.open(client.headers["Mcp-Session-Id"], "local", None) is not None

        async def find(replica_id: str) -> Any:
            return found

        served[1].cluster.forwarder.find = find
        client.url = f"{served[1].url}/mcp"
        status, _, _ = await client.post(called("echo"))
        assert status == 404
        assert sum(each.cluster.forwarder.outcomes.total() for each in served) == 1


async def test_a_draining_replica_has_others_begin_sessions(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        before = Raw(http, f"{served[0].url}/mcp")
        await before.begin()
        await until(lambda: len(served[0].cluster.directory.living()) == 2)
        await served[0].cluster.directory.drain()
        assert not served[0].cluster.is_ready
        client = Raw(http, f"{served[0].url}/mcp")
        await client.begin()
        assert len(served[1].gateway.sessions()) == 1
        assert "result" in await client.older("tools/list")
        # What it has already goes on, also for those who come to the other one.
        for url in (served[0].url, served[1].url):
            before.url = f"{url}/mcp"
            assert "result" in await before.older("tools/list")
        # Where both are about to stop, there is no place.
        await served[1].cluster.directory.drain()
        status, headers, _ = await Raw(http, f"{served[0].url}/mcp").post(initialize())
        assert (status, headers["Retry-After"]) == (503, "2")


async def test_a_head_request_for_the_session_of_another_replica_is_answered(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[1].url}/mcp")
        await client.begin()
        for each in served:
            with anyio.fail_after(30):
                async with http.head(f"{each.url}/mcp", headers=client.headers) as response:
                    assert response.status >= 400


async def test_the_refusal_of_a_replica_is_no_part_of_its_next_answer(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[1].url}/mcp")
        await client.begin()
        client.url = f"{served[0].url}/mcp"
        await until(lambda: len(served[0].cluster.directory.living()) == 2)
        # Both are about to stop, and the first does not know of the other.
        for each in served:
            each.cluster.directory.is_draining = True
        status, _, _ = await Raw(http, client.url).post(initialize())
        assert status == 503
        assert text_of(await client.older("tools/call", 1, name="a_echo", arguments={"a": 1}))


async def test_a_clock_that_was_set_leaves_forwarded_requests_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path, 2, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[1].url}/mcp")
        await client.begin()
        client.url = f"{served[0].url}/mcp"
        assert text_of(await client.older("tools/call", 1, name="a_echo", arguments={}))
        signatures = served[0].cluster.forwarder.peers._signatures  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(signatures, "_clock", lambda: time.time() + 3600)
        refused = await client.older("tools/call", 2, name="a_echo", arguments={})
        assert refused["result"]["isError"]
        assert refused["result"]["_meta"]["fairlead/delivery"] == "not_sent"
        monkeypatch.undo()
        assert text_of(await client.older("tools/call", 3, name="a_echo", arguments={}))


async def test_a_replica_that_announces_the_address_of_another_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with replicas(tmp_path, 3, a=asking(tmp_path).entry()) as served, aiohttp.ClientSession() as http:
        owner, other, third = served
        client = Raw(http, f"{owner.url}/mcp")
        await client.begin()
        for address in (other.url, third.url):  # that of the replica which looks, or of another one
            monkeypatch.setattr(owner.cluster.directory, "address", address)
            await owner.cluster.directory.announce()
            await other.cluster.directory.refresh()
            for _ in range(2):
                assert (await client_at(client, other).post(called("echo")))[0] == 404
        told = [each for each in caplog.records if each.message == "a replica is not at its address"]
        assert [each.__dict__["replica"] for each in told] == [owner.cluster.directory.id]


def client_at(client: Raw, at: ServedReplica) -> Raw:
    """The same client, of the same session, at another replica."""
    client.url = f"{at.url}/mcp"
    return client


async def test_sessions_of_a_replica_that_stopped_are_to_be_begun_anew(tmp_path: Path) -> None:
    entry = asking(tmp_path).entry()
    async with replicas(tmp_path, 1, a=entry) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[0].url}/mcp")
        async with replica(tmp_path, "stopping", {"a": entry}) as stopping:
            client.url = f"{stopping.url}/mcp"
            await client.begin()
            client.url = f"{served[0].url}/mcp"
            assert "result" in await client.older("tools/list")
            await stopping.gateway.drain()
        assert (await client.post(called("echo")))[0] == 404
        del client.headers["Mcp-Session-Id"]
        await client.begin()
        assert "result" in await client.older("tools/list")


async def test_an_owner_whose_lease_ended_leaves_its_calls_unknown(tmp_path: Path) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served[0].url}/mcp")
        await client.begin()
        client.url = f"{served[1].url}/mcp"
        answers: list[Any] = []

        async def call(message: Any) -> None:
            answers.append((await client.post(message))[2])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, called("meet", 1, count=9))
            await until(lambda: bool(server.heard("tools/call")))
            # As if it were suspended: it renews its lease no more, and says nothing.
            await served[0].cluster.directory.leave()
        assert answers[0]["result"]["isError"] is True
        assert answers[0]["result"]["_meta"]["fairlead/delivery"] == "unknown"
        assert len(server.heard("tools/call")) == 1
        assert served[1].cluster.forwarder.outcomes["unknown"] == 1


@pytest.mark.parametrize("at", [0, 1])
async def test_a_client_of_the_older_transport_may_post_to_any_replica(tmp_path: Path, at: int) -> None:
    async with (
        replicas(tmp_path, 2, a=asking(tmp_path).entry()) as served,
        aiohttp.ClientSession() as http,
        http.get(f"{served[0].url}/sse", headers={"Authorization": "Bearer local"}) as stream,
    ):
        events = _lines(stream)
        path = await anext(events)
        post = f"{served[at].url}{path}"
        headers = {"Authorization": "Bearer local", "Content-Type": "application/json"}
        for message in (initialize(), {"jsonrpc": "2.0", "id": 1, "method": "ping"}):
            async with http.post(post, json=message, headers=headers) as accepted:
                assert accepted.status == 202
            assert json.loads(await anext(events))["id"] == message["id"]


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    async for line in response.content:
        if line.startswith(b"data:"):
            yield line[5:].strip().decode()


def test_an_id_that_was_opened_before_opens_for_its_own_principal_and_bundle_alone() -> None:
    owner = "00" * REPLICA_ID_BYTES
    ids = SessionIds(KEYS.session_ids, owner)
    sealed = ids.seal("ada", "work")
    for _ in range(2):
        opened = ids.open(sealed, "ada", "work")
        assert opened is not None
        assert opened.owner == owner
        assert ids.open(sealed, "bob", "work") is None
        assert ids.open(sealed, "ada", None) is None
        others = set(string.ascii_letters + string.digits + "-_") - {sealed[-1]}
        assert not any(ids.open(sealed[:-1] + last, "ada", "work") for last in others)
