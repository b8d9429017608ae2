"""Store operations on a SQLite file without an event loop, as the command line uses them."""

import contextlib
import itertools
import sqlite3
import time
from collections.abc import Collection, Generator, Iterable, Sequence
from pathlib import Path
from typing import Literal, Self

import msgspec

from fairlead.errors import LockLost, StoreError, ValueTooLarge, VersionConflict
from fairlead.store.protocol import (
    ANY,
    MAX_VALUE_BYTES,
    MESSAGES_KEPT,
    AnyVersion,
    Expected,
    Lease,
    LogRecord,
    NewRecord,
    NewValue,
    PublishedMessage,
    StoredValue,
    TokenGrant,
)
from fairlead.store.sqlite_file import connect, connect_for_reading, explain_errors, require_trusted

MESSAGE_SECONDS = 60.0

_PUT = "INSERT OR REPLACE INTO entry (namespace, key, value) VALUES (?, ?, ?)"
_PUT_FOR_A_WHILE = "INSERT OR REPLACE INTO entry (namespace, key, value, expires) VALUES (?, ?, ?, ?)"

_BUCKETS = "rate limits"

_APPEND = "INSERT INTO record (log, time, value) VALUES (?, ?, ?)"
_ROWS_AT_ONCE = (256, 128, 64, 32, 16, 8, 4, 2, 1)
_APPENDS = {rows: _APPEND + ", (?, ?, ?)" * (rows - 1) for rows in _ROWS_AT_ONCE}


