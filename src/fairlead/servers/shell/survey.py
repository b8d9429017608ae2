"""Finds what a command must not change in a folder: paths that programs outside the sandbox would act on.

By name, as `servers.protected` lists them; by shape, since git takes any folder with `HEAD` and `objects` for
a repository and runs what its `config` says; and by reference, since hooks may be links and git's
configuration may name a folder of hooks.
"""

import errno
import math
import os
import stat
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from fairlead.bubblewrap import Identity
from fairlead.errors import ToolFailed
from fairlead.servers.git_references import (
    HEAD,
    REPOSITORY_MARKS,
    git_folder_at,
    modules_of,
    references_around,
    references_of,
)
from fairlead.servers.protected import is_protected_name, is_special_name
from fairlead.servers.repo.folders import FOLDER, Root, display_path, is_private

MAX_ENTRIES: Final = 3_000_000
"""Most files and folders that are looked at."""
MAX_DEPTH: Final = 200
MAX_GUARDED: Final = 1_000
"""Most protected paths in one folder: each is a mount of its own."""

Names = tuple[str, ...]
"""A path below the root, name by name."""

FoundKind = Literal["folder", "file", "link", "special", "closed", "too deep"]
"""`closed` is a folder that cannot be looked into."""

_GIT = ".git"

_DEPENDENCIES = frozenset({"node_modules", "site-packages", "dist-packages", ".venv", "venv", ".tox", ".nox"})
"""Folders of installed packages. Editors do not act on what is in a package, which often has such folders,
and a guarded one could not be removed, so that installing anew would fail. Repositories are guarded here."""

GIT_FOLDERS: Final = ("hooks", "worktrees", "modules", "remotes", "branches")
GIT_FILES: Final = {"config.worktree": b"", "commondir": b".\n"}
"""Files that git reads if they are there, with contents that change nothing."""
_GIT_GUARDED = ("config", *GIT_FOLDERS, *GIT_FILES)
"""What decides in `.git` what git executes, here or in another working tree. All else can be written."""

_GIT_DATA = frozenset(
    {"objects", "refs", "logs", "info", "index", "packed-refs", HEAD, "ORIG_HEAD", "FETCH_HEAD", "lfs"}
)
_MAX_LINKS = 40
"""Links in one path, as the system follows them."""


@dataclass(frozen=True, slots=True)
class FoundPath:
    """A path that must not be changed."""

    names: Names
    kind: FoundKind
    identity: Identity
    is_bare: bool = False
    """Whether it is the `HEAD` of a repository that has no name of its own."""


@dataclass(kw_only=True, slots=True)
class Survey:
    """Protected paths in a folder, as they were before a command."""

    found: dict[Names, FoundPath] = field(default_factory=dict[Names, FoundPath])
    """Paths with a protected name, or the shape of a repository."""
    read_only: dict[Names, Identity] = field(default_factory=dict[Names, Identity])
    held_in_place: dict[Names, Identity] = field(default_factory=dict[Names, Identity])
    """Folders that can be written but not moved: something in them is guarded."""
    covered: dict[Names, Identity] = field(default_factory=dict[Names, Identity])
    """Sockets and pipes: through them a command could talk to programs outside."""
    links: dict[Names, str] = field(default_factory=dict[Names, str])
    """Links with a protected name, and those that something guarded is reached over, with their targets."""
    absent: set[Names] = field(default_factory=set[Names])
    """What hooks, links and git's configuration lead to, and is not there."""
    has_repository: bool = False
    """Whether the parts of `.git` are guarded one by one."""

    @property
    def identities(self) -> frozenset[Identity]:
        """The identity of everything that was mounted: of no link, whose inode can become another's."""
        return frozenset(each.identity for each in self.found.values() if each.kind in ("folder", "file"))


def survey_folder(root: Root, more: Sequence[Path] = ()) -> Survey:
    """Look for all that a command must not change.

    Args:
        root: The folder.
        more: What must not be changed besides, wherever it is: files and folders.

    Raises:
        ToolFailed: There is too much to look at, or something cannot be guarded.
    """
    survey = Survey()
    for each in find_protected(root):
        survey.found[each.names] = each
        if each.kind == "too deep":
            raise ToolFailed(f"`{display_path(root, each.names)}` is nested too deeply to be protected")
        _guard(root, each, survey)
        if len(survey.read_only) + len(survey.covered) > MAX_GUARDED:
            raise ToolFailed(
                f"`{root.path}` has more than {MAX_GUARDED:,} protected paths", hint="name a smaller folder"
            )
    for path in references_around(os.path.dirname(root.path)):  # the folder may be part of a repository
        _guard_path(root, path, survey)
    for path in more:
        _guard_named(root, path, survey)
    return survey


