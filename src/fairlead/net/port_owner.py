"""Who listens at a port of this machine, for the error when that port is wanted."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def explain_bind_error(exc: OSError, port: int) -> str:
    """Why a port cannot be bound: the system's words, and the process that has it, where one is found."""
    words = exc.strerror or str(exc)
    owner = find_port_owner(port) if exc.errno == errno.EADDRINUSE else None
    return f"{words}, by {owner}" if owner else words


def find_port_owner(port: int) -> str | None:
    """Find the process that listens at a TCP port: its id and name. None where the system does not tell.

    Linux tells of the user's own processes, and of all to an administrator.
    """
    try:
        links = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
        return next((_describe(pid) for pid in _processes() if links & _open_files(pid)), None)
    except OSError:
        return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in _TABLES:
        if not os.path.exists(table):
            continue
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdecimal()]


def _open_files(pid: str) -> set[str]:
    folder = f"/proc/{pid}/fd"
    found: set[str] = set()
    try:
        for name in os.listdir(folder):
            found.add(os.readlink(f"{folder}/{name}"))
    except OSError:
        return found  # another user's, or it is gone
    return found


def _describe(pid: str) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        name = ""
    return f"process {pid} ({name})" if name else f"process {pid}"