class SqliteDatabase:
    """An open store file, for one thread. Its methods are those of `Database`."""

    is_shared = False

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._file = require_trusted(path)
        self._data_version = 0
        self._synchronous = ""

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: Path) -> Generator[Self]:
        """Open the database at `path`, which is created if missing, for the length of a block."""
        with contextlib.closing(connect(path)) as connection:
            yield cls(connection, path)

    @classmethod
    @contextlib.contextmanager
    def open_for_reading(cls, path: Path) -> Generator[Self]:
        """Open the existing database at `path` for a block that only reads: its folder may be read-only."""
        with contextlib.closing(connect_for_reading(path)) as connection:
            yield cls(connection, path)

    # Values

    def get(self, namespace: str, key: str) -> StoredValue | None:
        """Value of a key, or None."""
        with explain_errors(self._path):
            # The size of a blob is in its header: one that is too large is never read.
            row: tuple[bytes | None, int, int] | None = self._connection.execute(
                "SELECT CASE WHEN length(value) <= ? THEN value END, version, length(value)"
                " FROM entry WHERE namespace = ? AND key = ? AND (expires IS NULL OR expires > ?)",
                (MAX_VALUE_BYTES, namespace, key, time.time()),
            ).fetchone()
        if row is None:
            return None
        value, version, size = row
        if value is None:
            raise ValueTooLarge(
                f"a value in {self._path} ({namespace}) has {size} bytes; the limit is {MAX_VALUE_BYTES}",
                hint="listings are fetched again; for pins, run `fairlead review` for the server",
                version=version,
            )
        return StoredValue(key=key, value=value, version=version)

    def put(  # noqa: PLR0913 - how a value is kept, each by name
        self,
        namespace: str,
        key: str,
        value: bytes,
        *,
        expect: Expected,
        fence: Lease | None = None,
        durable: bool = True,
        expires_in: float | None = None,
    ) -> int:
        """Store a value and return its version. Raises `VersionConflict` or `LockLost`."""
        now = time.time()
        with self._changing(namespace, key, expect, fence, durable=durable):
            if expires_in is None:
                cursor = self._connection.execute(_PUT, (namespace, key, value))
            else:
                self._connection.execute("DELETE FROM entry WHERE expires <= ?", (now,))
                row = (namespace, key, value, now + expires_in)
                cursor = self._connection.execute(_PUT_FOR_A_WHILE, row)
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def put_all(self, values: Sequence[NewValue]) -> None:
        """Store values unconditionally, all of them or none. They may be lost to a power cut."""
        with self._writing():
            self._connection.executemany(_PUT, values)

    def delete(
        self, namespace: str, key: str, *, expect: int | Literal[AnyVersion.ANY], fence: Lease | None = None
    ) -> bool:
        """Delete a value and return whether there was one. Raises `VersionConflict` or `LockLost`."""
        with self._changing(namespace, key, expect, fence):
            cursor = self._connection.execute(
                "DELETE FROM entry WHERE namespace = ? AND key = ? AND (expires IS NULL OR expires > ?)",
                (namespace, key, time.time()),
            )
        return cursor.rowcount > 0

    def scan(self, namespace: str, prefix: str = "") -> list[StoredValue]:
        """All values whose key starts with `prefix`, in the order of their keys."""
        with explain_errors(self._path):
            rows = self._connection.execute(
                "SELECT key, value, version FROM entry WHERE namespace = ? AND key >= ?"
                " AND (expires IS NULL OR expires > ?) ORDER BY key",
                (namespace, prefix, time.time()),
            )
            found = (StoredValue(key=key, value=value, version=version) for key, value, version in rows)
            return list(itertools.takewhile(lambda stored: stored.key.startswith(prefix), found))

    # Locks

    def acquire(self, name: str, lease_seconds: float) -> Lease | None:
        """Take a lock for that long; None where it is held."""
        if self._is_held(name):
            return None  # a waiter that only looks takes no write lock from those who work
        with self._writing():
            if self._is_held(name):
                return None
            cursor = self._connection.execute(
                "INSERT OR REPLACE INTO lease (name, renewed, seconds) VALUES (?, ?, ?)",
                (name, time.time(), lease_seconds),
            )
        assert cursor.lastrowid is not None
        return Lease(name=name, token=cursor.lastrowid)

    def renew(self, lease: Lease) -> bool:
        """Restart the lease; False where another holder has taken the lock since."""
        with self._writing():
            cursor = self._connection.execute(
                "UPDATE lease SET renewed = ? WHERE token = ?", (time.time(), lease.token)
            )
        return cursor.rowcount > 0

    def release(self, lease: Lease) -> bool:
        """Release the lock; False where another holder has taken it since."""
        with self._writing():
            cursor = self._connection.execute("DELETE FROM lease WHERE token = ?", (lease.token,))
        return cursor.rowcount > 0

    def _is_held(self, name: str) -> bool:
        with explain_errors(self._path):
            row: tuple[float, float] | None = self._connection.execute(
                "SELECT renewed, seconds FROM lease WHERE name = ?", (name,)
            ).fetchone()
        # The distance, not the difference: a lease must not last longer because the clock was set back.
        return row is not None and abs(time.time() - row[0]) < row[1]

    # Rate limits

    def take_tokens(self, bucket: str, *, per_minute: int, wanted: int) -> TokenGrant:
        """Take up to `wanted` tokens from a bucket that refills at that rate."""
        now = time.time()
        with self._writing():
            found = self.get(_BUCKETS, bucket)
            left = float(per_minute)
            if found is not None:
                before, at = msgspec.json.decode(found.value, type=tuple[float, float])
                left = min(left, before + max(0.0, now - at) * per_minute / 60)
            granted = min(wanted, int(left))
            value = msgspec.json.encode((left - granted, now))
            self._connection.execute(_PUT_FOR_A_WHILE, (_BUCKETS, bucket, value, now + 120))
        return TokenGrant(granted=granted, left=left - granted)

    # Messages

    def publish(self, topic: str, payload: bytes) -> None:
        """Store a message for subscribers that poll within a minute, and delete older ones."""
        now = time.time()
        with self._writing():
            cursor = self._connection.execute(
                "INSERT INTO message (topic, time, payload) VALUES (?, ?, ?)", (topic, now, payload)
            )
            assert cursor.lastrowid is not None
            self._connection.execute(
                "DELETE FROM message WHERE position <= ? OR time < ?",
                (cursor.lastrowid - MESSAGES_KEPT, now - MESSAGE_SECONDS),
            )

    def last_position(self) -> int:
        """Position of the newest message, 0 where there was never one."""
        with explain_errors(self._path):
            (position,) = self._connection.execute("SELECT max(position) FROM message").fetchone()
        return position or 0

    def messages(self, *, after: int) -> list[PublishedMessage]:
        """Messages published since, as far as they are kept, oldest first."""
        with explain_errors(self._path):
            rows = self._connection.execute(
                "SELECT position, topic, payload FROM message WHERE position > ? ORDER BY position", (after,)
            )
            return [
                PublishedMessage(position=position, topic=topic, payload=payload)
                for position, topic, payload in rows
            ]

    def require_trusted(self) -> None:
        """Raise `StoreError` where the file was removed or replaced, or other users could have written it."""
        if require_trusted(self._path) != self._file:
            raise StoreError(
                f"store `{self._path}`: the file was replaced by another",
                hint="restart this process",
            )

    def has_changed_elsewhere(self) -> bool:
        """Whether another connection wrote anything since the last call. Costs microseconds."""
        with explain_errors(self._path):
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        changed = version != self._data_version
        self._data_version = version
        return changed

    # Logs

    def append(self, log: str, record: bytes) -> None:
        """Append a record to a log."""
        self.append_all([(log, time.time(), record)])

    def append_all(self, records: Sequence[NewRecord], *, number: int | None = None) -> None:
        """Append records, of any logs, in one transaction: one that failed has written none of them."""
        done = 0
        with self._writing():
            # As few statements as possible: after each, this thread waits for its turn again.
            for rows in _ROWS_AT_ONCE:
                while len(records) - done >= rows:
                    values = itertools.chain.from_iterable(records[done : done + rows])
                    self._connection.execute(_APPENDS[rows], tuple(values))
                    done += rows

    def read_log(self, log: str, *, after: int = 0, limit: int = 1000) -> list[LogRecord]:
        """Oldest records with a sequence number above `after`, oldest first."""
        with explain_errors(self._path):
            rows = self._connection.execute(
                "SELECT sequence, time, value FROM record WHERE log = ? AND sequence > ?"
                " ORDER BY sequence LIMIT ?",
                (log, after, limit),
            )
            return [LogRecord(sequence=sequence, time=time, value=value) for sequence, time, value in rows]

    def last_records(self, log: str, *, before: int | None = None, limit: int = 1000) -> list[LogRecord]:
        """Newest records with a sequence number below `before`, newest first."""
        with explain_errors(self._path):
            rows = self._connection.execute(
                "SELECT sequence, time, value FROM record WHERE log = ? AND (? IS NULL OR sequence < ?)"
                " ORDER BY sequence DESC LIMIT ?",
                (log, before, before, limit),
            )
            return [LogRecord(sequence=sequence, time=time, value=value) for sequence, time, value in rows]

    def prune_log(
        self,
        log: str,
        *,
        older_than_seconds: float | None = None,
        keep: int | None = None,
        limit: int | None = None,
    ) -> int:
        """Delete the records that are too old, and all but the newest `keep`; returns how many."""
        removed, at_most = 0, -1 if limit is None else limit
        with self._writing():
            if older_than_seconds is not None:
                removed += self._connection.execute(
                    "DELETE FROM record WHERE sequence IN"
                    " (SELECT sequence FROM record WHERE log = ? AND time < ? LIMIT ?)",
                    (log, time.time() - older_than_seconds, at_most),
                ).rowcount
            if keep is not None:
                removed += self._connection.execute(
                    "DELETE FROM record WHERE sequence IN (SELECT sequence FROM record WHERE log = ?"
                    " AND sequence <= (SELECT sequence FROM record WHERE log = ?"
                    " ORDER BY sequence DESC LIMIT 1 OFFSET ?) ORDER BY sequence LIMIT ?)",
                    (log, log, keep, at_most),
                ).rowcount
        return removed

    def delete_records(self, log: str, sequences: Iterable[int]) -> int:
        """Delete records of a log by their sequence numbers; returns how many."""
        with self._writing():
            cursor = self._connection.executemany(
                "DELETE FROM record WHERE log = ? AND sequence = ?", [(log, number) for number in sequences]
            )
        return cursor.rowcount

    # Everything at once

    def read_all(self) -> tuple[list[NewValue], list[NewRecord]]:
        """All values and all records of logs, as they are at one moment."""
        with explain_errors(self._path), self._connection:
            self._connection.execute("BEGIN")
            values: list[NewValue] = self._connection.execute(
                "SELECT namespace, key, value FROM entry WHERE expires IS NULL ORDER BY namespace, key"
            ).fetchall()
            records: list[NewRecord] = self._connection.execute(
                "SELECT log, time, value FROM record ORDER BY sequence"
            ).fetchall()
        return values, records

    @contextlib.contextmanager
    def replacing_all(
        self,
        values: Sequence[NewValue],
        records: Sequence[NewRecord],
        *,
        keep: Collection[tuple[str, str]] = (),
    ) -> Generator[None]:
        """Replace all values and logs at the end of the block, in one transaction; an error changes nothing.

        Args:
            values: The values from then on.
            records: The records of logs from then on, oldest first.
            keep: Namespace and key of values that stay as they are, unless there are new ones.
        """
        with self._writing(synchronous="FULL"):
            kept = [
                (namespace, key, found.value)
                for namespace, key in keep
                if (found := self.get(namespace, key)) is not None
            ]
            self._connection.execute("DELETE FROM entry")
            self._connection.execute("DELETE FROM record")
            self._connection.executemany(_PUT, [*kept, *values])
            self._connection.executemany(_APPEND, records)
            yield

    # Transactions

    @contextlib.contextmanager
    def _writing(self, *, synchronous: Literal["NORMAL", "FULL"] = "NORMAL") -> Generator[None]:
        """One write transaction. NORMAL survives the death of the process, FULL also a power cut."""
        with explain_errors(self._path), self._connection:
            if synchronous != self._synchronous:
                self._connection.execute(f"PRAGMA synchronous = {synchronous}")
                self._synchronous = synchronous
            # A transaction that reads first and writes later could not wait for its turn; this one does.
            self._connection.execute("BEGIN IMMEDIATE")
            yield

    @contextlib.contextmanager
    def _changing(
        self, namespace: str, key: str, expect: Expected, fence: Lease | None, *, durable: bool = True
    ) -> Generator[None]:
        """Transaction on one value, entered only if the expected version is stored and the fence is held.

        It waits for the disk where the value must not be lost (a consent, a login).
        """
        with self._writing(synchronous="FULL" if durable else "NORMAL"):
            if fence is not None:
                self._check_fence(fence)
            if expect is not ANY:
                self._check_version(namespace, key, expect)
            yield

    def _check_fence(self, fence: Lease) -> None:
        # A lease that ran out but was not taken still protects: there was no other writer.
        if self._connection.execute("SELECT 1 FROM lease WHERE token = ?", (fence.token,)).fetchone() is None:
            raise LockLost(
                f"lock `{fence.name}` is no longer held: its lease ran out and another holder took it"
            )

    def _check_version(self, namespace: str, key: str, expect: int | None) -> None:
        row: tuple[int] | None = self._connection.execute(
            "SELECT version FROM entry WHERE namespace = ? AND key = ? AND (expires IS NULL OR expires > ?)",
            (namespace, key, time.time()),
        ).fetchone()
        if (row[0] if row else None) != expect:
            raise VersionConflict(f"`{namespace}/{key}` was changed by another writer")
