"""Run a parser in a process of its own: with limits of memory and processor time, and a deadline.

A page of a few megabytes, or a PDF of a few kilobytes, can keep a parser busy for minutes, have it take
gigabytes, or hold the interpreter, in a single call that nothing interrupts. The child gets its input from a
file without a name, has no environment, and writes only to its pipe, of which a limited part is read.
"""

import os
import subprocess
import sys
import tempfile
import threading
from typing import Final

MAX_MEMORY: Final = 1024 * 1024 * 1024
"""Address space of a child."""


def run_child(module: str, *arguments: str, given: bytes, seconds: float, max_output: int) -> bytes | None:
    """Run a module of this package as a child process. It takes its time: use a thread.

    Args:
        module: Its whole name. It has to call `limit_child` first.
        arguments: Its command line.
        given: What it reads from stdin.
        seconds: How long it may take.
        max_output: How much of its stdout is read.

    Returns:
        What it wrote; None where it failed, wrote too much or took too long.
    """
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-I", "-m", module, *arguments],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
            start_new_session=True,
        )
    deadline = threading.Timer(seconds, child.kill)
    deadline.start()
    assert child.stdout is not None
    try:
        said = child.stdout.read(max_output + 1)
        if len(said) > max_output:
            return None
        return said if child.wait() == 0 else None
    finally:
        deadline.cancel()
        child.kill()
        child.wait()
        child.stdout.close()


def limit_child(seconds: float) -> None:
    """Limit this process, where the system can: memory, processor time, and no file can be written."""
    try:
        import resource
    except ImportError:
        return  # on Windows the deadline alone ends it
    limits = {
        resource.RLIMIT_AS: MAX_MEMORY,
        resource.RLIMIT_CPU: int(seconds) + 1,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        try:
            resource.setrlimit(kind, (limit, limit))
        except (OSError, ValueError):
            continue  # the limit is lower already, or macOS does not set this one
