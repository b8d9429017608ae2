"""The commands that start servers, as a person would use them: each test runs a real one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.testing import scripted_program
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

SERVER = scripted_program.__file__


def add(fairlead: Fairlead, machine: Machine, server_id: str = "s", **script: object) -> Path:
    """Add a scripted server the way a person adds one, and say where it keeps its record."""
    record = machine.home / f"{server_id}.record"
    script = {"record": str(record), **script}
    assert fairlead("add", server_id, "--", sys.executable, SERVER, json.dumps(script)).status == 0
    return record


def starts(record: Path) -> int:
    return record.read_text().count('"started"') if record.exists() else 0


def test_testing_a_server_tells_each_step_and_its_time(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine)
    outcome = fairlead("test", "s")
    assert outcome.status == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["open", "connect", "list", "close"]
    assert "scripted 1 speaks 2025-11-25" in outcome.out
    assert "1 tools" in outcome.out
    report = json.loads(fairlead("test", "s", "--json").out)
    assert report["ok"]
    assert all(step["ms"] >= 0 for step in report["steps"])


@pytest.mark.requirement("NEED-8")
def test_a_server_that_exits_is_shown_with_its_code_and_last_words(
    fairlead: Fairlead, machine: Machine
) -> None:
    add(fairlead, machine, exit=3, stderr="cannot find my config")
    outcome = fairlead("test", "s")
    assert outcome.status == 4
    assert "exited with code 3" in outcome.err
    assert "cannot find my config" in outcome.err
    status = fairlead("status")
    assert "exited with code 3" in status.out
    assert json.loads(fairlead("status", "--json").out)["servers"][0]["state"] == "error"
    assert "cannot find my config" in fairlead("logs", "s").out


def test_a_program_that_is_not_there_is_named_with_a_hint(fairlead: Fairlead, machine: Machine) -> None:
    fairlead("add", "s", "--", "/nowhere/at-all")
    outcome = fairlead("test", "s")
    assert outcome.status == 4
    assert "/nowhere/at-all" in outcome.err
    assert "hint:" in outcome.err
    report = json.loads(fairlead("test", "s", "--json").out)
    assert (report["ok"], report["error"]["code"]) == (False, "connect_failed")


@pytest.mark.requirement("NEED-4")
def test_tools_come_from_what_the_last_run_saw(fairlead: Fairlead, machine: Machine) -> None:
    record = add(fairlead, machine, tools=["alpha", "beta"])
    assert "alpha" in fairlead("tools").out
    before = starts(record)
    outcome = fairlead("tools", "s")
    assert "beta" in outcome.out
    assert starts(record) == before  # nothing was started for it
    assert fairlead("tools", "--refresh").status == 0
    assert starts(record) > before
    assert {tool["name"] for tool in json.loads(fairlead("tools", "--json").out)["tools"]} == {
        "alpha",
        "beta",
    }
    assert '"type": "object"' in fairlead("tools", "s", "--schema").out


def test_status_starts_nothing(fairlead: Fairlead, machine: Machine) -> None:
    record = add(fairlead, machine)
    row = json.loads(fairlead("status", "--json").out)["servers"][0]
    assert (row["state"], row["protocol"], row["tools"]) == ("idle", None, None)
    assert starts(record) == 0
    fairlead("tools")
    row = json.loads(fairlead("status", "--json").out)["servers"][0]
    assert (row["state"], row["protocol"], row["tools"]) == ("idle", "2025-11-25", 1)
    assert row["last_connected_at"] is not None


def test_status_of_nothing_says_so(fairlead: Fairlead) -> None:
    assert "no MCP servers configured" in fairlead("status").err


def test_a_call_prints_what_the_tool_returns(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine)
    outcome = fairlead("call", "s", "echo", "--arg", "who=me", "--arg", "n:=[1, 2]", "--yes")
    assert outcome.status == 0
    assert json.loads(outcome.out) == {"who": "me", "n": [1, 2]}
    raw = fairlead("call", "s", "echo", "--input", '{"a": {"b": null}}', "--yes", "--json")
    assert json.loads(raw.out)["content"][0]["text"] == '{"a": {"b": null}}'


def test_an_error_of_the_tool_is_shown_and_has_an_exit_status_of_its_own_seed_003(
    fairlead: Fairlead, machine: Machine
) -> None:
    add(fairlead, machine, tools=["fail"])
    outcome = fairlead("call", "s", "fail", "--yes")
    assert outcome.status == 5
    assert "it failed" in outcome.out + outcome.err
    raw = fairlead("call", "s", "fail", "--yes", "--json")
    assert raw.status == 5
    assert json.loads(raw.out)["isError"] is True


def test_a_script_must_say_that_it_means_it(fairlead: Fairlead, machine: Machine) -> None:
    record = add(fairlead, machine)
    outcome = fairlead("call", "s", "echo")
    assert outcome.status == 3
    assert "has not been reviewed" in outcome.err
    assert "`fairlead review s --allow echo`" in outcome.err
    assert '"called"' not in record.read_text()


def test_a_denied_tool_is_denied_to_everybody(fairlead: Fairlead, machine: Machine) -> None:
    record = add(fairlead, machine)
    document = json.loads(machine.project_file.read_text())
    document["servers"]["s"]["deny_tools"] = ["ec*"]
    machine.write_project(json.dumps(document))
    outcome = fairlead("call", "s", "echo", "--yes")
    assert outcome.status == 3
    assert "deny_tools" in outcome.err
    assert '"called"' not in record.read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("call", "s", "ecko", "--yes"), 1, "did you mean `s.echo`?"),
        (("call", "nobody", "echo", "--yes"), 1, "no server `nobody`"),
        (("call", "s", "echo", "--input", "{", "--yes"), 2, "not JSON"),
        (("call", "s", "echo", "--input", "[]", "--yes"), 2, "JSON object"),
        (("call", "s", "echo", "--arg", "x", "--yes"), 2, "NAME=VALUE"),
        (("call", "s", "echo", "--arg", "x:={", "--yes"), 2, "not JSON"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    fairlead: Fairlead, machine: Machine, arguments: tuple[str, ...], status: int, words: str
) -> None:
    add(fairlead, machine)
    outcome = fairlead(*arguments)
    assert outcome.status == status
    assert words in outcome.err


@pytest.mark.requirement("HARD-1", "NEED-24")
def test_a_cloned_project_starts_nothing_before_it_is_approved(fairlead: Fairlead, machine: Machine) -> None:
    record = machine.home / "record"
    script = json.dumps({"record": str(record)})
    machine.write_project(
        json.dumps(
            {"servers": {"s": {"command": sys.executable, "args": [SERVER, script], "trust": "trusted"}}}
        )
    )
    for arguments in (
        ("test", "s"),
        ("tools",),
        ("call", "s", "echo", "--yes"),
        ("status",),
        ("list",),
        ("get", "s"),
    ):
        fairlead(*arguments)
    assert not record.exists()
    assert fairlead("call", "s", "echo", "--yes").status == 3
    assert fairlead("approve").status == 3
    assert fairlead("approve", "s").status == 3  # nobody was there to say yes
    assert not record.exists()
    assert fairlead("approve", "s", "--yes").status == 0
    assert fairlead("call", "s", "echo", "--yes").status == 0


@pytest.mark.requirement("HARD-2", "NEED-24")
def test_a_changed_entry_must_be_approved_again(fairlead: Fairlead, machine: Machine) -> None:
    machine.write_project('{"servers": {"s": {"command": "true"}}}')
    fairlead("approve", "--all", "--yes")
    assert "nothing waits" in fairlead("approve").err
    machine.write_project('{"servers": {"s": {"command": "true", "args": ["more"]}}}')
    assert fairlead("test", "s").status == 3


@pytest.mark.requirement("HARD-4")
def test_the_consent_text_is_whole_and_hides_nothing(fairlead: Fairlead, machine: Machine) -> None:
    long = "x" * 5000
    entry = {
        "command": "/bin/sh",
        "args": ["-c", "echo\u202e \x1b[2K hidden\u200b", long],
        "env": {"LD_PRELOAD": "e.so"},
    }
    machine.write_project(json.dumps({"servers": {"s": entry, "w": {"url": "https://example.com/mcp"}}}))
    text = fairlead("approve").out
    assert "/bin/sh" in text
    assert long in text
    assert "\\u202e" in text
    assert "\\x1b[2K" in text
    assert "\x1b" not in text
    assert "LD_PRELOAD" in text
    assert "everything that you can" in text
    assert str(machine.project_file) in text
    assert "https://example.com/mcp" in text


@pytest.mark.requirement("NEED-9")
def test_one_dead_server_costs_only_its_own_tools(fairlead: Fairlead, machine: Machine) -> None:
    add(fairlead, machine, "good", tools=["works"])
    add(fairlead, machine, "bad", exit=1)
    outcome = fairlead("tools")
    assert "works" in outcome.out
    assert "bad" in outcome.err
    assert outcome.status == 4


@pytest.mark.requirement("NEED-20")
def test_interrupting_a_call_tells_the_server_and_leaves_nothing_running(
    fairlead: Fairlead, machine: Machine
) -> None:
    record = add(fairlead, machine, tools=["wait"])
    command = [sys.executable, "-m", "fairlead", "call", "s", "wait", "--yes"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while '"called"' not in (record.read_text() if record.exists() else ""):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert "notifications/cancelled" in record.read_text()
    for line in record.read_text().splitlines():
        started = json.loads(line).get("started")
        if started is not None:
            with pytest.raises(ProcessLookupError):
                os.kill(started, 0)


def test_what_a_server_says_never_reaches_the_terminal_as_it_is(
    fairlead: Fairlead, machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    from fairlead.cli.commands.call_ import _render_progress_text  # pyright: ignore[reportPrivateUsage]
    from fairlead.terminal.output import warn

    warn("server `x`: \x1b[2J\u202e", hint="\x1b]0;title\x07")
    said = capfd.readouterr().err
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "\\x1b[2J" in said
    assert _render_progress_text("[/nonsense]\x1b[2J\nnext") == "\\[/nonsense]\\x1b[2J\\nnext"
    assert _render_progress_text(None) == "calling …"


@pytest.mark.requirement("HARD-83")
@pytest.mark.parametrize("trouble", ["damaged", "open to others"])
def test_a_store_that_cannot_be_used_is_told_in_lines_without_a_traceback(
    fairlead: Fairlead, machine: Machine, trouble: str
) -> None:
    machine.write_user(json.dumps({"servers": {"a": {"command": "nonesuch-program"}}}))
    state = machine.home / ".local" / "state" / "fairlead"
    state.mkdir(parents=True)
    if trouble == "damaged":
        (state / "state.db").write_text("garbage " * 1000)
    else:
        state.chmod(0o777)
    command = [sys.executable, "-m", "fairlead", "call", "a", "echo"]
    done = subprocess.run(command, env=machine.env, capture_output=True, text=True, timeout=60, check=False)
    assert "warning: no store: nothing is remembered error=store `" in done.stderr
    assert "Traceback" not in done.stderr
    assert "StoreError(" not in done.stderr
    assert "hint=" not in done.stderr
