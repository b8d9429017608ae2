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


def programs(pids: set[int]) -> list[str]:
    """What they run, sorted: `node`, `sh` and so on."""
    return sorted(Path(f"/proc/{pid}/exe").readlink().name for pid in pids)


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for something that nobody announces."""
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - the process table and files send no events
            await anyio.sleep(0.05)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        # What it is about is gone by now, or not ours to look at.
        return b""
