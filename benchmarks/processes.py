"""Other processes as the kernel sees them: their CPU, their memory, their children."""

import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import ROOT

_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 15.0


def cpu_of(pid: int) -> float:
    """How many seconds of CPU a process has used, with all its threads and without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_SECONDS


def resident_of(pid: int) -> int:
    """How many bytes of memory a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split(None, 1)[0]) * 1024


def descendants(pid: int) -> dict[int, str]:
    """The processes that a process started, and those that they started, with their command lines."""
    found: dict[int, str] = {}
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(thread).split()):
            found[child] = _read(Path(f"/proc/{child}/cmdline")).replace("\0", " ")
            found |= descendants(child)
    return found


def is_alive(pid: int) -> bool:
    """Does a process run, rather than wait to be buried?"""
    return _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()[:1] not in ([], ["Z"])


def processes_marked(mark: str) -> dict[int, str]:
    """The processes that run and have a word in their command lines, whoever their parent is by now."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        words = _read(folder / "cmdline").replace("\0", " ")
        if mark in words and is_alive(int(folder.name)):
            found[int(folder.name)] = words
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # it ended in this moment


@contextmanager
def started(
    argv: Sequence[str], env: Mapping[str, str] | None = None, *, heard: bool = True
) -> Generator[subprocess.Popen[str]]:
    """Run a program for the length of the block. Who has it `heard` must read what it prints."""
    with subprocess.Popen(
        argv,
        cwd=ROOT,
        env=dict(env) if env is not None else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if heard else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
