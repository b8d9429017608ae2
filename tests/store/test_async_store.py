"""The store as the host uses it: from an event loop that nothing may hold up."""

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Callable, Generator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from fairlead.errors import LockLost, StoreError
from fairlead.store.async_store import AsyncStore
from fairlead.store.opening import open_database
from fairlead.store.protocol import Store
from fairlead.store.sqlite import SqliteDatabase

PATIENCE = 30.0


@contextlib.contextmanager
def write_locked(path: Path) -> Generator[sqlite3.Connection]:
    """Another program that is in the middle of a write for as long as the block runs."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


async def eventually(condition: Callable[[], bool]) -> None:
    """Look again and again, until what nobody announces has come true."""
    with anyio.fail_after(PATIENCE):
        for _ in itertools.count():
            if condition():
                return
            await anyio.sleep(0.005)


async def test_values_are_kept_between_runs(path: Path) -> None:
    async with AsyncStore.open(path) as store:
        version = await store.put("pins", "github", b"one", expect=None)
    async with AsyncStore.open(path) as store:
        stored = await store.get("pins", "github")
        assert stored is not None
        assert (stored.value, stored.version) == (b"one", version)
        assert [found.key for found in await store.scan("pins", "git")] == ["github"]
        assert await store.delete("pins", "github", expect=version) is True
        assert await store.get("pins", "github") is None


async def test_the_event_loop_goes_on_while_the_disk_does_not(path: Path, store: Store) -> None:
    stored = anyio.Event()

    async def put() -> None:
        await store.put("pins", "github", b"one", expect=None)
        stored.set()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            with write_locked(path):
                tasks.start_soon(put)
                for _ in range(50):
                    await anyio.sleep(0.001)
                assert not stored.is_set()
            await stored.wait()


async def test_a_write_whose_caller_went_away_still_happens(path: Path, store: Store) -> None:
    with write_locked(path), anyio.move_on_after(0.05) as scope:
        await store.put("tokens", "github", b"rotated", expect=None)
    assert scope.cancelled_caught
    stored = await store.get("tokens", "github")
    assert stored is not None
    assert stored.value == b"rotated"


async def test_a_closed_store_says_so(path: Path) -> None:
    async with AsyncStore.open(path) as store:
        pass
    for attempt in (
        lambda: store.get("pins", "github"),
        lambda: store.publish("news", b"late"),
        store.flush,
    ):
        with pytest.raises(StoreError, match="closed"):
            await attempt()
    with pytest.raises(StoreError, match="closed"):
        store.append("audit", b"late")


async def test_an_error_inside_the_block_comes_out_as_it_is(path: Path) -> None:
    async def fail() -> None:
        async with AsyncStore.open(path) as store:
            store.append("audit", b"before the error")
            async with store.lock("refresh"):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with open_database(path) as database:
        assert [record.value for record in database.read_log("audit")] == [b"before the error"]
        assert database.acquire("refresh", lease_seconds=1) is not None


async def test_a_holder_that_was_overtaken_is_stopped(path: Path, store: Store) -> None:
    async def hold() -> None:
        async with store.lock("refresh", lease_seconds=0.1):
            with write_locked(path) as other:
                other.execute("DELETE FROM lease")
            await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE), pytest.raises(LockLost, match=r"lease of 0\.1 s"):
        await hold()


async def test_a_holder_that_was_overtaken_at_the_last_moment_is_told(path: Path, store: Store) -> None:
    async def hold() -> None:
        async with store.lock("refresh"):
            with write_locked(path) as other:
                other.execute("DELETE FROM lease")

    with pytest.raises(LockLost):
        await hold()


async def test_a_holder_that_cannot_renew_in_time_is_stopped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.05)

    async def hold(store: Store, blocker: contextlib.ExitStack) -> None:
        async with store.lock("refresh", lease_seconds=0.1):
            blocker.enter_context(write_locked(path))
            await anyio.sleep_forever()

    async with AsyncStore.open(path) as store:
        with anyio.fail_after(PATIENCE):
            with contextlib.ExitStack() as blocker, pytest.raises(LockLost):
                await hold(store, blocker)
            async with store.lock("refresh", wait_seconds=PATIENCE):
                pass


async def test_a_subscriber_hears_what_is_published_to_its_topic_from_then_on(
    path: Path, store: Store
) -> None:
    await store.publish("news", b"before")
    with anyio.fail_after(PATIENCE):
        async with (
            AsyncStore.open(path) as other,
            store.subscribe("news") as news,
            other.subscribe("news") as same,
        ):
            await store.publish("weather", b"rain")
            await store.publish("news", b"one")
            await other.publish("news", b"two")
            assert [await anext(news), await anext(news)] == [b"one", b"two"]
            assert [await anext(same), await anext(same)] == [b"one", b"two"]
        async with store.subscribe("news") as news:
            await store.publish("news", b"three")
            assert await anext(news) == b"three"


async def test_a_subscriber_that_does_not_read_is_told_that_it_missed_something(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.async_store.UNREAD_MESSAGES", 3)
    async with store.subscribe("news") as news:
        for number in range(5):
            await store.publish("news", str(number).encode())
        assert [await anext(news), await anext(news)] == [None, b"4"]


async def test_a_subscriber_that_slept_too_long_is_told_that_it_missed_something(
    path: Path, store: Store
) -> None:
    with anyio.fail_after(PATIENCE):
        async with store.subscribe("news") as news:
            with write_locked(path) as other:
                message = ("news", 0.0, b"old")
                other.executemany(
                    "INSERT INTO message (topic, time, payload) VALUES (?, ?, ?)", [message] * 3
                )
                other.execute("DELETE FROM message WHERE position < 3")
            assert [await anext(news), await anext(news)] == [None, b"old"]


async def test_a_subscriber_hears_again_once_the_trouble_is_over(
    path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fairlead.store.async_store._RETRY_SECONDS", 0.01)
    async with store.subscribe("news") as news:
        with write_locked(path) as other:
            other.execute("ALTER TABLE message RENAME TO away")
        await eventually(lambda: "messages not read" in caplog.text)
        with write_locked(path) as other:
            other.execute("ALTER TABLE away RENAME TO message")
        with open_database(path) as database:
            database.publish("news", b"one")
        with anyio.fail_after(PATIENCE):
            assert await anext(news) == b"one"


async def test_a_subscription_ends_with_its_store(path: Path) -> None:
    async with contextlib.AsyncExitStack() as later:
        async with AsyncStore.open(path) as store:
            news = await later.enter_async_context(store.subscribe("news"))
            await store.publish("news", b"one")
        with anyio.fail_after(PATIENCE):
            assert [payload async for payload in news] == [b"one"]


async def test_appending_does_not_wait_for_the_disk_and_reading_sees_it(path: Path, store: Store) -> None:
    with write_locked(path):
        for number in range(100):
            store.append("audit", str(number).encode())
        with open_database(path) as other:
            assert other.read_log("audit") == []
    records = await store.read_log("audit")
    assert [int(record.value) for record in records] == list(range(100))
    assert await store.prune_log("audit", keep=10) == 90
    assert [int(record.value) for record in await store.read_log("audit")] == list(range(90, 100))


async def test_what_was_appended_reaches_the_disk_by_itself(path: Path, store: Store) -> None:
    with open_database(path) as other:
        for count in (1, 2, 3):
            store.append("audit", b"")
            await eventually(lambda count=count: len(other.read_log("audit")) == count)


async def test_records_beyond_what_may_wait_for_the_disk_are_refused_and_the_others_keep_their_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("fairlead.store.async_store.UNFLUSHED_RECORDS", 10)
    async with AsyncStore.open(path) as store:
        with write_locked(path):
            kept = [store.append("audit", str(number).encode()) for number in range(10)]
            assert all(kept)
            assert not store.append("audit", b"one too many")
        await store.flush()
        assert store.append("audit", b"10")
        assert [int(record.value) for record in await store.read_log("audit")] == list(range(11))


async def test_a_record_can_be_made_when_it_is_written(path: Path) -> None:
    known = ["when it was appended"]
    async with AsyncStore.open(path) as store:
        store.append("audit", lambda: known[-1].encode())
        known.append("when it was written")
        assert [record.value for record in await store.read_log("audit")] == [b"when it was written"]


async def test_a_record_made_once_is_not_made_again_if_it_could_not_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.01)
    made: list[int] = []

    def record() -> bytes:
        made.append(1)
        return str(len(made)).encode()

    async with AsyncStore.open(path) as store:
        with write_locked(path):
            store.append("audit", record)
            with pytest.raises(StoreError, match="locked"):
                await store.flush()
        assert [record.value for record in await store.read_log("audit")] == [b"1"]


async def test_trouble_with_the_disk_is_told_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("fairlead.store.async_store._RETRY_SECONDS", 0.01)
    async with AsyncStore.open(path) as store:
        with write_locked(path):
            store.append("audit", b"one")
            await anyio.sleep(0.3)  # time for several attempts, none of which can succeed
    assert caplog.text.count("log not flushed") == 1


async def test_a_flush_that_failed_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("fairlead.store.async_store._RETRY_SECONDS", 0.01)
    async with AsyncStore.open(path) as store:
        with write_locked(path):
            store.append("audit", b"one")
            await anyio.sleep(0.2)  # time for several attempts, none of which can succeed
        with open_database(path) as other:
            await eventually(lambda: len(other.read_log("audit")) == 1)


async def test_records_that_cannot_be_flushed_at_the_end_are_reported(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fairlead.store.sqlite_file.BUSY_SECONDS", 0.01)
    with contextlib.ExitStack() as stack:
        async with AsyncStore.open(path) as store:
            stack.enter_context(write_locked(path))
            store.append("audit", b"one")
    assert "log records lost" in caplog.text


class SlowDatabase(SqliteDatabase):
    """A database that takes a while to say whether there are messages, as a Redis far away does."""

    def has_changed_elsewhere(self) -> bool:
        time.sleep(0.1)
        return super().has_changed_elsewhere()


async def test_a_slow_store_is_looked_at_for_messages_less_often(path: Path) -> None:
    async with AsyncStore.open(path) as store:
        messages = store._messages  # pyright: ignore[reportPrivateUsage]

        def look() -> float:
            with SlowDatabase.open(path) as slow:
                return messages._look_if_changed(slow)  # pyright: ignore[reportPrivateUsage]

        # The thread has leases to renew, and replicas to announce.
        assert await anyio.to_thread.run_sync(look) >= 0.9
