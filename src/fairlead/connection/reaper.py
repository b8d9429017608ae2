"""Finds and ends everything a server process started. It is the guardian's program too, so it imports little.

`python -I -S reaper.py <host pid>` reads lines from stdin: `+<pid> <time>` to watch a server that had started
by then, `-<pid>` to forget one. When the host is gone, however it went, it ends what is still watched and
exits.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

TERMINATE_SECONDS = 2.0
"""How long the guardian lets servers end themselves before it kills them."""

_POLL_SECONDS = 0.05
_IGNORED_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGPIPE")


class _Process:
    """A line of the kernel's process table."""

    __slots__ = ("group", "parent", "pid", "started", "zombie")

    def __init__(self, pid: int, stat: bytes) -> None:
        # The second field is the program's name in brackets and may itself hold brackets and blanks.
        fields = stat[stat.rindex(b")") + 2 :].split()
        self.pid = pid
        self.zombie = fields[0] in b"ZX"
        self.parent, self.group, self.started = int(fields[1]), int(fields[2]), int(fields[19])


def _process(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return _Process(pid, file.read(1024))
    except OSError:
        return None


def _processes() -> list[_Process]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    found = [_process(int(name)) for name in names if name.isdigit()]
    return [process for process in found if process is not None]


def latest_start() -> int:
    """Return a time, in the kernel's ticks, by which every process there is now has started.

    Whoever has one of their pids and started later is another process. Knowing this takes no look at the
    process itself, which is slow while the process is being started.
    """
    if sys.platform != "linux":
        return sys.maxsize
    # Not every sandbox keeps one clock for both; and pids take longer than a second to come round.
    return int((time.clock_gettime(time.CLOCK_BOOTTIME) + 1) * os.sysconf("SC_CLK_TCK"))


def start_time(pid: int) -> int:
    """Return when a process started, in the kernel's ticks, or 0 where that cannot be known."""
    process = _process(pid)
    return process.started if process else 0


class Family:
    """A process that leads its own group, and all that came of it.

    That is its group, even after it is gone itself, and on Linux also those who left the group while someone
    of the family was still their parent. A daemon that cut every tie is nobody's child and left alone.
    """

    def __init__(self, leader: int, started_by: int) -> None:
        self._leader = leader
        self._started_by = started_by
        self._members: dict[int, _Process] = {}
        self._group_exists = True

    def alive(self) -> list[int]:
        """Return the pids that still run. Those seen once are known even when their parents are gone."""
        group_exists = _signalled(os.killpg, self._leader, 0)
        has_left = any(process.group != self._leader for process in self._members.values())
        processes = _processes() if group_exists or has_left else []
        if not processes:
            self._members, self._group_exists = {}, group_exists
            return [self._leader] if group_exists else []
        # Pids come round again: a leader that started later leads another group.
        reused = any(p.pid == self._leader and p.started > self._started_by for p in processes)
        group = [] if reused else [p for p in processes if p.group == self._leader]
        self._group_exists = bool(group)
        children: dict[int, list[_Process]] = {}
        for process in processes:
            children.setdefault(process.parent, []).append(process)
        pending = group + [p for p in processes if self._is_known(p)]
        self._members = {}
        while pending:
            process = pending.pop()
            if process.pid not in self._members:
                self._members[process.pid] = process
                pending += children.get(process.pid, [])
        return [process.pid for process in self._members.values() if not process.zombie]

    def signal(self, number: int) -> None:
        """Send a signal to all who were there at the last look."""
        if self._group_exists:
            _signalled(os.killpg, self._leader, number)
        for process in self._members.values():
            if process.group != self._leader and start_time(process.pid) == process.started:
                _signalled(os.kill, process.pid, number)

    def _is_known(self, process: _Process) -> bool:
        known = self._members.get(process.pid)
        return known is not None and known.started == process.started


def _signalled(kill: Callable[[int, int], None], target: int, number: int) -> bool:
    try:
        kill(target, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Someone is there, under another user.
        return True
    return True


def _watched_until_host_is_gone(host: int) -> list[Family]:
    """Read whom to watch until the host closes the pipe or dies, and return who is still watched."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    # A process forked off the host may hold the pipe open for longer than the host lives.
    if (death := _death_of(host)) is not None:
        poll.register(death, select.POLLIN)
    watched: dict[int, Family] = {}
    partial = b""
    while any(fd == 0 for fd, _ in poll.poll()):
        data = os.read(0, 65536)
        if not data:
            break
        *lines, partial = (partial + data).split(b"\n")
        for line in lines:
            pid, _, started_by = line[1:].partition(b" ")
            if line.startswith(b"+"):
                watched[int(pid)] = Family(int(pid), int(started_by))
            else:
                watched.pop(int(pid), None)
    return [*watched.values()]


def _death_of(host: int) -> int | None:
    """Return a file descriptor that is readable once the host is dead, where there are such things."""
    if sys.platform != "linux" or os.getppid() != host:
        return None
    try:
        return os.pidfd_open(host)
    except OSError:
        return None


def _end(families: list[Family]) -> None:
    """End processes, kindly first."""
    deadline = time.monotonic() + TERMINATE_SECONDS
    alive = [family for family in families if family.alive()]
    for family in alive:
        family.signal(signal.SIGTERM)
    while alive and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        alive = [family for family in alive if family.alive()]
    for family in alive:
        family.signal(signal.SIGKILL)


def main() -> None:
    """Watch over the servers of the process whose pid is the first argument."""
    for name in _IGNORED_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    _end(_watched_until_host_is_gone(int(sys.argv[1])))


if __name__ == "__main__":
    main()
