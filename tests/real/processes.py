"""Who runs because of a test: the process table, read for the mark that every server inherits."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio

MARK = "REAL_SERVER_OF"


def marked(mark: str) -> set[int]:
    """The pids of all processes that were started with this mark, or by one that was."""
    wanted = f"{MARK}={mark}".encode()
    return {
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and wanted in _environment(folder).split(b"\0")
    }


def leader(pids: set[int]) -> int:
    """The one that the host started: it leads the session of the others."""
    (pid,) = {os.getsid(pid) for pid in pids}
    assert pid in pids
    return pid


def children() -> set[int]:
    """The pids of this process's own children, whatever they are."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def programs(pids: set[int]) -> list[str]:
    """What they run, sorted: `node`, `sh` and so on."""
    return sorted(Path(f"/proc/{pid}/exe").readlink().name for pid in pids)


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for something that nobody announces."""
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.01)


def _environment(folder: Path) -> bytes:
    try:
        return (folder / "environ").read_bytes()
    except OSError:
        # It is gone by now, or not ours to look at.
        return b""
