"""`fairlead run`, as a script or a person would use it: a scripted model, real servers' processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.testing import ScriptedServer
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine, Outcome
from tests.gateway.test_task_tools import entry as task_entry
from tests.host.support import is_running
from tests.loop.model_server import KEY, ModelServer, refuses, results_in, says, serving, tool_names

Fairlead = Callable[..., Outcome]

SECONDS = 60


def configure(
    machine: Machine, api: ModelServer | None, servers: dict[str, Any] | None = None, **document: Any
) -> None:
    """Write the user's own file: a model behind this API, and these servers."""
    model = (
        {"provider": "openai", "name": "m", "base_url": f"{api.url}/v1", "api_key": "${MY_KEY}"}
        if api
        else None
    )
    whole = {"servers": servers or {}, "policy": {"approval": "allow"}, **document}
    machine.write_user(json.dumps(whole | ({"model": model} if model else {})))


@pytest.fixture(autouse=True)
def key(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key, and none of those that whoever runs the tests may have."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MY_KEY", KEY)
    machine.env["MY_KEY"] = KEY


def server(machine: Machine, name: str = "x", **script: Any) -> ScriptedServer:
    return ScriptedServer(machine.home / f"{name}.record", **script)


def test_the_answer_goes_to_stdout_and_what_was_called_to_stderr(
    fairlead: Fairlead, machine: Machine
) -> None:
    x = server(machine)
    replies = says("openai", "Let me see.", [("c1", "x.echo", {"a": 1})]), says("openai", "It is\n\t1 ✓")
    with serving(*replies) as api:
        configure(machine, api, {"x": x.entry()})
        outcome = fairlead("run", "what is it?")
    assert (outcome.status, outcome.out) == (0, "Let me see.\nIt is\n\t1 ✓\n")
    line, summary = outcome.err.splitlines()
    assert line.startswith("  x/echo  0.")
    assert line.endswith(" s")
    assert summary == "2 steps, 220 tokens"
    assert api.bodies[0]["messages"][-1]["content"] == "what is it?"
    assert KEY not in outcome.out + outcome.err


