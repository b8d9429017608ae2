"""SQLite file of a store: private to the user, in write-ahead mode, migrated to this version's tables."""

import contextlib
import hashlib
import logging
import os
import shlex
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec

from fairlead.config.paths import STATE_HINT
from fairlead.errors import StoreError

BUSY_SECONDS = 5.0
"""Seconds a writer waits for other processes; their writes take milliseconds."""

_WAL_BYTES_KEPT = 8 * 1024 * 1024

# Versions, tokens and sequence numbers are rowids: AUTOINCREMENT never reuses one, so a value that was
# created again is distinguished from the deleted one that was read before.
_TABLES = """
CREATE TABLE entry (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    UNIQUE (namespace, key)
);
CREATE TABLE lease (
    token INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE, renewed REAL NOT NULL, seconds REAL NOT NULL
);
CREATE TABLE message (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL, time REAL NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE record (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    log TEXT NOT NULL, time REAL NOT NULL, value BLOB NOT NULL
);
CREATE INDEX record_log ON record (log);
"""


_PIN_FORMAT = 2
"""Newest format of pins that a file of the first schema version can hold."""


class _Snapshot(msgspec.Struct):
    format: int = 1


def _drop_unmasked(connection: sqlite3.Connection) -> None:
    """Delete texts of servers that an earlier release stored unmasked, with secrets in them.

    Secrets cannot be found here: those of a server are known only to a process that started it. Snapshots and
    the last errors of servers are recreated. The digests of pins stay, which are all that comparing takes;
    the definitions, stored to show what changed, are filled in when a server lists the same again. Unreadable
    values are left to their readers: damaged pins hold their tools back.
    """
    connection.execute("DELETE FROM entry WHERE namespace = 'trouble'")
    snapshots = connection.execute("SELECT key, value FROM entry WHERE namespace = 'catalog'").fetchall()
    for key, value in snapshots:
        with contextlib.suppress(msgspec.DecodeError, TypeError):
            if msgspec.json.decode(value, type=_Snapshot).format > 1:
                continue
        connection.execute("DELETE FROM entry WHERE namespace = 'catalog' AND key = ?", (key,))
    for key, value in connection.execute("SELECT key, value FROM entry WHERE namespace = 'pins'").fetchall():
        with contextlib.suppress(msgspec.DecodeError, TypeError, UnicodeEncodeError):
            reduced = _without_texts(value)
            if reduced != value:
                row = ("pins", key, reduced)
                connection.execute(
                    "INSERT OR REPLACE INTO entry (namespace, key, value) VALUES (?, ?, ?)", row
                )


def _without_texts(pins: bytes) -> bytes:
    whole = msgspec.json.decode(pins, type=dict[str, msgspec.Raw])
    tools = msgspec.json.decode(whole.get("tools", b"{}"), type=dict[str, dict[str, msgspec.Raw]])
    if any(msgspec.json.decode(pin.get("format", b"1")) > _PIN_FORMAT for pin in tools.values()):
        return pins  # of a newer release: readers refuse them
    for pin in tools.values():
        pin["definition"] = msgspec.Raw(NO_DEFINITION)
    made: dict[str, object] = {**whole, "tools": tools}
    instructions = msgspec.json.decode(whole.get("instructions", b"null"), type=str | None)
    if instructions is not None:
        made["instructions"] = text_digest(instructions)
    return msgspec.json.encode(made)


NO_DEFINITION = b"{}"
"""Placeholder of a dropped definition in a pin."""


DIGEST_PREFIX = "sha256:"


def text_digest(text: str) -> str:
    """Placeholder of a dropped text, by which it is recognized when it comes again."""
    return f"{DIGEST_PREFIX}{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}"


_EXPIRY = "ALTER TABLE entry ADD COLUMN expires REAL"

MIGRATIONS: tuple[str | Callable[[sqlite3.Connection], None], ...] = (_TABLES, _drop_unmasked, _EXPIRY)
"""Steps from one schema version to the next. Steps are added, never edited once released."""

STORE_NAMESPACE = "store"
GENERATION = "generation"
"""Key with the generation of a store: `2` in those that this release created, missing before."""

_REASONS = {
    sqlite3.SQLITE_BUSY: (
        "other processes keep it locked",
        "try again; if it persists, find the process that has it open",
    ),
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space and try again"),
    sqlite3.SQLITE_READONLY: ("it cannot be written", "check the permissions of the file and its folder"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "check the permissions of the file and its folder"),
    sqlite3.SQLITE_IOERR: ("the disk failed", "check that the disk works and has space"),
}
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

logger = logging.getLogger(__name__)

_creation = threading.Lock()


