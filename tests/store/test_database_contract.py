"""What every database does, without an event loop: SQLite and Redis alike."""

import time

import pytest

from fairlead.config.store_location import StoreLocation
from fairlead.errors import LockLost, StoreError, VersionConflict
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY, MESSAGES_KEPT, Database, Lease


def test_a_value_comes_back_with_its_version(any_database: Database) -> None:
    assert any_database.get("pins", "github") is None
    version = any_database.put("pins", "github", b"\x00one", expect=None)
    stored = any_database.get("pins", "github")
    assert stored is not None
    assert (stored.key, stored.value, stored.version) == ("github", b"\x00one", version)


def test_the_same_key_in_two_namespaces_is_two_values(any_database: Database) -> None:
    any_database.put("pins", "github", b"pin", expect=None)
    any_database.put("consents", "github", b"consent", expect=None)
    assert [stored.value for stored in any_database.scan("pins")] == [b"pin"]


def test_a_write_that_expects_nothing_does_not_replace_something(any_database: Database) -> None:
    any_database.put("pins", "github", b"one", expect=None)
    with pytest.raises(VersionConflict, match="pins/github"):
        any_database.put("pins", "github", b"two", expect=None)
    assert [stored.value for stored in any_database.scan("pins")] == [b"one"]


def test_a_write_that_expects_a_version_replaces_only_that_version(any_database: Database) -> None:
    first = any_database.put("pins", "github", b"one", expect=None)
    second = any_database.put("pins", "github", b"two", expect=first)
    assert second > first
    with pytest.raises(VersionConflict):
        any_database.put("pins", "github", b"three", expect=first)
    with pytest.raises(VersionConflict):
        any_database.put("pins", "gitlab", b"three", expect=second)
    assert [stored.value for stored in any_database.scan("pins")] == [b"two"]


def test_a_write_that_expects_anything_always_happens(any_database: Database) -> None:
    first = any_database.put("pins", "github", b"one", expect=ANY)
    assert any_database.put("pins", "github", b"two", expect=ANY) > first


def test_many_values_are_written_all_or_none(any_database: Database) -> None:
    with pytest.raises(StoreError):
        any_database.put_all([("catalogs", "github", b""), ("catalogs", "\ud800", b"")])
    assert any_database.scan("catalogs") == []


def test_a_value_made_again_is_not_taken_for_the_deleted_one(any_database: Database) -> None:
    read = any_database.put("pins", "github", b"one", expect=None)
    assert any_database.delete("pins", "github", expect=read)
    any_database.put("pins", "github", b"one", expect=None)
    with pytest.raises(VersionConflict):
        any_database.put("pins", "github", b"two", expect=read)


def test_deleting_says_whether_there_was_anything(any_database: Database) -> None:
    version = any_database.put("pins", "github", b"one", expect=None)
    with pytest.raises(VersionConflict):
        any_database.delete("pins", "github", expect=version + 1)
    assert any_database.delete("pins", "github", expect=ANY) is True
    assert any_database.delete("pins", "github", expect=ANY) is False
    with pytest.raises(VersionConflict):
        any_database.delete("pins", "github", expect=version)


def test_a_scan_gives_exactly_the_keys_with_the_prefix_in_order(any_database: Database) -> None:
    last = "\U0010ffff"
    keys = ["", "a", "a\x00b", "a" + last, "a" + last + "z", "aé", "b", "\ufffd", "\U00010000"]
    for key in reversed(keys):
        any_database.put("names", key, key.encode(), expect=None)
    assert [stored.key for stored in any_database.scan("names")] == sorted(keys)
    assert [stored.key for stored in any_database.scan("names", "a")] == sorted(
        k for k in keys if k[:1] == "a"
    )
    assert [stored.key for stored in any_database.scan("names", "a" + last)] == ["a" + last, "a" + last + "z"]
    assert any_database.scan("names", "c") == []


def test_a_value_of_many_megabytes_comes_back_whole(any_database: Database) -> None:
    value = bytes(range(256)) * 32 * 1024
    any_database.put("catalogs", "github", value, expect=None)
    stored = any_database.get("catalogs", "github")
    assert stored is not None
    assert stored.value == value