def find_protected(root: Root, *, closed_before: Container[Names] | None = None) -> Iterator[FoundPath]:
    """Every path below a root that has a protected name or the shape of a repository; links not followed.

    Args:
        root: The folder.
        closed_before: After a command: the folders that could not be looked into before it. Others are
            opened, since the command closed them: what is in one can be used by those who know its name.
            However much there is by then, all of it is looked at.

    Raises:
        ToolFailed: There is too much to look at.
    """
    with _Walk(root, closed_before) as walk:
        yield from walk.visit((), walk.top, in_package=False)


def status_of(root: Root, names: Names) -> os.stat_result | None:
    """The `stat` of a path, without following links anywhere on the way; None if there is nothing."""
    try:
        with OpenParent(root, names) as parent:
            return os.stat(names[-1], dir_fd=parent.fd, follow_symlinks=False)
    except OSError:
        return None


def identity_of(status: os.stat_result) -> Identity:
    """Device and inode."""
    return status.st_dev, status.st_ino


class OpenParent:
    """The folder a path is in, opened name by name without following links. Raises `OSError`."""

    def __init__(self, root: Root, names: Names) -> None:
        self.fd = os.open(root.path, FOLDER)
        try:
            for name in names[:-1]:
                inner = os.open(name, FOLDER, dir_fd=self.fd)
                os.close(self.fd)
                self.fd = inner
        except BaseException:
            os.close(self.fd)
            raise

    def __enter__(self) -> "OpenParent":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)


class _Walk:
    """Goes through all folders below a root, each opened in the one above."""

    def __init__(self, root: Root, closed_before: Container[Names] | None) -> None:
        self._root = root
        self._closed_before = closed_before
        self._left: float = MAX_ENTRIES if closed_before is None else math.inf
        self.top = os.open(root.path, FOLDER)

    def __enter__(self) -> "_Walk":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.top)

    def visit(self, names: Names, fd: int, *, in_package: bool) -> Iterator[FoundPath]:
        folders, found, is_bare = self._list(fd, in_package=in_package)
        if is_bare:
            yield from self._look((*names, HEAD), fd, "file", is_bare=True)
            if names:
                return  # the whole folder is guarded
        for name, kind in found:
            yield from self._look((*names, name), fd, kind)
        for name in folders:
            if len(names) + 1 >= MAX_DEPTH:
                yield from self._look((*names, name), fd, "too deep")
            else:
                yield from self._enter((*names, name), fd, in_package=in_package)

    def _list(self, fd: int, *, in_package: bool) -> tuple[list[str], list[tuple[str, FoundKind]], bool]:
        """The folders to enter, what is protected, and whether it all is a repository of git's."""
        folders: list[str] = []
        found: list[tuple[str, FoundKind]] = []
        marks: set[str] = set()
        with os.scandir(fd) as entries:
            for entry in entries:
                self._left -= 1
                kind = _kind(entry)
                if entry.name == HEAD or entry.name in REPOSITORY_MARKS:
                    marks.add(entry.name)
                if kind == "special" or _is_guarded(entry.name, in_package=in_package):
                    found.append((entry.name, kind))
                elif kind == "folder":
                    folders.append(entry.name)
        if self._left < 0:
            raise ToolFailed(
                f"`{self._root.path}` has more than {MAX_ENTRIES:,} files and folders: too many to protect"
                " what is in it",
                hint="name a smaller folder in `roots`",
            )
        return folders, found, HEAD in marks and len(marks) > 1

    def _enter(self, names: Names, fd: int, *, in_package: bool) -> Iterator[FoundPath]:
        inner = self._open(names, fd)
        if inner is None:
            yield from self._look(names, fd, "closed")  # or nothing: it was removed meanwhile
            return
        try:
            yield from self.visit(names, inner, in_package=in_package or names[-1] in _DEPENDENCIES)
        finally:
            os.close(inner)

    def _open(self, names: Names, fd: int) -> int | None:
        """Open a folder; None for one that is closed, or gone."""
        try:
            inner = os.open(names[-1], FOLDER, dir_fd=fd)
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                shown = display_path(self._root, names)
                raise ToolFailed(f"`{shown}` cannot be looked into: {exc.strerror}") from exc
        else:
            if not _is_closed(os.fstat(inner)):
                return inner
            os.close(inner)
        if self._closed_before is None or names in self._closed_before:
            return None
        return _reopen(names[-1], fd)

    @staticmethod
    def _look(names: Names, fd: int, kind: FoundKind, *, is_bare: bool = False) -> Iterator[FoundPath]:
        try:
            status = os.stat(names[-1], dir_fd=fd, follow_symlinks=False)
        except OSError:
            return
        yield FoundPath(names, kind, identity_of(status), is_bare)


