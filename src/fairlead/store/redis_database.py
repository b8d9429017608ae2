"""Store operations on a Redis or Valkey that many machines share; all values in it are encrypted.

Names are readable there (namespaces, keys, topics and logs), values are not. A value is a string that begins
with its version, a namespace a sorted set of its keys, a log a stream, a lock a hash with its fencing token.
"""

import contextlib
import logging
import secrets
import time
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Any, Final, Literal, Self, cast

from fairlead.config.store_location import RedisLocation
from fairlead.errors import LockLost, StoreError, VersionConflict
from fairlead.store import redis_scripts as scripts
from fairlead.store.protocol import (
    ANY,
    MAX_VALUE_BYTES,
    MESSAGES_KEPT,
    SERVER_LOCKS,
    AnyVersion,
    Expected,
    Lease,
    LogRecord,
    NewRecord,
    NewValue,
    PublishedMessage,
    StoredValue,
    TokenGrant,
    read_values,
)
from fairlead.store.redis_connection import MESSAGES, META, RENEWAL_SECONDS, RedisConnection

_VERSION_BYTES: Final = 16
_ENTRY_PARTS: Final = 4
"""Names and values of an entry of a stream."""
_RECORDS_AT_ONCE: Final = 500
_VALUE: Final = b"fairlead:value:"
_INDEX: Final = b"fairlead:index:"
_LEASE: Final = b"fairlead:lease:"
_LOG: Final = b"fairlead:log:"
_WRITER: Final = b"fairlead:writer:"
_BUCKET: Final = b"fairlead:bucket:"
logger = logging.getLogger(__name__)

_GENERATION: Final = ("store", "generation", b"2")


