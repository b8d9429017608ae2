"""Commands that a rebase of git would run when it is continued.

A rebase that a command left half done has a list of steps, and its `exec` lines run wherever it is continued:
outside the sandbox, if the user does that. So new ones are named in the command's result.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Final

from fairlead.servers.git_references import git_folder_at
from fairlead.servers.repo.folders import FILE, Root
from fairlead.servers.shell.survey import OpenParent

_LIST: Final = ("rebase-merge", "git-rebase-todo")
_EXEC: Final = re.compile(rb"^[ \t]*(?:exec|x)[ \t]+(\S.*)$", re.MULTILINE)
_MAX_BYTES: Final = 1_000_000

PendingCommands = Counter[str]
"""The commands of a list, with how often each is there."""


def pending_commands(tree: Path) -> PendingCommands:
    """Commands that `git rebase --continue` would run in a working tree.

    Args:
        tree: The top of the working tree.
    """
    git = git_folder_at(str(tree / ".git"))
    if git is None:
        return Counter()
    folder = Path(git.path)
    try:
        # A link in place of the list would have another file quoted.
        with OpenParent(Root(name=folder.name, path=folder, prefix="", fd=None), _LIST) as parent:
            fd = os.open(_LIST[-1], os.O_RDONLY | FILE, dir_fd=parent.fd)
    except OSError:
        return Counter()
    try:
        steps = os.read(fd, _MAX_BYTES)
    except OSError:
        return Counter()
    finally:
        os.close(fd)
    return Counter(found.decode(errors="replace").strip() for found in _EXEC.findall(steps))
