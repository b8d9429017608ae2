"""Commands with standard streams that are closed or full, and in a home that is read-only."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Machine

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    server = {"name": "s", "version": "1"}
    known = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
    results = {
        "initialize": known,
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "heard you"}]},
    }
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] in results:
        answer["result"] = results[asked["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(answer), flush=True)
"""

CLOSED = ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]


@pytest.fixture
def configured(machine: Machine, tmp_path: Path) -> Machine:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    entry = {"command": sys.executable, "args": [str(program)], "trust": "trusted", "approval": "allow"}
    machine.user_file.parent.mkdir(parents=True, exist_ok=True)
    machine.user_file.write_text(json.dumps({"servers": {"a": entry}}))
    return machine


def run_in_shell(command: str, redirections: str) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m fairlead {command} {redirections}"
    return subprocess.run(
        line, shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("redirections", CLOSED)
def test_a_call_works_whichever_standard_streams_are_closed(configured: Machine, redirections: str) -> None:
    done = run_in_shell("call a echo --yes", redirections)
    assert done.returncode == 0
    assert done.stderr == "" or "bug" not in done.stderr
    if ">&-" not in redirections.replace("2>&-", ""):
        assert "heard you" in done.stdout


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-"])
@pytest.mark.parametrize(
    "command", ["list", "add b -- run", "explain a", "artifacts", "search echo", "gateway --stdio"]
)
def test_a_command_with_a_closed_stream_ends_as_it_does_with_an_open_one(
    configured: Machine, command: str, redirections: str
) -> None:
    done = run_in_shell(command, redirections)
    assert done.returncode == 0
    assert "bug" not in done.stderr


def test_a_file_that_is_opened_later_does_not_become_a_closed_stream() -> None:
    script = """
import os
from fairlead.terminal.output import open_standard_streams
open_standard_streams()
os.write(int(os.environ["REPORT"]), str(os.open("/dev/null", os.O_RDONLY) > 2).encode())
"""
    line = f"exec 9>&1; REPORT=9 {sys.executable} -c '{script}' <&- >&- 2>&-"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize(
    "command", ["schema", "list --json", "list", "call a echo --yes", "status", "--help"]
)
def test_a_full_disk_behind_stdout_is_told_as_such(configured: Machine, command: str) -> None:
    done = run_in_shell(command, ">/dev/full")
    assert done.returncode == 1
    assert "error: cannot write the output: No space left on device" in done.stderr
    assert "hint:" in done.stderr
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_behind_stderr_costs_the_words_and_not_the_data(configured: Machine) -> None:
    done = run_in_shell("list", "2>/dev/full")
    assert done.returncode == 0
    assert "server.py" in done.stdout


def mount_read_only(folder: Path) -> list[str]:
    everything = ["--bind", "/", "/", "--dev-bind", "/dev", "/dev"]
    return ["bwrap", "--die-with-parent", *everything, "--ro-bind", str(folder), str(folder)]


def can_mount() -> bool:
    if shutil.which("bwrap") is None:
        return False
    command = [*mount_read_only(Path("/usr")), "true"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="bubblewrap cannot mount here")
def test_commands_that_only_read_work_in_a_home_that_is_read_only(configured: Machine) -> None:
    fairlead = [sys.executable, "-m", "fairlead"]
    subprocess.run([*fairlead, "tools", "a"], capture_output=True, timeout=120, check=True)
    reading = (["status"], ["tools", "a"], ["audit"], ["approvals"], ["artifacts"], ["artifacts", "list"])
    for command in reading:
        line = [*mount_read_only(configured.home), *fairlead, *command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr.count("error:")) == (0, 0), (command, done.stderr)
        if command[0] == "tools":
            assert "echo" in done.stdout


@pytest.mark.skipif(not can_mount(), reason="bubblewrap cannot mount here")
def test_the_dashboard_has_one_name_in_a_run_though_it_cannot_be_kept(machine: Machine) -> None:
    from_folder = "from fairlead.gateway.registry import dashboard_name, gateway_folder; import os; "
    made = [sys.executable, "-c", from_folder + "gateway_folder(os.environ)"]
    subprocess.run(made, capture_output=True, timeout=60, check=True)
    script = from_folder + "print(len({dashboard_name(os.environ), dashboard_name(os.environ)}))"
    line = [*mount_read_only(machine.home), sys.executable, "-c", script]
    assert subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout == "1\n"


@pytest.mark.skipif(not can_mount(), reason="bubblewrap cannot mount here")
@pytest.mark.parametrize("command", [["gateway", "--port", "0"], ["serve", "repo", "--port", "0"]])
def test_a_first_start_in_a_home_that_is_read_only_says_what_helps(
    machine: Machine, command: list[str]
) -> None:
    line = [*mount_read_only(machine.home), sys.executable, "-m", "fairlead", *command]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr
    assert "XDG_STATE_HOME" in done.stderr
    assert "bug" not in done.stderr
    elsewhere = machine.project / "state"
    with started(line, XDG_STATE_HOME=str(elsewhere)) as first_line:
        assert "http://127.0.0.1:" in first_line
    assert (elsewhere / "fairlead").is_dir()


@pytest.mark.skipif(not can_mount(), reason="bubblewrap cannot mount here")
def test_a_later_start_of_the_gateway_in_a_home_that_is_read_only_serves(configured: Machine) -> None:
    fairlead = [sys.executable, "-m", "fairlead"]
    subprocess.run([*fairlead, "tools", "a"], capture_output=True, timeout=120, check=True)
    tokens = "import os; from fairlead.gateway.access import tokens as t; t.local_token(os.environ);"
    tokens += "t.decide_token(os.environ)"
    subprocess.run([sys.executable, "-c", tokens], timeout=60, check=True)
    with started([*mount_read_only(configured.home), *fairlead, "gateway", "--port", "0"]) as first_line:
        assert "http://127.0.0.1:" in first_line


@pytest.mark.skipif(not can_mount(), reason="bubblewrap cannot mount here")
def test_changes_in_a_home_that_is_read_only_say_what_helps(configured: Machine) -> None:
    fairlead = [sys.executable, "-m", "fairlead"]
    subprocess.run([*fairlead, "tools", "a"], capture_output=True, timeout=120, check=True)
    for command in (["artifacts", "clean"], ["artifacts", "clean", "--all"]):
        line = [*mount_read_only(configured.home), *fairlead, *command]
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 1
        assert "its folder cannot be written" in done.stderr or "Read-only" in done.stderr
        assert "XDG_STATE_HOME" in done.stderr


@contextmanager
def started(line: list[str], **variables: str) -> Generator[str]:
    """Run a command that serves; its first line of output."""
    env = {**os.environ, **variables}
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            process.kill()
