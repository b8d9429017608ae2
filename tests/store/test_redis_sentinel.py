"""A Redis that Sentinels name: found, followed through a failover with a new epoch, and said if away."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.redis_server import PATIENCE, RedisServer, free_port, redis_server

from fairlead.errors import LockLost, StoreError, StoreUnavailable
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY
from fairlead.store.redis_sentinel import parse_sentinel_url

T = TypeVar("T")
SERVICE = "fairlead-store"


class Sentinel(RedisServer):
    """One Sentinel, which decides alone."""

    def __init__(self, folder: Path, primary: RedisServer) -> None:
        super().__init__(folder)
        self._primary = primary

    def start(self) -> None:
        settings = self.folder / "sentinel.conf"
        settings.write_text(
            f"bind 127.0.0.1\nport {self.port}\ndir {self.folder}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self._primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 1000\n"
            f"sentinel failover-timeout {SERVICE} 10000\n"
        )
        self._process = subprocess.Popen(
            ["redis-server", str(settings), "--sentinel"], stdout=subprocess.DEVNULL
        )
        wait_for(lambda: self.answers() or None)

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self.run("PING").startswith(b"+PONG")
        return False

    def address(self, *others: int) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in (*others, self.port))
        return f"redis+sentinel://{hosts}/{SERVICE}/0"


@contextlib.contextmanager
def sentinel_of(folder: Path, primary: RedisServer) -> Generator[Sentinel]:
    folder.mkdir()
    sentinel = Sentinel(folder, primary)
    try:
        sentinel.start()
        yield sentinel
    finally:
        sentinel.stop()


def wait_for(look: Callable[[], T | None]) -> T:
    """Look again until there is something, or the store answers."""
    deadline = time.monotonic() + 3 * PATIENCE
    while True:
        with contextlib.suppress(StoreUnavailable):
            if (found := look()) is not None:
                return found
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_failover_begins_a_new_epoch_and_gives_out_no_token_again(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(redis_server(tmp_path / "first"))
        replica = ("--replicaof", f"127.0.0.1 {first.port}", "--repl-diskless-sync-delay", "0")
        second = stack.enter_context(redis_server(tmp_path / "second", *replica))
        sentinel = stack.enter_context(sentinel_of(tmp_path / "sentinel", first))
        # The first of them is not there: the next is asked.
        location = first.location_at(sentinel.address(free_port()))
        database = stack.enter_context(open_database(location))
        other = stack.enter_context(open_database(location))
        database.put("pins", "a", b"one", expect=None)
        wait_for(lambda: b"connected_slaves:1" in first.run("INFO", "replication") or None)
        wait_for(lambda: sentinel_knows_replica(sentinel) or None)
        lease = database.acquire("refresh", 60)
        assert lease is not None
        version = database.put("pins", "a", b"two", expect=ANY)
        assert first.run("WAIT", "1", "10000").startswith(b":1")
        first.kill()

        found = wait_for(lambda: other.get("pins", "a"))
        assert (found.value, found.version) == (b"two", version)
        assert b"role:master" in second.run("INFO", "replication")
        # Writes go on with numbers that were never given out, though the lock came along and holds.
        assert wait_for(lambda: database.put("pins", "a", b"three", expect=version)) > version + 1
        assert other.acquire("refresh", 60) is None
        assert database.release(lease)
        again = other.acquire("refresh", 60)
        assert again is not None
        assert again.token > lease.token + 1
        with pytest.raises(LockLost):
            database.put("pins", "a", b"four", expect=ANY, fence=lease)

        # The old primary comes back, as it was: it is not used, and becomes a replica.
        first.start()
        assert other.put("pins", "a", b"five", expect=ANY) > version
        with open_database(location) as late:
            found = late.get("pins", "a")
            assert found is not None
            assert found.value == b"five"


def sentinel_knows_replica(sentinel: Sentinel) -> bool:
    return b"flags" in sentinel.run("SENTINEL", "REPLICAS", SERVICE)


def test_sentinels_that_are_away_or_know_no_such_service_are_said(tmp_path: Path) -> None:
    if shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server")
    (tmp_path / "redis").mkdir()
    with redis_server(tmp_path / "redis") as redis:
        away = redis.location_at(f"redis+sentinel://:planted-password@127.0.0.1:{free_port()}/{SERVICE}")
        with (
            pytest.raises(StoreUnavailable, match="no Sentinel names a primary") as caught,
            open_database(away),
        ):
            pass
        assert "planted-password" not in str(caught.value)
        with sentinel_of(tmp_path / "sentinel", redis) as sentinel:
            other = redis.location_at(sentinel.address().replace(SERVICE, "another"))
            with pytest.raises(StoreUnavailable, match="does not know `another`"), open_database(other):
                pass


def test_an_address_of_sentinels_is_read() -> None:
    found = parse_sentinel_url(
        "rediss+sentinel://ada:p%40ss@one:26379,[::1],three:1/main/2?sentinel_password=x%2Fy&ssl_ca_certs=/ca"
    )
    assert found is not None
    assert found.sentinels == (
        "rediss://:x%2Fy@one:26379?ssl_ca_certs=%2Fca",
        "rediss://:x%2Fy@[::1]:26379?ssl_ca_certs=%2Fca",
        "rediss://:x%2Fy@three:1?ssl_ca_certs=%2Fca",
    )
    assert found.primary_url("10.0.0.1", 6380) == "rediss://ada:p%40ss@10.0.0.1:6380/2?ssl_ca_certs=%2Fca"
    assert "p%40ss" not in repr(found)
    assert parse_sentinel_url("redis://one:6379/0") is None


@pytest.mark.parametrize("rest", ["one", "one/", "/main", "one:x/main", "one,/main", "one/main/zero"])
def test_an_address_without_sentinels_or_a_service_is_refused(rest: str) -> None:
    with pytest.raises(StoreError) as caught:
        parse_sentinel_url(f"redis+sentinel://{rest}")
    assert "redis+sentinel://HOST" in (caught.value.hint or "")


class SayingSentinel:
    """A connection to a Sentinel that answers something."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def connect(self) -> None:
        pass

    def disconnect(self) -> None:
        pass

    def send_command(self, *parts: str) -> None:
        pass

    def read_response(self) -> object:
        return self._answer


@pytest.mark.parametrize(
    "answer",
    [
        b"OK",
        7,
        [],
        [b"host"],
        [b"host", b"x"],
        [b"host", 6379],
        [b"\xff", b"6379"],
        [b"host/1?ssl_cert_reqs=none#", b"6379"],
        [b"me@host", b"6379"],
        [b"host", b"6379", b"more"],
    ],
)
def test_a_sentinel_that_names_no_host_and_port_is_passed_over(answer: object) -> None:
    address = parse_sentinel_url(f"redis+sentinel://127.0.0.1:1,127.0.0.1:2/{SERVICE}/0")
    assert address is not None
    answers = iter((answer, [b"127.0.0.1", b"6379"]))
    assert address.find_primary(lambda _: SayingSentinel(next(answers))) == "redis://127.0.0.1:6379/0"
    with pytest.raises(OSError, match="a Sentinel names no host and port"):
        address.find_primary(lambda _: SayingSentinel(answer))
