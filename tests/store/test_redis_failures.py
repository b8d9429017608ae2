"""A Redis that goes away, comes back, is restored or is not fit: nothing waits for long, nothing is lost."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from tests.redis_server import RedisServer, free_port, redis_server

from fairlead.config.store_location import KEY_VARIABLE, RedisLocation
from fairlead.connection.process.child import EXPIRE_SECONDS
from fairlead.errors import LockLost, StoreError, StoreUnavailable
from fairlead.store.async_store import AsyncStore
from fairlead.store.cluster_key import new_cluster_key
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY, Database, UnreadableValues, lease_now
from fairlead.store.redis_connection import CONNECT_SECONDS, META, OPERATION_SECONDS
from fairlead.store.redis_database import RedisDatabase

PATIENCE = 30.0


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


def eventually(attempt: Callable[[], object]) -> None:
    """Try again until Redis answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            attempt()
        except StoreUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return


def test_a_redis_that_is_away_is_said_at_once_and_used_again_when_it_is_back(redis: RedisServer) -> None:
    with open_database(redis.location) as database:
        version = database.put("pins", "a", b"one", expect=None)
        redis.kill()
        with pytest.raises(StoreUnavailable, match=r"does not answer") as caught:
            database.get("pins", "a")
        assert "goes on by itself" in (caught.value.hint or "")
        redis.start()
        eventually(lambda: database.get("pins", "a"))
        found = database.get("pins", "a")
        assert found is not None
        assert (found.value, found.version) == (b"one", version)


def test_an_idle_connection_that_ended_costs_no_operation(redis: RedisServer) -> None:
    with open_database(redis.location) as database:
        redis.kill()
        redis.start()
        database.put("pins", "a", b"one", expect=None)


def test_a_redis_that_hangs_ends_a_wait_in_time_and_the_next_ones_at_once(redis: RedisServer) -> None:
    with open_database(redis.location) as database:
        redis.pause()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            database.get("pins", "a")
        assert time.monotonic() - began < OPERATION_SECONDS + 2
        # A connection is accepted by the kernel: the attempt ends with the first answer that does not come.
        for _ in range(20):
            with pytest.raises(StoreUnavailable):
                database.get("pins", "a")
        assert time.monotonic() - began < OPERATION_SECONDS + 20 * 0.1 + 5 * (CONNECT_SECONDS + 1)
        redis.resume()
        eventually(lambda: database.get("pins", "a"))


async def test_records_appended_while_redis_is_away_arrive_once_when_it_is_back(redis: RedisServer) -> None:
    async with AsyncStore.open(redis.location) as store:
        store.append("audit", b"0")
        await store.flush()
        redis.pause()
        store.append("audit", b"1")
        with pytest.raises(StoreUnavailable):
            await store.flush()  # it arrives all the same, once Redis reads what it was sent
        store.append("audit", b"2")
        redis.resume()
        with anyio.fail_after(PATIENCE):
            while True:
                try:
                    records = await store.read_log("audit")
                except StoreUnavailable:
                    await anyio.sleep(0.02)
                else:
                    break
        assert [record.value for record in records] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("readers", [0, 3])
async def test_a_lease_of_five_seconds_outlasts_a_stall_of_two_whatever_else_waits(
    redis: RedisServer, readers: int
) -> None:
    held: list[float] = []
    renewed = anyio.Event()

    def note(_: float) -> None:
        held.append(lease_now())
        if len(held) == 2:
            renewed.set()

    async def read(store: AsyncStore) -> None:
        """Read something, again and again."""
        while True:
            with suppress(StoreUnavailable):
                await store.get("pins", "a")
            await anyio.sleep(0.02)

    async with AsyncStore.open(redis.location) as store, anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE):
            async with store.lock("server", lease_seconds=5.0, on_held=note):
                for _ in range(readers):
                    tasks.start_soon(read, store)
                await anyio.sleep(held[0] + 1.3 - lease_now())
                redis.pause()  # just before the renewal, which is not answered in time
                await anyio.sleep(held[0] + 3.6 - lease_now())
                redis.resume()
                await renewed.wait()
                tasks.cancel_scope.cancel()
    # What runs under the lease is ended a second before it ends.
    assert held[1] - held[0] < 5.0 - EXPIRE_SECONDS


async def test_subscribers_are_told_to_read_again_when_redis_was_restarted(redis: RedisServer) -> None:
    async with AsyncStore.open(redis.location) as store, store.subscribe("news") as news:
        redis.kill()
        redis.start()
        with anyio.fail_after(PATIENCE):
            assert await anext(news) is None


