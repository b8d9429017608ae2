"""`fairlead gateway` as people and agents use it: real processes, real sockets."""

import http.client
import json
import os
import signal
import stat
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairlead.gateway.registry import (
    RunningGateway,
    announce,
    find,
    gateway_folder,
    living,
    sources_of,
)
from fairlead.testing import ScriptedServer
from tests.cli.gateway_support import (
    INITIALIZE,
    INITIALIZED,
    LIST,
    SECONDS,
    Fairlead,
    add_scripted,
    call,
    command,
    gateway,
    served_by,
    talk,
)
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine


def test_it_serves_mcp_and_a_dashboard_and_ends_politely(machine: Machine) -> None:
    with gateway(machine) as up:
        assert up.get("/healthz")[0] == 200
        assert up.get("/api/status")[0] == 200
        assert up.get("/api/status", token="wrong")[0] == 401
        assert up.get("/")[0] == 200
        found = living(machine.env)
        assert [running.pid for running in found] == [up.process.pid]
        about = next(gateway_folder(machine.env).glob("running/*/about.json"))
        assert stat.S_IMODE(about.stat().st_mode) == 0o600
        assert up.token is not None
        assert up.token not in about.read_text()
        status, err = up.stop()
        assert status == 0
        assert living(machine.env) == []
        assert not about.exists()
    assert [line.split(":")[0] for line in err.splitlines()] == ["info", "info"]


@pytest.mark.parametrize("words", [(), ("--workers", "2")])
def test_one_that_is_to_stop_serves_for_a_while_and_is_not_ready(
    machine: Machine, words: tuple[str, ...]
) -> None:
    machine.write_user('{"gateway": {"drain_ms": 6000}}')
    with gateway(machine, *words) as up:
        address = urlsplit(up.url)
        own = {"Authorization": f"Bearer {up.token}", "Content-Type": "application/json"}
        own["Accept"] = "application/json, text/event-stream"
        idle, busy, new = (
            http.client.HTTPConnection(str(address.hostname), address.port, timeout=SECONDS) for _ in range(3)
        )
        with closing(idle), closing(busy), closing(new):
            for connection in (idle, busy):
                connection.request("POST", "/mcp", json.dumps(INITIALIZE), own)
                with connection.getresponse() as response:
                    assert response.status == 200
                    response.read()
            up.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            while up.get("/readyz")[0] != 503:
                assert time.monotonic() - began < SECONDS
            # A balancer that has not looked since sends more: on new connections, and on those there are.
            for connection in (busy, new):
                assert (connection.sock is None) is (connection is new)
                closes = False
                while not closes:  # one worker may know of the stop a moment before the other
                    connection.request("POST", "/mcp", json.dumps(INITIALIZE), own)
                    with connection.getresponse() as response:
                        assert response.status == 200
                        closes = response.headers.get_all("Connection") == ["close"]
                        response.read()
                    assert time.monotonic() - began < 5
            # One that is idle is closed after that.
            assert idle.sock is not None
            assert idle.sock.recv(1) == b""
            assert time.monotonic() - began > 2
            up.process.communicate(timeout=SECONDS)
    assert up.process.returncode == 0


@pytest.mark.requirement("HARD-10")
def test_into_a_log_goes_no_token_and_no_colour(machine: Machine) -> None:
    words = command("gateway", "--port", "0")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=machine.project, env=machine.env
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    token = (gateway_folder(machine.env) / "token").read_text().strip()
    everything = "".join(lines) + out + err
    assert token not in everything
    assert "\x1b" not in everything
    assert "#" not in everything
    assert [line.split()[0] for line in lines] == ["url", "dashboard"]
    assert "/login?code=" not in everything


