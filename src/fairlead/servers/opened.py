"""Files and folders that are open for reading, and the one step from a folder to a name in it."""

import errno
import itertools
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import ToolFailed
from fairlead.servers.names import escaped, is_private, similar

# Python itself keeps descriptors from our children (O_CLOEXEC). Not all of these exist everywhere.
FILE: int = sum(getattr(os, flag, 0) for flag in ("O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
FOLDER: int = FILE | getattr(os, "O_DIRECTORY", 0)

_SWAPPED = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR}
_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_INSTEAD = {stat.S_IFREG: "read it instead", stat.S_IFDIR: "list it instead"}
_NAMES_TO_COMPARE = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Root:
    """One folder that may be read, with everything below it."""

    name: str
    path: Path
    prefix: str
    """What stands before paths below it when they are shown: nothing, or its name where there are several."""
    fd: int | None
    """To open names in, never to list: all users of a descriptor share its position. None if not strict."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenFile:
    """A regular file, open for reading."""

    fd: int
    stat: os.stat_result
    shown: str
    """The path as callers know it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenFolder:
    """A folder, open for reading. Names are looked up in this very folder, wherever it is moved meanwhile."""

    root: Root
    names: tuple[str, ...]
    """The way down from the root."""
    fd: int | None
    """Its own descriptor; None if not strict."""

    @property
    def path(self) -> Path:
        """Where it was when it was opened."""
        return self.root.path.joinpath(*self.names)

    @property
    def shown(self) -> str:
        """The path as callers know it."""
        return shown_path(self.root, self.names)

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Its entries, as `os.scandir` gives them."""
        return os.scandir(self.path if self.fd is None else self.fd)

    def status(self, name: str) -> os.stat_result:
        """What that name stands for now, be it a link; raises `OSError`."""
        return os.stat(self._at(name), dir_fd=self.fd, follow_symlinks=False)

    @contextmanager
    def file(self, name: str) -> Generator[OpenFile]:
        """The file of that name."""
        shown = self._shown(name)
        if any(map(is_private, self.names)):
            raise ToolFailed(
                f"`{shown}` belongs to version control, which can keep credentials there; it is not read",
                hint="such folders can be listed, and the files under version control can be read as usual",
            )
        before = self._look(name, stat.S_IFREG)
        with in_words(shown):
            fd = os.open(self._at(name), FILE, dir_fd=self.fd)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or (self.fd is None and not os.path.samestat(before, found)):
                raise _swapped(shown)
            yield OpenFile(fd=fd, stat=found, shown=shown)
        finally:
            os.close(fd)

    def enter(self, name: str) -> "OpenFolder":
        """The folder of that name; the caller closes it."""
        self._look(name, stat.S_IFDIR)
        with in_words(self._shown(name)):
            fd = None if self.fd is None else os.open(name, FOLDER, dir_fd=self.fd)
        return OpenFolder(root=self.root, names=(*self.names, name), fd=fd)

    def close(self) -> None:
        """Give the descriptor back."""
        if self.fd is not None:
            os.close(self.fd)

    def _at(self, name: str) -> str:
        return name if self.fd is not None else os.path.join(self.path, name)

    def _shown(self, name: str) -> str:
        return shown_path(self.root, (*self.names, name))

    def _look(self, name: str, wanted: int) -> os.stat_result:
        """What that name stands for now. Only what is wanted is opened: opening a pipe wakes its writer."""
        shown = self._shown(name)
        with in_words(shown):
            try:
                found = self.status(name)
            except FileNotFoundError as error:
                raise ToolFailed(f"there is no `{shown}`", hint=self._similar(name)) from error
            leads_out = self.fd is None and not self._is_inside(name)
        kind = stat.S_IFMT(found.st_mode)
        if kind == stat.S_IFLNK:
            raise ToolFailed(f"`{shown}` is a link, and links are not followed", hint=self._target(name))
        if kind != wanted:
            what = _KINDS.get(kind, "something else")
            raise ToolFailed(f"`{shown}` is {what}, not {_KINDS[wanted]}", hint=_INSTEAD.get(kind))
        if leads_out:
            raise ToolFailed(f"`{shown}` leads out of the folder that may be read")
        return found

    def _is_inside(self, name: str) -> bool:
        return Path(os.path.realpath(self._at(name))).is_relative_to(self.root.path)

    def _similar(self, name: str) -> str | None:
        """The names here that may have been meant."""
        try:
            with self.scan() as entries:
                names = [entry.name for entry in itertools.islice(entries, _NAMES_TO_COMPARE)]
        except OSError:
            return None
        meant = " or ".join(f"`{self._shown(match)}`" for match in similar(name, names))
        return f"did you mean {meant}?" if meant else None

    def _target(self, name: str) -> str:
        """Where a link leads, if that is a place that may be known."""
        try:
            target = os.readlink(self._at(name), dir_fd=self.fd)
        except OSError:
            return "use the path of what it points to"
        path = Path(os.path.normpath(self.path / target))
        if not path.is_relative_to(self.root.path):
            return "it points out of the folder that may be read"
        return (
            f"it points to `{shown_path(self.root, path.relative_to(self.root.path).parts)}`: use that path"
        )


def shown_path(root: Root, names: Iterable[str]) -> str:
    """A path below a root as callers know it."""
    return (root.prefix + "/".join(map(escaped, names))).rstrip("/") or "."


@contextmanager
def in_words(shown: str) -> Generator[None]:
    """What the system says no to in this block, said of a path."""
    try:
        yield
    except OSError as error:
        if error.errno in _SWAPPED:
            raise _swapped(shown) from error
        reason = (error.strerror or "the system says no").lower()
        raise ToolFailed(f"`{shown}` cannot be read: {reason}") from error


def _swapped(shown: str) -> ToolFailed:
    return ToolFailed(f"`{shown}` was swapped for something else while it was opened", hint="try again")
