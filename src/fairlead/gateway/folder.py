"""The folder for what a gateway keeps between runs: tokens, and where it is to be found."""

import re
import secrets
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fairlead.config.files import read_text, write_atomic
from fairlead.config.paths import STATE_HINT, state_folder
from fairlead.errors import ConfigUnreadable, ConfigUnwritable

_NAME = re.compile(r"fairlead-[0-9a-f]{24}")
_NEW_NAME = f"fairlead-{secrets.token_hex(12)}"
"""The dashboard's name where none is kept yet: one for the process, should keeping it be impossible."""


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
        raise ConfigUnreadable(
            f"cannot use `{folder}`, where a gateway keeps its tokens: {exc.strerror or exc}", hint=STATE_HINT
        ) from exc
    return folder


def local_token_file(env: Mapping[str, str]) -> Path:
    """Where the token is kept that agents of this machine's user are given: scope `mcp`."""
    return gateway_folder(env) / "token"


def agent_token_file(env: Mapping[str, str], agent: str) -> Path:
    """Where the token of one installed agent of this machine's user is kept: scope `mcp`."""
    return gateway_folder(env) / f"token-{agent}"


def decide_token_file(env: Mapping[str, str]) -> Path:
    """Where the token is kept that the user's own commands decide with: scopes `decide` and `admin`."""
    return gateway_folder(env) / "decide-token"


def dashboard_name(env: Mapping[str, str]) -> str:
    """The name that the dashboard has on this machine: random, and the same from run to run.

    It is no secret that opens anything, but a page elsewhere cannot guess it.
    """
    path = gateway_folder(env) / "dashboard-name"
    require_plain(path)
    kept = read_text(path).strip() if path.exists() else ""
    if not _NAME.fullmatch(kept):
        kept = _NEW_NAME
        with suppress(ConfigUnwritable):  # where nothing can be written it is another at the next run
            write_atomic(path, kept + "\n", mode=0o600)
    return f"{kept}.localhost"


def require_plain(path: Path) -> None:
    """Refuse a link: whoever put it there would choose a token, or be handed one."""
    if path.is_symlink():
        raise ConfigUnreadable(f"`{path}` is a symbolic link", hint="move it away")