def test_versions_and_tokens_are_not_given_out_again_by_a_redis_that_forgot_them(
    redis: RedisServer, tmp_path: Path
) -> None:
    """A restored backup, and a replica that took over without the last writes, look the same from here."""
    with open_database(redis.location) as database, open_database(redis.location) as other:
        database.put("pins", "a", b"one", expect=None)
        redis.run("SAVE")
        redis.run("CONFIG", "SET", "appendonly", "no")
        version = database.put("pins", "a", b"two", expect=ANY)
        lease = database.acquire("refresh", 60)
        assert lease is not None
        redis.kill()
        _forget_what_came_after_the_snapshot(redis, tmp_path)
        again = other.acquire("refresh", 60)
        assert again is not None
        assert again.token > lease.token
        assert database.renew(lease) is False
        with pytest.raises(LockLost):
            database.put("pins", "a", b"three", expect=ANY, fence=lease)
        assert other.put("pins", "a", b"four", expect=ANY) > version


def _forget_what_came_after_the_snapshot(redis: RedisServer, folder: Path) -> None:
    for file in (folder / "appendonlydir").iterdir():
        file.unlink()
    (folder / "appendonlydir").rmdir()
    redis.start_from_snapshot()


def test_a_redis_that_may_have_lost_a_lease_gives_none_of_a_server_before_that_has_ended(
    redis: RedisServer, tmp_path: Path
) -> None:
    with open_database(redis.location) as database, open_database(redis.location) as other:
        database.put("pins", "a", b"one", expect=None)
        redis.run("SAVE")
        assert database.acquire("server a", 2.0) is not None
        redis.kill()
        _forget_what_came_after_the_snapshot(redis, tmp_path)
        began = time.monotonic()
        eventually(lambda: other.get("pins", "a"))
        # The one who had it runs the server until its lease would have ended.
        assert other.acquire("server a", 2.0) is None
        assert other.acquire("refresh", 2.0) is not None
        while other.acquire("server a", 2.0) is None:
            assert time.monotonic() - began < PATIENCE
            time.sleep(0.02)
        assert time.monotonic() - began > 1.5


def test_a_redis_that_was_emptied_in_use_is_refused(redis: RedisServer) -> None:
    with open_database(redis.location) as database:
        database.put("pins", "a", b"one", expect=None)
        redis.run("FLUSHALL")
        for _ in range(2):
            with pytest.raises(StoreError, match="emptied"):
                database.get("pins", "a")
            with pytest.raises(StoreError, match="emptied"):
                database.put("pins", "a", b"two", expect=ANY)
    with open_database(redis.location) as database:
        assert database.get("pins", "a") is None


def test_a_redis_that_was_emptied_and_begun_anew_by_another_is_refused(redis: RedisServer) -> None:
    """A command, or a replica that was restarted, may be the first to come to the empty store."""
    with open_database(redis.location) as database:
        database.put("pins", "a", b"one", expect=None)
        redis.run("FLUSHALL")
        with open_database(redis.location) as anew:
            anew.put("pins", "b", b"two", expect=None)
            for _ in range(2):
                with pytest.raises(StoreError, match="emptied"):
                    database.get("pins", "a")
                with pytest.raises(StoreError, match="emptied"):
                    database.put("pins", "a", b"three", expect=ANY)
            redis.kill()
            redis.start()  # another epoch of the new store
            eventually(lambda: anew.get("pins", "b"))
            with pytest.raises(StoreError, match="emptied"):
                eventually(lambda: database.get("pins", "a"))


def test_a_backup_without_an_origin_takes_that_of_the_first_who_knows_one(redis: RedisServer) -> None:
    with open_database(redis.location) as database:
        version = database.put("pins", "a", b"one", expect=None)
        redis.run("HDEL", META, "origin")  # a backup of an earlier release has none
        redis.kill()
        redis.start()
        eventually(lambda: database.get("pins", "a"))
        with open_database(redis.location) as other:
            found = other.get("pins", "a")
            assert found is not None
            assert found.version == version
        database.put("pins", "a", b"two", expect=version)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"), "allkeys-lru"),
        (("--cluster-enabled", "yes", "--cluster-port", str(free_port())), "Cluster"),
        (("--replicaof", "127.0.0.1 1"), "replica"),
    ],
)
def test_a_redis_that_is_not_fit_is_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    with (
        redis_server(tmp_path, *options) as server,
        pytest.raises(StoreError, match=said) as caught,
        open_database(server.location),
    ):
        pass
    assert caught.value.hint


