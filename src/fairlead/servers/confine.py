"""Folders that may be read, and nothing else: the one way from a path to an open file.

A path is taken apart and each name is opened in the folder that was opened before it, never through a link,
so there is no moment between a check and its use in which somebody could swap a folder for a link. What was
opened is looked at once more before it is handed out: a file, not a pipe, a device or a socket.

Links are refused even where they stay inside, since a link can be changed at any moment; the error says where
such a link leads. What cannot be told apart is a hard link, which *is* the file: whoever can make one below a
root can have that file read. Folders mounted below a root are read like any other.
"""

import itertools
import os
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from fairlead.errors import ToolFailed
from fairlead.servers.names import escaped, is_private
from fairlead.servers.opened import FOLDER, OpenFile, OpenFolder, Root, in_words, shown_path

CAN_BE_STRICT = {os.open, os.stat, os.readlink} <= os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether this system opens a name in a folder that is open already."""

_DRIVE = re.compile(r"[A-Za-z]:")


class Confinement:
    """Folders that may be read, and nothing else.

    With one root, paths are relative to it. With several, the first name of a path is that of its root. Close
    it when nobody uses it any more: it holds a descriptor per root.
    """

    def __init__(self, roots: Sequence[Path], *, is_strict: bool = CAN_BE_STRICT) -> None:
        """Open the roots, or raise `ToolFailed` for what is no folder, or holds more than a project.

        Where `is_strict` is false, paths are checked and opened in two steps. It is all some systems can do,
        and holds as long as nobody swaps a folder for a link at that very moment.
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
        """Let go of the roots. No read may be under way; later ones are refused."""
        self._is_open = False
        self._opened.close()

    @contextmanager
    def file(self, path: str) -> Generator[OpenFile]:
        """The file at a path, open for as long as the block, or `ToolFailed` with the reason."""
        names = self.names(path)
        _, rest = self._root_of(names)
        if not rest:
            raise ToolFailed(f"`{escaped(path) or '.'}` is a folder, not a file", hint="list it instead")
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
        folder = self._opened_anew(root)
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
        shown = escaped(path)
        if "\0" in path or not _is_encodable(path):
            raise ToolFailed(f"`{shown}` holds characters that no path has")
        if path.startswith("/") or _DRIVE.match(path):
            raise ToolFailed(
                f"`{shown}` is an absolute path; only relative ones are read", hint=self._relative(path)
            )
        if "\\" in path or (":" in path and not self.is_strict):
            raise ToolFailed(
                f"`{shown}` holds a character that paths here may not have",
                hint="put `/` between names; a name that a listing shows with a backslash cannot be opened",
            )
        names = tuple(name for name in path.split("/") if name not in {"", "."})
        if ".." in names:
            raise ToolFailed(f"`{shown}` has `..` in it, which is not followed", hint=self._relative(path))
        return names

    def _relative(self, path: str) -> str:
        """How a path should have been written, as far as that can be told from its text."""
        plain = os.path.normpath(path)
        for root in self.roots:
            if os.path.isabs(plain) and Path(plain).is_relative_to(root.path):
                return f"use `{shown_path(root, Path(plain).relative_to(root.path).parts)}`"
        if os.path.isabs(plain) or plain.startswith("..") or _DRIVE.match(plain):
            return "paths start at the folder that may be read: `.` is that folder"
        return f"use `{escaped(plain)}`"

    def _root_of(self, names: Sequence[str]) -> tuple[Root, Sequence[str]]:
        if len(self.roots) == 1:
            return self.roots[0], names
        known = {root.name: root for root in self.roots}
        if names and names[0] in known:
            return known[names[0]], names[1:]
        wrong = f"there is no `{escaped(names[0])}` here" if names else "this is not one folder but several"
        raise ToolFailed(wrong, hint=f"paths start with one of {', '.join(f'`{name}`' for name in known)}")

    def _opened_anew(self, root: Root) -> OpenFolder:
        """A root with a descriptor of its own, since listing moves the position of the one all share."""
        if not self._is_open:
            raise ToolFailed("files are no longer read here: the server is stopping")
        if root.fd is None:
            return OpenFolder(root=root, names=(), fd=None)
        if os.fstat(root.fd).st_nlink == 0:
            gone = escaped(str(root.path))
            raise ToolFailed(f"`{gone}` was removed since the server started", hint="start it again")
        with in_words(shown_path(root, ())):
            return OpenFolder(root=root, names=(), fd=os.open(".", FOLDER, dir_fd=root.fd))


def _is_encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


# ── roots ──


def _root_path(folder: Path) -> Path:
    """Where a folder really is, if it may be a root."""
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
    with in_words(escaped(str(path))):
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
