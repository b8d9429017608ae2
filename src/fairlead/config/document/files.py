"""Configuration files on disk: bounded reads, a lock per folder, and atomic writes."""

import errno
import os
import stat
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fairlead.errors import ConfigUnreadable, ConfigUnwritable

if sys.platform == "win32":
    import msvcrt

    def _open_lock(target: Path) -> int:
        return os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT)

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _sync_folder(folder: Path) -> None:
        """Nothing to do on Windows."""

else:
    import fcntl

    def _open_lock(target: Path) -> int:
        # The folder, not the file, which every change replaces; and no lock file is left behind.
        return os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _sync_folder(folder: Path) -> None:
        # The new file is in place; without this a file system only promises less after a power cut.
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


READ_LIMIT = 4 * 1024 * 1024
LOCK_TIMEOUT = 10.0

_LOCK_POLL = 0.01
_TEMPORARY_SUFFIX = ".fairlead-tmp"
_SAVE_AS_UTF8 = "save it as UTF-8 without a byte order mark"
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}

_CHECK_PATH = "check the path"
_CHECK_PERMISSIONS = "check its permissions, and those of its folder"
_READ_REASONS = {
    errno.ENOENT: ("it does not exist", _CHECK_PATH),
    errno.ENOTDIR: ("it does not exist", "what should be a folder on its path is a file"),
    errno.EACCES: ("you may not read it", _CHECK_PERMISSIONS),
    errno.EPERM: ("you may not read it", _CHECK_PERMISSIONS),
    errno.ELOOP: ("it is a symbolic link that leads back to itself", "point the link at a file"),
    errno.EISDIR: ("it is a folder", "name a file in it"),
    errno.ENXIO: ("it is a pipe, a socket or a device", "name a regular file"),
    errno.ENAMETOOLONG: ("its name is too long", _CHECK_PATH),
}
_WRITE_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space and try again"),
    errno.EDQUOT: ("your disk quota is used up", "free some space and try again"),
    errno.EROFS: ("it is on a read-only file system", "change it where it comes from"),
    errno.EACCES: ("you may not change it", _CHECK_PERMISSIONS),
    errno.EPERM: ("you may not change it", _CHECK_PERMISSIONS),
    errno.ELOOP: ("it is a symbolic link that leads back to itself", "point the link at a file"),
    errno.EISDIR: ("it is a folder", "name a file in it"),
    errno.ENXIO: ("it is a pipe, a socket or a device", "name a regular file"),
    errno.ENOENT: ("its folder is not there, and cannot be made", _CHECK_PATH),
    errno.ENOTDIR: ("what should be a folder on its path is a file", _CHECK_PATH),
    errno.EEXIST: ("what should be a folder on its path is a file", _CHECK_PATH),
    errno.EBUSY: ("it is mounted on its own, so it cannot be replaced", "mount its folder instead"),
    errno.ENAMETOOLONG: ("its name is too long", _CHECK_PATH),
}


def read_text(path: Path, *, limit: int = READ_LIMIT, keep_mark: bool = False) -> str:
    """Text of a file. Never blocks, even where the path leads to a FIFO or a device.

    Args:
        path: The file.
        limit: The most bytes to read.
        keep_mark: Whether a UTF-8 byte order mark is accepted and kept as the first character: some editors
            write one into files of other programs, and it has to be there again when the file is written.

    Raises:
        ConfigUnreadable: The file cannot be read, is too large, or is not UTF-8.
    """
    try:
        content = _read(path, limit)
    except (OSError, ValueError) as exc:
        reason, hint = _explain(path, exc, _READ_REASONS)
        raise ConfigUnreadable(f"cannot read `{path}`: {reason}", hint=hint) from exc
    if len(content) > limit:
        raise ConfigUnreadable(f"cannot read `{path}`: it is larger than {limit:,} bytes", hint=_CHECK_PATH)
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark) and not (keep_mark and encoding == "UTF-8"):
            reason = f"it starts with a {encoding} byte order mark"
            raise ConfigUnreadable(f"cannot read `{path}`: {reason}", hint=_SAVE_AS_UTF8)
    if b"\0" in content:
        raise ConfigUnreadable(f"cannot read `{path}`: it is not a text file", hint=_SAVE_AS_UTF8)
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ConfigUnreadable(f"cannot read `{path}`: line {line} is not UTF-8", hint=_SAVE_AS_UTF8) from exc