def _is_closed(status: os.stat_result) -> bool:
    """Whether nothing in a folder of ours can be opened, though its names can be listed."""
    user = os.geteuid()
    return user != 0 and status.st_uid == user and not status.st_mode & stat.S_IXUSR


def _reopen(name: str, folder: int) -> int | None:
    """Give ourselves the rights to a folder that a command took from us, and open it."""
    try:
        path = os.open(name, FOLDER | os.O_PATH, dir_fd=folder)
    except OSError:
        return None
    try:
        # A descriptor of this kind takes no rights itself.
        os.chmod(f"/proc/self/fd/{path}", stat.S_IMODE(os.fstat(path).st_mode) | stat.S_IRWXU)
        return os.open(".", FOLDER, dir_fd=path)
    except OSError:
        return None
    finally:
        os.close(path)


def _kind(entry: os.DirEntry[str]) -> FoundKind:
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_file(follow_symlinks=False):
        return "file"
    return "link" if entry.is_symlink() else "special"


def _is_guarded(name: str, *, in_package: bool) -> bool:
    # Most names are ruled out before the costly comparison: there may be a million of them.
    if name[0] != "." and not is_special_name(name.lower()):
        return False
    return is_private(name) if in_package else is_protected_name(name)


# How each thing is guarded.


def _guard(root: Root, each: FoundPath, survey: Survey) -> None:
    if each.kind == "special":
        survey.covered[each.names] = each.identity
    elif each.is_bare:
        folder = each.names[:-1]
        if not folder:
            raise ToolFailed(f"`{root.path}` is itself a folder of git's: no command is run in it")
        status = status_of(root, folder)
        if status is not None:
            survey.read_only[folder] = identity_of(status)
            _guard_references(root, folder, survey)
    elif each.kind == "closed":
        survey.read_only[each.names] = each.identity
    elif each.kind == "link":
        _guard_path(root, str(root.path.joinpath(*each.names)), survey)
    elif each.names == (_GIT,) and each.kind == "folder":
        _guard_repository(root, each, survey)
    else:
        survey.read_only[each.names] = each.identity
        _require_single(root, each.names)
        if not is_private(each.names[-1]):
            _guard_links_in(root, each.names, survey)
    if is_private(each.names[-1]):
        _guard_references(root, each.names, survey)


def _guard_path(root: Root, path: str, survey: Survey) -> None:
    """Guard what a path leads to, and the links that it leads over, where they are below the root.

    A link cannot be mounted over: it is put back afterwards.
    """
    links, end = _follow(root, path)
    for names, target in links.items():
        if not _is_inside(names, survey.read_only):
            survey.links[names] = target
    if end is None or _is_inside(end, survey.read_only) or _is_data_of_git(end):
        return
    status = status_of(root, end)
    if status is None:
        survey.absent.add(end)
        return
    survey.read_only[end] = identity_of(status)
    if len(survey.read_only) <= MAX_GUARDED and stat.S_ISDIR(status.st_mode):
        _guard_links_in(root, end, survey)


def _guard_named(root: Root, path: Path, survey: Survey) -> None:
    """Guard a file or folder that has no protected name."""
    real = os.path.realpath(path)
    if real == str(root.path):
        raise ToolFailed(f"Fairlead itself runs what is in `{root.path}`: no command is run in it")
    _guard_path(root, os.path.abspath(path), survey)
    if (names := _names_below(root, real)) is not None:
        _require_single(root, names)


