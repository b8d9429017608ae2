"""Names that are taken while a command runs, so that it cannot make what programs would act on."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.bubblewrap import Identity
from fairlead.servers.repo.folders import FILE, FOLDER, Root
from fairlead.servers.shell.survey import Names, OpenParent, identity_of

_MARKED_MODE = 0o1755
"""The mode of placeholder folders. By its sticky bit one is known that a killed host left behind."""


@dataclass(frozen=True, slots=True)
class _Placeholder:
    """An empty folder, or a file without effect, that takes a name while a command runs."""

    names: Names
    identity: Identity
    is_folder: bool


class Placeholders:
    """The names that are taken below one root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._taken: list[_Placeholder] = []

    @property
    def files(self) -> list[Path]:
        """The paths of placeholder files, to be mounted read-only."""
        return [self._path_of(each) for each in self._taken if not each.is_folder]

    @property
    def folders(self) -> list[Path]:
        """The paths of placeholder folders, to be covered."""
        return [self._path_of(each) for each in self._taken if each.is_folder]

    @property
    def identities(self) -> frozenset[Identity]:
        """Device and inode of each."""
        return frozenset(each.identity for each in self._taken)

    def take(self, names: Names, content: bytes | None) -> bool:
        """Take a name, unless the user has something there.

        Args:
            names: The path below the root.
            content: What is in a file; None for a folder.

        Returns:
            Whether it is taken now.

        Raises:
            OSError: It cannot be made.
        """
        with OpenParent(self._root, names) as parent:
            try:
                if content is None:
                    os.mkdir(names[-1], _MARKED_MODE, dir_fd=parent.fd)
                else:
                    _write_new(names[-1], content, parent.fd)
            except FileExistsError:
                # What the user has there is guarded by the survey.
                if not _is_left_over(names[-1], content, parent.fd):
                    return False
            status = os.stat(names[-1], dir_fd=parent.fd, follow_symlinks=False)
        self._taken.append(_Placeholder(names, identity_of(status), content is None))
        return True

    def give_back(self) -> None:
        """Give the taken names back. A folder that the user has put something into meanwhile stays."""
        for each in reversed(self._taken):
            with suppress(OSError), OpenParent(self._root, each.names) as parent:
                status = os.stat(each.names[-1], dir_fd=parent.fd, follow_symlinks=False)
                if identity_of(status) != each.identity:
                    continue
                if each.is_folder:
                    os.rmdir(each.names[-1], dir_fd=parent.fd)
                else:
                    os.unlink(each.names[-1], dir_fd=parent.fd)

    def _path_of(self, each: _Placeholder) -> Path:
        return self._root.path.joinpath(*each.names)


def _write_new(name: str, content: bytes, folder: int) -> None:
    fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644, dir_fd=folder)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def _is_left_over(name: str, content: bytes | None, folder: int) -> bool:
    """Whether something is a placeholder of a host that was killed."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if content is None:
        if not stat.S_ISDIR(status.st_mode) or not status.st_mode & stat.S_ISVTX:
            return False
        fd = os.open(name, FOLDER, dir_fd=folder)
        try:
            return not os.listdir(fd)
        finally:
            os.close(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size != len(content):
        return False
    fd = os.open(name, FILE, dir_fd=folder)
    try:
        return os.read(fd, len(content)) == content
    finally:
        os.close(fd)
