"""Stateless clients over gateways that act as one: each has a home, where servers keep what is its own."""

from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from starlette.types import Scope

from fairlead.config.principal import LOCAL_CALLER
from fairlead.gateway.access.auth import FORWARDED, AuthenticatedRequest
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.cluster.peer_client import PeerConnection, PeerUnreachable
from fairlead.gateway.cluster.replicas import Replica
from fairlead.gateway.principal_view import PrincipalView
from tests.gateway.cluster.cluster_support import (
    MACHINE,
    OnMachine,
    Rounds,
    initialize,
    replica,
    replicas,
)
from tests.gateway.support import MODERN, ByName, Raw, text_of, until
from tests.host.asking import HANDSHAKE, AskingServer

TOOLS = ["ask", "echo", "say", "meet"]
SESSION = "fairlead/session"


async def test_what_a_server_keeps_for_a_stateless_client_is_there_whichever_replica_it_comes_to(
    tmp_path: Path,
) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE, tools=[*TOOLS, "pid"])
    async with replicas(tmp_path, 3, a=server.entry()) as served, aiohttp.ClientSession() as http:
        for each in served:
            await until(lambda each=each: len(each.cluster.directory.living()) == 3)
        ada, bob = Rounds(http, served, "ada"), Rounds(http, served, "bob")

        async def pids(client: Rounds, **meta: Any) -> set[str]:
            """The processes that answer a client over all replicas, with and without the fast path."""
            answers = [
                await client.modern("tools/call", name="a_pid", arguments={}, meta=more | meta)
                for more in ({}, {"progressToken": 1}) * 4
            ]
            return {text_of(answer) for answer in answers}

        found: list[set[str]] = [await pids(ada), await pids(bob), await pids(ada, **{SESSION: "x"})]
        found.append(await pids(ada, **{SESSION: "y"}))
        found.append(await pids(ada, **{"io.modelcontextprotocol/clientInfo": {"name": "z", "version": "1"}}))
        assert [len(each) for each in found] == [1] * 5
        assert len({pid for each in found for pid in each}) == 5
        assert not any(each.cluster.forwarder.outcomes["unknown"] for each in served)


async def test_a_token_of_one_machine_is_good_at_its_gateway_and_never_sent_to_another(
    tmp_path: Path,
) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE, tools=[*TOOLS, "pid"])
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        for each in served:
            await until(lambda each=each: len(each.cluster.directory.living()) == 2)
        first = served[0]
        client = Raw(http, f"{first.url}/mcp", f"{MACHINE}home-0")
        for number in range(8):  # some of these sessions have their home at the other replica
            meta = {SESSION: f"{number}"}
            assert text_of(await client.modern("tools/call", name="a_pid", arguments={}, meta=meta))
        # Nor to begin a session there: the client could not go on with it here.
        await first.cluster.directory.drain()
        status, _, _ = await Raw(http, client.url, f"{MACHINE}home-0").post(initialize())
        assert status == 503
        assert first.cluster.forwarder.outcomes.total() == 0


async def test_a_stateless_client_that_its_home_refuses_is_answered_where_it_came_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE, tools=[*TOOLS, "pid"])
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        for each in served:
            await until(lambda each=each: len(each.cluster.directory.living()) == 2)

        async def refuse(self: ByName, scope: Scope) -> RequestRefused | AuthenticatedRequest:
            """Accept no token that came through another replica: this one has not heard of it yet."""
            if FORWARDED in scope:
                return RequestRefused.saying(401, "unknown token")
            return AuthenticatedRequest(principal="ada")

        monkeypatch.setattr(OnMachine, "admit", refuse)
        client = Raw(http, f"{served[0].url}/mcp")
        for number in range(8):
            meta = {SESSION: f"{number}"}
            assert text_of(await client.modern("tools/call", name="a_pid", arguments={}, meta=meta))
        assert served[0].cluster.forwarder.outcomes["not_sent"] > 0


