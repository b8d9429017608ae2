"""Doctor on a broken machine: every fix is followed to the letter, and then there is no problem left.

What a fix has in backticks is typed as it stands. Where it says to install or to correct something, the test
does that and nothing else.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.paths import state_folder, store_file
from tests.cli.gateway_support import command
from tests.journeys.support.person import Journey
from tests.journeys.support.terminal import Terminal, terminal
from tests.journeys.support.web import Handler, web_server

pytestmark = pytest.mark.slow

if sys.platform != "linux":
    pytest.skip("what is broken here is broken by means of Linux", allow_module_level=True)

SECONDS = 60
NEEDED = ("bash", "sh", "env", "cat", "kill", "mv", "rm", "mkdir", "touch", "sleep")

Findings = dict[tuple[str, str], dict[str, Any]]


def doctor(journey: Journey, *before: str) -> Findings:
    """What is wrong, by area and subject; `before` is a command that runs doctor in a changed machine."""
    journey.commands += 1
    done = subprocess.run(
        [*before, *command("doctor", "--json")],
        cwd=journey.project,
        env=journey.env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    told = json.loads(done.stdout)
    assert told["ok"] == (done.returncode == 0)
    return {(each["area"], each["subject"]): each for each in told["findings"] if each["status"] == "problem"}


def follow(shell: Terminal, fix: str, commands: int = 1) -> None:
    """Type what a fix has in backticks: the first command, or the first ones."""
    typed = re.findall(r"`([^`]+)`", fix)
    assert len(typed) >= commands, fix
    for line in typed[:commands]:
        shell.runs(line)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def stopped(words: list[str], journey: Journey, is_ready: Callable[[int], bool]) -> Generator[int]:
    """A process that hangs once it is ready: it is there, and does nothing any more."""
    with subprocess.Popen(
        words, env=journey.env, cwd=journey.project, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        try:
            until(lambda: is_ready(process.pid))
            process.send_signal(signal.SIGSTOP)
            yield process.pid
        finally:
            process.kill()


def test_programs_that_are_missing_are_installed_as_it_says(journey: Journey) -> None:
    for name in NEEDED:
        found = shutil.which(name)
        assert found
        journey.programs.mkdir(exist_ok=True)
        (journey.programs / name).symlink_to(found)
    journey.env["PATH"] = str(journey.programs)
    server = journey.install("server")
    journey.install_program(
        "pip", f'#!/bin/sh\n[ "$*" = "install uv" ] && mv {server} {journey.programs}/uvx\n'
    )
    journey.configure(time={"command": "uvx", "args": ["mcp-server-time"]})
    found = doctor(journey)
    assert {*found} == {("programs", "uvx"), ("servers", "time")}
    missing = found["programs", "uvx"]
    assert "needed by `time`" in missing["message"]
    assert "there is no program uvx on the PATH" in found["servers", "time"]["message"]
    # What tells its version is what doctor asks for.
    uvx = server.read_text().replace("exec", '[ "$1" = --version ] && echo "uvx 1.0" && exit\nexec', 1)
    server.write_text(uvx)
    with terminal(journey) as shell:
        follow(shell, missing["fix"])
    assert doctor(journey) == {}


def test_a_bad_configuration_is_corrected_as_it_says(journey: Journey) -> None:
    program = str(journey.install("server"))
    journey.configure(time={"comand": program})
    found = doctor(journey)
    assert {area for area, _ in found} == {"configuration"}
    journey.configure(time={"comand": program, "command": program})
    (problem,) = doctor(journey).values()
    assert problem["fix"] == "did you mean `command`?"
    journey.configure(time={"command": program})
    assert doctor(journey) == {}
    journey.write(journey.file.read_text().rstrip().removesuffix("}"))
    (problem,) = doctor(journey).values()
    assert "fairlead.json:" in problem["message"], "with line and column"
    journey.write(journey.file.read_text() + "}")
    assert doctor(journey) == {}


def test_state_that_cannot_be_used_is_moved_away_as_it_says(journey: Journey) -> None:
    journey.configure()
    store = store_file(journey.env)
    store.parent.mkdir(parents=True)
    store.write_bytes(b"not a database, but as long as the head of one " * 40)
    found = doctor(journey)["state", "store"]
    assert "is damaged" in found["message"]
    with terminal(journey) as shell:
        follow(shell, found["fix"], commands=2)
    assert doctor(journey) == {}
    # A file where the folder should be: it can be written by no user, root included.
    shutil.rmtree(store.parent)
    store.parent.touch()
    found = doctor(journey)["state", "folder"]
    assert found["fix"].endswith("or set XDG_STATE_HOME to one that is")
    journey.env["XDG_STATE_HOME"] = str(journey.home / "state")
    assert doctor(journey) == {}


def test_a_full_disk_is_left_for_another_as_it_says(journey: Journey) -> None:
    journey.configure()
    folder = state_folder(journey.env)
    folder.mkdir(parents=True)
    # A disk of two megabytes, in a mount namespace of the command.
    tiny = ["bwrap", "--dev-bind", "/", "/", "--size", "2000000", "--tmpfs", str(folder)]
    found = doctor(journey, *tiny)["state", "disk"]
    assert re.match(r"[01] MB are free at ", found["message"])
    assert found["fix"].endswith("or set XDG_STATE_HOME to a folder on another")
    journey.env["XDG_STATE_HOME"] = str(journey.home / "state")
    assert doctor(journey, *tiny) == {}


@pytest.mark.requirement("HARD-10")
def test_a_lock_that_is_held_by_a_process_that_hangs_is_freed_as_it_says(journey: Journey) -> None:
    journey.configure()
    ready = journey.home / "ready"
    code = (
        "import pathlib, sys, time\nfrom fairlead.config.document.files import hold_lock\n"
        "with hold_lock(pathlib.Path(sys.argv[1])):\n"
        "    pathlib.Path(sys.argv[2]).touch()\n    time.sleep(600)"
    )
    words = [sys.executable, "-c", code, str(journey.file), str(ready)]
    with stopped(words, journey, lambda _pid: ready.exists()) as pid, terminal(journey) as shell:
        found = doctor(journey)["state", "lock"]
        assert f"`kill -9 {pid}`" in found["fix"]
        follow(shell, found["fix"])
        assert doctor(journey) == {}


def test_a_gateway_that_hangs_is_ended_as_it_says(journey: Journey) -> None:
    journey.configure(time={"command": str(journey.install("server"))})
    about = state_folder(journey.env) / "gateway" / "running"
    words = command("gateway", "--port", "0", "--json")
    is_up: Callable[[int], bool] = lambda _pid: bool([*about.glob("*/about.json")])  # noqa: E731
    with stopped(words, journey, is_up) as pid, terminal(journey) as shell:
        ((area, _), found) = next(iter(doctor(journey).items()))
        assert area == "gateways"
        assert found["message"] == f"process {pid} is alive, and does not answer"
        follow(shell, found["fix"])
        assert doctor(journey) == {}


def test_what_a_killed_host_left_behind_is_ended_as_it_says(journey: Journey) -> None:
    journey.configure(slow={"command": str(journey.install("server", tools=["wait"]))})
    record = journey.home / ".server.record"
    host = subprocess.Popen(
        command("call", "slow", "wait", "--yes"),
        env=journey.env,
        cwd=journey.project,
        stdin=subprocess.DEVNULL,
    )
    with host:
        until(lambda: record.exists() and '"called"' in record.read_text())
        (guardian,) = (pid for pid in children_of(host.pid) if is_guardian(pid))
        # It would end the server and itself within moments: so that is kept from happening.
        os.kill(guardian, signal.SIGSTOP)
        host.kill()
    try:
        with terminal(journey) as shell:
            for _ in range(5):  # what it had under it is adopted by nobody, and told as well
                found = [each for (area, _), each in doctor(journey).items() if area == "processes"]
                for each in found:
                    shell.runs(shlex.join(["kill", "-9", each["subject"]]))
                    assert f"`kill -9 {each['subject']}`" in each["fix"]
                if not found:
                    break
        assert doctor(journey) == {}
    finally:
        if Path(f"/proc/{guardian}").exists():
            os.kill(guardian, signal.SIGKILL)


def children_of(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for task in tasks for child in (task / "children").read_text().split()}


def is_guardian(pid: int) -> bool:
    return b"reaper" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_clock_that_is_wrong_is_set_as_it_says(journey: Journey) -> None:
    is_set = journey.home / "clock-is-set"
    journey.install_program("timedatectl", f'#!/bin/sh\n[ "$*" = "set-ntp true" ] && touch {is_set}\n')

    def dated(handler: Handler) -> bool:
        handler.date_time_string = lambda timestamp=None: formatdate(
            time.time() + (0 if is_set.exists() else 600), usegmt=True
        )
        return False

    with web_server(dated) as web, terminal(journey) as shell:
        journey.configure(far={"url": web.url})
        (found,) = doctor(journey).values()
        assert re.fullmatch(r"this machine's clock is \d+ s behind the one of 127\.0\.0\.1", found["message"])
        follow(shell, found["fix"])
        assert doctor(journey) == {}
