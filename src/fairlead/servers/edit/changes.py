"""Changes of files below confined folders: checked against what was read, atomic, all or none, with undo.

A change says what the file holds before and after. It is made only if the file still holds what the change
was computed from, so an edit that another program made meanwhile is not lost. A file is written next to its
place and moved there in one step: a reader sees the old content or the new, never a part.
"""

import errno
import os
import secrets
import stat
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from fairlead.errors import ToolFailed
from fairlead.servers.git_references import is_in_repository_folder, references_around
from fairlead.servers.protected import is_within, require_unprotected
from fairlead.servers.repo.files import read_bytes
from fairlead.servers.repo.folders import FILE, Confinement, OpenFolder, escape_name, in_words

MAX_FILE_BYTES = 5_000_000
"""The largest file that is changed."""

MAX_UNDO_STEPS = 100
MAX_UNDO_BYTES = 64_000_000
_MAX_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class FileContent:
    """Content and permissions of the file at a path."""

    names: tuple[str, ...]
    """The names of the path, the root's first where there are several roots."""
    shown: str
    data: bytes | None
    """None if there is no file."""
    mode: int | None = None
    """The permission bits of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One file's content before and after; None where there is no file."""

    names: tuple[str, ...]
    shown: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None
    """Permission bits of the file before or after; those of any new file if None."""

    @property
    def reverse(self) -> "Change":
        """The change that takes this one back."""
        return replace(self, before=self.after, after=self.before)

    @property
    def size(self) -> int:
        """Number of bytes that undoing it keeps in memory."""
        return len(self.before or b"") + len(self.after or b"")


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoPlan:
    """The changes that take a step back."""

    changes: tuple[Change, ...]
    changed_since: tuple[str, ...] = ()
    """Files of later steps that were changed since by others: those steps are not taken back."""


