"""Dashboard sessions and login codes in a store that replicas share: their names tell no secret."""

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import Scope

from fairlead.config.store_location import RedisLocation
from fairlead.gateway.access.auth import AuthenticatedRequest
from fairlead.gateway.access.origin import RequestRefused
from fairlead.gateway.cluster.replica_keys import ReplicaKeys
from fairlead.store.async_store import AsyncStore
from fairlead.store.cluster_key import ClusterKeys, new_cluster_key
from fairlead.web.sessions import BrowserSession, LoginSessions
from tests.redis_server import RedisServer, redis_server

TOKEN = "a-token-that-decides"
OLD, NEW = new_cluster_key(), new_cluster_key()


class OneToken:
    """Knows one token."""

    async def admit(self, scope: Scope) -> AuthenticatedRequest | RequestRefused:
        return RequestRefused.saying(401, "there is only a session")

    async def identify(self, token: str) -> AuthenticatedRequest | None:
        scopes = frozenset(("mcp", "decide"))
        return AuthenticatedRequest(principal="ada", scopes=scopes) if token == TOKEN else None


class Replica:
    """The dashboard sessions of one replica, and its store."""

    def __init__(self, redis: RedisServer, *keys: str) -> None:
        self.location: RedisLocation = redis.location_at(redis.url, keys=",".join(keys))
        self._keys = ReplicaKeys.of_cluster(ClusterKeys(keys)).names

    async def sessions(self, store: AsyncStore) -> LoginSessions:
        return LoginSessions(OneToken(), shared=store, name_keys=self._keys)


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


async def is_known(sessions: LoginSessions, session: BrowserSession) -> bool:
    await sessions.recall(session.cookie)
    place = session.base.removeprefix("/~")
    scope: Scope = {"type": "http", "path_params": {"place": place}, "headers": [], "scheme": "http"}
    return sessions.is_session(scope, session.cookie)


async def test_sessions_are_found_while_the_cluster_key_is_changed(redis: RedisServer) -> None:
    # As docs/team.md has it: all know the new key, then all use it, then none knows the old one.
    stages = [(OLD,), (OLD, NEW), (NEW, OLD)]
    for made_by in stages[1:]:
        for found_by in stages[1:]:
            first, second = Replica(redis, *made_by), Replica(redis, *found_by)
            async with AsyncStore.open(first.location) as one, AsyncStore.open(second.location) as two:
                here, there = await first.sessions(one), await second.sessions(two)
                code = await here.one_time_code(TOKEN)
                assert code is not None
                session = await there.redeem(code)
                assert session is not None
                assert await here.redeem(code) is await there.redeem(code) is None
                assert await is_known(here, session)
                assert await is_known(there, session)
                await here.log_out(session.cookie)
                assert not await is_known(there, session)


async def test_a_reader_of_the_store_cannot_test_which_cookie_or_code_is_valid(redis: RedisServer) -> None:
    replica = Replica(redis, OLD)
    async with AsyncStore.open(replica.location) as store:
        sessions = await replica.sessions(store)
        code = await sessions.one_time_code(TOKEN)
        session = await sessions.log_in(TOKEN)
        assert code is not None
        assert session is not None
        redis.run("CONFIG", "SET", "appendonly", "no")
        redis.run("SAVE")
    dump = b"".join(file.read_bytes() for file in redis.folder.rglob("*") if file.is_file())
    assert b"dashboard sessions" in dump, "it is a dump of that store"
    for secret in (code, session.cookie.value, session.base.removeprefix("/~"), TOKEN):
        plain = secret.encode()
        guesses = [plain, base64.b64encode(plain).rstrip(b"="), plain.hex().encode()]
        for name in ("sha1", "sha256", "sha512", "md5", "blake2b", "sha3_256"):
            digest = hashlib.new(name, plain)
            guesses += [digest.digest(), digest.hexdigest().encode(), base64.b64encode(digest.digest())]
        assert [guess for guess in guesses if guess in dump] == []
