"""Files that no built-in server changes, since a program outside its reach would run what they say.

Version control runs hooks and the programs its configuration names; shells, editors and agents run commands
from files of the folder they are opened in. A model that could write these would run code later, outside the
sandbox and without an approval. What a person runs by hand (a Makefile, a test) is not covered.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

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
        # shells
        *(".envrc", ".autoenv", ".autoenv.leave", ".autoenv.zsh", ".autoenv_leave.zsh", ".rvmrc"),
        # editors
        *(".exrc", ".lvimrc", ".local.vimrc", ".neoconf.json", ".nvim.lua", ".nvimrc", ".vimrc"),
        *(".lazy.lua", ".ycm_extra_conf.py", ".dir-locals.el", ".dir-locals-2.el", ".devcontainer.json"),
        *(".externaltoolbuilders", ".factorypath", ".project"),
        # agents, and Fairlead itself
        *(".mcp.json", "codex-toolloop.mcp.json", "fairlead.json", "fairlead.lock"),
        *("opencode.json", "opencode.jsonc", ".aider.conf.yml", "crush.json", ".crush.json"),
        # hooks of version control
        *(".pre-commit-config.yaml", ".pre-commit-config.yml", "prek.toml", ".overcommit.yml"),
        *(".local-overcommit.yml", ".rusty-hook.toml", "captainhook.json"),
        *(
            f"{dot}lefthook{local}.{kind}"
            for dot in ("", ".")
            for local in ("", "-local")
            for kind in ("yml", "yaml", "toml", "json")
        ),
    }
)
"""Files that name commands to run, or say what Fairlead may do."""

PROTECTED_SUFFIXES = (".code-workspace", ".sublime-project")
"""How the names of editors' workspace files end, which hold settings and tasks."""

_FORMS: Final = re.compile(
    r"""
    (?! .* \.fairlead-[0-9a-f]{8} $ )  # `shell` renamed it, so that nothing looks for it any more
    (?: \.envrc\..+                    # what an `.envrc` reads: a change of it asks for no approval
    | (?:flake|nix)-profile.*          # the same, in `.direnv`
    | \.?mise(?:\..+)?\.toml
    | (?:\.(?:huskyrc|lintstagedrc) | (?:husky|lint-staged)\.config) (?:\..+)?
    | \.?simple-git-hooks\..+ )
    """,
    re.VERBOSE,
)
"""Names of such files that have many forms."""


def is_protected_name(name: str) -> bool:
    """Whether a file or folder of this name, and all in it, may not be changed."""
    return is_private(name) or is_special_name(plain_name(name))


def is_special_name(plain: str) -> bool:
    """Whether a program but version control would act on a file or folder of this name.

    Args:
        plain: The name as `plain_name` gives it.
    """
    return (
        plain in PROTECTED_FOLDERS
        or plain in PROTECTED_FILES
        or plain.endswith(PROTECTED_SUFFIXES)
        or _FORMS.fullmatch(plain) is not None
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
