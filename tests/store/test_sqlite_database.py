"""The verbs of a store, without an event loop."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairlead.errors import LockLost, VersionConflict
from fairlead.store.protocol import ANY, Lease
from fairlead.store.sqlite import MESSAGE_SECONDS, MESSAGES_KEPT, SqliteDatabase
from fairlead.testing import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(time, "time", clock)
    return clock


def test_a_value_that_need_not_be_durable_is_there_for_others_and_under_the_same_rules(
    path: Path, database: SqliteDatabase
) -> None:
    version = database.put("n", "k", b"1", expect=None, durable=False)
    with SqliteDatabase.open(path) as other:
        found = other.get("n", "k")
        assert found is not None
        assert (found.value, found.version) == (b"1", version)
        with pytest.raises(VersionConflict):
            other.put("n", "k", b"2", expect=None, durable=False)


def test_many_values_are_written_whatever_was_there(path: Path, database: SqliteDatabase) -> None:
    first = database.put("catalogs", "github", b"old", expect=None)
    database.put_all([("catalogs", "github", b"new"), ("catalogs", "gitlab", b"one"), ("troubles", "x", b"")])
    database.put_all([])
    with SqliteDatabase.open(path) as other:
        found = other.scan("catalogs")
        assert [(stored.key, stored.value) for stored in found] == [("github", b"new"), ("gitlab", b"one")]
        assert all(stored.version > first for stored in found)
        assert [stored.key for stored in other.scan("troubles")] == ["x"]


def test_what_was_deleted_is_not_left_in_the_file(path: Path) -> None:
    with SqliteDatabase.open(path) as database:
        database.put("tokens", "github", b"gho_very_secret" * 400, expect=None)
        database.delete("tokens", "github", expect=ANY)
    assert b"gho_very_secret" not in path.read_bytes()


def test_a_lock_is_free_again_after_its_release_or_its_lease(
    database: SqliteDatabase, clock: FakeClock
) -> None:
    first = database.acquire("refresh", lease_seconds=10)
    assert first is not None
    assert database.acquire("refresh", lease_seconds=10) is None
    assert database.acquire("other", lease_seconds=10) is not None
    assert database.release(first) is True
    second = database.acquire("refresh", lease_seconds=10)
    assert second is not None
    assert second.token > first.token
    clock.now += 9
    assert database.acquire("refresh", lease_seconds=10) is None
    assert database.renew(second) is True
    clock.now += 9
    assert database.acquire("refresh", lease_seconds=10) is None
    clock.now += 2
    third = database.acquire("refresh", lease_seconds=10)
    assert third is not None
    assert third.token > second.token
    assert database.renew(second) is False
    assert database.release(second) is False
    assert database.release(third) is True


def test_a_clock_set_back_does_not_keep_a_lock_held_for_ever(
    database: SqliteDatabase, clock: FakeClock
) -> None:
    assert database.acquire("refresh", lease_seconds=10) is not None
    clock.now -= 5
    assert database.acquire("refresh", lease_seconds=10) is None
    clock.now -= 86_400
    assert database.acquire("refresh", lease_seconds=10) is not None


def test_a_fenced_write_needs_the_lock_until_somebody_else_has_it(
    database: SqliteDatabase, clock: FakeClock
) -> None:
    lease = _acquired(database)
    database.put("tokens", "github", b"one", expect=ANY, fence=lease)
    clock.now += 60
    database.put("tokens", "github", b"two", expect=ANY, fence=lease)  # late, but nobody came between
    successor = _acquired(database)
    with pytest.raises(LockLost, match="refresh"):
        database.put("tokens", "github", b"three", expect=ANY, fence=lease)
    with pytest.raises(LockLost):
        database.delete("tokens", "github", expect=ANY, fence=lease)
    database.put("tokens", "github", b"four", expect=ANY, fence=successor)
    database.release(successor)
    with pytest.raises(LockLost):
        database.put("tokens", "github", b"five", expect=ANY, fence=successor)
    assert [stored.value for stored in database.scan("tokens")] == [b"four"]


def _acquired(database: SqliteDatabase) -> Lease:
    lease = database.acquire("refresh", lease_seconds=10)
    assert lease is not None
    return lease


def test_messages_are_kept_for_a_while_and_not_without_end(
    database: SqliteDatabase, clock: FakeClock
) -> None:
    assert database.last_position() == 0
    for number in range(MESSAGES_KEPT + 5):
        database.publish("news", str(number).encode())
    messages = database.messages(after=0)
    assert [int(message.payload) for message in messages] == list(range(5, MESSAGES_KEPT + 5))
    assert database.last_position() == messages[-1].position
    clock.now += MESSAGE_SECONDS + 1
    database.publish("news", b"after a pause")
    assert [message.payload for message in database.messages(after=0)] == [b"after a pause"]


def test_only_the_writes_of_others_count_as_changes(path: Path, database: SqliteDatabase) -> None:
    database.has_changed_elsewhere()
    database.put("pins", "github", b"mine", expect=ANY)
    assert database.has_changed_elsewhere() is False
    with SqliteDatabase.open(path) as other:
        other.put("pins", "github", b"theirs", expect=ANY)
    assert database.has_changed_elsewhere() is True
    assert database.has_changed_elsewhere() is False


def test_a_log_is_pruned_by_age_and_by_count(database: SqliteDatabase, clock: FakeClock) -> None:
    for number in range(6):
        database.append("audit", str(number).encode())
        database.append("other", b"")
        clock.now += 10
    assert database.prune_log("audit", older_than_seconds=45) == 2
    assert [record.value for record in database.read_log("audit")] == [b"2", b"3", b"4", b"5"]
    assert database.prune_log("audit", keep=10) == 0
    assert database.prune_log("audit", keep=1) == 3
    (last,) = database.read_log("audit")
    assert (last.value, last.time) == (b"5", 1_000_050.0)
    assert database.prune_log("audit", keep=0) == 1
    assert len(database.read_log("other")) == 6


def test_the_database_alone_does_without_an_event_loop() -> None:
    program = (
        "import sys, fairlead.store.sqlite\n"
        "print(sorted({'anyio', 'asyncio', 'pydantic', 'mcp'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
