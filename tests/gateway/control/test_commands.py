"""`fairlead tools` and `fairlead call` while a gateway runs: it does the work, the person is asked here."""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fairlead.errors import (
    AuthRequired,
    CallFailed,
    CallRejected,
    ConfigInvalid,
    ConnectionLost,
    FairleadError,
    Problem,
    StoreError,
    UnknownTool,
    ValueTooLarge,
)
from fairlead.gateway.carried_errors import CommandFailed, decode_error, encode_error
from fairlead.gateway.control.protocol import CONTROL_PATH
from fairlead.gateway.registry import announce, here
from fairlead.host.host import Host
from fairlead.testing import ScriptedServer
from tests.cli.gateway_support import gateway
from tests.conftest import Machine, Outcome
from tests.fixtures.sdk_http import serving
from tests.host.asking import BOTH_ERAS, HANDSHAKE, AskingServer, form, page

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.cli.pty_support import SECONDS, Person, at_terminal
from tests.cli.test_startup import modules_after

Fairlead = Callable[..., Outcome]
AtTerminal = Callable[..., Person]

TOOLS = ["echo", "pid", "wait", "crash", "refuse", "no_result", "tick", "change_tools"]


@pytest.fixture
def typed(machine: Machine) -> Generator[AtTerminal]:
    """Run a command line on a terminal of its own; the person at it is returned."""
    with ExitStack() as stack:

        def run(*arguments: str, **env: str) -> Person:
            return stack.enter_context(
                at_terminal(*arguments, env=machine.env | {"TERM": "dumb"} | env, cwd=machine.project)
            )

        yield run


def configure(machine: Machine, server: ScriptedServer | None = None, **entry: Any) -> ScriptedServer:
    server = server or ScriptedServer(machine.home / "record", tools=TOOLS)
    machine.write_user(json.dumps({"servers": {"x": server.entry(**entry)}}))
    return server


def asking(machine: Machine, **script: Any) -> AskingServer:
    server = AskingServer(machine.home / "record", **script)
    configure(machine, server)
    return server