def test_programs_get_a_line_of_json_for_everything_that_happens(
    fairlead: Fairlead, machine: Machine
) -> None:
    x = server(machine)
    with serving(says("openai", "so", [("c1", "x.echo", {"a": 1})]), says("openai", "ok")) as api:
        configure(machine, api, {"x": x.entry()})
        outcome = fairlead("run", "do", "--json")
    assert outcome.status == 0
    events = [json.loads(line) for line in outcome.out.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds == [
        *("text", "text", "tool_called", "tool_returned", "step_finished"),
        *("text", "text", "step_finished", "finished"),
    ]
    assert (events[2]["tool"], events[2]["arguments"]) == ("x/echo", {"a": 1})
    assert events[3]["result"]["content"][0]["text"] == '{"a": 1}'
    assert (events[3]["is_error"], events[3]["error"]) == (False, None)
    assert (events[-1]["outcome"], events[-1]["text"], events[-1]["steps"]) == ("finished", "ok", 2)
    assert events[-1]["usage"] == {"input_tokens": 200, "output_tokens": 20, "cached_tokens": 80}
    assert KEY not in outcome.out + outcome.err


@pytest.mark.requirement("HARD-85")
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_tool_that_only_runs_as_a_task_is_called_by_a_model_like_any_other(
    fairlead: Fairlead, machine: Machine, version: str
) -> None:
    called = ("c1", "x.long", {"polls": 3, "text": "done long"}), ("c2", "x.quick", {"text": "at once"})
    for _ in range(2):  # the second time with a snapshot of the first
        with serving(says("openai", "", [*called]), says("openai", "all done")) as api:
            configure(machine, api, {"x": task_entry(machine.home, version)})
            outcome = fairlead("run", "do both")
        assert (outcome.status, outcome.out) == (0, "all done\n"), outcome.err
        first, second = results_in("openai", api.bodies[1]).values()
        assert "done long" in first
        assert "at once" in second


@pytest.mark.requirement("HARD-85")
def test_a_task_that_fails_is_told_to_the_model(fairlead: Fairlead, machine: Machine) -> None:
    calls = [("c1", "x.long", {"polls": 50, "ttl_ms": 1}), ("c2", "x.stumble", {"polls": 1})]
    with serving(says("openai", "", calls), says("openai", "neither worked")) as api:
        configure(machine, api, {"x": task_entry(machine.home, "2025-11-25")})
        outcome = fairlead("run", "do both")
    assert (outcome.status, outcome.out) == (0, "neither worked\n"), outcome.err
    expired, stumbled = results_in("openai", api.bodies[1]).values()
    assert "expired" in expired or "not found" in expired
    assert "the tool failed" in stumbled


def test_a_task_can_come_from_a_pipe(machine: Machine) -> None:
    with serving(says("openai", "read")) as api:
        configure(machine, api)
        command = [sys.executable, "-m", "fairlead", "run", "-"]
        done = subprocess.run(
            command, input=b"a long t\xffsk", capture_output=True, timeout=SECONDS, check=False
        )
        empty = subprocess.run(command, input=b" \n", capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, b"read\n")
    assert b"no MCP servers configured" in done.stderr
    assert api.bodies[0]["messages"][-1]["content"].startswith("a long t")
    assert empty.returncode == 2


@pytest.mark.requirement("NEED-12")
def test_a_required_server_that_is_not_ready_ends_the_run_before_the_model_is_asked(
    fairlead: Fairlead, machine: Machine
) -> None:
    x, dead = server(machine), server(machine, "dead", exit=3, stderr="no database")
    with serving(says("openai", "hi")) as api:
        configure(machine, api, {"x": x.entry(), "dead": dead.entry()})
        refused = fairlead("run", "do", "--require", "x,dead")
        assert api.bodies == []
        without = fairlead("run", "do", "--require", "x")
    assert refused.status == 4
    assert "no database" in refused.err
    assert without.status == 0
    assert "runs without `dead`" in without.err
    assert any("echo" in name for name in tool_names("openai", api.bodies[0]))


@pytest.mark.requirement("NEED-12")
def test_a_model_is_not_asked_where_no_server_is_ready(fairlead: Fairlead, machine: Machine) -> None:
    with serving(says("openai", "hi")) as api:
        configure(machine, api, {"dead": server(machine, "dead", exit=3).entry()})
        outcome = fairlead("run", "do")
    assert (outcome.status, api.bodies) == (4, [])
    assert "there are no tools" in outcome.err


@pytest.mark.requirement("NEED-12")
def test_a_required_server_is_waited_for(fairlead: Fairlead, machine: Machine) -> None:
    x = server(machine)
    with serving(says("openai", "hi")) as api:
        configure(machine, api, {"x": x.entry()})
        assert fairlead("run", "do", "--require", "x").status == 0
    assert x.starts == 1
    assert any("echo" in name for name in tool_names("openai", api.bodies[0]))


def test_a_required_server_that_only_a_person_can_make_ready_ends_in_the_status_for_that(
    fairlead: Fairlead, machine: Machine
) -> None:
    x = server(machine)
    machine.write_project(json.dumps({"servers": {"x": x.entry()}}))
    with serving(says("openai", "hi")) as api:
        configure(machine, api)
        outcome = fairlead("run", "do", "--require", "x")
    assert (outcome.status, api.bodies, x.starts) == (3, [], 0)
    assert "fairlead approve x" in outcome.err


def test_a_bundle_is_all_that_a_model_gets(fairlead: Fairlead, machine: Machine) -> None:
    x, y = server(machine), server(machine, "y")
    with serving(says("openai", "hi")) as api:
        bundles: dict[str, Any] = {"small": {"servers": {"x": {}}}}
        configure(machine, api, {"x": x.entry(), "y": y.entry()}, bundles=bundles)
        assert fairlead("run", "do", "--bundle", "small").status == 0
        assert not any("_y_" in name for name in tool_names("openai", api.bodies[0]))
        outside = fairlead("run", "do", "--bundle", "small", "--require", "y")
        assert (outside.status, len(api.bodies)) == (2, 1)
    assert y.starts == 0


def test_a_call_that_nobody_is_there_to_allow_is_denied_and_ends_in_its_own_status(
    fairlead: Fairlead, machine: Machine
) -> None:
    x = server(machine)
    with serving(says("openai", calls=[("c1", "x.echo", {})]), says("openai", "I may not.")) as api:
        configure(machine, api, {"x": x.entry(approval="ask")})
        outcome = fairlead("run", "do")
    assert outcome.status == 3
    assert outcome.out == "I may not.\n"
    assert "x.echo" in outcome.err
    assert "failed:" in outcome.err
    assert "c1" in results_in("openai", api.bodies[1])
    assert x.calls("echo") == 0


@pytest.mark.parametrize(
    ("reply", "options", "status", "words"),
    [
        (says("openai", calls=[("c1", "x.echo", {})]), ("--max-steps", "2"), 7, "--max-steps"),
        (says("openai", calls=[("c1", "x.echo", {})]), ("--max-tokens", "150"), 7, "--max-tokens"),
        (says("openai", ""), (), 5, "gave up"),
        (refuses(401, f"wrong key {KEY}"), (), 1, "model.api_key"),
        (refuses(404, "no model m"), (), 1, "`m`"),
        (refuses(503, "busy", Retry_After="900"), (), 4, "900 s"),
    ],
)
def test_each_way_to_end_has_its_status(
    fairlead: Fairlead, machine: Machine, reply: Any, options: tuple[str, ...], status: int, words: str
) -> None:
    x = server(machine)
    with serving(reply) as api:
        configure(machine, api, {"x": x.entry()})
        outcome = fairlead("run", "do", *options)
    assert outcome.status == status
    assert words in outcome.err
    assert KEY not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("do",), 1, "no model is chosen"),
        (("do", "--model", "openai/gpt"), 1, "export OPENAI_API_KEY"),
        (("do", "--model", "openai/gpt", "--require", "nobody"), 1, "no server `nobody`"),
        ((" ", "--model", "openai/gpt"), 2, "nothing to do"),
        (("do", "--max-steps", "0"), 2, "--max-steps"),
    ],
)
def test_a_run_that_cannot_begin_says_why(
    fairlead: Fairlead, machine: Machine, arguments: tuple[str, ...], status: int, words: str
) -> None:
    configure(machine, None, {"x": server(machine).entry()})
    outcome = fairlead("run", *arguments)
    assert outcome.status == status
    assert words in outcome.err


