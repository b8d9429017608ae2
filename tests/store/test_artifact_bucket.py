"""Large artifacts of replicas in a bucket: encrypted, found by all, refused if it is away."""

import hashlib
import json
import os
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.redis_server import KEY, RedisServer, free_port
from tests.s3_server import S3Server, s3_server

from fairlead.config.load import load_config
from fairlead.config.store_location import KEY_VARIABLE
from fairlead.errors import ConfigError, StoreError, StoreUnavailable
from fairlead.host.records import Artifacts
from fairlead.net.http import open_client
from fairlead.net.s3 import BucketAddress, BucketClient, S3Credentials
from fairlead.policy.results import ResultSource
from fairlead.store.artifact_contents import open_contents
from fairlead.store.artifacts import (
    ABANDONED_SECONDS,
    MAX_BYTES_IN_STORE,
    NAMESPACE,
    Artifact,
    ArtifactFiles,
    RetentionLimits,
)
from fairlead.store.async_store import AsyncStore
from fairlead.store.cluster_key import new_cluster_key
from fairlead.store.protocol import ANY, Store

PREFIX = "fairlead/artifacts/"
LARGE = b"planted secret " * (MAX_BYTES_IN_STORE // 15 + 1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def redis(shared_redis: RedisServer) -> RedisServer:
    shared_redis.run("FLUSHALL")
    return shared_redis


@asynccontextmanager
async def opened(
    redis: RedisServer,
    s3: dict[str, Any],
    *,
    keys: str = KEY,
    days: float = 7.0,
    max_bytes: int = 1 << 30,
    **variables: str,
) -> AsyncGenerator[tuple[ArtifactFiles, Store]]:
    """The artifacts of one replica."""
    env = {"HOME": "/nowhere", KEY_VARIABLE: keys, **variables}
    loaded = load_config(None, {"store": {"url": redis.url}, "artifacts": {"s3": s3}}, env, Path("/"))
    assert loaded.problems == ()
    limits = RetentionLimits(max_bytes=max_bytes, max_age_seconds=days * 86_400)
    async with (
        AsyncStore.open(redis.location_at(redis.url, keys=keys)) as store,
        open_contents(env, loaded.config) as contents,
    ):
        yield ArtifactFiles(store, contents, limits), store


def artifact(content: bytes, age: float = 0.0) -> Artifact:
    return Artifact(
        sha256=hashlib.sha256(content).hexdigest(),
        principal="local",
        media_type="text/plain",
        size=len(content),
        server_id="s",
        tool="t",
        untrusted=True,
        created=time.time() - age,
    )


@asynccontextmanager
async def bucket_of(server: S3Server) -> AsyncGenerator[BucketClient]:
    """What a reader of the bucket sees."""
    address = BucketAddress(endpoint=server.url, bucket="team-artifacts", region="us-east-1")
    credentials = S3Credentials(access_key=server.access_key, secret_key=server.secret_key)
    async with open_client() as http:
        yield BucketClient(address, lambda: credentials, http, {})


async def names_in(server: S3Server) -> list[str]:
    async with bucket_of(server) as bucket:
        return [each.name for each in await bucket.list("")]


async def test_a_large_artifact_is_in_the_bucket_for_all_replicas_and_encrypted(
    server: S3Server, redis: RedisServer
) -> None:
    made = artifact(LARGE)
    reference = server.settings(secret_key="${S3_SECRET}")
    async with opened(redis, reference, S3_SECRET=server.secret_key) as (files, _):
        await files.keep(made, LARGE)
        small = artifact(b"small")
        await files.keep(small, b"small")
    async with opened(redis, server.settings()) as (files, _):
        assert await files.content(made) == LARGE
        assert await files.content(small) == b"small"
        (name,) = await names_in(server)
        assert made.sha256 not in name  # who has a file cannot ask the bucket whether we have it
        async with bucket_of(server) as bucket:
            stored = await bucket.get(name, 2 * len(LARGE))
        assert stored is not None
        assert b"planted" not in stored
        assert len(stored) < len(LARGE) + 1024
        assert await files.clear() == 2
        assert await names_in(server) == []
        assert await files.find("local", made.sha256) is None


async def test_what_is_too_old_too_much_or_without_a_record_is_deleted_and_nothing_of_others(
    server: S3Server, redis: RedisServer
) -> None:
    other_key = new_cluster_key()
    async with bucket_of(server) as bucket:
        await bucket.put(f"{PREFIX}readme.txt", b"of the administrator")
    async with opened(redis, server.settings(), max_bytes=2 * len(LARGE)) as (files, store):
        old, kept = LARGE + b"1", LARGE + b"2"
        await files.keep(artifact(old, age=8 * 86_400), old)
        made = artifact(kept)
        await files.keep(made, kept)
        assert len(await names_in(server)) == 2
        more = LARGE + b"3"
        await files.keep(artifact(more, age=60), more)
        third = LARGE[:-1]
        await files.keep(artifact(third, age=120), third)  # there is no room for the oldest
        assert len(await names_in(server)) == 3
        await store.delete(NAMESPACE, f"local/{artifact(more).sha256}", expect=ANY)
        await files.clear()
        assert await names_in(server) == [f"{PREFIX}readme.txt"]
        await files.keep(made, kept)
        # Another cluster has its artifacts in the same place: no record of it is here.
        redis.run("FLUSHALL")
    async with opened(redis, server.settings(), keys=other_key) as (files, store):
        await files.keep(made, kept)
        assert len(await names_in(server)) == 3
        await store.delete(NAMESPACE, f"local/{made.sha256}", expect=ANY)
        await files.tidy()  # it has only just been written, and may be about to get its record
        assert len(await names_in(server)) == 3
        await files.clear()
        assert len(await names_in(server)) == 2
        redis.run("FLUSHALL")
    async with opened(redis, server.settings()) as (files, store):
        await files.clear()
    assert await names_in(server) == [f"{PREFIX}readme.txt"]
    async with bucket_of(server) as bucket:
        await bucket.delete(f"{PREFIX}readme.txt")
    assert ABANDONED_SECONDS > 60


async def test_artifacts_of_an_older_cluster_key_are_read_until_it_is_removed(
    server: S3Server, redis: RedisServer
) -> None:
    new, made = new_cluster_key(), artifact(LARGE)
    async with opened(redis, server.settings()) as (files, _):
        await files.keep(made, LARGE)
    async with opened(redis, server.settings(), keys=f"{new} {KEY}") as (files, _):
        assert await files.content(made) == LARGE
        await files.clear()
    assert await names_in(server) == []


async def test_an_object_that_was_changed_is_refused(server: S3Server, redis: RedisServer) -> None:
    made = artifact(LARGE)
    async with opened(redis, server.settings()) as (files, _), bucket_of(server) as bucket:
        await files.keep(made, LARGE)
        (name,) = await names_in(server)
        stored = await bucket.get(name, 2 * len(LARGE))
        assert stored is not None
        await bucket.put(name, stored[:-1] + bytes([stored[-1] ^ 1]))
        with pytest.raises(StoreError, match="was changed") as caught:
            await files.content(made)
        assert "bucket" in (caught.value.hint or "")
        await files.clear()


async def test_without_the_bucket_large_results_are_cut_with_a_note_and_small_ones_are_kept(
    redis: RedisServer,
) -> None:
    s3 = {"endpoint": f"http://127.0.0.1:{free_port()}", "bucket": "gone"}
    s3 |= {"access_key": "a", "secret_key": "the-secret-of-it"}
    async with opened(redis, s3) as (files, store):
        with pytest.raises(StoreUnavailable, match="bucket `gone`") as caught:
            await files.keep(artifact(LARGE), LARGE)
        assert "fairlead doctor" in (caught.value.hint or "")
        assert "the-secret-of-it" not in str(caught.value)
        await files.keep(artifact(b"small"), b"small")
        assert await files.content(artifact(b"small")) == b"small"
        env = {"HOME": "/nowhere", KEY_VARIABLE: KEY}
        document = {"store": {"url": redis.url}, "artifacts": {"s3": s3}}
        config = load_config(None, document, env, Path("/")).config
        source = ResultSource(server_id="s", tool="t", trusted=True, limit=1024)
        async with open_contents(env, config) as contents:
            artifacts = Artifacts(store, contents, config.artifacts)
            for size, note in ((len(LARGE), "could not be stored"), (9000, "artifact://")):
                raw = json.dumps({"content": [{"type": "text", "text": "a" * size}]}).encode()
                result = await artifacts.deliver(raw, source)
                assert note in result.text
                assert result.text.startswith("a" * 100)


async def test_a_bucket_needs_a_shared_store_and_values_for_its_references(redis: RedisServer) -> None:
    s3 = {"endpoint": "https://s3.example", "bucket": "b-b", "access_key": "a", "secret_key": "${NOT_SET}"}
    env = {"HOME": "/nowhere", KEY_VARIABLE: KEY, "PATH": os.defpath}
    alone = load_config(None, {"artifacts": {"s3": s3}}, env, Path("/"))
    with pytest.raises(ConfigError, match="share a store"):
        async with open_contents(env, alone.config):
            pass
    shared = load_config(None, {"store": redis.url, "artifacts": {"s3": s3}}, env, Path("/"))
    with pytest.raises(StoreError, match="NOT_SET"):
        async with open_contents(env, shared.config):
            pass


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"endpoint": "ftp://s3.example"}, "endpoint"),
        ({"bucket": "a/b"}, "bucket"),
        ({"prefix": "../"}, "prefix"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_settings_of_a_bucket_are_checked(changes: dict[str, Any], said: str) -> None:
    given = {"endpoint": "https://s3.example", "bucket": "b-b", "access_key": "a", "secret_key": "b"}
    loaded = load_config(None, {"artifacts": {"s3": {**given, **changes}}}, {"HOME": "/nowhere"}, Path("/"))
    assert said in " ".join(map(str, loaded.problems))