def until(holds: Callable[[], object]) -> None:
    """Wait for something that only another process makes true."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# Calls.


def test_calls_go_to_the_gateway_and_find_their_server_where_it_was(
    machine: Machine, fairlead: Fairlead
) -> None:
    server = configure(machine)
    with gateway(machine) as up:
        first = fairlead("call", "x", "pid", "--yes")
        assert first.status == 0, first.err
        assert f"through the gateway at {up.url.partition('/mcp')[0]}" in first.err
        assert fairlead("call", "x", "pid", "--yes").out == first.out
        assert server.starts == 1
        alone = fairlead("call", "x", "pid", "--yes", "--no-gateway")
        assert "gateway" not in alone.err
        assert alone.out != first.out
    assert "gateway" not in fairlead("call", "x", "pid", "--yes").err


def test_a_call_through_the_gateway_loads_no_sdk(machine: Machine) -> None:
    configure(machine)
    with gateway(machine):
        loaded = modules_after("call", "x", "echo", "--arg", "text=hi", "--yes")
    assert "aiohttp" in loaded
    assert not loaded & {"mcp", "mcp_types", "starlette", "uvicorn", "jsonschema_rs"}


def test_what_agents_share_is_what_a_call_finds(machine: Machine, fairlead: Fairlead) -> None:
    server = configure(machine, sharing="shared")
    with gateway(machine):
        assert fairlead("tools").status == 0
        assert fairlead("call", "x", "pid", "--yes").out.strip() == str(server.notes("started")[0])
        assert server.starts == 1


def test_a_call_comes_to_the_same_with_a_gateway_and_without(machine: Machine, fairlead: Fairlead) -> None:
    entries: dict[str, dict[str, Any]] = {
        "plain": {},
        "allowing": {"approval": "allow"},
        "denying": {"approval": "deny"},
        "less": {"deny_tools": ["echo"]},
        "off": {"enabled": False},
    }
    servers = {
        name: ScriptedServer(machine.home / name, tools=TOOLS).entry(**entry)
        for name, entry in entries.items()
    }
    machine.write_user(json.dumps({"servers": servers}))
    calls = (
        ("allowing", "echo", "--arg", "a:=1", "--input", '{"b": [null]}'),
        ("allowing", "echo"),
        ("plain", "echo", "--json", "--yes"),
        ("plain", "echo"),  # nobody said yes
        ("denying", "echo", "--yes"),
        ("less", "echo", "--yes"),
        ("off", "echo", "--yes"),
        ("plain", "ecoh", "--yes"),
        ("plain", "echo", "--yes", "--arg", "nonsense"),
        ("plain", "refuse", "--yes"),
        ("plain", "no_result", "--yes"),
        ("plain", "crash", "--yes"),
        ("plain", "wait", "--yes", "--timeout", "0.2"),
    )
    alone = [fairlead("call", *call) for call in calls]
    with gateway(machine):
        through = [fairlead("call", *call) for call in calls]
    assert {outcome.status for outcome in alone} == {0, 1, 2, 3, 4}
    for call, one, other in zip(calls, alone, through, strict=True):
        assert (other.status, other.out) == (one.status, one.out), call
        said, *rest = other.err.splitlines()
        assert said.startswith("through the gateway at"), call
        assert "\n".join(rest).strip() == one.err.strip(), call


def test_a_result_comes_whole_however_large(machine: Machine, fairlead: Fairlead) -> None:
    configure(machine, max_result_bytes=2_000)
    text = "é\n" * 100_000
    with gateway(machine):
        outcome = fairlead("call", "x", "echo", "--yes", "--json", "--input", json.dumps({"text": text}))
    assert json.loads(json.loads(outcome.out)["content"][0]["text"]) == {"text": text}


def test_always_is_remembered_for_agents(machine: Machine, fairlead: Fairlead) -> None:
    configure(machine, approval="ask")
    with gateway(machine):
        assert fairlead("call", "x", "echo").status == 3
        outcome = fairlead("call", "x", "echo", "--yes", "--always")
        assert "without asking" in outcome.err
        assert fairlead("call", "x", "echo").status == 0
    assert fairlead("call", "x", "echo").status == 0


@pytest.mark.parametrize("as_json", [False, True])
def test_a_call_that_succeeded_is_shown_where_its_approval_cannot_be_kept(
    machine: Machine, fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    async def fail(*given: object, **more: object) -> None:
        raise StoreError("the disk is full", hint="make room")

    monkeypatch.setattr(Host, "allow", fail)
    configure(machine, approval="ask")
    outcome = fairlead("call", "x", "echo", "text=hello", "--yes", "--always", *["--json"] * as_json)
    assert "hello" in (json.loads(outcome.out)["content"][0]["text"] if as_json else outcome.out)
    assert "the disk is full" in outcome.err
    assert "make room" in outcome.err
    assert outcome.status == 1


def test_what_was_just_configured_counts_at_once(machine: Machine, fairlead: Fairlead) -> None:
    configure(machine, approval="ask")
    other = ScriptedServer(machine.home / "other", tools=["pid"])
    with gateway(machine):
        assert fairlead("call", "x", "echo").status == 3
        entries = {"x": ScriptedServer(machine.home / "record", tools=TOOLS).entry(approval="allow")}
        machine.write_user(json.dumps({"servers": entries | {"y": other.entry(approval="allow")}}))
        assert fairlead("call", "y", "pid").status == 0
        assert fairlead("call", "x", "echo").status == 0
        machine.write_user(json.dumps({"servers": {"y": other.entry(enabled=False)}}))
        assert fairlead("call", "y", "pid").status == 4


@pytest.mark.parametrize("version", BOTH_ERAS)
def test_a_question_is_answered_at_the_terminal_that_made_the_call(
    machine: Machine, typed: AtTerminal, version: str
) -> None:
    server = asking(machine, version=version)
    with gateway(machine):
        person = typed("call", "x", "ask", "--input", json.dumps({"questions": {"q": form("Who?")}}))
        head = person.sees("Answer? [yes/no]: ")
        assert "`x` asks you something" in head
        assert "  | Who?\n" in head
        person.types("y")
        person.sees("> ")
        person.types("Ada")
        person.sees("> ")
        person.types("")
        person.sees("Send it?")
        person.types("yes")
        assert person.waits() == 0, person.seen
    answer = json.loads(person.seen.rstrip().splitlines()[-1])["q"]
    assert answer == {"action": "accept", "content": {"name": "Ada", "city": "Kiel"}}
    assert len(server.notes("started")) <= 2  # the second time, it is called by whoever can be asked


def test_a_page_is_opened_where_the_person_is(machine: Machine, typed: AtTerminal) -> None:
    asking(machine)
    opened, browser = machine.home / "opened", machine.home / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    with gateway(machine):
        arguments = json.dumps({"questions": {"q": page()}})
        person = typed("call", "x", "ask", "--input", arguments, BROWSER=f"{browser} %s")
        person.sees("Open it?")
        person.types("yes")
        assert person.waits() == 0, person.seen
    assert opened.read_text().strip() == page()["params"]["url"]


def test_a_question_that_is_withdrawn_takes_no_answer(machine: Machine, typed: AtTerminal) -> None:
    server = asking(machine, version=HANDSHAKE)
    with gateway(machine):
        person = typed("call", "x", "ask", "--input", json.dumps({"questions": {"q": form()}}))
        person.sees("Answer?")
        os.kill(server.notes("started")[-1], signal.SIGKILL)
        person.sees("this answer is not needed any more")
        assert person.waits() == 1
        assert "SIGKILL" in person.seen


def test_ctrl_c_cancels_the_call_at_its_server(machine: Machine, typed: AtTerminal) -> None:
    server = configure(machine)
    with gateway(machine):
        person = typed("call", "x", "wait")
        until(lambda: server.calls("wait"))
        person.presses_ctrl_c()
        assert person.waits() == 130
        until(lambda: "notifications/cancelled" in server.notes("received"))


def test_progress_keeps_a_call_alive_and_is_shown(machine: Machine, typed: AtTerminal) -> None:
    configure(machine)
    with gateway(machine):
        person = typed("call", "x", "tick", "--arg", "times:=20", "--timeout", "0.7", TERM="xterm")
        person.sees("calling")
        assert person.waits() == 0, person.seen[-500:]


# Tools.


def test_tools_are_those_that_the_gateway_has_now(machine: Machine, fairlead: Fairlead) -> None:
    server = configure(machine, approval="allow")
    with gateway(machine) as up:
        listed = fairlead("tools")
        assert listed.status == 0, listed.err
        assert f"through the gateway at {up.url.partition('/mcp')[0]}" in listed.err
        before = {tool["name"] for tool in json.loads(fairlead("tools", "--json").out)["tools"]}
        assert before == set(TOOLS)
        assert server.starts == 1
        schemas = fairlead("tools", "x", "--schema").out
        costs = fairlead("tools", "--cost", "--json").out
        alone = fairlead("tools", "--json", "--no-gateway").out
        assert json.loads(alone) == json.loads(fairlead("tools", "--json").out)
    assert fairlead("tools", "x", "--schema").out == schemas
    assert fairlead("tools", "--cost", "--json").out == costs


def test_a_refresh_asks_the_servers_through_the_gateway(machine: Machine, fairlead: Fairlead) -> None:
    server = configure(machine, sharing="shared")
    with gateway(machine):
        assert fairlead("tools", "--refresh").status == 0
        changed = json.dumps({"tools": ["echo", "pid"], "silently": True})
        assert fairlead("call", "x", "change_tools", "--yes", "--input", changed).status == 0
        names = [tool["name"] for tool in json.loads(fairlead("tools", "--json", "--refresh").out)["tools"]]
        assert server.starts == 1
    assert "echo" in names


def test_a_server_that_does_not_start_is_named_in_the_same_way(machine: Machine, fairlead: Fairlead) -> None:
    configure(machine, ScriptedServer(machine.home / "record", exit=3, stderr="no licence"))
    with gateway(machine):
        through = fairlead("tools")
    alone = fairlead("tools")
    assert through.status == alone.status == 4
    assert "no licence" in through.err
    assert alone.err.strip() in through.err


# A gateway that goes away.


def test_a_gateway_that_went_away_before_it_was_asked_is_done_without(
    machine: Machine, fairlead: Fairlead, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(machine)
    gone = here(machine.load(), url="http://127.0.0.1:1", token_file=None, workspace=machine.project)
    monkeypatch.setattr("fairlead.gateway.registry._answers", bool)  # as if it died right after it did
    with announce(machine.env, gone):
        called = fairlead("call", "x", "echo", "--yes")
        assert (called.status, called.out) == (0, "{}\n"), called.err
        assert "is not there any more; continuing without the gateway" in called.err
        listed = fairlead("tools")
        assert listed.status == 0
        assert "is not there any more; continuing without the gateway" in listed.err


def test_a_call_that_a_gateway_may_have_made_is_not_made_again(machine: Machine, fairlead: Fairlead) -> None:
    server = configure(machine)
    posts: list[str] = []

    async def answer(request: Request) -> Response:
        work = json.loads(await request.body())["work"]
        posts.append(work["type"])
        definition = {"name": "echo", "inputSchema": {"type": "object"}}
        said = {"type": "done", "result": [definition]} if work["type"] == "tools" else {"type": "progress"}
        body = f"data: {json.dumps(said | {'progress': 1})}\n\n"
        return StreamingResponse(iter([body]), media_type="text/event-stream")

    async def healthy(_: Request) -> Response:
        return Response("ok")

    app = Starlette(routes=[Route(CONTROL_PATH, answer, methods=["POST"]), Route("/healthz", healthy)])
    with serving(app) as url:
        half = here(machine.load(), url=url, token_file=None, workspace=machine.project)
        with announce(machine.env, half):
            outcome = fairlead("call", "x", "echo", "--yes")
    assert outcome.status == 1
    assert "closed the connection before the result of the call" in outcome.err
    assert posts == ["tools", "call"]
    assert server.starts == 0


def test_an_older_gateway_without_a_control_api_is_done_without(machine: Machine, fairlead: Fairlead) -> None:
    configure(machine)

    async def healthy(_: Request) -> Response:
        return Response("ok")

    with serving(Starlette(routes=[Route("/healthz", healthy)])) as url:
        older = here(machine.load(), url=url, token_file=None, workspace=machine.project)
        with announce(machine.env, older):
            outcome = fairlead("call", "x", "echo", "--yes")
    assert (outcome.status, outcome.out) == (0, "{}\n")
    assert "answered with status 404; continuing without the gateway" in outcome.err


def test_another_folder_has_another_gateway(machine: Machine, fairlead: Fairlead) -> None:
    configure(machine)
    deeper = machine.project / "deeper"
    deeper.mkdir()
    with gateway(machine):
        os.chdir(deeper)  # where the built-in servers would work in another place
        assert "gateway" not in fairlead("call", "x", "echo", "--yes").err


# Who may.


def test_control_commands_are_for_who_may_decide(machine: Machine, fairlead: Fairlead) -> None:
    configure(machine)
    agent = fairlead("gateway", "token", "add", "agent").out.strip()
    with gateway(machine) as up:
        work: dict[str, Any] = {
            "type": "call",
            "server": "x",
            "tool": "echo",
            "arguments": {},
            "confirmed": True,
        }
        body = json.dumps({"work": work, "config": ""})
        statuses: list[int] = []
        for token in ("wrong", agent):
            request = urllib.request.Request(
                f"{up.url.partition('/mcp')[0]}{CONTROL_PATH}",
                body.encode(),
                {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=SECONDS)
            statuses.append(refused.value.code)
            refused.value.close()
    assert statuses == [401, 403]


# Errors on their way.


@pytest.mark.parametrize(
    "error",
    [
        CallRejected("x", "no such thing", rpc_code=-32602, untrusted=False),
        UnknownTool("there is none", hint="look"),
        ValueTooLarge("too much", version=3),
        AuthRequired("x", "log in", hint="do", challenge="Bearer", wants_more=True),
        CallFailed("x", "why", delivery="not_sent"),
        ConnectionLost("x", "gone", delivery="unknown"),
        FairleadError("something"),
    ],
)
def test_an_error_is_the_same_after_its_way(error: FairleadError) -> None:
    again = decode_error(encode_error(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_what_is_wrong_in_a_configuration_is_told_in_words() -> None:
    again = decode_error(encode_error(ConfigInvalid(Problem(message="no", hint="yes"))))
    assert (again.code, again.hint) == ("config_error", "yes")
    assert "no" in str(again)


@pytest.mark.parametrize(
    "failed",
    [
        CommandFailed("of_a_later_version", "server `x`: why", {"hint": "do", "server_id": "x"}),
        CommandFailed("call_failed", "server `x`: why", {"hint": "do", "server_id": "x"}),
    ],
)
def test_an_error_of_another_version_keeps_its_words(failed: CommandFailed) -> None:
    again = decode_error(failed)
    assert (type(again), str(again), again.hint) == (FairleadError, "server `x`: why", "do")