def connect(path: Path) -> sqlite3.Connection:
    """Connect to the store's file, which is created if missing. The caller closes the connection."""
    with explain_errors(path):
        try:
            _secure(path)
            require_trusted(path)
        except OSError as exc:
            raise StoreError(f"store `{path}`: {exc.strerror}", hint=STATE_HINT) from exc
        if not os.access(path.parent, os.W_OK):
            # SQLite would report only that it cannot open it: it creates files next to it.
            raise StoreError(f"store `{path}`: its folder cannot be written", hint=STATE_HINT)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            _require_own(connection, path)
            _configure(connection)
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Connect for reading only, also where nothing can be written: a home that is mounted read-only.

    There SQLite cannot create the file for its locks, so the database file is read directly. That is correct
    only where no other process has changes in its journal; else it raises as `connect` does.
    """
    try:
        journal = path.with_name(f"{path.name}-wal")
        if os.access(path.parent, os.W_OK) or (journal.exists() and journal.stat().st_size):
            return connect(path)
        with explain_errors(path):
            require_trusted(path)
            address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
            connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                _require_own(connection, path)
                version = _schema_version(connection)
            except BaseException:
                connection.close()
                raise
    except OSError as exc:
        raise StoreError(f"store `{path}`: {exc.strerror}", hint="check the permissions of the file") from exc
    if version != len(MIGRATIONS):
        connection.close()
        raise StoreError(
            f"store `{path}`: it was written by another version of Fairlead",
            hint="run Fairlead once where its folder can be written",
        )
    return connection


@contextlib.contextmanager
def explain_errors(path: Path) -> Generator[None]:
    """Turn errors of SQLite into a `StoreError` with a hint."""
    try:
        yield
    except sqlite3.Error as exc:
        raise _explain(path, exc) from exc
    except UnicodeEncodeError as exc:
        raise StoreError(f"store `{path}`: a name holds half a character (a lone surrogate)") from exc


def _explain(path: Path, exc: sqlite3.Error) -> StoreError:
    # Errors of Python's module itself, such as for a closed connection, carry no code.
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in _DAMAGED or str(exc).startswith("no such "):
        return StoreError(
            f"store `{path}`: the file is damaged or no database ({exc})",
            hint=f"stop all Fairlead processes, then move `{path}` and `{path}-wal` away: a new, empty store"
            " is made, and approvals and logins have to be given again",
        )
    reason, hint = _REASONS.get(code, ("it cannot be used", None))
    return StoreError(f"store `{path}`: {reason} ({exc})", hint=hint)


def _secure(path: Path) -> None:
    """Create the folder (0700) and the file (0600), and refuse those that other users could have prepared."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if sys.platform != "win32":
        if path.parent.stat().st_mode & 0o022:
            raise _open_to_others(path)
        _require_safe_ancestors(path)
    # Closing any descriptor of a database drops this process's locks on it. So an existing file is never
    # opened here, and a new one only while no other thread can have connected to it.
    try:
        with _creation:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        _require_content(path)
        _refuse_foreign(path)
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            _make_private(path.with_name(path.name + suffix))


def _require_content(path: Path) -> None:
    """Refuse a file that was emptied: SQLite would take it for a new store, and all pins would be gone.

    Another process may have created it just now, and fills it within milliseconds.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while (found := path.lstat()).st_size == 0 and stat.S_ISREG(found.st_mode):
        if time.monotonic() > deadline:
            raise StoreError(
                f"store `{path}`: the file is empty, so its content is lost",
                hint=f"run `rm {path}`: a new store is made, and approvals have to be given again;"
                " then run `fairlead review` for servers you do not trust",
            )
        time.sleep(0.01)


def _refuse_foreign(path: Path) -> None:
    """Refuse the database of another program before anything of it is changed, its mode included.

    A connection that can write would, when it is closed, move another program's journal into its database.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or (sys.platform != "win32" and found.st_uid != os.geteuid()):
        return  # refused by the checks that follow; a pipe is not opened
    if not os.access(path.parent, os.W_OK):
        return  # SQLite could not even read a journal there; nothing can be changed either
    address = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as connection:
        try:
            _require_own(connection, path)
        except sqlite3.OperationalError as exc:
            # A process was killed while it wrote: `connect` undoes that and checks again.
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                raise


