from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from fairlead.config.store_location import StoreLocation
from fairlead.errors import StoreError
from fairlead.gateway.cluster.replicas import LEASE_SECONDS, ReplicaDirectory, ReplicaLoad
from fairlead.store.async_store import AsyncStore
from fairlead.store.cluster_key import new_cluster_key
from fairlead.store.protocol import ANY, Store
from fairlead.store.redis_database import RedisDatabase
from tests.gateway.support import until
from tests.redis_server import RedisServer, redis_server


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path, "--appendonly", "no") as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    if request.param == "sqlite":
        return tmp_path / "state" / "store.db"
    server: RedisServer = request.getfixturevalue("redis")
    return server.location


@pytest.fixture
async def store(location: StoreLocation) -> AsyncIterator[Store]:
    async with AsyncStore.open(location) as store:
        yield store


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(*directories: ReplicaDirectory) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        for directory in directories:
            await tasks.start(directory.run)
        yield
        tasks.cancel_scope.cancel()


async def test_replicas_find_each_other_by_id_with_address_and_load(store: Store) -> None:
    first = ReplicaDirectory(
        store, address="http://127.0.0.1:8130", load=lambda: ReplicaLoad(sessions=3, calls=2)
    )
    second = ReplicaDirectory(store, address="unix:/run/second")
    async with running(first, second):
        found = await second.find(first.id)
        assert found is not None
        assert (found.address, found.sessions, found.calls) == ("http://127.0.0.1:8130", 3, 2)
        assert [replica.id for replica in second.living()] == [first.id, second.id]
        # It announced itself after the other had read the directory: a miss reads it again.
        assert first.known(second.id) is None or (await first.find(second.id)) is not None


async def test_a_replica_that_leaves_is_gone_at_once(store: Store) -> None:
    staying = ReplicaDirectory(store, address="http://127.0.0.1:1")
    leaving = ReplicaDirectory(store, address="http://127.0.0.1:2")
    async with running(staying):
        async with running(leaving):
            assert await staying.find(leaving.id) is not None
        await until(lambda: staying.known(leaving.id) is None)
        assert await staying.find(leaving.id) is None


async def test_a_replica_that_left_may_finish_for_longer_than_its_lease_and_one_that_died_may_not(
    store: Store,
) -> None:
    clock = Clock()
    staying = ReplicaDirectory(store, address="http://127.0.0.1:1", clock=clock)
    leaving = ReplicaDirectory(store, address="http://127.0.0.1:2")
    killed = ReplicaDirectory(store, address="http://127.0.0.1:3")
    for each in (staying, leaving, killed):
        await each.announce()
    await staying.refresh()
    await leaving.leave()
    await staying.refresh()
    assert await staying.find(leaving.id) is None
    clock.now += LEASE_SECONDS + 1
    assert staying.has_left(leaving.id)
    await staying.announce()
    await store.delete("replicas", killed.id, expect=ANY)  # as at its end
    await staying.refresh()
    assert staying.known(killed.id) is None
    assert not staying.has_left(killed.id)
    clock.now += 1
    assert not staying.has_left(leaving.id)


async def test_a_drain_is_announced(store: Store) -> None:
    staying = ReplicaDirectory(store, address="http://127.0.0.1:1")
    leaving = ReplicaDirectory(store, address="http://127.0.0.1:2")
    async with running(leaving, staying):
        await leaving.drain()

        def is_seen_draining() -> bool:
            found = staying.known(leaving.id)
            return found is not None and found.is_draining

        await until(is_seen_draining)


async def test_an_announcement_that_is_not_understood_is_told_of_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    directory = ReplicaDirectory(store, address="http://127.0.0.1:1")
    await store.put("replicas", "f" * 16, b"[]", expect=None)
    for _ in range(3):
        await directory.refresh()
    assert [record.message for record in caplog.records].count(
        "a replica announces itself in a way that is not understood"
    ) == 1
    # Another time is another matter.
    await store.delete("replicas", "f" * 16, expect=ANY)
    await directory.refresh()
    await store.put("replicas", "f" * 16, b"[]", expect=None)
    await directory.refresh()
    assert len(caplog.records) == 2


async def test_only_replicas_of_the_same_namespace_are_peers(store: Store) -> None:
    one = ReplicaDirectory(store, address="unix:/a", namespace="workers-1")
    other = ReplicaDirectory(store, address="unix:/b", namespace="workers-2")
    async with running(one, other):
        assert await one.find(other.id) is None


