"""What the processes of one run share in a store: sealed, and no one else's."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from fairlead.errors import StoreError, VersionConflict
from fairlead.store.async_store import AsyncStore
from fairlead.store.cluster_key import new_cluster_key
from fairlead.store.protocol import ANY
from fairlead.store.sealed import SealedStore

SECRET = b"planted-5ecret-value"


async def test_processes_with_one_key_share_values_that_the_file_does_not_tell(
    store: AsyncStore, path: Path
) -> None:
    key = new_cluster_key()
    one, two = SealedStore(store, key), SealedStore(store, key)
    version = await one.put("sessions", "a", SECRET, expect=None)
    found = await two.get("sessions", "a")
    assert found is not None
    assert (found.value, found.version) == (SECRET, version)
    assert [each.value for each in await two.scan("sessions")] == [SECRET]
    with pytest.raises(VersionConflict):
        await two.put("sessions", "a", b"other", expect=None)
    for file in path.parent.iterdir():
        assert SECRET not in file.read_bytes()
    assert await two.delete("sessions", "a", expect=version)
    assert await one.get("sessions", "a") is None


async def test_another_run_sees_nothing_of_it(store: AsyncStore) -> None:
    one, two = SealedStore(store, new_cluster_key()), SealedStore(store, new_cluster_key())
    await one.put_all([("sessions", "a", SECRET)])
    assert await two.get("sessions", "a") is None
    assert await two.scan("sessions") == []
    await two.put("sessions", "a", b"its own", expect=None)
    found = await one.get("sessions", "a")
    assert found is not None
    assert found.value == SECRET


async def test_a_value_that_was_moved_does_not_open(store: AsyncStore, path: Path) -> None:
    one = SealedStore(store, new_cluster_key())
    await one.put("sessions", "a", SECRET, expect=ANY)
    with closing(sqlite3.connect(path)) as file:
        ((namespace,),) = file.execute("SELECT namespace FROM entry WHERE key = 'a'").fetchall()
    sealed = await store.get(namespace, "a")
    assert sealed is not None
    await store.put(namespace, "b", sealed.value, expect=None)
    with pytest.raises(StoreError):
        await one.get("sessions", "b")


async def test_messages_and_rate_limits_are_those_of_the_run(store: AsyncStore) -> None:
    key = new_cluster_key()
    one, two, stranger = (
        SealedStore(store, key),
        SealedStore(store, key),
        SealedStore(store, new_cluster_key()),
    )
    with anyio.fail_after(20):
        async with two.subscribe("news") as news:
            with anyio.move_on_after(0.01):
                await anext(news)  # a wait that is given up ends nothing
            await stranger.publish("news", b"not this")
            await one.publish("news", SECRET)
            assert await anext(news) == SECRET
    assert (await one.take_tokens("p", per_minute=3, wanted=3)).granted == 3
    assert (await two.take_tokens("p", per_minute=3, wanted=1)).granted == 0
    assert (await stranger.take_tokens("p", per_minute=3, wanted=3)).granted == 3