def test_a_name_that_is_no_text_is_a_store_error(any_database: Database) -> None:
    for attempt in (
        lambda: any_database.get("pins", "\ud800"),
        lambda: any_database.put("pins", "\ud800", b"", expect=ANY),
        lambda: any_database.scan("\ud800"),
        lambda: any_database.append("\ud800", b""),
    ):
        with pytest.raises(StoreError, match="surrogate"):
            attempt()


def test_a_log_is_read_in_pages_and_apart_from_other_logs(any_database: Database) -> None:
    for number in range(5):
        any_database.append("audit", str(number).encode())
        any_database.append("other", b"")
    first = any_database.read_log("audit", limit=3)
    rest = any_database.read_log("audit", after=first[-1].sequence)
    assert [record.value for record in first + rest] == [b"0", b"1", b"2", b"3", b"4"]
    assert any_database.read_log("audit", after=rest[-1].sequence) == []


def test_sequence_numbers_go_on_after_everything_was_pruned(any_database: Database) -> None:
    any_database.append("audit", b"one")
    (first,) = any_database.read_log("audit")
    any_database.prune_log("audit", keep=0)
    any_database.append("audit", b"two")
    assert [record.value for record in any_database.read_log("audit", after=first.sequence)] == [b"two"]


def test_a_log_is_read_from_its_end_page_by_page(any_database: Database) -> None:
    any_database.append_all([("audit", float(number), str(number).encode()) for number in range(120)])
    any_database.append("other", b"")
    newest = any_database.last_records("audit", limit=3)
    assert [record.value for record in newest] == [b"119", b"118", b"117"]
    older = any_database.last_records("audit", before=newest[-1].sequence, limit=2)
    assert [(record.value, record.time) for record in older] == [(b"116", 116.0), (b"115", 115.0)]
    assert [int(record.value) for record in any_database.read_log("audit")] == list(range(120))
    assert any_database.last_records("nothing") == []


def test_what_one_wrote_the_others_read(location: StoreLocation, any_database: Database) -> None:
    version = any_database.put("n", "k", b"1", expect=None, durable=False)
    any_database.put_all([("catalogs", "github", b"new"), ("catalogs", "gitlab", b"one")])
    any_database.put_all([])
    with open_database(location) as other:
        found = other.get("n", "k")
        assert found is not None
        assert (found.value, found.version) == (b"1", version)
        with pytest.raises(VersionConflict):
            other.put("n", "k", b"2", expect=None, durable=False)
        assert [(stored.key, stored.value) for stored in other.scan("catalogs")] == [
            ("github", b"new"),
            ("gitlab", b"one"),
        ]


def test_a_value_with_an_end_is_gone_after_it_and_can_be_made_again(any_database: Database) -> None:
    any_database.put("sessions", "kept", b"", expect=None, expires_in=60)
    version = any_database.put("sessions", "short", b"one", expect=None, expires_in=0.05)
    deadline = time.monotonic() + 20
    while any_database.get("sessions", "short") is not None:
        assert time.monotonic() < deadline
    assert [stored.key for stored in any_database.scan("sessions")] == ["kept"]
    with pytest.raises(VersionConflict):
        any_database.put("sessions", "short", b"two", expect=version)
    assert any_database.delete("sessions", "short", expect=ANY) is False
    assert any_database.put("sessions", "short", b"three", expect=None) > version


def test_a_value_written_without_an_end_has_none_any_more(any_database: Database) -> None:
    version = any_database.put("sessions", "a", b"", expect=None, expires_in=0.2)
    any_database.put("sessions", "a", b"for good", expect=version)
    time.sleep(0.25)  # the end that it had, not a rendezvous
    assert any_database.get("sessions", "a") is not None


def test_a_lock_is_free_after_its_release_and_its_tokens_grow(any_database: Database) -> None:
    first = _acquired(any_database)
    assert any_database.acquire("refresh", lease_seconds=10) is None
    assert any_database.acquire("other", lease_seconds=10) is not None
    assert any_database.renew(first) is True
    assert any_database.release(first) is True
    assert any_database.release(first) is False
    second = _acquired(any_database)
    assert second.token > first.token
    assert any_database.renew(first) is False