class RedisDatabase:
    """An open Redis store, for one thread. Its methods are those of `Database`."""

    is_shared = True

    def __init__(self, connection: RedisConnection) -> None:
        self._redis = connection
        self._keys = connection.keys
        self._writer = _WRITER + secrets.token_hex(12).encode()
        self._seen_position = 0

    @classmethod
    @contextlib.contextmanager
    def open(cls, location: RedisLocation) -> Generator[Self]:
        """Connect to a Redis for the length of a block, and check that it can be used."""
        connection = RedisConnection(location)
        database = cls(connection)
        try:
            # A new store: nothing in it was decided with the rules of earlier releases.
            namespace, key, value = _GENERATION
            if database.get(namespace, key) is None:
                with contextlib.suppress(VersionConflict):
                    database.put(namespace, key, value, expect=None)
            yield database
        finally:
            connection.close()

    @property
    def facts(self) -> dict[str, str]:
        """Facts about the server (`INFO`)."""
        self._redis.run("PING")
        return self._redis.facts

    # Values

    def get(self, namespace: str, key: str) -> StoredValue | None:
        """Value of a key, or None."""
        place = _place(namespace, key)
        stored: bytes | None = self._redis.call(scripts.GET, [_VALUE + place])
        return self._read(key, place, stored) if stored is not None else None

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
        place = _place(namespace, key)
        ttl = "" if expires_in is None else max(1, int(expires_in * 1000))
        answer = self._change(scripts.PUT, place, expect, fence, self._seal(value, place), ttl)
        return int(answer)

    def put_all(self, values: Sequence[NewValue]) -> None:
        """Store values unconditionally, all of them or none."""
        keys: list[bytes] = []
        arguments: list[bytes] = []
        for namespace, key, value in values:
            place = _place(namespace, key)
            keys += (_VALUE + place, _index(namespace))
            arguments += (_encode(key), self._seal(value, place))
        self._redis.call(scripts.PUT_ALL, keys, *arguments)

    def delete(
        self, namespace: str, key: str, *, expect: int | Literal[AnyVersion.ANY], fence: Lease | None = None
    ) -> bool:
        """Delete a value and return whether there was one. Raises `VersionConflict` or `LockLost`."""
        return self._change(scripts.DELETE, _place(namespace, key), expect, fence) == b"1"

    def scan(self, namespace: str, prefix: str = "") -> list[StoredValue]:
        """All values whose key starts with `prefix`, in the order of their keys."""
        low = _encode(prefix)
        # No byte of UTF-8 is 255: everything with the prefix is below.
        lowest, highest = (b"[" + low, b"(" + low + b"\xff") if low else (b"-", b"+")
        base = _VALUE + _place(namespace, "")
        found: list[bytes] = self._redis.call(scripts.SCAN, [_index(namespace)], base, lowest, highest)
        # A name that Fairlead did not write may be no text.
        names = (member.decode(errors="replace") for member in found[::2])
        return read_values(
            zip(names, found[1::2], strict=True),
            lambda key, stored: self._read(key, _place(namespace, key), stored),
        )

    def _change(
        self,
        script: scripts.Script,
        place: bytes,
        expect: Expected,
        fence: Lease | None,
        *more: bytes | str | int,
    ) -> bytes:
        expected = "any" if expect is ANY else "" if expect is None else f"{expect:0{_VERSION_BYTES}}"
        namespace, _, key = place.partition(b":")
        keys = [_VALUE + place, _INDEX + namespace, _LEASE + _encode(fence.name if fence else "")]
        token = fence.token if fence is not None else ""
        answer: bytes = self._redis.call(script, keys, expected, token, key, *more)
        if answer == scripts.LOST:
            name = fence.name if fence else ""
            raise LockLost(f"lock `{name}` is no longer held: its lease ran out and another holder took it")
        if answer == scripts.CONFLICT:
            raise VersionConflict(f"`{place.decode().replace(':', '/', 1)}` was changed by another writer")
        return answer

    def _seal(self, value: bytes, place: bytes) -> bytes:
        if len(value) > MAX_VALUE_BYTES:
            raise StoreError(f"a value of {len(value):,} bytes is over the limit of {MAX_VALUE_BYTES:,}")
        return self._keys.seal(value, place)

    def _read(self, key: str, place: bytes, stored: bytes) -> StoredValue:
        if not stored[:_VERSION_BYTES].isdigit():
            raise StoreError(
                "a value of the store was written by another program than Fairlead",
                hint="find out who else writes to this Redis; then restore a backup",
            )
        value = self._keys.open(stored[_VERSION_BYTES:], place)
        return StoredValue(key=key, value=value, version=int(stored[:_VERSION_BYTES]))

    # Locks

    def acquire(self, name: str, lease_seconds: float) -> Lease | None:
        """Take a lock for that long; None where it is held."""
        # A new epoch may have lost the lease of a server whose owner still runs it, and no fencing token is
        # seen by a process: until that lease would have ended, there is none.
        is_of_server = int(name.startswith(SERVER_LOCKS))
        key = _LEASE + _encode(name)
        token: bytes | None = self._redis.call(scripts.ACQUIRE, [key], lease_seconds, is_of_server)
        return Lease(name=name, token=int(token)) if token is not None else None

    def renew(self, lease: Lease) -> bool:
        """Restart the lease; False where another holder has taken the lock since."""
        key = _LEASE + _encode(lease.name)
        return self._redis.call(scripts.RENEW, [key], lease.token, seconds=RENEWAL_SECONDS) == 1

    def release(self, lease: Lease) -> bool:
        """Release the lock; False where another holder has taken it since."""
        return self._redis.call(scripts.RELEASE, [_LEASE + _encode(lease.name)], lease.token) == 1

    # Rate limits

    def take_tokens(self, bucket: str, *, per_minute: int, wanted: int) -> TokenGrant:
        """Take up to `wanted` tokens from a bucket that refills at that rate."""
        granted, left = self._redis.call(scripts.TAKE, [_BUCKET + _encode(bucket)], per_minute, wanted)
        return TokenGrant(granted=granted, left=float(left))

    # Messages

    def publish(self, topic: str, payload: bytes) -> None:
        """Store a message for subscribers that poll; the latest ones are kept."""
        sealed = self._keys.seal(payload, b"message:" + _encode(topic))
        self._redis.call(scripts.PUBLISH, [MESSAGES], MESSAGES_KEPT, _encode(topic), sealed)

    def last_position(self) -> int:
        """Position of the newest message."""
        position: bytes = self._redis.run("HGET", META, "message") or b"0"
        if not position.isdigit():
            raise StoreError("the store's position of messages is damaged", hint="restore a backup")
        return int(position)

    def messages(self, *, after: int) -> list[PublishedMessage]:
        """Messages published since, as far as they are kept, oldest first."""
        found = self._entries("XRANGE", MESSAGES, f"({after}-0", "+")
        messages: list[PublishedMessage] = []
        for position, fields in found:
            if len(fields) != _ENTRY_PARTS:  # another program wrote it
                continue
            _, topic, _, sealed = fields
            # An empty topic marks a new epoch, and has no payload. One that does not open is left out: the
            # gap tells subscribers that they missed something.
            payload = self._open_if_possible(sealed, b"message:" + topic) if topic else b""
            if payload is not None:
                messages.append(PublishedMessage(position=position, topic=topic.decode(), payload=payload))
        return messages

    def require_trusted(self) -> None:
        """Do nothing: a connection checks its server when it is made."""

    def has_changed_elsewhere(self) -> bool:
        """Whether there are new messages since the last call."""
        position = self.last_position()
        changed = position != self._seen_position
        self._seen_position = position
        return changed

    # Logs

    def append(self, log: str, record: bytes) -> None:
        """Append a record to a log."""
        self.append_all([(log, time.time(), record)])

    def append_all(self, records: Sequence[NewRecord], *, number: int | None = None) -> None:
        """Append records, of any logs. With their numbers, those written before are left out."""
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            arguments: list[bytes | str] = []
            for log, at, value in records[start : start + _RECORDS_AT_ONCE]:
                name = _encode(log)
                arguments += (name, f"{at:.6f}", self._keys.seal(value, b"log:" + name))
            first = "" if number is None else number + start
            self._redis.call(scripts.APPEND, [self._writer], _LOG, first, *arguments)

    def read_log(self, log: str, *, after: int = 0, limit: int = 1000) -> list[LogRecord]:
        """Oldest records with a sequence number above `after`, oldest first."""
        return self._records(log, "XRANGE", f"({after}-0", "+", limit)

    def last_records(self, log: str, *, before: int | None = None, limit: int = 1000) -> list[LogRecord]:
        """Newest records with a sequence number below `before`, newest first."""
        return self._records(log, "XREVRANGE", "+" if before is None else f"({before}-0", "-", limit)

    def _records(self, log: str, command: str, first: str, last: str, limit: int) -> list[LogRecord]:
        if limit <= 0:
            return []
        name = _encode(log)
        found = self._entries(command, _LOG + name, first, last, "COUNT", limit)
        return [self._read_record(sequence, fields, b"log:" + name) for sequence, fields in found]

    def _read_record(self, sequence: int, fields: list[bytes], place: bytes) -> LogRecord:
        """Read a record. One that does not open, or that another program wrote, is empty.

        Its key may be no longer there: the others can still be read.
        """
        try:
            _, at, _, sealed = fields
            time_of_it = float(at)
        except ValueError:
            return LogRecord(sequence=sequence, time=0.0, value=b"")
        return LogRecord(
            sequence=sequence, time=time_of_it, value=self._open_if_possible(sealed, place) or b""
        )

    def _open_if_possible(self, sealed: bytes, place: bytes) -> bytes | None:
        try:
            return self._keys.open(sealed, place)
        except StoreError as exc:
            logger.warning("left out of a log", extra={"reason": str(exc)})
            return None

    def _entries(self, *command: bytes | str | int) -> list[tuple[int, list[bytes]]]:
        found = cast("list[tuple[bytes, list[bytes]]]", self._redis.run(*command))
        return [(int(name.partition(b"-")[0]), fields) for name, fields in found]

    def prune_log(
        self,
        log: str,
        *,
        older_than_seconds: float | None = None,
        keep: int | None = None,
        limit: int | None = None,
    ) -> int:
        """Delete the records that are too old, and all but the newest `keep`; returns how many."""
        name, removed = _LOG + _encode(log), 0
        cutoff = "" if older_than_seconds is None else f"{time.time() - older_than_seconds:.6f}"
        while limit is None or removed < limit:
            most = _RECORDS_AT_ONCE if limit is None else min(_RECORDS_AT_ONCE, limit - removed)
            count = cast("int", self._redis.call(scripts.PRUNE, [name], cutoff, most)) if cutoff else 0
            if not count and keep is not None:
                # LIMIT is for whole nodes of the stream alone, whose size is a setting of Redis.
                length = cast("int", self._redis.run("XLEN", name))
                kept = max(keep, length - most)
                count = cast("int", self._redis.run("XTRIM", name, "MAXLEN", "=", kept))
            if not count:
                break
            removed += count
        return removed

    def delete_records(self, log: str, sequences: Iterable[int]) -> int:
        """Delete records of a log by their sequence numbers; returns how many."""
        names = [f"{number}-0" for number in sequences]
        removed = 0
        for start in range(0, len(names), _RECORDS_AT_ONCE):
            removed += cast(
                "int", self._redis.run("XDEL", _LOG + _encode(log), *names[start : start + _RECORDS_AT_ONCE])
            )
        return removed

    # Everything at once

    def read_all(self) -> tuple[list[NewValue], list[NewRecord]]:
        """All values that have no end, and all records. What is written meanwhile may be there in part."""
        namespaces = [name.removeprefix(_INDEX).decode(errors="replace") for name in self._names(_INDEX)]
        values: list[NewValue] = [
            (namespace, stored.key, stored.value)
            for namespace in sorted(namespaces)
            for stored in self.scan(namespace)
            if self._redis.run("PTTL", _VALUE + _place(namespace, stored.key)) == -1
        ]
        records: list[tuple[int, NewRecord]] = []
        for name in self._names(_LOG):
            log, after = name.removeprefix(_LOG).decode(errors="replace"), 0
            while page := self.read_log(log, after=after):
                after = page[-1].sequence
                records += [(record.sequence, (log, record.time, record.value)) for record in page]
        return values, [record for _, record in sorted(records, key=lambda pair: pair[0])]

    @contextlib.contextmanager
    def replacing_all(
        self,
        values: Sequence[NewValue],
        records: Sequence[NewRecord],
        *,
        keep: Collection[tuple[str, str]] = (),
    ) -> Generator[None]:
        """Replace all values and logs at the end of the block; an error in the block changes nothing."""
        kept = [
            (namespace, key, found.value)
            for namespace, key in keep
            if (found := self.get(namespace, key)) is not None
        ]
        yield
        for prefix in (_VALUE, _INDEX, _LOG):
            for name in self._names(prefix):
                self._redis.run("DEL", name)
        everything = [*kept, *values]
        for start in range(0, len(everything), _RECORDS_AT_ONCE):
            self.put_all(everything[start : start + _RECORDS_AT_ONCE])
        self.append_all(records)

    def reseal_all(self) -> int:
        """Encrypt everything anew with the first of the cluster keys; returns how many were not yet."""
        changed = 0
        for name in self._names(_VALUE):
            place = name.removeprefix(_VALUE)
            namespace, _, key = place.decode(errors="replace").partition(":")
            stored: bytes | None = self._redis.run("GET", name)
            if stored is None or self._keys.is_current(stored[_VERSION_BYTES:]):
                continue
            found = self._read(key, place, stored)
            left: int = self._redis.run("PTTL", name)
            with contextlib.suppress(VersionConflict):  # written anew meanwhile, with the new key
                expires = left / 1000 if left > 0 else None
                self.put(namespace, key, found.value, expect=found.version, expires_in=expires)
                changed += 1
        self._redis.run("HSET", META, "check", self._keys.seal(b"fairlead", b"check"))
        return changed

    def _names(self, prefix: bytes) -> list[bytes]:
        names: set[bytes] = set()
        cursor: Any = b"0"
        while True:
            cursor, found = self._redis.run("SCAN", cursor, "MATCH", prefix + b"*", "COUNT", 1000)
            names.update(found)
            if cursor in (b"0", 0):
                return sorted(names)


def _encode(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError as exc:
        raise StoreError("a name holds half a character (a lone surrogate)") from exc


def _place(namespace: str, key: str) -> bytes:
    """Place of a value. Namespaces are ours and have no colon, so that no two values have one place."""
    return _encode(namespace) + b":" + _encode(key)


def _index(namespace: str) -> bytes:
    return _INDEX + _encode(namespace)