class FileChanges:
    """The files of confined folders, to read and to change. Safe to use from several threads."""

    def __init__(self, confinement: Confinement, protected: Callable[[], Sequence[Path]] = tuple) -> None:
        """Read and change files within `confinement`, but for what `protected` returns."""
        self._confinement = confinement
        self._protected = protected
        self._lock = threading.Lock()
        self._done: deque[tuple[Change, ...]] = deque(maxlen=MAX_UNDO_STEPS)

    def read(self, path: str) -> FileContent:
        """Read the content at a path.

        Args:
            path: The path as the caller gave it.

        Returns:
            The content; `data` is None where there is no file.

        Raises:
            ToolFailed: The path is protected, leads nowhere below the roots, is not a file, or is too large.
        """
        names = self._confinement.names(path)
        shown = "/".join(map(escape_name, names)) or "."
        self._require_unprotected(names, shown)
        try:
            with self._confinement.file(path) as file, in_words(shown):
                if file.stat.st_size > MAX_FILE_BYTES:
                    raise ToolFailed(
                        f"`{shown}` has {file.stat.st_size} bytes; files up to {MAX_FILE_BYTES} are changed"
                    )
                data = read_bytes(file, MAX_FILE_BYTES)
                mode = stat.S_IMODE(file.stat.st_mode) & 0o777
                return FileContent(names=names, shown=shown, data=data, mode=mode)
        except ToolFailed:
            if self._is_absent(names):
                return FileContent(names=names, shown=shown, data=None)
            raise

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply all of the changes, or none of them, and remember them for `undo`.

        Args:
            changes: At most one for each path.

        Raises:
            ToolFailed: A file does not hold what the change was computed from, or cannot be written. What was
                written before that is taken back.
        """
        with self._lock:
            self._apply(changes)
            self._done.append(tuple(changes))
            while len(self._done) > 1 and sum(c.size for step in self._done for c in step) > MAX_UNDO_BYTES:
                self._done.popleft()

    def undo(self, check: Callable[[Sequence[Change]], None] | None = None) -> UndoPlan:
        """Revert the latest step whose files still hold what it wrote; later ones stay as they are.

        Args:
            check: Called with the changes before they are made; what it raises prevents them.

        Returns:
            What was done.

        Raises:
            ToolFailed: Nothing is left to take back, or every file was changed since.
        """
        with self._lock:
            index, plan = self._plan_undo()
            if check is not None:
                check(plan.changes)
            self._apply(plan.changes)
            del self._done[index]
            return plan

    def plan_undo(self) -> UndoPlan:
        """What `undo` would do. Raises `ToolFailed` where it would fail."""
        with self._lock:
            return self._plan_undo()[1]

    def _plan_undo(self) -> tuple[int, UndoPlan]:
        if not self._done:
            raise ToolFailed("there is no change to undo: none was made since this server started")
        changed: dict[str, None] = {}
        for index in reversed(range(len(self._done))):
            reverse = tuple(change.reverse for change in reversed(self._done[index]))
            found = [change.shown for change in reverse if not self._is_unchanged(change)]
            if not found:
                return index, UndoPlan(changes=reverse, changed_since=tuple(changed))
            changed |= dict.fromkeys(found)
        raise ToolFailed(
            f"{enumerate_paths(changed)} changed since: what was edited there is not undone",
            hint="read it, and make the change that is wanted with `edit.replace`",
        )

    def _is_unchanged(self, change: Change) -> bool:
        """Whether a file holds what a change was computed from. One that cannot be read does not."""
        try:
            return self.read("/".join(change.names)).data == change.before
        except ToolFailed:
            return False

    def _apply(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._require_unchanged(change)
        done: list[Change] = []
        try:
            for change in changes:
                self._make(change)
                done.append(change)
        except BaseException:
            for change in reversed(done):
                # The first failure is the one to report; a file that another program changed meanwhile is
                # that program's.
                with suppress(ToolFailed, OSError):
                    self._require_unchanged(change.reverse)
                    self._make(change.reverse)
            raise

    def _require_unchanged(self, change: Change) -> None:
        now = self.read("/".join(change.names)).data
        if now == change.before:
            return
        if change.before is None:
            raise ToolFailed(f"`{change.shown}` exists already", hint="read it, then change it")
        what = "was deleted" if now is None else "was changed"
        raise ToolFailed(f"`{change.shown}` {what} since it was read", hint="read it again, then try again")

    def _make(self, change: Change) -> None:
        self._require_unprotected(change.names, change.shown)
        name = change.names[-1]
        if change.before is None and change.after is not None:
            self._make_folders(change.names[:-1])
        with self._confinement.folder_at(change.names[:-1]) as folder, _convert_write_errors(change.shown):
            if change.after is None:
                os.unlink(folder.location(name), dir_fd=folder.fd)
            else:
                _write(folder, name, change)

    def _require_unprotected(self, names: tuple[str, ...], shown: str) -> None:
        require_unprotected(names, shown)
        path = self._confinement.path_of(names)
        if is_within(path, self._protected()):
            program = "Fairlead itself"
        elif is_in_repository_folder(path) or is_within(path, map(Path, references_around(path.parent))):
            program = "git"
        else:
            return
        raise ToolFailed(
            f"`{shown}` is protected: {program} would run what it says",
            hint="ask the user to make this change",
        )

    def _make_folders(self, names: tuple[str, ...]) -> None:
        """Make the folders of a new file that are not there yet."""
        first = 0 if len(self._confinement.roots) == 1 else 1
        for end in range(first + 1, len(names) + 1):
            shown = "/".join(map(escape_name, names[:end]))
            with (
                self._confinement.folder_at(names[: end - 1]) as folder,
                _convert_write_errors(shown),
                suppress(FileExistsError),
            ):
                os.mkdir(folder.location(names[end - 1]), dir_fd=folder.fd)

    def _is_absent(self, names: tuple[str, ...]) -> bool:
        """Whether there is nothing at a path, and no link or file on the way that would be in its place."""
        first = 0 if len(self._confinement.roots) == 1 else 1
        for end in range(first + 1, len(names) + 1):
            try:
                with self._confinement.folder_at(names[: end - 1]) as folder:
                    folder.status(names[end - 1])
            except FileNotFoundError:
                return True
            except (ToolFailed, OSError):
                return False
        return False


def enumerate_paths(paths: Collection[str]) -> str:
    """The first few paths, with the verb that a sentence about all of them has."""
    named = ", ".join(f"`{path}`" for path in islice(paths, _MAX_NAMED))
    more = f" and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
    return f"{named}{more} {'was' if len(paths) == 1 else 'were'}"


def _write(folder: OpenFolder, name: str, change: Change) -> None:
    """Write a file next to its target, and rename it over the target."""
    assert change.after is not None
    # Opened for this user only: a private file's new content must not be readable before it has its mode.
    temporary = f".{secrets.token_hex(8)}.fairlead-edit"
    fd = os.open(
        folder.location(temporary),
        os.O_CREAT | os.O_EXCL | os.O_WRONLY | FILE,
        0o666 if change.mode is None else 0o600,
        dir_fd=folder.fd,
    )
    try:
        try:
            _write_all(fd, change.after)
            if change.mode is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, change.mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        _put_in_place(folder, temporary, name, is_new=change.before is None)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(folder.location(temporary), dir_fd=folder.fd)
        raise


def _put_in_place(folder: OpenFolder, temporary: str, name: str, *, is_new: bool) -> None:
    here, there = folder.location(temporary), folder.location(name)
    if not is_new:
        os.replace(here, there, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
        return
    # A link fails where a file of that name came into being meanwhile; a rename would replace it.
    try:
        os.link(here, there, src_dir_fd=folder.fd, dst_dir_fd=folder.fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV}:
            raise
        with suppress(FileNotFoundError):  # no links on this file system: look, then rename
            folder.status(name)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        os.replace(here, there, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
    else:
        os.unlink(here, dir_fd=folder.fd)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


@contextmanager
def _convert_write_errors(shown: str) -> Generator[None]:
    """Convert an `OSError` of the block to an error about writing a path."""
    try:
        yield
    except FileExistsError as error:
        raise ToolFailed(f"`{shown}` exists already", hint="read it, then change it") from error
    except OSError as error:
        reason = (error.strerror or "the system refused").lower()
        raise ToolFailed(f"`{shown}` cannot be written: {reason}") from error