def test_on_a_terminal_it_shows_what_to_paste_if_asked(machine: Machine) -> None:
    with at_terminal("gateway", "--port", "0", "--snippets", cwd=machine.project, env=machine.env) as person:
        person.sees("Gemini CLI")
        person.sees("Authorization")
        token = (gateway_folder(machine.env) / "token").read_text().strip()
        assert token in person.seen
        assert "/login?code=" in person.seen
        for title in ("Claude Code", "Codex", "Cursor", "VS Code", "opencode", "Gemini CLI"):
            assert title in person.seen
        assert "claude mcp add --transport http fairlead http://127.0.0.1:" in person.seen
        assert "[mcp_servers.fairlead]" in person.seen
        person.presses_ctrl_c()
        assert person.waits() == 0


def test_nobody_has_to_configure_anything_first(machine: Machine) -> None:
    (machine.project / "hello.txt").write_text("a needle\n")
    env = {name: value for name, value in machine.env.items() if name != "FAIRLEAD_BUILTINS"}
    fresh = Machine(home=machine.home, project=machine.project, env=env)
    with gateway(fresh) as up:
        assert set(up.said["servers"]) == {"repo", "docs"}
        _, listed = talk(fresh, [INITIALIZE, INITIALIZED, LIST])
        names = [tool["name"] for tool in listed["result"]["tools"]]
        assert any(name.startswith("repo_") for name in names), names


def test_a_port_that_is_taken_by_a_gateway_is_said_so(machine: Machine) -> None:
    with gateway(machine) as up:
        port = up.url.rpartition(":")[2].partition("/")[0]
        done = subprocess.run(
            command("gateway", "--port", port),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=machine.project,
            env=machine.env,
            check=False,
        )
    assert done.returncode == 1
    assert f"a gateway runs at http://127.0.0.1:{port} already" in done.stderr
    assert "--port 0" in done.stderr


def test_letting_anybody_in_takes_two_words_and_is_for_this_machine_alone(
    machine: Machine, fairlead: Fairlead
) -> None:
    assert fairlead("gateway", "--auth", "none").status == 2
    outcome = fairlead("gateway", "--auth", "none", "--i-know", "--host", "0.0.0.0")
    assert outcome.status == 1
    assert "every machine on the network" in outcome.err
    with gateway(machine, "--auth", "none", "--i-know") as up:
        assert up.token is None
        assert up.get("/api/status")[0] == 200
        assert up.get("/api/status", Host="evil.example")[0] == 421


def test_a_bundle_that_is_not_there_is_refused(fairlead: Fairlead) -> None:
    assert "no bundle `nope`" in fairlead("gateway", "--bundle", "nope").err
    assert "no bundle `nope`" in fairlead("gateway", "token", "add", "x", "--bundle", "nope").err


@pytest.mark.requirement("NEED-27")
def test_agents_that_start_a_command_share_the_gateway_that_runs(machine: Machine) -> None:
    record = add_scripted(machine, tools=["echo"])
    with gateway(machine):
        for _ in range(2):
            first, listed, called = talk(machine, [INITIALIZE, INITIALIZED, LIST, call(3, "s_echo")])
            assert first["result"]["protocolVersion"] == "2025-11-25"
            assert served_by(listed) == ["s_echo"]
            assert not called["result"].get("isError"), called
        assert record.read_text().count('"started"') == 1
        _, listed = talk(machine, [INITIALIZE, INITIALIZED, LIST], "--bundle", "work")
        assert served_by(listed) == ["s_echo"]


def test_a_command_of_the_stateless_protocol_gets_through_as_well(machine: Machine) -> None:
    add_scripted(machine, tools=["echo"])
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    def stamped(message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "params": {**message.get("params", {}), "_meta": meta}}

    discover = {"jsonrpc": "2.0", "id": 1, "method": "server/discover"}
    with gateway(machine):
        answers = talk(machine, [stamped(discover), stamped(LIST), stamped(call(3, "s_echo"))])
    assert all("result" in answer for answer in answers), answers
    assert served_by(answers[1]) == ["s_echo"]


def test_a_command_is_a_gateway_of_its_own_where_none_runs(machine: Machine) -> None:
    add_scripted(machine, tools=["echo"])
    _, listed, called = talk(machine, [INITIALIZE, INITIALIZED, LIST, call(3, "s_echo")])
    assert served_by(listed) == ["s_echo"]
    assert not called["result"].get("isError"), called


