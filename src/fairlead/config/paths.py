"""Paths of Fairlead's own files, by the environment that is passed in."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import ConfigUnreadable

FILE_NAME = "fairlead.json"
LOCK_NAME = "fairlead.lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class MachinePaths:
    """Folders with other programs' files: passed in, so that nothing here reads the real machine."""

    home: Path
    cwd: Path
    env: Mapping[str, str]
    platform: str


def home_folder(env: Mapping[str, str]) -> Path:
    """The user's home."""
    named = env.get("USERPROFILE" if sys.platform == "win32" else "HOME")
    return Path(named) if named else Path.home()


def expand_home(path: str | os.PathLike[str]) -> Path:
    """A path with the user's home in place of a leading `~`.

    Unlike `Path.expanduser`, it takes `./~name` for a file of that name, and leaves the `~name` of an unknown
    user as it is: that is a path which does not exist, to be reported like any other.
    """
    return Path(os.path.expanduser(path))


def current_folder() -> Path:
    """The current folder. Raises `ConfigUnreadable` where it was removed, or is not accessible."""
    try:
        return Path.cwd()
    except OSError as exc:
        was_removed = isinstance(exc, FileNotFoundError)
        what = "was removed" if was_removed else f"cannot be used: {exc.strerror}"
        raise ConfigUnreadable(
            f"the current folder {what}", hint="change to a folder that exists, such as `cd ~`"
        ) from exc


def config_folder(env: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/fairlead`, `~/.config/fairlead` if that is not set."""
    return _base(env, "XDG_CONFIG_HOME", "APPDATA", ".config") / "fairlead"


def state_folder(env: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/fairlead`, `~/.local/state/fairlead` if that is not set."""
    return _base(env, "XDG_STATE_HOME", "LOCALAPPDATA", ".local/state") / "fairlead"


STATE_HINT = "make that folder writable, or set XDG_STATE_HOME to one that is"
"""Hint where state cannot be written."""


def user_file(env: Mapping[str, str]) -> Path:
    """The user's own configuration file."""
    return config_folder(env) / FILE_NAME


def _base(env: Mapping[str, str], variable: str, windows_variable: str, fallback: str) -> Path:
    for name in (variable, windows_variable) if sys.platform == "win32" else (variable,):
        named = env.get(name, "")
        if Path(named).is_absolute():  # the XDG rules: a relative value is ignored
            return Path(named)
    return home_folder(env) / fallback


def store_file(env: Mapping[str, str]) -> Path:
    """Database of durable state, unless the configuration names another place."""
    return state_folder(env) / "state.db"
