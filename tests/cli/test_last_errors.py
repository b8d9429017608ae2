"""What went wrong with a server is shown whole, with a hint that helps, until the server works again."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.load import load_config
from fairlead.errors import ConfigUnreadable
from fairlead.testing import scripted_program
from tests.cli.test_lock import ECHO, entry, says
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

NODE = (
    "loader:1\n  throw err;\n  ^\n\nError: Cannot find module 'zod'\n"
    + "".join(f"    at step {number}\n" for number in range(30))
    + "  code: 'MODULE_NOT_FOUND'\n}\n\nNode.js v22.1.0"
)


def add_flaky(fairlead: Fairlead, machine: Machine) -> Path:
    """A server that works once the returned file exists."""
    key, record = machine.home / "key", machine.home / "record"
    script = json.dumps({"record": str(record), "tools": ["echo"]})
    fail = f"os.write(2, {NODE.encode()!r}); os._exit(1)"
    code = (
        f"import os, runpy, sys\nif not os.path.exists({str(key)!r}): {fail}\n"
        f"sys.argv[1:] = [{script!r}]; runpy.run_path({scripted_program.__file__!r}, run_name='__main__')"
    )
    assert fairlead("add", "flaky", "--trust", "trusted", "--", sys.executable, "-c", code).status == 0
    return key


def row(fairlead: Fairlead) -> dict[str, Any]:
    (found,) = json.loads(fairlead("status", "--json").out)["servers"]
    return found


def test_status_shows_the_whole_last_error_until_a_call_succeeds(
    fairlead: Fairlead, machine: Machine
) -> None:
    key = add_flaky(fairlead, machine)
    outcome = fairlead("test", "flaky")
    assert "exited with code 1: Error: Cannot find module 'zod'\n" in outcome.err
    shown = row(fairlead)
    assert shown["state"] == "error"
    assert shown["last_error_at"] > 0
    for words in ("Error: Cannot find module 'zod'", "Node.js v22.1.0", "MODULE_NOT_FOUND"):
        assert words in shown["last_error"]
    table = fairlead("status").out
    in_table, whole = table.split("\n\n", 1)
    assert "Error: Cannot find module 'zod'" in in_table
    assert "Node.js v22.1.0" not in in_table
    assert whole.startswith("flaky: the server exited with code 1: Error: Cannot find module 'zod'\n")
    assert "Node.js v22.1.0" in whole
    for command in ("status", "get"):
        one = fairlead(command, "flaky")
        assert one.status == 0
        assert "exited with code 1: Error: Cannot find module 'zod'\n" in one.out
        assert "Node.js v22.1.0" in one.out
        assert "hint: what it needs is not installed: run `npm install`" in one.out
    assert "MODULE_NOT_FOUND" in json.loads(fairlead("get", "flaky", "--json").out)["last_error"]
    key.touch()
    assert fairlead("call", "flaky", "echo", "--yes").status == 0
    shown = row(fairlead)
    assert (shown["state"], shown["last_error"], shown["hint"]) == ("idle", None, None)
    assert "Cannot find" not in fairlead("status").out
    for command in ("status", "get"):
        assert "last error" not in fairlead(command, "flaky").out.replace("last error  ", "")
    assert json.loads(fairlead("get", "flaky", "--json").out)["last_error"] is None


def test_status_of_one_server_shows_no_other_and_knows_its_ids(fairlead: Fairlead, machine: Machine) -> None:
    for name in ("one", "other"):
        assert fairlead("add", name, "--", "no-such-program-anywhere").status == 0
        fairlead("test", name)
    shown = fairlead("status", "one")
    assert "last error (" in shown.out
    assert "other" not in shown.out
    (found,) = json.loads(fairlead("status", "one", "--json").out)["servers"]
    assert found["id"] == "one"
    outcome = fairlead("status", "onne")
    assert outcome.status == 1
    assert "`one`" in outcome.err


def test_what_a_server_writes_to_stdout_beside_mcp_is_noted(fairlead: Fairlead, machine: Machine) -> None:
    script = json.dumps({"record": str(machine.home / "record"), "tools": ["echo"]})
    code = (
        "print('Loaded 3 plugins', flush=True); import runpy, sys; "
        f"sys.argv[1:] = [{script!r}]; runpy.run_path({scripted_program.__file__!r}, run_name='__main__')"
    )
    assert fairlead("add", "noisy", "--trust", "trusted", "--", sys.executable, "-c", code).status == 0
    outcome = fairlead("test", "noisy")
    assert outcome.status == 0
    assert "note: it writes to stdout, where only MCP messages belong: Loaded 3 plugins\n" in outcome.err


def test_status_shows_the_hint_of_the_last_error(fairlead: Fairlead, machine: Machine) -> None:
    assert fairlead("add", "x", "--", "no-such-program-anywhere").status == 0
    fairlead("test", "x")
    assert "install it, or write its whole path" in row(fairlead)["hint"]
    assert "  hint: install it" in fairlead("status").out


def test_a_start_that_takes_too_long_is_told_with_stderr(fairlead: Fairlead, machine: Machine) -> None:
    code = "import sys, time; print('waiting for the database', file=sys.stderr, flush=True); time.sleep(60)"
    hang = {"command": sys.executable, "args": ["-c", code], "startup_timeout_ms": 1_500}
    machine.write_user(json.dumps({"servers": {"hang": hang}}))
    outcome = fairlead("test", "hang")
    assert outcome.status == 4
    assert "not ready after 1.5 s" in outcome.err
    assert "waiting for the database" in outcome.err


@pytest.mark.requirement("HARD-40")
def test_what_a_lock_holds_back_gets_the_hint_that_helps(fairlead: Fairlead, machine: Machine) -> None:
    script = machine.home / "own.json"
    says(script, ECHO)
    machine.write_user(json.dumps({"servers": {"own": {**entry(script), "trust": "trusted"}}}))
    assert fairlead("lock").status == 0
    assert fairlead("call", "own", "echo", "--yes").status == 0
    says(script, {**ECHO, "description": "Other."})
    outcome = fairlead("call", "own", "echo", "--yes")
    assert outcome.status != 0
    assert "differs from fairlead.lock" in outcome.err
    assert "fairlead review" not in outcome.err
    assert "`fairlead lock --check --only own`" in outcome.err
    assert "own.echo: changed" in fairlead("lock", "--check", "--only", "own").out
    assert fairlead("lock", "--only", "own").status == 0
    assert fairlead("call", "own", "echo", "--yes").status == 0


def test_a_lock_that_cannot_be_read_gets_the_hint_that_helps(fairlead: Fairlead, machine: Machine) -> None:
    script = machine.home / "own.json"
    says(script, ECHO)
    machine.write_user(json.dumps({"servers": {"own": {**entry(script), "trust": "trusted"}}}))
    assert fairlead("lock").status == 0
    (lock,) = machine.home.rglob("fairlead.lock")
    lock.write_text("{")
    outcome = fairlead("call", "own", "echo", "--yes")
    assert "write a new one with `fairlead lock`" in outcome.err
    assert fairlead("lock").status == 0
    assert fairlead("call", "own", "echo", "--yes").status == 0


@pytest.mark.parametrize("command", [["list"], ["status"], ["add", "x", "--", "true"], ["import"], ["lock"]])
def test_a_current_folder_that_is_gone_is_told_as_that(
    machine: Machine, tmp_path: Path, command: list[str]
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    run = "import os, sys; os.rmdir(os.getcwd()); from fairlead.cli.main import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", run, *command],
        cwd=folder,
        env={**os.environ, **machine.env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "the current folder was removed" in done.stderr
    assert "hint: change to a folder that exists" in done.stderr
    assert "bug in Fairlead" not in done.stderr


def test_the_library_tells_of_a_current_folder_that_is_gone(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    shutil.rmtree(folder)
    with pytest.raises(ConfigUnreadable, match="current folder"):
        load_config(env=machine.env)