def _guard_links_in(root: Root, names: Names, survey: Survey) -> None:
    """Guard what links in a guarded folder lead to: a program reads that as if it were in the folder."""
    for folder, inner, files in os.walk(root.path.joinpath(*names)):
        for name in (*inner, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                _guard_path(root, path, survey)


def _follow(root: Root, path: str) -> tuple[dict[Names, str], Names | None]:
    """The links below the root that a path leads over, with their targets, and where it ends, if below it."""
    links: dict[Names, str] = {}
    at, left = os.sep, [name for name in reversed(path.split(os.sep)) if name]
    followed = 0
    while left:
        name = left.pop()
        if name in (os.curdir, os.pardir):
            at = os.path.dirname(at) if name == os.pardir else at
            continue
        here = os.path.join(at, name)
        try:
            target = os.readlink(here)
        except (OSError, ValueError):  # no link, or nothing
            at = here
            continue
        if (names := _names_below(root, here)) is not None:
            links[names] = target
        followed += 1
        if followed > _MAX_LINKS:
            return links, None
        at = os.sep if os.path.isabs(target) else at
        left += [each for each in reversed(target.split(os.sep)) if each]
    return links, _names_below(root, at)


def _names_below(root: Root, path: str) -> Names | None:
    if not path.startswith(f"{root.path}{os.sep}"):
        return None
    return tuple(os.path.relpath(path, root.path).split(os.sep))


def _is_inside(names: Names, guarded: Container[Names]) -> bool:
    return any(names[:end] in guarded for end in range(1, len(names) + 1))


def _is_data_of_git(names: Names) -> bool:
    """Whether it is what git writes when it is used: guarded, no command could use it."""
    return names[0] == _GIT and (len(names) == 1 or names[1] in _GIT_DATA)


def _guard_repository(root: Root, each: FoundPath, survey: Survey) -> None:
    """Guard the parts of `.git` one by one, so that git can be used; or all of it where that is not sure."""
    statuses = {part: status_of(root, (_GIT, part)) for part in _GIT_GUARDED}
    modes = {part: status.st_mode for part, status in statuses.items() if status is not None}
    is_usual = stat.S_ISREG(modes.get("config", 0)) and not any(map(stat.S_ISLNK, modes.values()))
    if not is_usual:
        survey.read_only[each.names] = each.identity
    else:
        survey.has_repository = True
        survey.held_in_place[each.names] = each.identity
        for part, status in statuses.items():
            if status is not None:
                survey.read_only[_GIT, part] = identity_of(status)
                _require_single(root, (_GIT, part))


def _guard_references(root: Root, names: Names, survey: Survey) -> None:
    """Guard what git executes or reads besides its own files, for the repository at a path."""
    git = git_folder_at(str(root.path.joinpath(*names)))
    for each in (git, *modules_of(git)) if git is not None else ():
        for path in references_of(each):
            _guard_path(root, path, survey)
        hooks = _names_below(root, os.path.join(each.common, "hooks"))
        if hooks is not None:
            _guard_links_in(root, hooks, survey)


def _require_single(root: Root, names: Names) -> None:
    """Refuse a protected file that is also elsewhere: by that other name a command could change it."""
    for path, status in _files_at(root, names):
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            shown = display_path(root, path)
            raise ToolFailed(
                f"`{shown}` is protected and has another name (a hard link), by which it could be changed",
                hint=f"make it a file of its own: copy it, and move the copy over `{shown}`",
            )


def _files_at(root: Root, names: Names) -> Iterator[tuple[Names, os.stat_result]]:
    status = status_of(root, names)
    if status is None:
        return
    yield names, status
    if not stat.S_ISDIR(status.st_mode) or names[-1] in ("modules", "worktrees"):
        return
    # Objects of a local clone are hard links, and cannot be changed without being noticed.
    is_git = is_private(names[-1])
    for folder, inner, files in os.walk(root.path.joinpath(*names)):
        if is_git:
            inner[:] = [name for name in inner if name == "hooks"]
            files = [name for name in files if name in _GIT_GUARDED or folder.endswith("hooks")]
        below = tuple(os.path.relpath(folder, root.path).split(os.sep))
        for name in files:
            inside = status_of(root, (*below, name))
            if inside is not None:
                yield (*below, name), inside