def test_status_asks_the_gateway_that_runs(machine: Machine, fairlead: Fairlead) -> None:
    add_scripted(machine, tools=["echo"])
    assert json.loads(fairlead("status", "--json").out)["gateway"] is None
    with gateway(machine) as up:
        talk(machine, [INITIALIZE, INITIALIZED, LIST, call(3, "s_echo")])
        said = json.loads(fairlead("status", "--json").out)
        assert said["gateway"] == up.url.partition("/mcp")[0]
        assert [(server["id"], server["state"]) for server in said["servers"]] == [("s", "ready")]
        assert "as the gateway at" in fairlead("status").err
        elsewhere = machine.project / "deeper" / "fairlead.json"
        elsewhere.parent.mkdir()
        elsewhere.write_text("{}")
        os.chdir(elsewhere.parent)  # another project has another configuration, which nobody runs
        assert json.loads(fairlead("status", "--json").out)["gateway"] is None


@pytest.mark.requirement("NEED-35")
def test_a_changed_file_is_taken_over_while_it_runs(machine: Machine) -> None:
    add_scripted(machine, "one", tools=["echo"])
    with gateway(machine) as up:
        assert up.process.stderr is not None
        assert "listening" in up.process.stderr.readline()
        machine.write_user("{ half a file")
        assert up.process.stderr.readline().startswith("warning: the configuration does not load")
        assert [server["id"] for server in json.loads(up.get("/api/status")[1])["servers"]] == ["one"]
        add_scripted(machine, "two", tools=["echo"])
        assert up.process.stderr.readline() == "info: configuration reloaded\n"
        assert [server["id"] for server in json.loads(up.get("/api/status")[1])["servers"]] == ["two"]


BAD_SECTIONS: dict[str, Any] = {
    "unknown mode": {"approval": "sometimes"},
    "unknown key": {"aproval": "ask"},
    "wrong type": {"requests_per_minute": "many"},
    "a list": [],
    "a text": "ask",
    "null": None,
    "half an issuer": {"oauth": {"issuer": "not a url"}},
    "bad name": {"names": [5]},
    "one bad field of two": {"approval": "allow", "approvals": "everybody"},
}


@pytest.mark.requirement("NEED-35")
def test_a_bad_gateway_section_leaves_the_running_one_as_it_is_and_tells(
    machine: Machine, fairlead: Fairlead
) -> None:
    entry = ScriptedServer(machine.project / "s.record", tools=["echo"]).entry()
    sound = {"servers": {"s": entry}, "gateway": {"approval": "deny", "requests_per_minute": 10_000}}

    def write(document: dict[str, Any]) -> None:
        machine.write_user(json.dumps(document))

    write(sound)
    with gateway(machine) as up:
        assert up.process.stderr is not None
        assert "listening" in up.process.stderr.readline()
        base = up.url.partition("/mcp")[0]
        for name, section in BAD_SECTIONS.items():
            write({**sound, "servers": {"s": entry, "t": entry}, "gateway": section})
            answer = post_reload(base, up.decide)
            assert answer["reloaded"] is False, name
            assert "gateway" in answer["error"], name
            assert [server["id"] for server in json.loads(up.get("/api/status")[1])["servers"]] == ["s"], name
            assert up.process.poll() is None
        done = fairlead("disable", "t")
        assert "keeps its old configuration" in done.err
        write({**sound, "servers": {"s": entry, "u": entry}})
        assert post_reload(base, up.decide) == {"reloaded": True}
        assert {"s", "u"} <= {server["id"] for server in json.loads(up.get("/api/status")[1])["servers"]}


def post_reload(base: str, token: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base}/api/reload", data=b"{}", headers=headers)
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        return json.loads(response.read())


def test_a_killed_gateway_leaves_nothing_that_anybody_asks(machine: Machine, fairlead: Fairlead) -> None:
    with gateway(machine) as up:
        up.process.kill()
        up.process.communicate(timeout=SECONDS)
        assert list(gateway_folder(machine.env).glob("running/*/about.json"))
        assert json.loads(fairlead("status", "--json").out)["gateway"] is None
        assert not list(gateway_folder(machine.env).glob("running/*/about.json"))


