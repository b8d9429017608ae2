"""Reading of the audit log: the latest records, and those that come after them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairlead.config.store_location import StoreLocation
from fairlead.policy.audit import LOG, AuditQuery, AuditRecord, decode, latest_calls, latest_records
from fairlead.store.opening import open_database, open_database_for_reading
from fairlead.store.protocol import Database

if TYPE_CHECKING:
    from fairlead.host.host import Host


class AuditReader:
    """Reader of the audit log of an open store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        last = next(iter(database.last_records(LOG, limit=1)), None)
        self._seen = last.sequence if last is not None else 0

    def latest(self, wanted: AuditQuery, limit: int, *, every: bool = False) -> list[AuditRecord]:
        """Read the latest matching records, oldest first.

        Args:
            wanted: Which records.
            limit: How many at most.
            every: Whether to read all stored records of a call, rather than its last one alone.
        """
        return (latest_records if every else latest_calls)(self._database, wanted, limit)

    def new(self, wanted: AuditQuery) -> list[AuditRecord]:
        """Read the matching records that came since the reader was opened, or since the last such call."""
        found: list[AuditRecord] = []
        for stored in self._database.read_log(LOG, after=self._seen):
            self._seen = stored.sequence
            record = decode(stored)
            if record is not None and wanted.fits(record):
                found.append(record)
        return found


@contextmanager
def open_audit_log(location: StoreLocation, *, create: bool = False) -> Generator[AuditReader | None]:
    """Open the audit log for the length of a block.

    Args:
        location: Where the store is.
        create: Whether to make a store where there is none, to wait for what comes.

    Yields:
        The reader; None where there is no store yet, so nothing was recorded.
    """
    if not create and not location.exists():
        yield None
        return
    with (open_database if create else open_database_for_reading)(location) as database:
        yield AuditReader(database)


async def read_audit_log(
    host: "Host", location: StoreLocation, wanted: AuditQuery, limit: int, *, every: bool = False
) -> list[AuditRecord]:
    """Read the latest matching records in a program that writes some itself: those count, too."""
    from anyio import to_thread

    if host.store is not None:
        await host.store.flush()

    def read() -> list[AuditRecord]:
        with open_audit_log(location) as reader:
            return reader.latest(wanted, limit, every=every) if reader is not None else []

    return await to_thread.run_sync(read)