async def test_requests_that_come_while_a_server_is_first_listed_wait_to_learn_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE, tools=[*TOOLS, "pid"])
    async with replicas(tmp_path, 1, a=server.entry()) as [served]:
        endpoint = await served.gateway.endpoint()
        prepare, began, may_end = PrincipalView.prepare, anyio.Event(), anyio.Event()

        async def prepare_slowly(self: PrincipalView) -> None:
            began.set()
            await may_end.wait()
            await prepare(self)

        monkeypatch.setattr(PrincipalView, "prepare", prepare_slowly)
        found: list[bool] = []

        async def ask() -> None:
            found.append(await endpoint.uses_own_server(LOCAL_CALLER, "tools/call", "a_pid", {}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await began.wait()
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            may_end.set()
        assert found == [True, True]


async def test_stateless_clients_of_a_home_that_hangs_do_not_each_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE, tools=[*TOOLS, "pid"])
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        for each in served:
            await until(lambda each=each: len(each.cluster.directory.living()) == 2)
        forwarder = served[0].cluster.forwarder
        tried: list[str] = []

        async def connect(replica: Replica) -> PeerConnection:
            tried.append(replica.id)
            raise PeerUnreachable("it does not answer")

        monkeypatch.setattr(forwarder.peers, "connect", connect)
        monkeypatch.setattr(forwarder, "_clock", lambda: 0.0)
        client = Raw(http, f"{served[0].url}/mcp")
        for number in range(8):
            meta = {SESSION: f"{number}"}
            assert text_of(await client.modern("tools/call", name="a_pid", arguments={}, meta=meta))
        assert tried == [served[1].cluster.directory.id]


async def test_stateless_clients_of_a_replica_that_is_gone_go_on_at_another(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE, tools=[*TOOLS, "pid"])
    async with replicas(tmp_path, 1, a=server.entry()) as [first], aiohttp.ClientSession() as http:
        client = Raw(http, f"{first.url}/mcp")

        async def home(session: str) -> str:
            meta = {SESSION: session}
            return text_of(await client.modern("tools/call", name="a_pid", arguments={}, meta=meta))

        alone = {f"{number}": await home(f"{number}") for number in range(8)}
        async with replica(tmp_path, "second", {"a": server.entry()}) as second:
            for each in (first, second):
                await until(lambda each=each: len(each.cluster.directory.living()) == 2)
            both = {session: await home(session) for session in alone}
            forwarded = first.cluster.forwarder.outcomes["answered"]
            # Those of the new one moved, and no others.
            assert sum(both[session] != alone[session] for session in alone) == forwarded
        assert {session: await home(session) for session in alone} == alone


async def test_requests_to_a_server_that_all_share_are_answered_where_they_come_in(tmp_path: Path) -> None:
    server = AskingServer(tmp_path / "record", version=MODERN, tools=TOOLS)
    async with replicas(tmp_path, 3, a=server.entry()) as served, aiohttp.ClientSession() as http:
        client = Rounds(http, served)
        for _ in range(6):
            assert text_of(await client.modern("tools/call", name="a_echo", arguments={"a": 1}))
        assert not any(each.cluster.forwarder.outcomes.total() for each in served)


async def test_a_bundle_that_another_replica_does_not_have_yet_is_served_by_the_one_that_has_it(
    tmp_path: Path,
) -> None:
    server = AskingServer(tmp_path / "record", version=HANDSHAKE, tools=[*TOOLS, "pid"])
    servers = {"a": server.entry()}
    with anyio.fail_after(120):
        async with (
            replica(tmp_path, "home-0", servers) as first,
            replica(tmp_path, "home-1", servers, bundle="other") as second,
            aiohttp.ClientSession() as http,
        ):
            served = [first, second]
            for each in served:
                await until(lambda each=each: len(each.cluster.directory.living()) == 2)
            client = Raw(http, f"{first.url}/mcp/work")
            for number in range(8):  # some of these sessions have their home at the other replica
                meta = {SESSION: f"{number}"}
                assert text_of(await client.modern("tools/call", name="a_pid", arguments={}, meta=meta))
            assert first.cluster.forwarder.outcomes["not_sent"] > 0
            # Where no replica has it, it is unknown, and is not looked for elsewhere.
            missing = Raw(http, f"{first.url}/mcp/none")
            status, _, _ = await missing.post(initialize())
            assert status == 404