def _require_own(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a database is a store of this version or an earlier one, or empty."""
    # One statement, so that a store that another process creates meanwhile is seen empty or whole.
    version, others, own = connection.execute(
        "SELECT user_version,"
        " (SELECT count(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite%'),"
        " (SELECT count(*) FROM pragma_table_info('entry')"
        "  WHERE name IN ('version', 'namespace', 'key', 'value'))"
        " FROM pragma_user_version"
    ).fetchone()
    if (own != _ENTRY_COLUMNS) if version else others:
        raise StoreError(
            f"store `{path}`: it is the database of another program, and was left as it is",
            hint="name another file as `store.path`, or move this one away",
        )
    if version > len(MIGRATIONS):
        raise StoreError(f"store `{path}`: a newer Fairlead wrote it", hint="update Fairlead")


_ENTRY_COLUMNS = 4
"""Columns of `entry` that every version of a store has."""


def require_trusted(path: Path) -> tuple[int, int]:
    """Check that only this user can have written a store, and identify the file.

    Returns:
        Device and inode: a file that replaces it while it is open has others.

    Raises:
        StoreError: It is missing, or other users own it or its folder, can write to them, or can replace
            one of the folders above.
    """
    try:
        folder, file = path.parent.stat(), path.lstat()
    except OSError as exc:
        raise StoreError(
            f"store `{path}`: {exc.strerror}", hint="restore it, or restart Fairlead to create a new one"
        ) from exc
    if not stat.S_ISREG(file.st_mode):
        raise _not_plain(path)
    if sys.platform != "win32":
        if folder.st_mode & 0o022:
            raise _open_to_others(path)
        for owned, found in ((path.parent, folder), (path, file)):
            if found.st_uid != os.geteuid() and (found is file or found.st_uid != 0):
                raise StoreError(
                    f"store `{path}`: `{owned}` belongs to another user",
                    hint=f"run `sudo chown {os.geteuid()} {owned}` if you trust what is in it",
                )
        if file.st_mode & 0o022:
            raise StoreError(f"store `{path}`: other users can write to it", hint=f"run `chmod 600 {path}`")
        _require_safe_ancestors(path)
    return file.st_dev, file.st_ino


def _require_safe_ancestors(path: Path) -> None:
    """Refuse a store where other users could replace one of the folders above its own.

    In a folder with the sticky bit (`/tmp`) only the owner of an entry can rename it. Folders that a group
    can write to are refused unless it is the user's own group or root's.
    """
    folder = path.parent.absolute()
    # The path as named and as resolved: links lie in the one, and lead to the other.
    for above in dict.fromkeys((*folder.parents, *Path(os.path.realpath(folder)).parents)):
        try:
            found = above.stat()
        except OSError as exc:
            raise StoreError(
                f"store `{path}`: `{above}`: {exc.strerror}", hint="check the permissions of that folder"
            ) from exc
        if found.st_uid not in (0, os.geteuid(), _NO_USER):
            raise StoreError(
                f"store `{path}`: the folder `{above}` above it belongs to another user",
                hint="name a file in a folder of yours as `store.path`, or set XDG_STATE_HOME to one",
            )
        by_group = found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getegid())
        if not found.st_mode & stat.S_ISVTX and (found.st_mode & stat.S_IWOTH or by_group):
            command = f"chmod go-w {shlex.quote(str(above))}"
            raise StoreError(
                f"store `{path}`: other users can write to the folder `{above}` above it, and replace it",
                hint=f"run `{command if found.st_uid == os.geteuid() else f'sudo {command}'}`",
            )


_NO_USER = 65_534
"""Owner of other users' files inside a user namespace, as in a rootless container."""


def _open_to_others(path: Path) -> StoreError:
    return StoreError(
        f"store `{path}`: other users can write to its folder", hint=f"run `chmod 700 {path.parent}`"
    )


def _not_plain(file: Path) -> StoreError:
    return StoreError(
        f"store `{file}`: it is a link or not a regular file", hint="remove it, or name the real file instead"
    )


def _make_private(file: Path) -> None:
    mode = file.lstat().st_mode
    if not stat.S_ISREG(mode):
        raise _not_plain(file)
    if mode & 0o077:
        file.chmod(0o600)


def _configure(connection: sqlite3.Connection) -> None:
    _enter_write_ahead_mode(connection)
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_KEPT}")
    # Deleted values may be tokens: their bytes are overwritten, not only unlinked.
    connection.execute("PRAGMA secure_delete = ON")


def _enter_write_ahead_mode(connection: sqlite3.Connection) -> None:
    # SQLite does not wait for its turn here as elsewhere, so processes that start together collide.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    if _schema_version(connection) == len(MIGRATIONS):
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        version = _schema_version(connection)  # another process may have been first
        if version > len(MIGRATIONS):
            raise StoreError(f"store `{path}`: a newer Fairlead wrote it", hint="update Fairlead")
        for step in MIGRATIONS[version:]:
            if not isinstance(step, str):
                step(connection)
                continue
            for statement in step.split(";"):  # executescript() would commit after each
                connection.execute(statement)
        if version == 0:
            new = (STORE_NAMESPACE, GENERATION, b"2")
            connection.execute("INSERT INTO entry (namespace, key, value) VALUES (?, ?, ?)", new)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    if version:
        _forget_old_bytes(connection)


def _forget_old_bytes(connection: sqlite3.Connection) -> None:
    """Rewrite the file, so that its pages and its journal hold nothing of what a migration deleted."""
    try:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError:  # no space, or in use: the old pages are overwritten at least
        logger.warning("the store was not rewritten after its migration", exc_info=True)


def _schema_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version
