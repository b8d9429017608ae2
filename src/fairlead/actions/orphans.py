"""Guardians of servers, and their reapers, whose host is gone."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlead.connection.process.guardian import host_of_guardian

_PS_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Process:
    pid: int
    parent: int
    command: str
    """Its words, separated by spaces."""


def find_orphaned_guardians() -> list[int]:
    """Processes of this user that guard the servers of a host that is gone.

    Not by a parent with id 1 alone: on a desktop, `systemd --user` adopts what loses its parent.
    """
    if sys.platform == "win32":
        return []
    hosts: dict[int, int] = {}
    parents: dict[int, int] = {}
    for process in _own_processes():
        host = host_of_guardian(process.command)
        if host is not None:
            hosts[process.pid], parents[process.pid] = host, process.parent
    # A reaper's parent is its guardian, and a guardian's its host.
    return sorted(pid for pid, parent in parents.items() if parent != hosts[pid] and parent not in hosts)


def _own_processes() -> Iterator[_Process]:
    return _read_proc(Path("/proc")) if sys.platform == "linux" else _ask_ps()


def _read_proc(proc: Path) -> Iterator[_Process]:
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # Of a container, the ids are not those that its processes know each other by.
            if entry.stat().st_uid != os.getuid() or _namespace(entry) != _namespace(proc / "self"):
                continue
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
        yield _Process(pid=int(entry.name), parent=parent, command=command)


def _namespace(entry: Path) -> str:
    return os.readlink(entry / "ns" / "pid")


def _ask_ps() -> Iterator[_Process]:
    program = shutil.which("ps")
    if program is None:
        return
    words = [program, "-ww", "-U", str(os.getuid()), "-o", "pid=", "-o", "ppid=", "-o", "command="]
    try:
        listed = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PS_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return
    for line in listed.splitlines():
        words = line.split(maxsplit=2)
        if len(words) == 3 and words[0].isdigit() and words[1].isdigit():
            yield _Process(pid=int(words[0]), parent=int(words[1]), command=words[2])
