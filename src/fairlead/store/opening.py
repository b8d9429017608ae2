"""Opening of a database at its location: a SQLite file, or Redis where the configuration names one."""

from collections.abc import Generator
from contextlib import contextmanager

from fairlead.config.store_location import RedisLocation, StoreLocation
from fairlead.store.protocol import Database


@contextmanager
def open_database(location: StoreLocation) -> Generator[Database]:
    """Open the database at a location for the length of a block. A file is created if missing."""
    if isinstance(location, RedisLocation):
        # Only here: without a Redis in the configuration its package need not be installed.
        from fairlead.store.redis_database import RedisDatabase

        with RedisDatabase.open(location) as database:
            yield database
        return
    from fairlead.store.sqlite import SqliteDatabase

    with SqliteDatabase.open(location) as database:
        yield database


@contextmanager
def open_database_for_reading(location: StoreLocation) -> Generator[Database]:
    """Open the existing database at a location for a block that only reads: its folder may be read-only."""
    if isinstance(location, RedisLocation):
        with open_database(location) as database:
            yield database
        return
    from fairlead.store.sqlite import SqliteDatabase

    with SqliteDatabase.open_for_reading(location) as database:
        yield database
