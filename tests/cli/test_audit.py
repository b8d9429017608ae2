"""`fairlead audit`, as a person would use it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from fairlead.config.paths import store_file
from fairlead.policy.audit import LOG, AuditRecord, encode
from fairlead.store.opening import open_database
from fairlead.terminal.exit_codes import Exit
from tests.cli.test_startup import modules_after
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]


def record(machine: Machine, *records: AuditRecord) -> Path:
    path = store_file(machine.env)
    with open_database(path) as database:
        database.append_all([(LOG, record.at, encode(record)) for record in records])
    return path


def call(number: int, *, at: float | None = None, **fields: object) -> AuditRecord:
    made = AuditRecord(
        at=time.time() if at is None else at,
        principal="local",
        server="github",
        tool=f"tool_{number}",
        call=f"run-{number}",
        stage="returned",
        verdict="allow",
        reason="listed in allow_tools",
        by="policy",
        seconds=0.0123,
        bytes=456,
        delivery="done",
        outcome="ok",
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_machine_on_which_nothing_happened_says_so(fairlead: Fairlead, machine: Machine) -> None:
    outcome = fairlead("audit")
    assert (outcome.status, outcome.out) == (0, "")
    assert "nothing was recorded yet" in outcome.err
    assert not store_file(machine.env).exists()


@pytest.mark.requirement("NEED-30")
def test_each_call_is_one_line_however_many_records_it_has(fairlead: Fairlead, machine: Machine) -> None:
    now = time.time()
    record(
        machine,
        call(1, at=now - 9, stage="sent", outcome="", seconds=None, bytes=None),
        call(2, at=now - 8, stage="sent", outcome="", seconds=None, bytes=None),
        call(1, at=now - 9),
        call(
            3, stage="refused", outcome="call_denied", verdict="deny", reason="no", seconds=None, bytes=None
        ),
        call(4, stage="asked", outcome="", verdict="", seconds=None, bytes=None),
        call(
            5,
            outcome="call_timed_out",
            delivery="unknown",
            by="person",
            reason="yes",
            findings=("bidi", "tag"),
        ),
        AuditRecord(at=time.time(), kind="consent", principal="local", server="fs", details={"file": "x"}),
    )
    outcome = fairlead("audit")
    assert outcome.status == 0
    header, *lines = outcome.out.splitlines()
    assert header.split() == ["TIME", "WHO", "WHAT", "DECISION", "OUTCOME", "MS", "BYTES"]
    told = [" ".join(line.split()[2:]) for line in lines]
    assert told == [
        "local github.tool_1 allow: listed in allow_tools ok 12.3 456",
        "local github.tool_2 allow: listed in allow_tools not finished - -",
        "local github.tool_3 deny: no call_denied - -",
        "local github.tool_4 - not answered - -",
        "local github.tool_5 allow by person: yes call_timed_out, delivery unknown (bidi, tag) 12.3 456",
        "local consent fs file=x - - - -",
    ]


@pytest.mark.requirement("NEED-30")
def test_only_what_is_asked_for_is_shown(fairlead: Fairlead, machine: Machine) -> None:
    now = time.time()
    record(
        machine,
        call(1, at=now - 90_000),
        call(2, at=now - 7000, server="fs"),
        call(3, at=now - 5000, principal="agent"),
        call(4, at=now - 100, outcome="tool_error"),
    )

    def tools(*arguments: str) -> list[str]:
        outcome = fairlead("audit", "--json", *arguments)
        assert outcome.status == 0
        return [json.loads(line)["tool"] for line in outcome.out.splitlines()]

    assert tools() == ["tool_1", "tool_2", "tool_3", "tool_4"]
    assert tools("--since", "2h") == ["tool_2", "tool_3", "tool_4"]
    assert tools("--since", "1d", "--until", "1h") == ["tool_2", "tool_3"]
    assert tools("--since", datetime.fromtimestamp(now - 200).isoformat()) == ["tool_4"]
    assert tools("--until", f"{datetime.fromtimestamp(now - 86_400):%Y-%m-%d %H:%M}") == ["tool_1"]
    assert tools("--server", "fs") == ["tool_2"]
    assert tools("--tool", "tool_3") == ["tool_3"]
    assert tools("--principal", "agent") == ["tool_3"]
    assert tools("--outcome", "tool_error") == ["tool_4"]
    assert tools("--limit", "2") == ["tool_3", "tool_4"]
    outcome = fairlead("audit", "--server", "nobody")
    assert (outcome.status, outcome.out) == (0, "")
    assert "nothing of that kind" in outcome.err


@pytest.mark.parametrize("moment", ["yesterday", "1y", "99999-01-01", ""])
def test_a_moment_nobody_understands_is_a_usage_error(fairlead: Fairlead, moment: str) -> None:
    outcome = fairlead("audit", "--since", moment)
    assert outcome.status == 2
    assert "is neither like" in outcome.err


def test_what_a_model_wrote_cannot_steer_the_terminal(fairlead: Fairlead, machine: Machine) -> None:
    record(machine, call(1, tool="a\x1b[2Jb\u202e"))
    assert "github.a\\u001b[2Jb\\u202e" in fairlead("audit").out


@pytest.mark.parametrize("as_json", [False, True])
def test_following_shows_what_happens_from_now_on(machine: Machine, *, as_json: bool) -> None:
    record(machine, call(1))
    command = [sys.executable, "-m", "fairlead", "audit", "--follow", *(["--json"] if as_json else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout)
            assert any("tool_1" in line for line in lines)
            record(machine, call(2, stage="sent", outcome=""), call(3))
            line = next(lines)
            assert ("tool_2" if as_json else "tool_3") in line
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == Exit.INTERRUPTED
        finally:
            process.kill()


def test_reading_the_audit_loads_no_host_and_no_sdk(machine: Machine) -> None:
    record(machine, call(1))
    assert not modules_after("audit") & {
        "mcp",
        "mcp_types",
        "aiohttp",
        "starlette",
        "anyio",
        "rich",
        "keyring",
    }
