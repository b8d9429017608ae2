"""What is left of a server whose owner is gone: the notice of its lost memory, and the stored record."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from fairlead.gateway.cluster import server_owners
from fairlead.gateway.cluster.peer_transport import MEMORY_LOST
from tests.gateway.cluster.cluster_support import replica, replicas
from tests.gateway.cluster.test_server_owners import asking, call, client_of, pid_at
from tests.gateway.support import Raw, text_of, until


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


async def test_a_replica_that_lost_a_lease_and_takes_it_again_says_that_memory_was_lost(
    tmp_path: Path,
) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 2, a=server.entry()) as served, aiohttp.ClientSession() as http:
        owner, other = served
        before = await pid_at(client_of(http, owner))
        assert await pid_at(client_of(http, other)) == before
        (owned,) = owner.cluster.owners._owned.values()  # pyright: ignore[reportPrivateUsage]
        owned.lease.end()  # as where the store was away for too long
        await until(lambda: owner.cluster.owners.lease_losses == 1)
        told = await call(client_of(http, owner), "pid")
        while "isError" in told["result"] and told["result"]["isError"]:
            told = await call(client_of(http, owner), "pid")
        assert int(told["result"]["content"][0]["text"]) != before
        assert MEMORY_LOST in told["result"]["content"][-1]["text"]
        for at in (owner, other, owner):
            again = await call(client_of(http, at), "pid")
            assert int(text_of(again)) != before
            assert MEMORY_LOST not in json.dumps(again), "it is said once"


@pytest.mark.parametrize("first_at", [0, 1, 2])
async def test_that_memory_was_lost_is_said_once_over_all_replicas_by_the_first_call(
    tmp_path: Path, first_at: int
) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, a=server.entry()) as served, aiohttp.ClientSession() as http:
        clients = [client_of(http, each) for each in served]
        assert len({await pid_at(client) for client in clients}) == 1
        (owned,) = served[0].cluster.owners._owned.values()  # pyright: ignore[reportPrivateUsage]
        owned.lease.end()  # as where the store was away for too long
        await until(lambda: served[0].cluster.owners.lease_losses == 1)
        first = await call(clients[first_at], "pid")
        while first["result"].get("isError"):  # it was on its way to the process that was ended
            first = await call(clients[first_at], "pid")
        assert MEMORY_LOST in first["result"]["content"][-1]["text"]
        # Side by side and one by one, at every replica: no other call says so.
        later: list[Any] = []

        async def call_once(client: Raw) -> None:
            later.append(await call(client, "pid"))

        async with anyio.create_task_group() as tasks:
            for client in clients * 3:
                tasks.start_soon(call_once, client)
        assert {text_of(each) for each in later} == {first["result"]["content"][0]["text"]}
        assert MEMORY_LOST not in json.dumps(later)


def kept_records(tmp_path: Path) -> list[float | None]:
    """When what is stored about owners is gone, in seconds since 1970; None for never."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        found = database.execute("SELECT expires FROM entry WHERE namespace = 'server owners'").fetchall()
    return [expires for (expires,) in found]


async def test_what_an_owner_leaves_for_its_successor_is_not_kept_for_ever(
    tmp_path: Path,
) -> None:
    server = asking(tmp_path)
    async with replicas(tmp_path, 1, a=server.entry()) as [owner], aiohttp.ClientSession() as http:
        await pid_at(client_of(http, owner))
        await owner.gateway.drain()
    assert [expires is not None for expires in kept_records(tmp_path)] == [True]


async def test_the_record_of_an_owner_ends_unless_it_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_owners, "_RENEW_RECORDS_SECONDS", 0.2)
    server = asking(tmp_path)
    async with replicas(tmp_path, 1, a=server.entry()) as [owner], aiohttp.ClientSession() as http:
        await pid_at(client_of(http, owner))
        # A killed owner does nothing any more: what is there while it runs is what it leaves behind.
        (first,) = kept_records(tmp_path)
        assert first is not None
        await until(lambda: all(later is not None and later > first for later in kept_records(tmp_path)))
        assert owner.cluster.owners.owned == 1
