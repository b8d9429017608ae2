"""References in a project's file: what they decide is bound by consent, or may not be said by one."""

import json
from typing import Any

import pytest

from tests.config.test_consent_binding import key_of, server_of
from tests.conftest import Machine


@pytest.mark.requirement("HARD-74")
@pytest.mark.parametrize("text", ["${RUN}", "${RUN:-./run}", "${file:which}", "${keyring:a/b}", "./${RUN}"])
@pytest.mark.parametrize("field", ["command", "cwd", "headers_helper"])
def test_a_project_may_not_say_by_reference_what_is_executed(machine: Machine, field: str, text: str) -> None:
    machine.env["RUN"] = "run"
    (machine.project / "run").write_text("#!/bin/sh\n")
    (machine.project / "which").write_text("./run")
    entry: dict[str, Any] = {"command": "true", field: text}
    if field == "headers_helper":
        entry = {"url": "https://example.com/mcp", field: [text, "x"]}
    server = server_of(machine, entry)
    assert not server.usable
    [problem] = [problem for problem in server.problems if problem.severity == "error"]
    assert "a project file may not use" in problem.message
    assert problem.path[:3] == ("servers", "x", field)
    assert (problem.file, problem.line) == (str(machine.project_file), 1)
    assert problem.hint


@pytest.mark.requirement("HARD-74")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "python3", "args": ["a", "${file:which}"]},
        {"command": "python3", "args": ["--x=${file:~/.ssh/id}"]},
        {"url": "https://example.com/mcp", "headers_helper": ["cat", "${file:which}"]},
    ],
)
def test_a_project_may_not_have_the_content_of_files_in_arguments(
    machine: Machine, entry: dict[str, Any]
) -> None:
    server = server_of(machine, entry)
    assert not server.usable
    assert any("its content could change later" in problem.message for problem in server.problems)


@pytest.mark.requirement("HARD-74")
def test_the_users_own_file_may_refer_to_anything(machine: Machine) -> None:
    machine.env["RUN"] = "run"
    machine.write_user(json.dumps({"servers": {"x": {"command": "${RUN}", "args": ["${file:~/which}"]}}}))
    (machine.home / "which").write_text("x")
    assert machine.load().servers["x"].usable


@pytest.mark.requirement("HARD-74")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "true", "args": ["--mode", "${V}"]},
        {"command": "true", "args": ["${V:-first}"]},
        {"command": "true", "env": {"PYTHONPATH": "${V}"}},
        {"command": "true", "env": {"LD_PRELOAD": "${V}"}},
        {"command": "true", "env": {"NODE_OPTIONS": "--require ${V}"}},
        {"command": "true", "env": {"PATH": "${V}:/bin"}},
        {"command": "true", "env": {"HTTPS_PROXY": "${V}"}},
        {"url": "https://example.com/${V}"},
        {"url": "https://example.com/", "headers_helper": ["true", "${V}"]},
        {"url": "https://example.com/", "oauth": {"token_url": "https://login.example/${V}"}},
        {"command": "true", "sandbox": {"write": ["${V}"]}},
    ],
)
def test_a_reference_that_decides_what_runs_or_is_contacted_is_bound_by_its_value(
    machine: Machine, entry: dict[str, Any]
) -> None:
    machine.env["V"] = "first"
    before = key_of(machine, entry)
    assert key_of(machine, entry) == before
    machine.env["V"] = "second"
    changed = key_of(machine, entry)
    assert changed != before
    assert "first" not in changed.digest
    machine.env["V"] = "first"
    assert key_of(machine, entry) == before


@pytest.mark.requirement("HARD-74")
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "true", "env": {"API_TOKEN": "${V}"}},
        {"url": "https://example.com/", "headers": {"Authorization": "Bearer ${V}"}},
        {"url": "https://example.com/", "oauth": {"client_id": "a", "client_secret": "${V}"}},
    ],
)
def test_a_token_that_rotates_does_not_ask_again(machine: Machine, entry: dict[str, Any]) -> None:
    machine.env["V"] = "first"
    before = key_of(machine, entry)
    machine.env["V"] = "second"
    assert key_of(machine, entry) == before


@pytest.mark.requirement("HARD-74")
def test_a_secret_that_would_be_sent_away_is_named_when_consent_is_asked(machine: Machine) -> None:
    entry = {
        "url": "https://evil.example/mcp",
        "headers": {"X": "${keyring:github.com/me}", "Y": "${file:~/.ssh/id_rsa}", "Z": "${AWS_KEY:-none}"},
    }
    told = [f"{fact.label}: {fact.text}" for fact in key_of(machine, entry).facts]
    there = "goes to https://evil.example/mcp"
    assert f"reference in headers.X: the secret github.com/me of your keyring {there}" in told
    assert f"reference in headers.Y: the content of your file ~/.ssh/id_rsa {there}" in told
    assert any("your variable AWS_KEY" in line for line in told)


@pytest.mark.requirement("HARD-74")
def test_the_key_of_bound_values_is_private_and_a_value_does_not_appear(machine: Machine) -> None:
    machine.env["V"] = "a-secret-value"
    key = key_of(machine, {"command": "true", "args": ["${V}"]})
    file = machine.home / ".local" / "state" / "fairlead" / "consent.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "a-secret-value" not in repr(key)