def test_a_redis_that_begins_to_drop_data_is_refused_while_it_does(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.store.redis_connection.CHECK_SECONDS", 0.0)
    with open_database(redis.location) as database:
        database.put("pins", "a", b"one", expect=None)
        redis.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        for _ in range(2):
            with pytest.raises(StoreError, match="allkeys-lru"):
                database.put("pins", "b", b"two", expect=None)
        redis.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
        database.put("pins", "b", b"two", expect=None)


HARD_PASSWORD = "p@ss:w/rd#?%41&"


def test_a_user_with_the_documented_permissions_can_do_everything(redis: RedisServer) -> None:
    text = (Path(__file__).parents[2] / "docs" / "team.md").read_text(encoding="utf-8")
    permissions = text.partition("An ACL user\n   needs `")[2].partition("`")[0].split()
    redis.run("ACL", "SETUSER", "fairlead", "on", f">{HARD_PASSWORD}", *permissions)
    address = f"redis://fairlead:${{REDIS_PASSWORD}}@127.0.0.1:{redis.port}/0"
    location = RedisLocation(template=address, env={**redis.location.env, "REDIS_PASSWORD": HARD_PASSWORD})
    with open_database(location) as database:
        lease = database.acquire("lock", 5)
        assert lease is not None
        assert database.renew(lease)
        database.put("pins", "a", b"one", expect=None, fence=lease)
        database.put_all([("pins", "b", b"two")])
        assert database.release(lease)
        assert [found.key for found in database.scan("pins")] == ["a", "b"]
        database.publish("topic", b"news")
        assert len(database.messages(after=database.last_position() - 1)) == 1
        database.append_all([("audit", time.time(), b"one"), ("audit", time.time(), b"two")], number=0)
        assert database.prune_log("audit", older_than_seconds=60, keep=1) == 1
        assert database.delete_records("audit", [database.last_records("audit")[0].sequence]) == 1
        assert database.take_tokens("bucket", per_minute=10, wanted=3).granted == 3
        values, _ = database.read_all()
        assert isinstance(database, RedisDatabase)
        database.reseal_all()
        with database.replacing_all(values, []):
            pass
        assert database.delete("pins", "a", expect=ANY)


def test_what_a_user_may_not_do_is_told_with_what_it_needs(redis: RedisServer) -> None:
    redis.run(
        "ACL",
        "SETUSER",
        "reader",
        "on",
        ">x",
        "~fairlead:*",
        "+@read",
        "+@scripting",
        "+@connection",
        "+info",
    )
    location = redis.location_at(f"redis://reader:x@127.0.0.1:{redis.port}/0")
    with pytest.raises(StoreError) as caught, open_database(location):
        pass
    assert "+@write" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("template", "login"),
    [
        ("redis://fairlead:${SECRET}@host/0", "fairlead:a%2Fb%3Ac%40d"),
        ("redis://:${SECRET}@host/0", ":a%2Fb%3Ac%40d"),
        ("redis://${LOGIN}@host/0", "user:pass"),
        ("redis+sentinel://u:${SECRET}@one,two/service/0", "u:a%2Fb%3Ac%40d"),
    ],
)
def test_a_password_that_a_reference_stands_for_is_taken_as_it_is(template: str, login: str) -> None:
    env = {"SECRET": "a/b:c@d", "LOGIN": "user:pass"}
    assert f"://{login}@" in RedisLocation(template=template, env=env).url()


def test_a_whole_address_or_its_host_may_be_a_reference() -> None:
    env = {"URL": "redis://u:p@host:1/0", "HOST": "host:1", "SECRET": "a&b"}
    for template in ("${URL}", "redis://u:p@${HOST}/0"):
        assert RedisLocation(template=template, env=env).url() == "redis://u:p@host:1/0"
    found = RedisLocation(template="redis+sentinel://h/s/0?sentinel_password=${SECRET}", env=env).url()
    assert found.endswith("?sentinel_password=a%26b")


@pytest.mark.parametrize("rest", ["planted/x@127.0.0.1", "planted#@127.0.0.1", "x@127.0.0.1/0?planted=1"])
def test_an_address_that_cannot_be_read_is_not_quoted(redis: RedisServer, rest: str) -> None:
    location = redis.location_at(f"redis://user:{rest}")
    with pytest.raises(StoreError) as caught, open_database(location):
        pass
    assert "planted" not in str(caught.value)
    assert caught.value.hint


