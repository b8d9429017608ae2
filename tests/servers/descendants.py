"""A stdio server that starts descendants in the way its first argument says, and then answers nothing.

Run as `python -I -S descendants.py SHAPE FOLDER MARK`. Every process it starts either has MARK among its
arguments or notes itself as a file in FOLDER, named after its pid, that holds the time it started. When all
are there, it says so with a notification. Should a test fail, what it started ends after two minutes.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

FOLDER, MARK = sys.argv[2], sys.argv[3]
SECONDS = 120
CLONE_PARENT = 0x8000
PR_SET_CHILD_SUBREAPER = 36
SYS_CLONE = 56 if os.uname().machine == "x86_64" else 220
# The argument after the program is MARK, by which a process is found.
SLEEP = f"import time; time.sleep({SECONDS})"
STUBBORN = f"import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep({SECONDS})"

libc = ctypes.CDLL(None)


def note(pid: int = 0) -> None:
    """Note a process in the folder."""
    pid = pid or os.getpid()
    with open(f"/proc/{pid}/stat") as file:
        started = file.read().rpartition(")")[2].split()[19]
    with open(f"{FOLDER}/.{pid}", "w") as file:
        file.write(started)
    os.rename(f"{FOLDER}/.{pid}", f"{FOLDER}/{pid}")


def program(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code, MARK]


def start(code: str = SLEEP, **options: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(program(code), stdin=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    note(process.pid)
    return process


def fork(child: Callable[[], None]) -> int:
    """Run something in a forked process, which exits after it."""
    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(0)
    return pid


def daemonise(child: Callable[[], None]) -> None:
    """Run something in a process with a session of its own, whose parent is gone."""
    reading, writing = os.pipe()

    def middle() -> None:
        os.setsid()

        def grandchild() -> None:
            note()
            os.write(writing, b"1")
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(3):
                os.dup2(null, fd)
            child()

        fork(grandchild)

    os.waitpid(fork(middle), 0)
    os.read(reading, 1)
    os.close(reading)
    os.close(writing)


def sleep() -> None:
    time.sleep(SECONDS)


def sleep_through_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(SECONDS)


# ── the shapes ──


def own_group() -> None:
    start(process_group=0)


def own_session() -> None:
    start(start_new_session=True)


def double_fork() -> None:
    daemonise(sleep)


def stopped() -> None:
    process = start(STUBBORN, start_new_session=True)
    os.kill(process.pid, signal.SIGSTOP)

    def stop_itself() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)
        sleep_through_sigterm()

    daemonise(stop_itself)


def ignores_sigterm() -> None:
    start(STUBBORN, start_new_session=True)
    daemonise(sleep_through_sigterm)


def clears_environment() -> None:
    daemonise(lambda: os.execve("/usr/bin/env", ["env", "-i", *program(STUBBORN)], {}))


def other_argv() -> None:
    daemonise(lambda: os.execve("/bin/sleep", ["[kworker/0:1]", str(SECONDS)], {}))


def fork_storm() -> None:
    """Start processes as fast as may be, once it is told to end, and before that slowly."""
    deadline = time.monotonic() + SECONDS
    told: list[int] = []

    def storm() -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
        while time.monotonic() < deadline:
            if told:
                for _ in range(8):
                    fork(sleep_through_sigterm)
            time.sleep(0.002 if told else 0.05)

    for _ in range(2):
        daemonise(storm)


def comet() -> None:
    """Be another process all the time: start one, and exit."""
    deadline = time.monotonic() + SECONDS

    def fly() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while time.monotonic() < deadline:
            if os.fork():
                os._exit(0)

    daemonise(fly)


def late() -> None:
    """Start daemons only when it is told to end."""

    def handle(number: int, frame: object) -> None:
        daemonise(sleep_through_sigterm)
        start(STUBBORN, start_new_session=True)

    signal.signal(signal.SIGTERM, handle)

    def daemon() -> None:
        signal.signal(signal.SIGTERM, handle)
        sleep()

    daemonise(daemon)


def leaves_daemons() -> None:
    daemonise(sleep_through_sigterm)
    start(STUBBORN, start_new_session=True)


def exec_chain() -> None:
    """Shells that start each other in new sessions, in the background, and replace themselves."""
    inner = '"$0" "$@" & exec sh -c "sleep 120"'
    outer = 'setsid nohup sh -c \'exec setsid sh -c "$0" "$@"\' "$@" >/dev/null 2>&1 &'
    argv = ["sh", "-c", outer, "sh", inner, *program(STUBBORN)]
    subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)


def inner_subreaper() -> None:
    def adopt() -> None:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        daemonise(sleep_through_sigterm)
        sleep_through_sigterm()

    daemonise(adopt)


def deep_tree() -> None:
    def grow(depth: int) -> None:
        note()
        os.setsid()
        if depth:
            fork(lambda: grow(depth - 1))
        sleep_through_sigterm()

    fork(lambda: grow(15))
    while len(os.listdir(FOLDER)) < 16:
        time.sleep(0.01)


def siblings() -> None:
    """Start processes that are the reaper's children, not the server's."""
    if libc.syscall(SYS_CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        note()
        os.setsid()
        sleep_through_sigterm()
        os._exit(0)
    if libc.syscall(SYS_CLONE, 0, 0, 0, 0, 0) == 0:  # without any signal when it exits
        note()
        os.setsid()
        sleep_through_sigterm()
        os._exit(0)
    while len(os.listdir(FOLDER)) < 2:
        time.sleep(0.01)


def from_a_thread() -> None:
    """Start processes in a thread: they are children of the thread, which lives on."""
    ready = threading.Event()

    def work() -> None:
        daemonise(sleep_through_sigterm)
        start(STUBBORN, start_new_session=True)
        ready.set()
        sleep()

    threading.Thread(target=work, daemon=True).start()
    ready.wait(30)


def stops_itself() -> None:
    own_session()


def kills_reaper() -> None:
    leaves_daemons()


def stops_reaper() -> None:
    leaves_daemons()


def kills_guardian() -> None:
    leaves_daemons()


def say_started() -> None:
    os.write(1, b'{"jsonrpc": "2.0", "method": "notifications/started"}\n')


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


AFTERWARDS: dict[str, Callable[[], None]] = {
    "leaves_daemons": lambda: os._exit(0),
    "stops_itself": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "kills_reaper": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "stops_reaper": lambda: os.kill(os.getppid(), signal.SIGSTOP),
    "kills_guardian": lambda: os.kill(parent_of(os.getppid()), signal.SIGKILL),
}


def main() -> None:
    shape = sys.argv[1]
    globals()[shape]()
    say_started()
    AFTERWARDS.get(shape, lambda: None)()
    sys.stdin.buffer.read()
    if shape in ("late", "fork_storm"):
        time.sleep(SECONDS)


if __name__ == "__main__":
    main()
