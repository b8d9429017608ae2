from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.redis_server import RedisServer, redis_server

from fairlead.config.store_location import StoreLocation
from fairlead.store.async_store import AsyncStore
from fairlead.store.opening import open_database
from fairlead.store.protocol import Database, Store
from fairlead.store.sqlite import SqliteDatabase


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.db"


@pytest.fixture
def database(path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase.open(path) as database:
        yield database


@pytest.fixture
async def store(path: Path) -> AsyncIterator[AsyncStore]:
    async with AsyncStore.open(path) as store:
        yield store


# What holds for every store: the contract.


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def location(request: pytest.FixtureRequest, path: Path) -> StoreLocation:
    """An empty store of each kind."""
    if request.param == "sqlite":
        return path
    server: RedisServer = request.getfixturevalue("shared_redis")
    server.run("FLUSHALL")
    return server.location


@pytest.fixture
def any_database(location: StoreLocation) -> Iterator[Database]:
    with open_database(location) as database:
        yield database


@pytest.fixture
async def any_store(location: StoreLocation) -> AsyncIterator[Store]:
    async with AsyncStore.open(location) as store:
        yield store
