"""The process that listens on a port of this machine, as far as the system tells this user."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LISTEN: Final = "0A"
"""State of a listening socket in `/proc/net/tcp`."""
_LSOF_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PortOwner:
    """A process that listens on a port."""

    pid: int
    name: str

    def __str__(self) -> str:
        return f"`{self.name}` (process {self.pid})"


def port_owner(port: int, proc: Path = Path("/proc")) -> PortOwner | None:
    """Find the process that listens on a TCP port, on whichever address.

    Args:
        port: The port.
        proc: Where the proc file system is, on Linux.

    Returns:
        The process; None where it is another user's, which only root can see, or the system does not tell.
    """
    if sys.platform != "linux":
        return _ask_lsof(port)
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port, proc)}
    if not inodes:
        return None
    for process in proc.iterdir():
        if process.name.isdigit() and _has_open(process, inodes):
            return PortOwner(pid=int(process.name), name=_name_of(process))
    return None


def explain_bind_error(error: OSError, port: int) -> str:
    """Why a port cannot be listened on: for one in use, with the process that has it."""
    if error.errno == errno.EADDRINUSE and (owner := port_owner(port)) is not None:
        return f"the port is in use by {owner}"
    return error.strerror or str(error)


def _listening_inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _has_open(process: Path, links: set[str]) -> bool:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return False  # it is another user's, or has just ended
    return any(_target(descriptor) in links for descriptor in descriptors)


def _target(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""  # closed a moment ago; the others count


def _name_of(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip() or "?"
    except OSError:
        return "?"


def _ask_lsof(port: int) -> PortOwner | None:
    program = shutil.which("lsof")
    if program is None:
        return None
    words = [program, "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
    try:
        finished = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LSOF_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    fields = {line[:1]: line[1:] for line in reversed(finished.splitlines())}
    if not fields.get("p", "").isdigit():
        return None
    return PortOwner(pid=int(fields["p"]), name=fields.get("c", "?"))