def test_a_gateway_that_does_not_answer_is_not_asked(machine: Machine) -> None:
    loaded = machine.load()
    silent = RunningGateway(
        url="http://127.0.0.1:1",
        pid=os.getpid(),
        token_file=None,
        sources=sources_of(loaded),
        workspace=str(machine.project),
        started_at=0.0,
    )
    with announce(machine.env, silent):
        assert living(machine.env) == [silent]
        assert find(machine.env, sources_of(loaded)) is None


def test_a_call_that_waits_for_a_word_gets_it_from_the_command_line(
    machine: Machine, fairlead: Fairlead
) -> None:
    add_scripted(machine, tools=["echo"])
    document = json.loads(machine.user_file.read_text())
    document["servers"]["s"]["approval"] = "ask"
    machine.write_user(json.dumps(document))
    assert "no gateway is running" in fairlead("gateway", "pending").err
    with gateway(machine) as up, ThreadPoolExecutor() as threads:
        assert "no call waits" in fairlead("approvals", "answer").err
        for word, is_error in (("once", False), ("no", True)):
            asked = threads.submit(talk, machine, [INITIALIZE, INITIALIZED, call(3, "s_echo")])
            deadline = time.monotonic() + SECONDS
            while not (waiting := json.loads(fairlead("approvals", "list", "--json").out)["pending"]):
                assert time.monotonic() < deadline
            assert [(one["server"], one["tool"], one["principal"]) for one in waiting] == [
                ("s", "echo", "local")
            ]
            shown = fairlead("approvals", "answer")
            assert shown.status == 3
            assert f"{waiting[0]['id']}  s.echo" in shown.out
            assert fairlead("approvals", "answer", waiting[0]["id"], word).status == 0
            answer = asked.result(timeout=SECONDS)[-1]
            assert ("error" in answer or answer["result"].get("isError", False)) is is_error, answer
        assert fairlead("approvals", "answer", "gone", "once").status == 1
        refused = json.loads(fairlead("approvals", "answer", "gone", "once", "--json").out)["error"]
        assert (refused["code"], refused["message"]) == ("unknown_call", "no call gone is waiting any more")
        watcher = fairlead("gateway", "token", "add", "prom", "--scope", "status").out.strip()
        assert up.get("/api/approvals", token=watcher)[0] in (401, 403)


def test_a_call_that_must_be_asked_about_over_stdio_alone_is_refused_at_once_with_the_command(
    machine: Machine, fairlead: Fairlead
) -> None:
    server = ScriptedServer(
        machine.home / "record", tools=[{"name": "echo", "inputSchema": {"type": "object"}}]
    )
    machine.write_user(json.dumps({"servers": {"s": server.entry(approval={"tools": {"echo": "ask"}})}}))
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "s_echo", "arguments": {}}},
    ]
    said = talk(machine, messages)[2]["result"]["content"][0]["text"]
    assert "must be approved, and there is no one to ask" in said
    assert "`fairlead review s --allow echo`" in said
    assert fairlead("review", "s", "--allow", "echo").status == 0
    assert not talk(machine, messages)[2]["result"].get("isError")


def test_a_server_of_the_running_gateway_is_restarted_by_a_command(
    machine: Machine, fairlead: Fairlead
) -> None:
    server = ScriptedServer(machine.home / "record", tools=["pid"])
    machine.write_user(json.dumps({"servers": {"s": server.entry(approval="allow", sharing="shared")}}))
    assert fairlead("gateway", "restart", "s").status != 0, "no gateway runs"
    with gateway(machine):
        pids = [fairlead("call", "s", "pid").out for _ in range(2)]
        assert pids[0] == pids[1]
        restarted = fairlead("gateway", "restart", "s")
        assert restarted.status == 0, restarted.err
        assert fairlead("call", "s", "pid").out != pids[0]
        assert fairlead("gateway", "restart", "nope").status == 1