async def test_a_replica_that_stops_renewing_is_gone_when_its_lease_ended(store: Store) -> None:
    clock = Clock()
    watching = ReplicaDirectory(store, address="http://127.0.0.1:1", clock=clock)
    paused = ReplicaDirectory(store, address="http://127.0.0.1:2")
    async with running(watching):
        await paused.announce()
        assert await watching.find(paused.id) is not None
        # Reading the same announcement again does not renew it.
        clock.now += LEASE_SECONDS - 1
        await watching.refresh()
        assert watching.known(paused.id) is not None
        clock.now += 1.1
        assert watching.known(paused.id) is None


async def test_known_replicas_stay_known_while_the_store_is_away(redis: RedisServer) -> None:
    async with AsyncStore.open(redis.location) as store:
        clock = Clock()
        reading = ReplicaDirectory(store, address="http://127.0.0.1:1", clock=clock)
        other = ReplicaDirectory(store, address="http://127.0.0.1:2")
        async with running(other, reading):
            await until(lambda: reading.known(other.id) is not None)
            redis.kill()
            with pytest.raises(StoreError):
                await reading.find("0" * 16)
            assert await reading.find(other.id) is not None
            clock.now += LEASE_SECONDS
            assert not reading.is_announced
            with pytest.raises(StoreError):
                await reading.find(other.id)
            # One that answered by itself lives, whatever the store can say.
            reading.note_alive(other.id)
            assert await reading.find(other.id) is not None


async def test_a_store_that_lost_announcements_ends_no_lease(store: Store) -> None:
    reading = ReplicaDirectory(store, address="http://127.0.0.1:1")
    other = ReplicaDirectory(store, address="http://127.0.0.1:2")
    await other.announce()
    await reading.announce()
    await reading.refresh()
    for replica in (reading, other):
        await store.delete("replicas", replica.id, expect=await version_of(store, replica.id))
    await reading.refresh()
    assert reading.known(other.id) is not None
    await reading.announce()  # this one is back, the other has not had its turn yet
    await reading.refresh()
    assert reading.known(other.id) is not None


async def version_of(store: Store, key: str) -> int:
    found = await store.get("replicas", key)
    assert found is not None
    return found.version


async def test_a_replica_left_behind_with_an_old_key_and_hostile_records_stop_no_other(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = new_cluster_key(), new_cluster_key()
    both = redis.location_at(redis.url, keys=f"{old},{new}")
    current = redis.location_at(redis.url, keys=f"{new},{old}")
    with anyio.fail_after(60):
        async with AsyncStore.open(both) as behind, AsyncStore.open(current) as ahead:
            with RedisDatabase.open(redis.location_at(redis.url, keys=f"{new},{old}")) as database:
                database.reseal_all()
            async with AsyncStore.open(redis.location_at(redis.url, keys=new)) as alone:
                left = ReplicaDirectory(behind, address="http://127.0.0.1:1", load=ReplicaLoad)
                others = [
                    ReplicaDirectory(store, address=f"http://127.0.0.1:{number}", load=ReplicaLoad)
                    for number, store in ((2, ahead), (3, alone))
                ]
                async with running(left, *others):
                    hostile = [b'{"id":', b"[" * 100_000, b'{"id":"x","address":7}', b"\xff\xfe", b"1" * 400]
                    for number, value in enumerate(hostile):
                        await alone.put("replicas", f"hostile{number}", value, expect=ANY)
                    redis.run("SET", "fairlead:value:replicas:foreign", b"x" * 100)
                    redis.run("ZADD", "fairlead:index:replicas", "0", "foreign")
                    for _ in range(3):
                        for directory in others:
                            await directory.refresh()
                    found = [{each.id for each in directory.living()} for directory in others]
                    assert {each.id for each in others} <= found[0] & found[1]
                    assert left.id in found[0], "it has both keys"
                    assert left.id not in found[1]
                    told = Counter(
                        each.__dict__["replica"]
                        for each in caplog.records
                        if "not understood" in each.message
                    )
                    assert {*told} >= {"foreign", "hostile0", "hostile1", left.id}
                    assert all(times <= 3 for times in told.values()), "each of the three says it once"
