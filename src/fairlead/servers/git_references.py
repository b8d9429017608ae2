"""Finds what git would execute or read outside its own folder: hooks that are links, and configured paths.

`core.hooksPath`, filters, merge drivers and included configurations name files of the working tree. Values
are read as git reads them (comments, quotes, continued lines, settings beside a section's name), and included
files are read as well, under any condition they are included for.
"""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlead.servers.repo.folders import FILE

HEAD: Final = "HEAD"
REPOSITORY_MARKS: Final = frozenset({"objects", "commondir"})
"""Together with `HEAD`, one of these makes a folder a repository."""

_MAX_CONFIG_BYTES: Final = 1_000_000
_MAX_CONFIGS: Final = 50
"""Most configuration files of one repository, those it includes among them."""
_MAX_MODULES: Final = 1_000
_DATA: Final = frozenset({"objects", "refs", "logs", "lfs", "annex"})
"""Folders of a repository with data alone, which may be large."""

_SETTING: Final = re.compile(
    r"""
    ^[ \t\ufeff]*
    (?: \[ [ \t]* (?P<section>[\w.-]+) (?: [^\]"\n] | "(?:\\.|[^"\\\n])*" )* \] [ \t]* )*
    (?: (?P<key>[A-Za-z][\w-]*) [ \t]* =
        (?P<value> (?: \\\r?\n | \\. | "(?:\\\r?\n|\\.|[^"\\\n])*" | [^"\\\n\#;] )* ) )?
    """,
    re.MULTILINE | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r'\\(\r?\n|.)|"')
_PATH_WORD: Final = re.compile(r"""[^\s;&|<>()'"=$`]+""")


@dataclass(frozen=True, kw_only=True, slots=True)
class GitFolder:
    """A repository's own folder, and the working tree whose paths its configuration names."""

    path: str
    common: str
    """Where its configuration and hooks are: another folder for a linked working tree."""
    tree: str


def git_folder_at(path: str) -> GitFolder | None:
    """The repository of a `.git`: a folder, a link to one, or a file that names one.

    Args:
        path: Where `.git` is.
    """
    tree = os.path.dirname(path)
    folder = path
    if not os.path.isdir(path):
        text = _read(path)
        if not text.startswith("gitdir:"):
            return None
        folder = os.path.join(tree, text.removeprefix("gitdir:").strip())
    folder = os.path.realpath(folder)
    common = _read(os.path.join(folder, "commondir")).strip()
    return GitFolder(path=folder, common=os.path.realpath(os.path.join(folder, common)), tree=tree)


def modules_of(git: GitFolder) -> Iterator[GitFolder]:
    """The repositories of submodules, which a repository keeps in its folder.

    Args:
        git: The repository.
    """
    count = 0
    for folder, inner, files in os.walk(os.path.join(git.path, "modules")):
        inner[:] = [name for name in inner if name not in _DATA]
        if "HEAD" in files and (count := count + 1) <= _MAX_MODULES:
            yield GitFolder(path=folder, common=folder, tree=git.tree)


def references_of(git: GitFolder) -> Iterator[str]:
    """Absolute paths that git follows in a repository, links in them not resolved.

    Args:
        git: The repository.
    """
    hooks = os.path.join(git.common, "hooks")
    if os.path.islink(hooks):
        yield hooks
    own = (os.path.join(git.common, "config"), os.path.join(git.path, "config.worktree"))
    settings = [*_settings_in(own)]
    # Of the user's own configuration only what stands for a folder of every repository.
    settings += [each for each in _settings_in(_user_configs()) if each[1] == "hookspath"]
    trees = [os.path.join(git.path, value) for _, key, value in settings if key == "worktree"]
    for tree in (git.tree, *trees):
        for file, key, value in settings:
            yield from _paths_of(git, tree, file, key, value)


def references_around(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Absolute paths that git follows in the repositories that a folder is in: the nearest, and those around.

    Args:
        folder: An absolute path.
    """
    for place in (Path(folder), *Path(folder).parents):
        git = git_folder_at(os.path.join(place, ".git"))
        for path in references_of(git) if git is not None else ():
            # `branch.x.remote = .` is the repository itself, and names no file.
            if not place.is_relative_to(os.path.normpath(path)):
                yield path


def is_in_repository_folder(path: Path) -> bool:
    """Whether a file is in a folder that has the shape of a repository: git runs what its `config` names.

    Args:
        path: An absolute path.
    """
    return any(
        os.path.lexists(folder / HEAD) and any(os.path.lexists(folder / mark) for mark in REPOSITORY_MARKS)
        for folder in path.parents
    )


def _paths_of(git: GitFolder, tree: str, file: str, key: str, value: str) -> Iterator[str]:
    if key == "path":  # `include.path`, relative to the file
        yield _join(os.path.dirname(file), value)
    elif key == "hookspath":
        yield _join(tree, value)
    elif key != "worktree":
        for word in _words_of(value):
            path = _join(tree, word)
            # Folders in there are git's and its extensions' data; a program is a file.
            if not (path.startswith(f"{git.path}{os.sep}") and os.path.isdir(path)):
                yield path


def _join(folder: str, path: str) -> str:
    return os.path.join(folder, os.path.expanduser(path))


def _words_of(value: str) -> Iterator[str]:
    """The words of a command that may be paths, also those in a line for a shell."""
    command = value.lstrip("!")
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    for word in dict.fromkeys((*words, *_PATH_WORD.findall(command))):
        if ("/" in word or "." in word) and "\0" not in word and not word.startswith(("refs/", "+refs/")):
            yield word


def _user_configs() -> Sequence[str]:
    """The configuration files of the user and the system, as git looks for them."""
    config_home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    own = [named] if named else [os.path.join(config_home, "git", "config"), "~/.gitconfig"]
    return ["/etc/gitconfig", *map(os.path.expanduser, own)]


def _settings_in(files: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """File, key and value of each setting, included files' among them."""
    waiting = [*files]
    seen: set[str] = set()
    while waiting and len(seen) < _MAX_CONFIGS:
        file = os.path.realpath(waiting.pop(0))
        if file in seen:
            continue
        seen.add(file)
        for section, key, value in parse_git_config(_read(file)):
            yield file, key, value
            if key == "path" and section in ("include", "includeif"):
                waiting.append(_join(os.path.dirname(file), value))


def parse_git_config(text: str) -> Iterator[tuple[str, str, str]]:
    """Section, key and value of each setting in a configuration of git's; sections and keys in lower case.

    Args:
        text: The file. What git would not read is passed over.
    """
    section = ""
    for setting in _SETTING.finditer(text):
        section = (setting["section"] or section).lower()
        if setting["key"]:
            yield section, setting["key"].lower(), _ESCAPE.sub(_unescape, setting["value"]).strip()


def _unescape(found: re.Match[str]) -> str:
    escaped: str | None = found[1]
    if escaped is None or escaped.endswith("\n"):
        return ""  # a quotation mark, or the end of a line that goes on
    return {"n": "\n", "t": "\t", "b": "\b"}.get(escaped, escaped)


def _read(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | FILE)
    except OSError:
        return ""
    try:
        return os.read(fd, _MAX_CONFIG_BYTES).decode(errors="surrogateescape")
    except OSError:  # a folder, say
        return ""
    finally:
        os.close(fd)