def test_the_variables_of_a_provider_are_enough(
    fairlead: Fairlead, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(says("anthropic", "hi")) as api:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        outcome = fairlead("run", "do", "--model", "claude")
    assert (outcome.status, outcome.out) == (0, "hi\n")
    assert api.headers[0]["x-api-key"] == KEY


def test_a_step_that_is_asked_for_again_is_told(fairlead: Fairlead, machine: Machine) -> None:
    busy = refuses(429, "slow \x1b[2J down", Retry_After="0")
    with serving(busy, says("openai", "hi"), busy, says("openai", "hi")) as api:
        configure(machine, api)
        outcome = fairlead("run", "do")
        first = json.loads(fairlead("run", "do", "--json").out.splitlines()[0])
    assert (first["type"], first["seconds"]) == ("step_retried", 0)
    assert (outcome.status, outcome.out) == (0, "hi\n")
    assert "again in 0.0 s: HTTP 429: slow" in outcome.err
    assert "\x1b" not in outcome.err


@pytest.mark.requirement("NEED-20")
def test_an_interrupted_run_tells_the_server_and_leaves_nothing_running(machine: Machine) -> None:
    x = server(machine, tools=["wait"])
    with serving(says("openai", "Waiting.", [("c1", "x.wait", {})])) as api:
        configure(machine, api, {"x": x.entry()})
        command = [sys.executable, "-m", "fairlead", "run", "wait"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + SECONDS
        while x.calls("wait") == 0:
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Waiting." in out
    assert "Traceback" not in out + err
    assert KEY not in out + err
    assert x.notes("received").count("notifications/cancelled") == 1
    assert not any(is_running(pid) for pid in x.notes("started"))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_a_person_at_the_terminal_is_asked_and_what_the_model_says_cannot_steer_it(machine: Machine) -> None:
    x = server(machine)
    replies = (
        says("openai", calls=[("c1", "x.echo", {"a": "first"})]),
        says("openai", "\x1b[2Jdone\tthen", [("c2", "x.echo", {"a": "second"})]),
    )
    with serving(*replies) as api:
        configure(machine, api, {"x": x.entry(approval="ask")})
        env = machine.env | {"PATH": os.environ["PATH"]}
        with at_terminal("run", "do", env=env, cwd=machine.project) as person:
            person.sees("first")
            person.sees("May it?")
            person.types("once")
            person.sees("x/echo")
            person.sees("\\x1b[2Jdone")
            person.sees("second")
            person.sees("May it?")
            person.types("cancel")
            assert person.waits() == 130
    assert x.calls("echo") == 1


@pytest.mark.parametrize(
    ("allow", "status", "calls"),
    [((), 3, 0), (("echo",), 0, 1), (("x/ec*",), 0, 1), (("all",), 0, 1), (("none",), 3, 0)],
)
def test_tools_are_allowed_for_one_run(
    fairlead: Fairlead, machine: Machine, allow: tuple[str, ...], status: int, calls: int
) -> None:
    x = server(machine)
    options = [part for name in allow for part in ("--allow", name)]
    with serving(says("openai", "so", [("c1", "x.echo", {"a": 1})]), says("openai", "ok")) as api:
        configure(machine, api, {"x": x.entry()}, policy={})
        outcome = fairlead("run", "do", *options)
        assert outcome.status == status, outcome.err
    assert x.calls("echo") == calls
    assert "approval" not in machine.load().servers["x"].entry
    assert json.loads(fairlead("approvals", "--json").out)["approvals"] == []


def test_a_run_allows_nothing_that_was_not_reviewed_and_nothing_that_is_denied(
    fairlead: Fairlead, machine: Machine
) -> None:
    x = server(machine)
    with serving(says("openai", "ok")) as api:
        configure(machine, api, {"x": x.entry(trust="untrusted")}, policy={})
        outcome = fairlead("run", "do", "--allow", "echo")
    assert outcome.status == 1
    assert "`fairlead review x --allow echo`" in outcome.err
    assert "agents get none of its tools until they are reviewed" in outcome.err
