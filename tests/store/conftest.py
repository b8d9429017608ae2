from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.store.async_sqlite import SqliteStore
from fairlead.store.sqlite import Database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with Database.open(path) as database:
        yield database


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(path) as store:
        yield store
