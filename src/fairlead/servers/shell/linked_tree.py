"""The repository of a linked working tree (`git worktree add`), which lies outside of the folder.

Its `.git` is a file that names a folder in the main repository, and commands of git need both. They are shown
only where the main repository itself names the working tree: a `.git` that came with a download cannot open
another folder. Commits work: objects, branches and the working tree's own state can be written. What decides
what git executes cannot: the configuration, hooks and everything else of the main repository are read-only.
"""

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Final

from fairlead.bubblewrap import Access, SandboxView
from fairlead.errors import ToolFailed
from fairlead.servers.git_references import HEAD, git_folder_at
from fairlead.servers.repo.folders import Root
from fairlead.servers.shell.guard import HeldPath
from fairlead.servers.shell.placeholders import Placeholders
from fairlead.servers.shell.survey import GIT_FILES, GIT_FOLDERS, identity_of

_GIT: Final = ".git"
_TREES: Final = "worktrees"
_BACK: Final = "gitdir"
"""The file in which the main repository names the working tree."""
_WRITTEN: Final = ("objects", "refs", "logs")
"""What a commit changes of the main repository. None of it is executed."""
_MAX_LINK_BYTES: Final = 8_192


class LinkedTree:
    """Shows commands the repository of one root, if that is a linked working tree."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._shown: dict[Path, Access] = {}
        self._common: Path | None = None
        self._placeholders: Placeholders | None = None

    def prepare(self) -> None:
        """Find the repository, and take the names in it that must not be created.

        Raises:
            ToolFailed: It cannot be protected.
        """
        own = _own_folder(self._root.path)
        if own is None:
            return
        common = own.parent.parent
        fixed = [own / "commondir", own / _BACK]
        shown: dict[Path, Access] = {common: "read", own: "write"}
        shown |= {common / name: "write" for name in _WRITTEN if _is_folder(common / name)}
        # Another name of such a file could be in what can be written.
        for path in (*fixed, *(own / name for name in (*GIT_FOLDERS, *GIT_FILES))):
            status = _status_of(path)
            if status is None:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                raise ToolFailed(f"`{path}` is protected and has another name (a hard link)")
            shown[path] = "read"
        self._placeholders = taken = Placeholders(Root(name=own.name, path=own, prefix="", fd=None))
        names = {**dict.fromkeys(GIT_FOLDERS), **GIT_FILES}
        try:
            for name, content in names.items():
                if name != "commondir" and taken.take((name,), content):
                    shown.pop(own / name, None)
        except OSError as exc:
            self.give_back()
            raise ToolFailed(f"`{own}` cannot be protected: {exc.strerror}") from exc
        self._shown, self._common = shown, common

    def add_to(self, view: SandboxView) -> SandboxView:
        """A sandbox with the repository mounted."""
        if self._common is None or self._placeholders is None or view.sees(self._common):
            return view
        identities = {path: identity_of(os.lstat(path)) for path in self._shown}
        return replace(
            view,
            shown={**view.shown, **self._shown, **dict.fromkeys(self._placeholders.files, "read")},
            identities={**view.identities, **identities},
            covered={**view.covered, **dict.fromkeys(self._placeholders.folders, "folder")},
        )

    def settle(self) -> list[HeldPath]:
        """Nothing: whatever could be made in the repository is data."""
        return []

    def give_back(self) -> None:
        """Give the taken names back."""
        if self._placeholders is not None:
            self._placeholders.give_back()


def _own_folder(tree: Path) -> Path | None:
    """The folder that a linked working tree has in its main repository, if that names the tree as well."""
    git = git_folder_at(str(tree / _GIT)) if (tree / _GIT).is_file() else None
    if git is None:
        return None
    own, common = Path(git.path), Path(git.common)
    if own.parent != common / _TREES or not (common / HEAD).is_file() or not _is_folder(common / "objects"):
        return None
    try:
        with open(own / _BACK, encoding="utf-8", errors="surrogateescape") as file:
            back = file.read(_MAX_LINK_BYTES).strip()
    except OSError:
        return None
    return own if os.path.realpath(own / back) == str(tree / _GIT) else None


def _is_folder(path: Path) -> bool:
    status = _status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def _status_of(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
