"""Guards what would run later outside the sandbox against one command: mounts before, a check afterwards.

What is there is mounted read-only, and so can be neither moved nor removed. Of what is not there, the names
that programs act on at once are taken by empty folders for as long as the command runs, so that they cannot
be made. Everything else with a protected name that is new afterwards, wherever it is, is renamed: no program
looks for it under that name.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fairlead.bubblewrap import Access, Identity, SandboxView
from fairlead.errors import ToolFailed
from fairlead.servers.git_references import HEAD
from fairlead.servers.protected import PROTECTED_FOLDERS, is_protected_name
from fairlead.servers.repo.folders import Root, display_path, is_private
from fairlead.servers.shell.placeholders import Placeholders
from fairlead.servers.shell.survey import (
    GIT_FILES,
    GIT_FOLDERS,
    FoundPath,
    Names,
    OpenParent,
    Survey,
    find_protected,
    identity_of,
    status_of,
    survey_folder,
)

RESERVED: Final = (".git", ".envrc", "fairlead.json", *sorted(PROTECTED_FOLDERS))
"""Names that no command can make at the top of a root, in the order they are taken."""

_GIT = ".git"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldPath:
    """A protected path that a command made, and the name it has now."""

    path: str
    renamed_to: str | None
    """None if that failed."""


class FolderGuard:
    """Guards one root for the length of one command. No other command may run in it meanwhile."""

    def __init__(self, root: Root, more: Sequence[Path] = ()) -> None:
        """Guard a folder.

        Args:
            root: The folder.
            more: What is protected besides, wherever it is and whatever its name.
        """
        self._root = root
        self._more = more
        self._rights = 0
        self._survey: Survey | None = None
        self._placeholders = Placeholders(root)

    def prepare(self) -> None:
        """Find the protected paths, and occupy the names that must not be created.

        Raises:
            ToolFailed: Something cannot be protected. Nothing is left behind.
        """
        survey = survey_folder(self._root, self._more)
        self._rights = os.stat(self._root.path).st_mode & stat.S_IRWXU
        try:
            for names, content in _names_to_take(survey):
                if self._placeholders.take(names, content):
                    survey.read_only.pop(names, None)
                    survey.found.pop(names, None)
        except OSError as exc:
            self.give_back()
            raise ToolFailed(
                f"`{self._root.path}` cannot be protected: {exc.strerror}",
                hint="commands run only in folders that you can write to",
            ) from exc
        self._survey = survey

    def add_to(self, view: SandboxView) -> SandboxView:
        """A sandbox with the guarded paths mounted."""
        assert self._survey is not None, "it is prepared first"
        survey, path_of = self._survey, self._path_of
        shown: dict[Path, Access] = dict(view.shown)
        shown |= {path_of(names): "write" for names in survey.held_in_place}
        shown |= {path_of(names): "read" for names in survey.read_only}
        shown |= dict.fromkeys(self._placeholders.files, "read")
        identities = {
            path_of(names): identity for names, identity in (survey.read_only | survey.held_in_place).items()
        }
        covered = {path_of(names): "file" for names in survey.covered}
        return replace(
            view,
            shown=shown,
            identities={**view.identities, **identities},
            covered={**view.covered, **dict.fromkeys(self._placeholders.folders, "folder"), **covered},
        )

    def settle(self) -> list[HeldPath]:
        """Rename protected paths that a command created, and restore links.

        Call it once no process of the command is left and the taken names have been given back.

        Returns:
            What was renamed.

        Raises:
            ToolFailed: The system has no descriptors left to look with.
        """
        if (survey := self._survey) is None:
            return []  # nothing was run: without a survey, everything would look new
        # What came into a placeholder meanwhile came from outside: in the sandbox it was covered.
        known = survey.identities | self._placeholders.identities
        # All are found before the first is renamed: a folder that is being listed should not change.
        closed = {names for names, each in survey.found.items() if each.kind == "closed"}
        found = find_protected(self._root, closed_before=closed)
        new = [each for each in found if not self._is_as_before(each, survey, known)]
        held = [self._hold(each) for each in new]
        for names in survey.read_only.keys() - survey.found.keys():
            # What was guarded by reference: its folder may have been moved and another put there.
            status = status_of(self._root, names)
            if status is not None and identity_of(status) != survey.read_only[names]:
                held.append(self._hold(FoundPath(names, "file", identity_of(status))))
        for names in survey.absent:
            status = status_of(self._root, names)
            if status is not None:
                held.append(self._hold(FoundPath(names, "file", identity_of(status))))
        for names in survey.links.keys() - survey.found.keys():
            # A link without a protected name, over which something guarded is reached.
            status = status_of(self._root, names)
            if status is not None and self._read_link(names) != survey.links[names]:
                held.append(self._hold(FoundPath(names, "file", identity_of(status))))
        for names, target in survey.links.items():
            self._put_back(names, target)
        return held

    def _is_as_before(self, each: FoundPath, survey: Survey, known: frozenset[Identity]) -> bool:
        before = survey.found.get(each.names)
        if each.kind == "link":
            target = survey.links.get(each.names)
            return target is not None and target == self._read_link(each.names)
        if each.kind == "special":
            # A new socket or pipe is no program's to run; with a protected name it is in the way.
            return before is not None or not is_protected_name(each.names[-1])
        if before is not None and (before.identity, before.kind) == (each.identity, each.kind):
            return True
        # Moved with a folder above it: what it says is unchanged. But a file `.git` names a folder by a
        # relative path, which leads elsewhere now.
        return each.identity in known and not (each.kind == "file" and is_private(each.names[-1]))

    def _read_link(self, names: Names) -> str | None:
        with suppress(OSError), OpenParent(self._root, names) as parent:
            return os.readlink(names[-1], dir_fd=parent.fd)
        return None

    def _put_back(self, names: Names, target: str) -> None:
        """Make a link again that a command removed."""
        with suppress(OSError), OpenParent(self._root, names) as parent:
            os.symlink(target, names[-1], dir_fd=parent.fd)

    def _hold(self, each: FoundPath) -> HeldPath:
        """Give something another name. No process is left that could interfere."""
        new = f"{each.names[-1]}.fairlead-{secrets.token_hex(4)}"
        held = HeldPath(path=self._render_path(each.names), renamed_to=None)
        try:
            with OpenParent(self._root, each.names) as parent:
                _retry_writable(parent.fd, lambda: _rename(each.names[-1], new, parent.fd))
                if each.kind == "folder" and is_private(each.names[-1]):
                    self._disarm(new, parent.fd)
        except OSError:
            return held
        return replace(held, renamed_to=self._render_path((*each.names[:-1], new)))

    @staticmethod
    def _disarm(name: str, parent: int) -> None:
        """Take its `HEAD` from a renamed `.git`: git would still take the folder itself for a repository."""
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            # A name that cannot be known: something in its place would keep the folder a repository.
            with suppress(FileNotFoundError):
                _retry_writable(fd, lambda: _rename(HEAD, f"{HEAD}.fairlead-{secrets.token_hex(4)}", fd))
        finally:
            os.close(fd)

    def give_back(self) -> None:
        """Give the taken names back. A folder that the user has put something into meanwhile stays."""
        with suppress(OSError):
            mode = os.stat(self._root.path).st_mode
            if self._rights & ~mode:  # a command closed it, and what it made would not be found
                os.chmod(self._root.path, stat.S_IMODE(mode) | self._rights)
        self._placeholders.give_back()

    def _path_of(self, names: Names) -> Path:
        return self._root.path.joinpath(*names)

    def _render_path(self, names: Names) -> str:
        return display_path(self._root, names)


def _names_to_take(survey: Survey) -> Iterator[tuple[Names, bytes | None]]:
    """The names that must not be made, and the content of files."""
    for name in RESERVED:
        yield (name,), None
    if survey.has_repository:
        yield from (((_GIT, name), None) for name in GIT_FOLDERS)
        yield from (((_GIT, name), content) for name, content in GIT_FILES.items())


def _rename(old: str, new: str, folder: int) -> None:
    os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)


def _retry_writable(folder: int, work: Callable[[], None]) -> None:
    """Run a function in a folder; if a command took our right to write there, again after restoring it."""
    try:
        work()
    except OSError as exc:
        if exc.errno not in (errno.EACCES, errno.EPERM):
            raise
        os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)
        work()
