"""Confined folders: the only way from a path to an open file of the `repo` server.

Each name of a path is opened relative to the folder opened before it, never through a symbolic link, so that
swapping a folder for a link between check and use has no effect. Only regular files are handed out, no pipes,
devices or sockets. Links are refused even where they stay inside a root, since a link can be changed at any
moment. A hard link cannot be distinguished from the file: a user who can create one below a root can have
that file read. Folders mounted below a root are read like any other.
"""

import errno
import itertools
import os
import re
import stat
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fairlead.errors import ToolFailed

_PRIVATE = {".git", ".hg", ".jj", ".svn", "git~1"}
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def escape_name(name: str) -> str:
    r"""A file name fit to be shown: what is not UTF-8, or cannot be seen, becomes `\xff` or `\u200b`."""
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(map(_escape_character, name))


def _escape_character(character: str) -> str:
    code = ord(character)
    if character == "\\":
        return r"\\"
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def similar(name: str, among: Iterable[str]) -> list[str]:
    """Up to three similar names, the most similar first: they share half of their pairs of letters.

    More thorough ways take a time that grows with the square of the lengths, and names can be made for that.
    """
    scored = sorted((-_likeness(name, other), other) for other in among)
    return [other for score, other in scored[:3] if score <= -0.5]


def _likeness(one: str, other: str) -> float:
    pairs, others = ({*zip(f" {name}", name, strict=False)} for name in (one.lower(), other.lower()))
    return 2 * len(pairs & others) / max(1, len(pairs) + len(others))


def is_private(name: str) -> bool:
    """Whether a folder of this name belongs to a version control system, which keeps credentials there.

    Some file systems ignore case, characters that cannot be seen, or dots at the end; so does this.
    """
    return plain_name(name) in _PRIVATE


def plain_name(name: str) -> str:
    """A name in the form that the most tolerant file system compares."""
    return "".join(filter(str.isprintable, name)).rstrip(". ").casefold()


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
    """The prefix of shown paths below it: empty, or its name if there are several roots."""
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
    """An open folder. Names are looked up in this very folder, even if it is moved meanwhile."""

    root: Root
    names: tuple[str, ...]
    """The way down from the root."""
    fd: int | None
    """Its own descriptor; None if not strict."""

    @property
    def path(self) -> Path:
        """Its path when it was opened."""
        return self.root.path.joinpath(*self.names)

    @property
    def shown(self) -> str:
        """The path for display."""
        return display_path(self.root, self.names)

    def scan(self) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Its entries, as `os.scandir` gives them."""
        return os.scandir(self.path if self.fd is None else self.fd)

    def status(self, name: str) -> os.stat_result:
        """The `stat` of a name, without following links; raises `OSError`."""
        return os.stat(self.location(name), dir_fd=self.fd, follow_symlinks=False)

    @contextmanager
    def file(self, name: str) -> Generator[OpenFile]:
        """The file of that name."""
        shown = self._child_path(name)
        if any(map(is_private, self.names)):
            raise ToolFailed(
                f"`{shown}` belongs to version control, which can keep credentials there; it is not read",
                hint="such folders can be listed, and the files under version control can be read as usual",
            )
        before = self._look(name, stat.S_IFREG)
        with in_words(shown):
            fd = os.open(self.location(name), FILE, dir_fd=self.fd)
        try:
            # A name can be swapped between the look and the opening: what counts is what was opened.
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or (self.fd is None and not os.path.samestat(before, found)):
                raise _swap_error(shown)
            yield OpenFile(fd=fd, stat=found, shown=shown)
        finally:
            os.close(fd)

    def enter(self, name: str) -> "OpenFolder":
        """The folder of that name; the caller closes it."""
        self._look(name, stat.S_IFDIR)
        with in_words(self._child_path(name)):
            fd = None if self.fd is None else os.open(name, FOLDER, dir_fd=self.fd)
        return OpenFolder(root=self.root, names=(*self.names, name), fd=fd)

    def close(self) -> None:
        """Close the descriptor."""
        if self.fd is not None:
            os.close(self.fd)

    def location(self, name: str) -> str:
        """Argument for `os` functions about a name in this folder, together with `dir_fd=self.fd`."""
        return name if self.fd is not None else os.path.join(self.path, name)

    def _child_path(self, name: str) -> str:
        return display_path(self.root, (*self.names, name))

    def _look(self, name: str, wanted: int) -> os.stat_result:
        """Open a name of the wanted kind. Others are not opened: opening a pipe wakes its writer."""
        shown = self._child_path(name)
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
        return Path(os.path.realpath(self.location(name))).is_relative_to(self.root.path)

    def _similar(self, name: str) -> str | None:
        """The names here that may have been meant."""
        try:
            with self.scan() as entries:
                names = [entry.name for entry in itertools.islice(entries, _NAMES_TO_COMPARE)]
        except OSError:
            return None
        meant = " or ".join(f"`{self._child_path(match)}`" for match in similar(name, names))
        return f"did you mean {meant}?" if meant else None

    def _target(self, name: str) -> str:
        """The target of a link, if it may be shown."""
        try:
            target = os.readlink(self.location(name), dir_fd=self.fd)
        except OSError:
            return "use the path of what it points to"
        path = Path(os.path.normpath(self.path / target))
        if not path.is_relative_to(self.root.path):
            return "it points out of the folder that may be read"
        return (
            f"it points to `{display_path(self.root, path.relative_to(self.root.path).parts)}`: use that path"
        )


def display_path(root: Root, names: Iterable[str]) -> str:
    """A path below a root, for display."""
    return (root.prefix + "/".join(map(escape_name, names))).rstrip("/") or "."


@contextmanager
def in_words(shown: str) -> Generator[None]:
    """Convert an `OSError` of the block to an error about a path."""
    try:
        yield
    except OSError as error:
        if error.errno in _SWAPPED:
            raise _swap_error(shown) from error
        reason = (error.strerror or "unknown system error").lower()
        raise ToolFailed(f"`{shown}` cannot be read: {reason}") from error


def _swap_error(shown: str) -> ToolFailed:
    return ToolFailed(f"`{shown}` was swapped for something else while it was opened", hint="try again")


CAN_BE_STRICT = {os.open, os.stat, os.readlink} <= os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether this system opens a name in a folder that is open already."""

