"""The process table, for the guardian's program: what descends from a process, and signals to it.

Loaded by `reaper.py` in an interpreter without this package, so it imports as little as that does.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection
else:
    import _signal as signal

_MAX_CHASE = 10_000

_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children(pid: int) -> list[int]:
    """Return the pids of a process's children."""
    if not _LISTS_CHILDREN:
        return _children_by_table(pid)
    children: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return children  # it is gone
    for task in tasks:
        try:
            children += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
        except OSError:
            continue  # the thread is gone, and its children are another's
    return children


def _children_by_table(parent: int) -> list[int]:
    """Return the same from the whole process table, where the kernel does not list children."""
    children: list[int] = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for pid in pids:
        try:
            # The second field is the program's name in brackets and may itself hold brackets and blanks.
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 1 and int(fields[1]) == parent:
            children.append(pid)
    return children


def descendants(pid: int) -> list[int]:
    """Return the pids of all descendants of a process."""
    found: list[int] = []
    pending = _children(pid)
    while pending:
        child = pending.pop()
        found.append(child)
        pending += _children(child)
    return found


def kill_descendants(pid: int, spared: Collection[int]) -> list[int]:
    """Kill the descendants of a process, apart from some of its children, and return the pids.

    A parent is killed before its children are read, so that it has no more of them, and its process group
    before it: no `fork` comes in between the signals to a group, so what forks and exits over and over cannot
    outrun them. A server has a session of its own, so the group has only what descends from it.
    """
    killed: list[int] = []
    own_group = os.getpgrp()
    pending = [child for child in _children(pid) if child not in spared]
    while pending and len(killed) < _MAX_CHASE:
        # A pid read a moment ago: the kernel gives none again before it has been through all others.
        child = pending.pop()
        try:
            if (group := os.getpgid(child)) != own_group:
                send_signal(-group, signal.SIGKILL)
        except ProcessLookupError:
            continue
        send_signal(child, signal.SIGKILL)
        killed.append(child)
        pending += _children(child)
    return killed


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while piece := os.read(fd, 65536):
            data += piece
        return data
    finally:
        os.close(fd)


def send_signal(pid: int, number: int) -> bool:
    """Send a signal to a process, or to a group by its negative id; False where there is none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is there, and another user's
    return True
