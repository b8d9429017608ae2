"""The verbs of a store, without an event loop."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairlead.errors import LockLost, StoreError, VersionConflict
from fairlead.store.protocol import ANY, Lease
from fairlead.store.sqlite import MESSAGE_SECONDS, MESSAGES_KEPT, Database
from fairlead.testing import FakeClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(time, "time", clock)
    return clock


def test_a_value_comes_back_with_its_version(database: Database) -> None:
    assert database.get("pins", "github") is None
    version = database.put("pins", "github", b"\x00one", expect=None)
    stored = database.get("pins", "github")
    assert stored is not None
    assert (stored.key, stored.value, stored.version) == ("github", b"\x00one", version)


def test_the_same_key_in_two_namespaces_is_two_values(database: Database) -> None:
    database.put("pins", "github", b"pin", expect=None)
    database.put("consents", "github", b"consent", expect=None)
    assert [stored.value for stored in database.scan("pins")] == [b"pin"]


def test_a_write_that_expects_nothing_does_not_replace_something(database: Database) -> None:
    database.put("pins", "github", b"one", expect=None)
    with pytest.raises(VersionConflict, match="pins/github"):
        database.put("pins", "github", b"two", expect=None)
    assert [stored.value for stored in database.scan("pins")] == [b"one"]


def test_a_write_that_expects_a_version_replaces_only_that_version(database: Database) -> None:
    first = database.put("pins", "github", b"one", expect=None)
    second = database.put("pins", "github", b"two", expect=first)
    assert second > first
    with pytest.raises(VersionConflict):
        database.put("pins", "github", b"three", expect=first)
    with pytest.raises(VersionConflict):
        database.put("pins", "gitlab", b"three", expect=second)
    assert [stored.value for stored in database.scan("pins")] == [b"two"]


def test_a_write_that_expects_anything_always_happens(database: Database) -> None:
    first = database.put("pins", "github", b"one", expect=ANY)
    assert database.put("pins", "github", b"two", expect=ANY) > first


def test_a_value_that_need_not_be_durable_is_there_for_others_and_under_the_same_rules(
    path: Path, database: Database
) -> None:
    version = database.put("n", "k", b"1", expect=None, durable=False)
    with Database.open(path) as other:
        found = other.get("n", "k")
        assert found is not None
        assert (found.value, found.version) == (b"1", version)
        with pytest.raises(VersionConflict):
            other.put("n", "k", b"2", expect=None, durable=False)


def test_many_values_are_written_whatever_was_there(path: Path, database: Database) -> None:
    first = database.put("catalogs", "github", b"old", expect=None)
    database.put_all([("catalogs", "github", b"new"), ("catalogs", "gitlab", b"one"), ("troubles", "x", b"")])
    database.put_all([])
    with Database.open(path) as other:
        found = other.scan("catalogs")
        assert [(stored.key, stored.value) for stored in found] == [("github", b"new"), ("gitlab", b"one")]
        assert all(stored.version > first for stored in found)
        assert [stored.key for stored in other.scan("troubles")] == ["x"]


def test_many_values_are_written_all_or_none(database: Database) -> None:
    with pytest.raises(StoreError):
        database.put_all([("catalogs", "github", b""), ("catalogs", "\ud800", b"")])
    assert database.scan("catalogs") == []


def test_a_value_made_again_is_not_taken_for_the_deleted_one(database: Database) -> None:
    read = database.put("pins", "github", b"one", expect=None)
    assert database.delete("pins", "github", expect=read)
    database.put("pins", "github", b"one", expect=None)
    with pytest.raises(VersionConflict):
        database.put("pins", "github", b"two", expect=read)


def test_deleting_says_whether_there_was_anything(database: Database) -> None:
    version = database.put("pins", "github", b"one", expect=None)
    with pytest.raises(VersionConflict):
        database.delete("pins", "github", expect=version + 1)
    assert database.delete("pins", "github", expect=ANY) is True
    assert database.delete("pins", "github", expect=ANY) is False
    with pytest.raises(VersionConflict):
        database.delete("pins", "github", expect=version)


def test_a_scan_gives_exactly_the_keys_with_the_prefix_in_order(database: Database) -> None:
    last = "\U0010ffff"
    keys = ["", "a", "a\x00b", "a" + last, "a" + last + "z", "aé", "b", "\ufffd", "\U00010000"]
    for key in reversed(keys):
        database.put("names", key, key.encode(), expect=None)
    assert [stored.key for stored in database.scan("names")] == sorted(keys)
    assert [stored.key for stored in database.scan("names", "a")] == sorted(k for k in keys if k[:1] == "a")
    assert [stored.key for stored in database.scan("names", "a" + last)] == ["a" + last, "a" + last + "z"]
    assert database.scan("names", "c") == []


def test_a_value_of_many_megabytes_comes_back_whole(database: Database) -> None:
    value = bytes(range(256)) * 32 * 1024
    database.put("catalogs", "github", value, expect=None)
    stored = database.get("catalogs", "github")
    assert stored is not None
    assert stored.value == value


def test_a_name_that_is_no_text_is_a_store_error(database: Database) -> None:
    for attempt in (
        lambda: database.get("pins", "\ud800"),
        lambda: database.put("pins", "\ud800", b"", expect=ANY),
        lambda: database.scan("\ud800"),
        lambda: database.append("\ud800", b""),
    ):
        with pytest.raises(StoreError, match="surrogate"):
            attempt()


def test_what_was_deleted_is_not_left_in_the_file(path: Path) -> None:
    with Database.open(path) as database:
        database.put("tokens", "github", b"gho_very_secret" * 400, expect=None)
        database.delete("tokens", "github", expect=ANY)
    assert b"gho_very_secret" not in path.read_bytes()


def test_a_lock_is_free_again_after_its_release_or_its_lease(database: Database, clock: FakeClock) -> None:
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


def test_a_clock_set_back_does_not_keep_a_lock_held_for_ever(database: Database, clock: FakeClock) -> None:
    assert database.acquire("refresh", lease_seconds=10) is not None
    clock.now -= 5
    assert database.acquire("refresh", lease_seconds=10) is None
    clock.now -= 86_400
    assert database.acquire("refresh", lease_seconds=10) is not None


def test_a_fenced_write_needs_the_lock_until_somebody_else_has_it(
    database: Database, clock: FakeClock
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


def _acquired(database: Database) -> Lease:
    lease = database.acquire("refresh", lease_seconds=10)
    assert lease is not None
    return lease


def test_messages_are_kept_for_a_while_and_not_without_end(database: Database, clock: FakeClock) -> None:
    assert database.last_position() == 0
    for number in range(MESSAGES_KEPT + 5):
        database.publish("news", str(number).encode())
    messages = database.messages(after=0)
    assert [int(message.payload) for message in messages] == list(range(5, MESSAGES_KEPT + 5))
    assert database.last_position() == messages[-1].position
    clock.now += MESSAGE_SECONDS + 1
    database.publish("news", b"after a pause")
    assert [message.payload for message in database.messages(after=0)] == [b"after a pause"]


def test_only_the_writes_of_others_count_as_changes(path: Path, database: Database) -> None:
    database.has_changed_elsewhere()
    database.put("pins", "github", b"mine", expect=ANY)
    assert database.has_changed_elsewhere() is False
    with Database.open(path) as other:
        other.put("pins", "github", b"theirs", expect=ANY)
    assert database.has_changed_elsewhere() is True
    assert database.has_changed_elsewhere() is False


def test_a_log_is_read_in_pages_and_apart_from_other_logs(database: Database) -> None:
    for number in range(5):
        database.append("audit", str(number).encode())
        database.append("other", b"")
    first = database.read_log("audit", limit=3)
    rest = database.read_log("audit", after=first[-1].sequence)
    assert [record.value for record in first + rest] == [b"0", b"1", b"2", b"3", b"4"]
    assert database.read_log("audit", after=rest[-1].sequence) == []


def test_a_log_is_pruned_by_age_and_by_count(database: Database, clock: FakeClock) -> None:
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


def test_sequence_numbers_go_on_after_everything_was_pruned(database: Database) -> None:
    database.append("audit", b"one")
    (first,) = database.read_log("audit")
    database.prune_log("audit", keep=0)
    database.append("audit", b"two")
    assert [record.value for record in database.read_log("audit", after=first.sequence)] == [b"two"]


def test_a_log_is_read_from_its_end_page_by_page(database: Database) -> None:
    database.append_all([("audit", float(number), str(number).encode()) for number in range(120)])
    database.append("other", b"")
    newest = database.last_records("audit", limit=3)
    assert [record.value for record in newest] == [b"119", b"118", b"117"]
    older = database.last_records("audit", before=newest[-1].sequence, limit=2)
    assert [(record.value, record.time) for record in older] == [(b"116", 116.0), (b"115", 115.0)]
    assert [int(record.value) for record in database.read_log("audit")] == list(range(120))
    assert database.last_records("nothing") == []


def test_the_database_alone_does_without_an_event_loop() -> None:
    program = (
        "import sys, fairlead.store.sqlite\n"
        "print(sorted({'anyio', 'asyncio', 'pydantic', 'mcp'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
