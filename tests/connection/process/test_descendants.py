"""No descendant of a server outlives it, or the host, whatever it did to get away."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers"),
    pytest.mark.requirement("HARD-84", "HARD-19", "NEED-1"),
]

TRIES = int(os.environ.get("FAIRLEAD_DESCENDANT_TRIES", "10"))
"""How often each of the five common shapes is tried for each end of a host or server."""
AT_ONCE = 10
GONE_SECONDS = 20

COMMON = ["own_group", "own_session", "double_fork", "node_detached", "stopped"]
HOSTILE = [
    "ignores_sigterm",
    "clears_environment",
    "other_argv",
    "late",
    "leaves_daemons",
    "exec_chain",
    "inner_subreaper",
    "deep_tree",
    "siblings",
    "from_a_thread",
    "own_namespace",
    "traced",
    "stops_itself",
    "kills_reaper",
]
RACES = ["fork_storm", "comet"]


class Trace:
    """What is left of the processes that servers started: found by an argument, or by what they noted.

    A process that is another one every moment is not there any more when its line of the process table is
    read. It notes its process group, which the kernel tells in one step.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"descendant-{secrets.token_hex(8)}"

    def survivors(self) -> dict[int, bytes]:
        """The pids that still run, with their command lines; groups with members by their negative ids."""
        table = (int(name) for name in os.listdir("/proc") if name.isdigit())
        found = {pid: read(f"/proc/{pid}/cmdline") for pid in table}
        marked = {pid for pid, line in found.items() if self.mark.encode() in line.split(b"\0")}
        noted = {
            int(file.name) for file in self.folder.glob("*/[0-9]*") if started(int(file.name)) == read(file)
        }
        groups = {int(file.name.removeprefix("group-")) for file in self.folder.glob("*/group-*")}
        return {
            **{pid: found.get(pid, b"") for pid in marked | noted if is_alive(pid)},
            **{-group: b"process group" for group in groups if has_members(group)},
        }


def read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"], [b"X"])


def has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def started(pid: int) -> bytes | None:
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return fields[19] if fields else None


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def attempt(folder: Path, end: str, shapes: list[str], count: int) -> None:
    """Start a host with servers of these shapes, end it or them, and see that nothing is left."""
    trace = Trace(folder / secrets.token_hex(4))
    how = end if end in ("exit", "raise") else "close"
    argv = [sys.executable, "-m", "tests.connection.descendant_host", str(trace.folder), trace.mark, how]
    with subprocess.Popen(
        [*argv, str(count), *shapes],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        servers: list[int] = json.loads(host.stdout.readline() or "[]")

        def left() -> dict[int, bytes]:
            return {pid: line for pid, line in trace.survivors().items() if pid != host.pid}

        try:
            assert len(servers) == count * len(shapes)
            if end == "kill":
                host.kill()
            elif end == "crash":
                for pid in filter(is_alive, servers):
                    os.kill(pid, signal.SIGKILL)
            else:
                host.stdin.write(b"\n")
                host.stdin.flush()
            wait_until(lambda: not left(), GONE_SECONDS)
            assert not left()
            # A crash of its servers leaves the host as it was; all else has ended it by now.
            host.stdin.close()
            assert host.wait(GONE_SECONDS) == {"kill": -signal.SIGKILL, "exit": 3, "raise": 1}.get(end, 0)
        finally:
            host.kill()
            for pid in left():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


ENDS = ["kill", "close", "crash", "exit", "raise"]


@pytest.mark.parametrize("end", ENDS)
def test_no_descendant_survives(tmp_path: Path, end: str) -> None:
    for done in range(0, TRIES, AT_ONCE):
        attempt(tmp_path, end, COMMON, min(AT_ONCE, TRIES - done))


@pytest.mark.parametrize("end", ENDS)
def test_no_descendant_survives_by_unusual_means(tmp_path: Path, end: str) -> None:
    for _ in range(0, TRIES, AT_ONCE):
        attempt(tmp_path, end, HOSTILE, 2)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shape", RACES)
def test_no_descendant_survives_by_starting_others_meanwhile(tmp_path: Path, end: str, shape: str) -> None:
    for _ in range(0, TRIES, AT_ONCE):
        attempt(tmp_path, end, [shape], 1)


@pytest.mark.parametrize("end", ["kill", "close"])
@pytest.mark.parametrize("shape", ["stops_reaper", "kills_guardian"])
def test_a_server_that_attacks_what_ends_it_leaves_nothing(tmp_path: Path, end: str, shape: str) -> None:
    attempt(tmp_path, end, [shape], 1)
