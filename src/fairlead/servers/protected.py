"""Files that no built-in server changes, since a program outside its reach would run what they say.

Version control runs hooks and the programs its configuration names; shells, editors and agents run commands
from files of the folder they are opened in. A model that could write these would run code later, outside the
sandbox and without an approval. What a person runs by hand (a Makefile, a test) is not covered.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from fairlead.errors import ToolFailed
from fairlead.servers.repo.folders import is_private, plain_name

PROTECTED_FOLDERS = frozenset(
    {
        # editors
        *(".devcontainer", ".fleet", ".helix", ".idea", ".nova", ".theia", ".vim", ".vs", ".vscode", ".zed"),
        # agents, and what Fairlead itself reads
        *(".amazonq", ".amp", ".augment", ".claude", ".cline", ".clinerules", ".codelia", ".codex"),
        *(".codex-toolloop", ".continue", ".cursor", ".factory", ".fairlead", ".gemini", ".junie"),
        *(".kilocode", ".kiro", ".opencode", ".openhands", ".pi", ".qwen", ".roo", ".trae", ".windsurf"),
        # shells
        ".mise",
        # hooks of version control
        *(".githooks", ".husky"),
    }
)
"""Folders of editors, agents, shells and hooks: they hold tasks, hooks and commands of servers."""

PROTECTED_FILES = frozenset(
    {
        *(".envrc", ".autoenv", ".autoenv.zsh", ".exrc", ".lvimrc", ".local.vimrc", ".neoconf.json"),
        *(".nvim.lua", ".nvimrc", ".vimrc", ".dir-locals.el", ".dir-locals-2.el"),
        *(".devcontainer.json", ".mise.toml", "mise.toml", ".mise.local.toml", "mise.local.toml"),
        *(".mcp.json", "codex-toolloop.mcp.json", "fairlead.json", "fairlead.lock"),
        *("opencode.json", "opencode.jsonc", ".aider.conf.yml", "crush.json", ".crush.json"),
        *(".pre-commit-config.yaml", ".overcommit.yml", ".simple-git-hooks.json", "simple-git-hooks.json"),
        *(
            f"{dot}lefthook{local}.{kind}"
            for dot in ("", ".")
            for local in ("", "-local")
            for kind in ("yml", "yaml", "toml", "json")
        ),
    }
)
"""Files that name commands to run, or say what Fairlead may do."""

PROTECTED_SUFFIX = ".code-workspace"
"""How the name of an editor's workspace file ends, which holds settings and tasks."""


def is_protected_name(name: str) -> bool:
    """Whether a file or folder of this name, and all in it, may not be changed."""
    plain = plain_name(name)
    return (
        is_private(name)
        or plain in PROTECTED_FOLDERS
        or plain in PROTECTED_FILES
        or plain.endswith(PROTECTED_SUFFIX)
    )


def is_protected(names: Sequence[str]) -> bool:
    """Whether a path, as names below a root, may not be changed.

    Compares as a file system that ignores case, invisible characters or final dots would.
    """
    # A folder with a file `HEAD` and little more is a repository to git, which runs what its `config` says.
    return any(map(is_protected_name, names)) or bool(names and names[-1] == "HEAD")


def is_within(path: Path, places: Iterable[Path]) -> bool:
    """Whether a path is one of these files and folders, or below one.

    Args:
        path: A real path.
        places: Files and folders, by any path.
    """
    names = _plain_names(path)
    wholes = (_plain_names(Path(os.path.realpath(place))) for place in places)
    return any(names[: len(whole)] == whole for whole in wholes)


def _plain_names(path: Path) -> tuple[str, ...]:
    return tuple(map(plain_name, path.parts))


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