def test_a_lock_is_free_after_its_lease_and_a_late_holder_is_fenced_off(any_database: Database) -> None:
    lease = any_database.acquire("refresh", lease_seconds=0.05)
    assert lease is not None
    any_database.put("tokens", "github", b"one", expect=ANY, fence=lease)
    time.sleep(0.1)  # the lease, not a rendezvous
    any_database.put("tokens", "github", b"two", expect=ANY, fence=lease)  # late, but no other took it
    successor = _acquired(any_database)
    assert successor.token > lease.token
    with pytest.raises(LockLost, match="refresh"):
        any_database.put("tokens", "github", b"three", expect=ANY, fence=lease)
    with pytest.raises(LockLost):
        any_database.delete("tokens", "github", expect=ANY, fence=lease)
    any_database.put("tokens", "github", b"four", expect=ANY, fence=successor)
    any_database.release(successor)
    with pytest.raises(LockLost):
        any_database.put("tokens", "github", b"five", expect=ANY, fence=successor)
    assert [stored.value for stored in any_database.scan("tokens")] == [b"four"]


def _acquired(database: Database) -> Lease:
    lease = database.acquire("refresh", lease_seconds=10)
    assert lease is not None
    return lease


def test_messages_are_kept_but_not_without_end_and_have_no_gaps(any_database: Database) -> None:
    start = any_database.last_position()
    for number in range(MESSAGES_KEPT + 5):
        any_database.publish("news", str(number).encode())
    messages = any_database.messages(after=start)
    assert [int(message.payload) for message in messages] == list(range(5, MESSAGES_KEPT + 5))
    positions = [message.position for message in messages]
    assert positions == list(range(positions[0], positions[0] + MESSAGES_KEPT))
    assert any_database.last_position() == positions[-1]


def test_a_message_of_another_counts_as_a_change_once(
    location: StoreLocation, any_database: Database
) -> None:
    any_database.has_changed_elsewhere()
    assert any_database.has_changed_elsewhere() is False
    with open_database(location) as other:
        other.publish("news", b"theirs")
    assert any_database.has_changed_elsewhere() is True
    assert any_database.has_changed_elsewhere() is False


def test_a_log_is_pruned_by_age_and_by_count(any_database: Database) -> None:
    now = time.time()
    ages = (60, 50, 40, 30, 20, 10)
    any_database.append_all([("audit", now - age, str(age).encode()) for age in ages])
    any_database.append("other", b"")
    assert any_database.prune_log("audit", older_than_seconds=45, limit=1) == 1
    assert any_database.prune_log("audit", older_than_seconds=45) == 1
    assert [record.value for record in any_database.read_log("audit")] == [b"40", b"30", b"20", b"10"]
    assert any_database.prune_log("audit", keep=10) == 0
    assert any_database.prune_log("audit", keep=1) == 3
    (last,) = any_database.read_log("audit")
    assert (last.value, last.time) == (b"10", pytest.approx(now - 10, abs=0.001))
    assert any_database.delete_records("audit", [last.sequence]) == 1
    assert any_database.read_log("audit") == []
    assert len(any_database.read_log("other")) == 1


def test_a_bucket_gives_as_many_tokens_as_it_has_and_refills(any_database: Database) -> None:
    first = any_database.take_tokens("alice", per_minute=600, wanted=500)
    assert first.granted == 500
    rest = any_database.take_tokens("alice", per_minute=600, wanted=500)
    assert 100 <= rest.granted < 500
    assert any_database.take_tokens("bob", per_minute=600, wanted=1).granted == 1
    deadline = time.monotonic() + 20
    while not any_database.take_tokens("alice", per_minute=600, wanted=1).granted:
        assert time.monotonic() < deadline


def test_everything_is_read_and_replaced_at_once(any_database: Database) -> None:
    any_database.put("pins", "github", b"old", expect=None)
    any_database.put("audit", "key", b"kept", expect=None)
    any_database.append("audit", b"old")
    with pytest.raises(ZeroDivisionError), any_database.replacing_all([], []):
        raise ZeroDivisionError
    assert any_database.get("pins", "github") is not None
    with any_database.replacing_all(
        [("pins", "gitlab", b"new")], [("audit", 5.0, b"new")], keep=[("audit", "key")]
    ):
        pass
    values, records = any_database.read_all()
    assert values == [("audit", "key", b"kept"), ("pins", "gitlab", b"new")]
    assert records == [("audit", 5.0, b"new")]