@contextmanager
def hold_lock(path: Path, *, timeout: float = LOCK_TIMEOUT) -> Generator[None]:
    """Hold the exclusive lock for edits of this file, across threads and processes.

    It is released when its holder dies. It is not re-entrant. Missing folders on the path are created.
    """
    with ExitStack() as stack:
        with _explain_write_errors(path):
            target = _target(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _open_lock(target)
            stack.callback(os.close, descriptor)
            _acquire(descriptor, path, timeout)
            _remove_stale(target)
        yield


def write_atomic(path: Path, text: str, *, mode: int | None = None) -> None:
    """Replace a file atomically: readers see the old text or the new one, also after a crash.

    A symbolic link stays one and its target is replaced. Hold `hold_lock` wherever another process may write
    the same file.

    Args:
        path: The file. Missing folders are created.
        text: Its new text.
        mode: Its permissions; those it has if not given.

    Raises:
        ConfigUnwritable: The file cannot be written.
    """
    with _explain_write_errors(path):
        content = text.encode()
        target = _target(path)
        old = _status(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.urandom(4).hex()}{_TEMPORARY_SUFFIX}")
        try:
            _write_new(temporary, content, old, mode)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)


def _read(path: Path, limit: int) -> bytes:
    # Non-blocking, or opening a named pipe would wait for a writer.
    flags = os.O_RDONLY | _flag("O_NONBLOCK") | _flag("O_NOCTTY") | _flag("O_BINARY")
    with open(os.open(path, flags), "rb") as file:
        _require_regular(os.fstat(file.fileno()))
        return file.read(limit + 1)


def _flag(name: str) -> int:
    """A flag of `os.open`, or none where the platform lacks it."""
    return getattr(os, name, 0)


def _require_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.ENXIO, os.strerror(errno.ENXIO))


@contextmanager
def _explain_write_errors(path: Path) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as exc:
        reason, hint = _explain(path, exc, _WRITE_REASONS)
        raise ConfigUnwritable(f"cannot change `{path}`: {reason}", hint=hint) from exc


def _explain(
    path: Path, exc: OSError | ValueError, reasons: dict[int, tuple[str, str]]
) -> tuple[str, str | None]:
    """Reason and hint for a failure."""
    if isinstance(exc, UnicodeEncodeError):
        return "the new text holds half of a character", None
    if isinstance(exc, ValueError):
        return "its name holds a null character", _CHECK_PATH
    if exc.errno == errno.ENOENT and path.is_symlink():
        return (
            "it is a symbolic link to a file that does not exist",
            "make that file, or point the link elsewhere",
        )
    if exc.errno in reasons:
        return reasons[exc.errno]
    return exc.strerror or str(exc), None


def _target(path: Path) -> Path:
    """The file itself, with symbolic links resolved."""
    return Path(os.path.realpath(path))


def _status(target: Path) -> os.stat_result | None:
    """Status of the file to be replaced, if it exists and may be replaced."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    _require_regular(status)
    if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        # Replacing needs only the folder's permission, but a read-only file was made so on purpose.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return status


def _write_new(temporary: Path, content: bytes, old: os.stat_result | None, mode: int | None) -> None:
    if mode is None and old is not None:
        mode = stat.S_IMODE(old.st_mode)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _flag("O_BINARY")
    with open(os.open(temporary, flags, 0o644 if mode is None else 0o600), "wb") as file:
        if old is not None and sys.platform != "win32":
            # An edit with sudo must not take the file from its owner. Only root may change owners.
            with suppress(PermissionError):
                os.chown(temporary, old.st_uid, old.st_gid)
        if mode is not None:
            temporary.chmod(mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _acquire(descriptor: int, path: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not _try_lock(descriptor):
        if time.monotonic() >= deadline:
            reason = f"another process has been changing files in its folder for {timeout:g} s"
            raise ConfigUnwritable(f"cannot change `{path}`: {reason}", hint="wait for it, or end it")
        time.sleep(_LOCK_POLL)


def _remove_stale(target: Path) -> None:
    """Remove temporary files of killed writers. The lock is held, so no writer is active."""
    with os.scandir(target.parent) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        if name.startswith(f".{target.name}.") and name.endswith(_TEMPORARY_SUFFIX):
            # Another user's leftover may not be ours to remove, and does no harm.
            with suppress(OSError):
                target.with_name(name).unlink()


def reserve_standard_descriptors() -> None:
    """Open the null device for each standard stream that is closed (`<&-`, `>&-`, `2>&-`, some daemons).

    Otherwise the next file or socket would take its number: uvloop aborts the process when it closes one of
    these numbers, and what a library prints to stderr would be written into a database.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _LAST_STANDARD:
        os.set_inheritable(opened, True)  # as standard streams are
    os.close(opened)


_LAST_STANDARD = 2
