"""The folder for what a gateway keeps between runs: tokens, and where it is to be found."""

import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from fairlead.config.paths import state_folder
from fairlead.errors import ConfigUnreadable


def gateway_folder(env: Mapping[str, str]) -> Path:
    """The folder, made where it is missing. Nobody else can look into it."""
    folder = state_folder(env) / "gateway"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigUnreadable(f"`{folder}` is no folder of its own", hint="move it away")
        if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as exc:
        hint = "check its permissions, and those of the folders above it"
        raise ConfigUnreadable(f"cannot use `{folder}`: {exc.strerror or exc}", hint=hint) from exc
    return folder


def local_token_file(env: Mapping[str, str]) -> Path:
    """Where the token of this machine's user is kept."""
    return gateway_folder(env) / "token"


def require_plain(path: Path) -> None:
    """Refuse a link: whoever put it there would choose a token, or be handed one."""
    if path.is_symlink():
        raise ConfigUnreadable(f"`{path}` is a symbolic link", hint="move it away")
