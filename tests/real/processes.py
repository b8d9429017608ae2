"""Who runs because of a test: the process table, read for the mark that every server inherits."""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio

MARK = "REAL_SERVER_OF"


def marked(mark: str) -> set[int]:
    """The pids of all processes that were started with this mark, or by one that was."""
    wanted = f"{MARK}={mark}".encode()
    return {
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and wanted in _read(folder / "environ").split(b"\0")
    }


def leader(pids: set[int]) -> int:
    """The one that the host started: it leads the session of the others."""
    (pid,) = {os.getsid(pid) for pid in pids}
    assert pid in pids
    return pid


def children() -> set[int]:
    """The pids of this process's own children, whatever they are."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in _read(task / "children").split()}


def descendants() -> dict[int, int]:
    """Every process below this one, by pid, with when it started: a pid may be given to another later."""
    parents: dict[int, set[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _fields(int(folder.name))):
            parents.setdefault(int(fields[1]), set()).add(int(folder.name))
    below: set[int] = set()
    unseen = parents.get(os.getpid(), set())
    while unseen:
        below |= unseen
        unseen = {child for pid in unseen for child in parents.get(pid, ())} - below
    return {pid: started for pid in below if (started := _started(pid)) is not None}


def alive(processes: Mapping[int, int]) -> set[int]:
    """The pids of those that still run, whatever their parent is by now."""
    return {pid for pid, started in processes.items() if _started(pid) == started}


def first_started(pids: set[int]) -> int:
    """The oldest of the processes of one server: the one that the host started."""
    return min(pids, key=lambda pid: (_started(pid) or math.inf, pid))


def programs(pids: set[int]) -> list[str]:
    """What they run, sorted: `node`, `sh` and so on."""
    return sorted(Path(f"/proc/{pid}/exe").readlink().name for pid in pids)


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for something that nobody announces."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - the process table and files send no events
            await anyio.sleep(0.05)


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None where there is none."""
    fields = _fields(pid)
    return int(fields[19]) if fields else None


def _fields(pid: int) -> list[bytes]:
    """What the kernel says of a process after its program's name: its state, its parent and so on."""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        # What it is about is gone by now, or not ours to look at.
        return b""
