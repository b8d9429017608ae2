"""Files that no built-in server changes, since a program outside its reach would run what they say.

Version control runs hooks and whatever its configuration names; shells, editors and agents run commands from
files of the folder they are opened in. A model that could write these would run code later, outside the
sandbox and without an approval. What a person runs by hand (a Makefile, a test) is not covered.
"""

from collections.abc import Sequence

from fairlead.errors import ToolFailed
from fairlead.servers.repo.folders import is_private, plain_name

PROTECTED_FOLDERS = frozenset(
    {
        ".claude",
        ".codex",
        ".cursor",
        ".devcontainer",
        ".fairlead",
        ".gemini",
        ".husky",
        ".idea",
        ".vscode",
        ".windsurf",
        ".zed",
    }
)
"""Folders of editors, agents and hooks: they hold tasks, hooks and commands of servers."""

PROTECTED_FILES = frozenset(
    {
        ".envrc",
        ".mcp.json",
        "fairlead.json",
        "fairlead.lock",
        "opencode.json",
        "opencode.jsonc",
    }
)
"""Files that name commands to run, or say what Fairlead may do."""


def is_protected(names: Sequence[str]) -> bool:
    """Whether a path, given as its names below a root, may not be changed.

    Compares as a file system that ignores case, invisible characters or final dots would.
    """
    plain = [plain_name(name) for name in names]
    return (
        any(map(is_private, names))
        or any(name in PROTECTED_FOLDERS for name in plain)
        or bool(plain and plain[-1] in PROTECTED_FILES)
    )


def require_unprotected(names: Sequence[str], shown: str) -> None:
    """Refuse a path that may not be changed.

    Args:
        names: The names of the path below its root.
        shown: The path as the caller knows it.

    Raises:
        ToolFailed: The path is protected.
    """
    if is_protected(names):
        raise ToolFailed(
            f"`{shown}` is protected: version control, an editor or an agent would run what it says",
            hint="ask the user to make this change",
        )