def test_no_password_of_an_address_is_ever_shown(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", "planted-password") as server:
        right = server.location_at(f"redis://:planted-password@127.0.0.1:{server.port}/0")
        with open_database(right) as database:
            database.put("pins", "a", b"", expect=None)
        wrong = server.location_at(f"redis://:wrong-password@127.0.0.1:{server.port}/0")
        for location in (wrong, server.location):
            with pytest.raises(StoreError) as caught, open_database(location):
                pass
            assert "password" not in f"{caught.value}".replace("username-password", "")
            assert caught.value.hint
    for shown in (str(right), repr(right), str(wrong), repr(wrong)):
        assert "password" not in shown


def test_a_reference_in_an_address_is_resolved_when_it_is_opened(redis: RedisServer) -> None:
    env = {KEY_VARIABLE: redis.location.env[KEY_VARIABLE], "REDIS_PORT": str(redis.port)}
    location = RedisLocation(template="redis://127.0.0.1:${REDIS_PORT}/0", env=env)
    with open_database(location) as database:
        database.put("pins", "a", b"", expect=None)
    missing = RedisLocation(template="redis://127.0.0.1:${REDIS_PORT}/0", env={KEY_VARIABLE: "x"})
    with pytest.raises(StoreError), open_database(missing):
        pass


def test_without_a_cluster_key_or_with_another_nothing_is_read_or_written(redis: RedisServer) -> None:
    with open_database(redis.location) as database:
        database.put("pins", "a", b"one", expect=None)
    for keys, said in (("", "no cluster key"), ("secret", "not one that"), (new_cluster_key(), "another")):
        location = redis.location_at(redis.url, keys=keys)
        with pytest.raises(StoreError, match=said) as caught, open_database(location):
            pass
        assert "fairlead store key new" in (caught.value.hint or "")


def test_a_key_is_rotated_while_both_are_known(redis: RedisServer) -> None:
    old, new = redis.location.env[KEY_VARIABLE], new_cluster_key()

    def opened(keys: str) -> RedisLocation:
        return redis.location_at(redis.url, keys=keys)

    with open_database(opened(old)) as database:
        database.put("vault", "a", b"one", expect=None)
        database.append("audit", b"before")
    # Replicas change one after the other: first all of them read both, then they write the new.
    with open_database(opened(f"{old}\n{new}")) as before, open_database(opened(f"{new}\n{old}")) as after:
        after.put("vault", "b", b"two", expect=None)
        assert [stored.value for stored in before.scan("vault")] == [b"one", b"two"]
        assert isinstance(after, RedisDatabase)
        assert after.reseal_all() >= 1
        assert after.reseal_all() == 0
    with open_database(opened(new)) as database:
        assert [stored.value for stored in database.scan("vault")] == [b"one", b"two"]
        assert [record.value for record in database.read_log("audit")] == [b""]  # the log needs the old key


def test_a_value_moved_or_changed_in_redis_does_not_open(redis: RedisServer) -> None:
    with open_database(redis.location) as database:
        database.put("approvals", "mine", b"yes", expect=None)
        redis.run("COPY", "fairlead:value:approvals:mine", "fairlead:value:approvals:theirs")
        with pytest.raises(StoreError, match="changed by another program"):
            database.get("approvals", "theirs")
        redis.run("SETRANGE", "fairlead:value:approvals:mine", "50", "x" * 8)
        with pytest.raises(StoreError, match="changed by another program"):
            _read(database)


def _read(database: Database) -> None:
    database.get("approvals", "mine")


def test_without_the_package_the_error_says_what_to_install(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == "redis" or name.startswith("redis.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with (
        pytest.raises(StoreError, match="needs the package `redis`") as caught,
        open_database(redis.location),
    ):
        pass
    assert "fairlead[redis]" in (caught.value.hint or "")


FOREIGN = {
    "empty": b"",
    "short": b"0000",
    "text": b"hello world, this is no value of Fairlead's at all",
    "version alone": b"0000000000000007",
    "json": b'0000000000000007{"id": "a", "__proto__": {}}',
    "not a number": b"-000000000000007" + b"\x01" * 80,
    "other digits": "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667".encode() + b"\x01" * 80,
    "large": b"0000000000000007" + b"\x01" * 3_000_000,
}


@pytest.mark.parametrize("kind", [*FOREIGN])
def test_a_value_that_another_program_wrote_is_an_error_and_costs_no_other(
    redis: RedisServer, kind: str
) -> None:
    with open_database(redis.location) as database:
        database.put("pins", "a", b"one", expect=None)
        database.put("pins", "c", b"three", expect=None)
        redis.run("SET", "fairlead:value:pins:b", FOREIGN[kind])
        redis.run("ZADD", "fairlead:index:pins", "0", "b")
        with pytest.raises(StoreError, match=r"a value of the store was"):
            database.get("pins", "b")
        # Pins and denials are all there, or the answer is an error.
        with pytest.raises(UnreadableValues) as caught:
            database.scan("pins")
        assert caught.value.keys == ("b",)
        assert [found.value for found in caught.value.readable] == [b"one", b"three"]
        found = database.get("pins", "a")
        assert found is not None
        assert found.value == b"one"


def test_a_name_that_is_no_text_is_an_error_and_not_a_failure(redis: RedisServer) -> None:
    with open_database(redis.location) as database:
        database.put("pins", "a", b"one", expect=None)
        redis.run("SET", b"fairlead:value:pins:\xff\xfe", b"0000000000000007" + b"\x01" * 80)
        redis.run("ZADD", "fairlead:index:pins", "0", b"\xff\xfe")
        with pytest.raises(UnreadableValues) as caught:
            database.scan("pins")
        assert len(caught.value.keys) == 1


@pytest.mark.parametrize("name", ["value:pins:a", "index:pins", "lease:x", "bucket:ada", "messages"])
def test_a_name_of_another_type_is_an_error_of_the_store(redis: RedisServer, name: str) -> None:
    with open_database(redis.location) as database:
        database.put("pins", "a", b"one", expect=None)
        redis.run("DEL", f"fairlead:{name}")
        redis.run("SADD" if name != "index:pins" else "SET", f"fairlead:{name}", "x")
        attempts: dict[str, Callable[[], object]] = {
            "value:pins:a": lambda: database.put("pins", "a", b"two", expect=1),
            "index:pins": lambda: database.scan("pins"),
            "lease:x": lambda: database.acquire("x", 5),
            "bucket:ada": lambda: database.take_tokens("ada", per_minute=60, wanted=1),
            "messages": lambda: database.publish("news", b"one"),
        }
        with pytest.raises(StoreError):
            attempts[name]()
        assert database.put("pins", "b", b"other", expect=None) if name != "index:pins" else True


def test_that_redis_was_restarted_is_said_once_by_all_processes_together(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        open_database(redis.location) as first,
        open_database(redis.location) as second,
        open_database(redis.location) as third,
    ):
        for database in (first, second, third):
            database.put("pins", "a", b"one", expect=ANY)
        for _ in range(2):
            redis.kill()
            redis.start()
            caplog.clear()
            for database in (first, second, third, second):
                eventually(lambda database=database: database.put("pins", "a", b"two", expect=ANY))
            said = [each.getMessage() for each in caplog.records]
            assert said.count("the store was restarted, restored or failed over") == 1


FOREIGN_ENTRIES = [
    ("x", "y"),
    ("t", "news", "p"),
    ("t", "news", "p", "not sealed"),
    ("t", b"\xff\xfe", "p", b"\x01" * 100),
    ("t", "nan?", "v", b"\x01" * 100),
    ("a", "b", "c", "d", "e", "f"),
]


@pytest.mark.parametrize("entry", FOREIGN_ENTRIES)
async def test_an_entry_of_another_program_stops_neither_messages_nor_logs(
    redis: RedisServer, entry: tuple[str | bytes, ...]
) -> None:
    pairs = entry if len(entry) % 2 == 0 else (*entry, "")
    with anyio.fail_after(60):
        async with AsyncStore.open(redis.location) as store:
            async with store.subscribe("news") as news:
                await store.publish("news", b"one")
                assert await anext(news) == b"one"
                redis.run("XADD", "fairlead:messages", "*", *pairs)
                await store.publish("news", b"two")
                found = await anext(news)
                assert (found if found is not None else await anext(news)) == b"two"
            store.append("calls", b"first")
            await store.flush()
            redis.run("XADD", "fairlead:log:calls", "*", *pairs)
            store.append("calls", b"last")
            await store.flush()
            values = [record.value for record in await store.read_log("calls")]
            assert values == [b"first", b"", b"last"]


def test_names_that_are_no_text_are_an_error_of_a_backup_and_of_new_keys(redis: RedisServer) -> None:
    with RedisDatabase.open(redis.location) as database:
        database.put("pins", "a", b"one", expect=None)
        redis.run("SET", b"fairlead:value:\xff\xfe", b"0000000000000007" + b"\x01" * 80)
        with pytest.raises(StoreError):
            database.reseal_all()
        redis.run("DEL", b"fairlead:value:\xff\xfe")
        redis.run("ZADD", b"fairlead:index:\xff\xfe", "0", "a")
        values, _ = database.read_all()
        assert ("pins", "a", b"one") in values
        redis.run("HSET", META, "message", "many")
        with pytest.raises(StoreError, match="damaged"):
            database.last_position()
