import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from fairlead.connection.guardian import Guardian
from fairlead.connection.reaper import Family, latest_start, start_time

SLEEPER = [sys.executable, "-I", "-S", "-c", "import time; print(flush=True); time.sleep(600)"]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def sleeper() -> Generator[subprocess.Popen[bytes]]:
    """A process that leads its own group and does nothing."""
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        yield process
        process.kill()


@pytest.fixture
def guardian() -> Generator[Guardian]:
    guardian = Guardian()
    yield guardian
    guardian.close()


@pytest.mark.requirement("HARD-19", "NEED-1")
@pytest.mark.parametrize("forked", [False, True])
def test_nothing_outlives_a_killed_host(forked: bool, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.connection.guarded_host", str(tmp_path), *["fork"] * forked]
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
    assert host.stdout is not None
    with host.stdout:
        pids = json.loads(host.stdout.readline())
        everyone = [pids["guardian"], *pids["servers"], *pids["grandchildren"]]
        assert all(map(is_alive, everyone))

        began = time.monotonic()
        host.kill()
        host.wait()
        gone = wait_until(lambda: not any(map(is_alive, everyone)))
        if forked:
            os.kill(pids["forked"], signal.SIGKILL)

    assert gone
    assert time.monotonic() - began < 5


def test_a_guardian_starts_with_the_first_process_and_leaves_at_once(
    guardian: Guardian, sleeper: subprocess.Popen[bytes]
) -> None:
    assert guardian.pid is None

    guardian.watch(sleeper.pid)
    pid = guardian.pid
    assert pid is not None
    assert is_alive(pid)
    guardian.release(sleeper.pid)
    began = time.monotonic()
    guardian.close()

    assert not is_alive(pid)
    assert time.monotonic() - began < 2
    assert sleeper.poll() is None


@pytest.mark.requirement("HARD-19")
def test_what_is_still_watched_ends_with_the_guardian(
    guardian: Guardian, sleeper: subprocess.Popen[bytes]
) -> None:
    guardian.watch(sleeper.pid)

    guardian.close()

    assert sleeper.wait(10) == -signal.SIGTERM


@pytest.mark.requirement("HARD-19")
def test_a_guardian_heeds_no_signal_that_a_terminal_or_a_supervisor_sends(
    guardian: Guardian, sleeper: subprocess.Popen[bytes]
) -> None:
    guardian.watch(sleeper.pid)
    assert guardian.pid is not None
    assert os.getsid(guardian.pid) == guardian.pid
    ready = Path(f"/proc/{guardian.pid}/status")
    ignored = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}

    def ignores_all() -> bool:
        mask = next(line for line in ready.read_text().splitlines() if line.startswith("SigIgn:"))
        return all(int(mask.split()[1], 16) >> (number - 1) & 1 for number in ignored)

    assert wait_until(ignores_all)
    for number in ignored:
        os.kill(guardian.pid, number)
    guardian.close()

    assert sleeper.wait(10) == -signal.SIGTERM


@pytest.mark.requirement("HARD-19")
def test_a_killed_guardian_is_replaced_by_one_that_knows_as_much(
    guardian: Guardian, sleeper: subprocess.Popen[bytes]
) -> None:
    with subprocess.Popen(SLEEPER, start_new_session=True, stdout=subprocess.DEVNULL) as another:
        guardian.watch(sleeper.pid)
        first = guardian.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(first))

        guardian.watch(another.pid)
        assert guardian.pid not in (None, first)
        guardian.close()

        assert sleeper.wait(10) == -signal.SIGTERM
        assert another.wait(10) == -signal.SIGTERM


@pytest.mark.requirement("HARD-19")
def test_a_pid_that_was_given_to_another_process_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    earlier = Family(sleeper.pid, start_time(sleeper.pid) - 1)

    assert earlier.alive() == []
    earlier.signal(signal.SIGKILL)

    assert sleeper.poll() is None
    assert Family(sleeper.pid, start_time(sleeper.pid)).alive() == [sleeper.pid]


@pytest.mark.requirement("HARD-19")
def test_a_process_is_known_by_the_time_it_had_started_by(sleeper: subprocess.Popen[bytes]) -> None:
    started_by = latest_start()

    assert start_time(sleeper.pid) <= started_by
    assert Family(sleeper.pid, started_by).alive() == [sleeper.pid]


def test_a_guardian_without_a_program_to_run_is_only_missed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    guardian: Guardian,
    sleeper: subprocess.Popen[bytes],
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    guardian.watch(sleeper.pid)
    guardian.release(sleeper.pid)

    assert guardian.pid is None
    assert "no guardian" in caplog.text
