"""The end of the program: the interpreter is not taken apart, and nothing else of its end is left out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Machine

SECONDS = 60


def run_after(machine: Machine, words: list[str], *lines: str) -> subprocess.CompletedProcess[str]:
    """Run the program after some lines of Python."""
    program = "\n".join([*lines, "from fairlead.cli.main import run_program", "run_program()"])
    command = [sys.executable, "-c", program, *words]
    env = {**machine.env, "PATH": os.environ["PATH"]}
    return subprocess.run(
        command,
        env=env,
        cwd=machine.env["HOME"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize(("words", "status"), [(["list"], 0), (["get", "missing"], 1), (["nosuch"], 2)])
def test_the_exit_status_is_the_commands(machine: Machine, words: list[str], status: int) -> None:
    assert run_after(machine, words).returncode == status


def test_what_waits_for_the_end_is_run_and_what_it_prints_is_written(machine: Machine) -> None:
    registered = "import atexit; atexit.register(print, 'at the end')"
    assert run_after(machine, ["list"], registered).stdout.endswith("at the end\n")


def test_a_thread_that_is_left_is_waited_for(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "written"
    # It begins when the main thread has ended.
    lines = (
        "import threading, pathlib",
        f"def write(): threading.main_thread().join(); pathlib.Path({str(file)!r}).write_text('late')",
        "threading.Thread(target=write).start()",
    )
    assert run_after(machine, ["list"], *lines).returncode == 0
    assert file.read_text() == "late"