_DRIVE = re.compile(r"[A-Za-z]:")


class Confinement:
    """Folders that may be read, and nothing else.

    With one root, paths are relative to it. With several, the first name of a path is that of its root. Close
    it when it is no longer used: it holds a descriptor per root.
    """

    def __init__(self, roots: Sequence[Path], *, is_strict: bool = CAN_BE_STRICT) -> None:
        """Open the roots, or raise `ToolFailed` for what is no folder, or holds more than a project.

        Where `is_strict` is false, paths are checked and opened in two steps. It is all some systems can do,
        and holds unless a folder is swapped for a link at that very moment.
        """
        self.is_strict = is_strict
        paths = list(dict.fromkeys(map(_root_path, roots)))
        if not paths:
            raise ToolFailed("there is no folder to read", hint="name at least one")
        with ExitStack() as opened:
            self.roots = tuple(
                Root(
                    name=name,
                    path=path,
                    prefix=f"{name}/" if len(paths) > 1 else "",
                    fd=_open_root(path, opened) if is_strict else None,
                )
                for name, path in zip(_distinct_names(paths), paths, strict=True)
            )
            self._opened = opened.pop_all()
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the roots. No read may be under way; later ones are refused."""
        self._is_open = False
        self._opened.close()

    @contextmanager
    def file(self, path: str) -> Generator[OpenFile]:
        """The file at a path, open for as long as the block, or `ToolFailed` with the reason."""
        names = self.names(path)
        _, rest = self._root_of(names)
        if not rest:
            raise ToolFailed(f"`{escape_name(path) or '.'}` is a folder, not a file", hint="list it instead")
        with self.folder_at(names[:-1]) as folder, folder.file(names[-1]) as file:
            yield file

    @contextmanager
    def folder(self, path: str) -> Generator[OpenFolder]:
        """The folder at a path, open for as long as the block, or `ToolFailed` with the reason."""
        with self.folder_at(self.names(path)) as folder:
            yield folder

    @contextmanager
    def folder_at(self, names: Sequence[str]) -> Generator[OpenFolder]:
        """The folder at the end of a row of names, each as `names` or a scan gave it."""
        root, rest = self._root_of(names)
        folder = self._reopen_root(root)
        try:
            for name in rest:
                inner = folder.enter(name)
                folder.close()
                folder = inner
            yield folder
        finally:
            folder.close()

    def names(self, path: str) -> tuple[str, ...]:
        """The names a path is made of; none for the top. Refuses what cannot lead anywhere below."""
        shown = escape_name(path)
        if "\0" in path or not _is_encodable(path):
            raise ToolFailed(f"`{shown}` holds characters that no path has")
        if path.startswith("/") or _DRIVE.match(path):
            raise ToolFailed(
                f"`{shown}` is an absolute path; only relative ones are read", hint=self._relative(path)
            )
        # On Windows a backslash separates names, and a colon names a drive or a stream of a file.
        if "\\" in path or (":" in path and not self.is_strict):
            raise ToolFailed(
                f"`{shown}` holds a character that paths here may not have",
                hint="put `/` between names; a name that a listing shows with a backslash cannot be opened",
            )
        names = tuple(name for name in path.split("/") if name not in {"", "."})
        if ".." in names:
            raise ToolFailed(f"`{shown}` has `..` in it, which is not followed", hint=self._relative(path))
        return names

    def path_of(self, names: Sequence[str]) -> Path:
        """Where a row of names leads if no link is on the way."""
        root, rest = self._root_of(names)
        return root.path.joinpath(*rest)

    def _relative(self, path: str) -> str:
        """Hint for a path outside: its relative form, as far as its text shows it."""
        plain = os.path.normpath(path)
        for root in self.roots:
            if os.path.isabs(plain) and Path(plain).is_relative_to(root.path):
                return f"use `{display_path(root, Path(plain).relative_to(root.path).parts)}`"
        if os.path.isabs(plain) or plain.startswith("..") or _DRIVE.match(plain):
            return "paths start at the folder that may be read: `.` is that folder"
        return f"use `{escape_name(plain)}`"

    def _root_of(self, names: Sequence[str]) -> tuple[Root, Sequence[str]]:
        if len(self.roots) == 1:
            return self.roots[0], names
        known = {root.name: root for root in self.roots}
        if names and names[0] in known:
            return known[names[0]], names[1:]
        wrong = (
            f"there is no `{escape_name(names[0])}` here" if names else "this is not one folder but several"
        )
        raise ToolFailed(wrong, hint=f"paths start with one of {', '.join(f'`{name}`' for name in known)}")

    def _reopen_root(self, root: Root) -> OpenFolder:
        """A root with a descriptor of its own, since listing moves the position of the one all share."""
        if not self._is_open:
            raise ToolFailed("files are no longer read here: the server is stopping")
        if root.fd is None:
            return OpenFolder(root=root, names=(), fd=None)
        if os.fstat(root.fd).st_nlink == 0:
            gone = escape_name(str(root.path))
            raise ToolFailed(f"`{gone}` was removed since the server started", hint="start it again")
        with in_words(display_path(root, ())):
            return OpenFolder(root=root, names=(), fd=os.open(".", FOLDER, dir_fd=root.fd))


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


# ── roots ──


def _root_path(folder: Path) -> Path:
    """The real path of a folder, if it may be a root."""
    path = Path(os.path.realpath(folder))
    if not path.is_dir():
        raise ToolFailed(f"`{folder}` is not a folder, so nothing can be read there")
    if any(map(is_private, path.parts)):
        raise ToolFailed(f"`{folder}` belongs to version control, which can keep credentials there")
    if path == Path(path.anchor) or _home().is_relative_to(path):
        raise ToolFailed(
            f"`{folder}` holds more than a project, and is not read",
            hint="change to the project's own folder, or name that in `roots` of the server's entry",
        )
    return path


def _home() -> Path:
    """The user's home folder, or a path that is in no folder at all where there is none."""
    try:
        return Path(os.path.realpath(Path.home()))
    except RuntimeError:
        return Path()


def _open_root(path: Path, opened: ExitStack) -> int:
    with in_words(escape_name(str(path))):
        fd = os.open(path, FOLDER)
    opened.callback(os.close, fd)
    return fd


def _distinct_names(paths: Iterable[Path]) -> list[str]:
    """A name for each folder: its own, with a number where another has it already."""
    names: list[str] = []
    for path in paths:
        own = "".join(c if c.isprintable() and c not in "\\:" else "_" for c in path.name)
        numbered = (f"{own}-{number}" for number in itertools.count(2))
        names.append(next(name for name in itertools.chain([own], numbered) if name not in names))
    return names
