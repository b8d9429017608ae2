"""`fairlead gateway` as people and agents use it: real processes, real sockets."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.gateway.access.tokens import Tokens, decide_token, token_file
from fairlead.gateway.registry import (
    RunningGateway,
    agent_token_file,
    announce,
    find,
    gateway_folder,
    living,
    sources_of,
)
from fairlead.testing import ScriptedServer, scripted_program
from tests.cli.pty_support import at_terminal
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

SECONDS = 60
SERVER = scripted_program.__file__
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@dataclass(frozen=True)
class Up:
    """A gateway in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    token: str | None
    said: Mapping[str, Any]
    decide: str
    """The token that its user decides with."""

    def get(self, path: str, *, token: str | None = None, **headers: str) -> tuple[int, bytes]:
        base = self.url.partition("/mcp")[0]
        own = self.token if path.startswith("/mcp") else self.decide
        if token or own:
            headers["Authorization"] = f"Bearer {token or own}"
        request = urllib.request.Request(f"{base}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(how)
        _, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, err


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fairlead", *arguments]


@contextmanager
def ended_in_time(process: subprocess.Popen[str]) -> Generator[None]:
    """Let nobody wait for a process for ever: what it does not say by then, it never says."""
    limit = threading.Timer(SECONDS, process.kill)
    limit.start()
    try:
        yield
    finally:
        limit.cancel()
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=SECONDS)


@contextmanager
def gateway(machine: Machine, *arguments: str) -> Generator[Up]:
    words = command("gateway", "--port", "0", "--json", *arguments)
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=machine.project, env=machine.env
    )
    assert process.stdout is not None
    with ended_in_time(process):
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            text += line
        said = json.loads(text)
        decide = decide_token(machine.env)
        yield Up(process=process, url=said["url"], token=said["token"], said=said, decide=decide)


def talk(machine: Machine, messages: Sequence[Mapping[str, Any]], *arguments: str) -> list[dict[str, Any]]:
    """Speak over stdio: wait for the answer to each question, and return them all."""
    words = command("gateway", "--stdio", *arguments)
    answers: list[dict[str, Any]] = []
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=machine.project,
        env=machine.env,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with ended_in_time(process):
            for message in messages:
                process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
                while "id" in message:
                    line = process.stdout.readline()
                    assert line, process.communicate()[1]
                    answer = json.loads(line)
                    if answer.get("id") == message["id"]:
                        answers.append(answer)
                        break
            process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    return answers


def add_scripted(machine: Machine, name: str = "s", **script: object) -> Path:
    record = machine.home / f"{name}.record"
    script = {"record": str(record), **script}
    entry = {
        "command": sys.executable,
        "args": [SERVER, json.dumps(script)],
        "trust": "trusted",
        "approval": "allow",
        "sharing": "shared",
    }
    machine.write_user(json.dumps({"servers": {name: entry}, "bundles": {"work": {"servers": {name: {}}}}}))
    return record


def call(number: int, tool: str) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": {}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def served_by(listed: Mapping[str, Any]) -> list[str]:
    """The tools of servers, without the gateway's own."""
    names = [tool["name"] for tool in listed["result"]["tools"]]
    return [name for name in names if not name.startswith("mcp_")]


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


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


@pytest.mark.requirement("HARD-10")
def test_into_a_log_goes_no_token_and_no_colour(machine: Machine) -> None:
    words = command("gateway", "--port", "0")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=machine.project, env=machine.env
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    token = (gateway_folder(machine.env) / "token").read_text().strip()
    everything = "".join(lines) + out + err
    assert token not in everything
    assert "\x1b" not in everything
    assert "#" not in everything
    assert [line.split()[0] for line in lines] == ["url", "token", "dashboard"]


def test_on_a_terminal_it_shows_the_token_and_what_to_paste(machine: Machine) -> None:
    with at_terminal("gateway", "--port", "0", cwd=machine.project, env=machine.env) as person:
        person.sees("Ctrl-C stops the gateway.")
        token = (gateway_folder(machine.env) / "token").read_text().strip()
        assert f"token      {token}" in person.seen
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


def test_named_tokens_are_shown_once_listed_without_it_and_taken_back(
    machine: Machine, fairlead: Fairlead
) -> None:
    add_scripted(machine)
    made = fairlead("gateway", "token", "add", "ci", "--bundle", "work")
    assert made.status == 0
    token = made.out.strip()
    watcher = json.loads(fairlead("gateway", "token", "add", "prom", "--scope", "status", "--json").out)[
        "token"
    ]
    listed = fairlead("gateway", "token", "list")
    assert token not in listed.out
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [
        ["ci", "work", "mcp"],
        ["prom", "all", "status"],
    ]
    with gateway(machine) as up:
        assert up.get("/metrics", token=watcher)[0] == 200
        assert up.get("/metrics", token=token)[0] == 403
        assert up.get("/mcp", token=token, Accept="text/event-stream")[0] == 403
        assert up.get("/mcp/work", token=token, Accept="text/event-stream")[0] not in (401, 403)
        assert fairlead("gateway", "token", "remove", "prom").status == 0
        deadline = time.monotonic() + SECONDS
        while up.get("/metrics", token=watcher)[0] != 401:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert fairlead("gateway", "token", "remove", "prom").status == 1
    assert [
        token["name"] for token in json.loads(fairlead("gateway", "token", "list", "--json").out)["tokens"]
    ] == ["ci"]


def test_every_installed_agent_has_a_token_of_its_own(machine: Machine, fairlead: Fairlead) -> None:
    for agent in ("claude", "cursor"):
        assert fairlead("gateway", "--install", agent, "--yes").status == 0
    shown = [
        fairlead("gateway", "token", "show", *agent).out.strip() for agent in ([], ["claude"], ["cursor"])
    ]
    assert len(set(shown)) == 3
    tokens = Tokens(None, token_file(machine.env))
    owners = [tokens.owner(token) for token in shown[1:]]
    assert [(owner.principal, owner.label) for owner in owners if owner is not None] == [
        ("local", "agent-claude"),
        ("local", "agent-cursor"),
    ]
    assert fairlead("gateway", "token", "show", "claude").out.strip() == shown[1]
    assert fairlead("gateway", "--uninstall", "claude", "--yes").status == 0
    assert tokens.owner(shown[1]) is None
    assert tokens.owner(shown[2]) is not None


def test_every_installed_agent_takes_its_token_from_a_variable_of_its_own(
    machine: Machine, fairlead: Fairlead
) -> None:
    files = {
        "claude": ".claude.json",
        "codex": ".codex/config.toml",
        "cursor": ".cursor/mcp.json",
        "gemini": ".gemini/settings.json",
    }
    for agent, file in files.items():
        outcome = fairlead("gateway", "--install", agent, "--yes")
        variable = f"FAIRLEAD_TOKEN_{agent.upper()}"
        assert f'export {variable}="$(fairlead gateway token show {agent})"' in outcome.err
        assert variable in (machine.home / file).read_text()
    for agent, file in files.items():
        assert fairlead("gateway", "--uninstall", agent, "--yes").status == 0
        assert not (machine.home / file).exists()


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"mcpServers": []}', b'{"mcpServers": {"a": }}', "{}".encode("utf-16"), b"\xff", None],
)
def test_an_installation_that_fails_or_is_declined_leaves_no_token(
    machine: Machine, fairlead: Fairlead, content: bytes | None
) -> None:
    if content is not None:
        (machine.home / ".claude.json").write_bytes(content)
    # Without `--yes`, and without a terminal, the sound file is declined.
    outcome = fairlead("gateway", "--install", "claude", *(["--yes"] if content is not None else []))
    assert outcome.status == 1
    assert token_file(machine.env).read() == []
    assert not agent_token_file(machine.env, "claude").exists()


def test_a_failed_installation_keeps_the_token_of_an_earlier_one(
    machine: Machine, fairlead: Fairlead
) -> None:
    assert fairlead("gateway", "--install", "claude", "--yes").status == 0
    token = agent_token_file(machine.env, "claude").read_text()
    (machine.home / ".claude.json").write_text("{")
    assert fairlead("gateway", "--install", "claude", "--yes").status == 1
    assert agent_token_file(machine.env, "claude").read_text() == token
    assert [kept.name for kept in token_file(machine.env).read()] == ["agent-claude"]


def test_installing_shows_the_change_and_waits_for_a_yes(machine: Machine, fairlead: Fairlead) -> None:
    outcome = fairlead("gateway", "--install", "claude")
    assert outcome.status == 1
    assert '+    "fairlead": {' in outcome.err
    assert "nothing was changed" in outcome.err
    path = machine.home / ".claude.json"
    assert not path.exists()
    outcome = fairlead("gateway", "--install", "claude", "--yes")
    assert outcome.status == 0
    assert 'export FAIRLEAD_TOKEN_CLAUDE="$(fairlead gateway token show claude)"' in outcome.err
    entry = json.loads(path.read_text())["mcpServers"]["fairlead"]
    assert entry["url"] == "http://127.0.0.1:8130/mcp"
    assert fairlead("gateway", "token", "show").out.strip() not in path.read_text()
    assert "nothing was changed" in fairlead("gateway", "--install", "claude", "--yes").err
    assert fairlead("gateway", "--uninstall", "claude", "--yes").status == 0
    assert not path.exists()


def test_what_is_installed_is_the_gateway_that_runs_or_a_command(
    machine: Machine, fairlead: Fairlead
) -> None:
    assert (
        "the port of a gateway that takes any is not known"
        in fairlead("gateway", "--port", "0", "--install", "cursor", "--yes").err
    )
    with gateway(machine) as up:
        assert fairlead("gateway", "--install", "cursor", "--yes").status == 0
        path = machine.home / ".cursor" / "mcp.json"
        assert json.loads(path.read_text())["mcpServers"]["fairlead"]["url"] == up.url
    assert fairlead("gateway", "--install", "cursor", "--stdio", "--yes").status == 0
    assert json.loads(path.read_text())["mcpServers"]["fairlead"] == {
        "type": "stdio",
        "command": "fairlead",
        "args": ["gateway", "--stdio"],
    }


def test_a_call_that_waits_for_a_word_gets_it_from_the_command_line(
    machine: Machine, fairlead: Fairlead
) -> None:
    add_scripted(machine, tools=["echo"])
    document = json.loads(machine.user_file.read_text())
    document["servers"]["s"]["approval"] = "ask"
    machine.write_user(json.dumps(document))
    assert "no gateway runs" in fairlead("gateway", "pending").err
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
            assert f"{waiting[0]['id']}  s/echo" in shown.out
            assert fairlead("approvals", "answer", waiting[0]["id"], word).status == 0
            answer = asked.result(timeout=SECONDS)[-1]
            assert ("error" in answer or answer["result"].get("isError", False)) is is_error, answer
        assert fairlead("approvals", "answer", "gone", "once").status == 1
        watcher = fairlead("gateway", "token", "add", "prom", "--scope", "status").out.strip()
        assert up.get("/api/approvals", token=watcher)[0] in (401, 403)


@pytest.mark.requirement("HARD-81")
def test_a_removed_admin_token_leaves_the_dashboard_too(machine: Machine, fairlead: Fairlead) -> None:
    with gateway(machine) as up:
        made = json.loads(fairlead("gateway", "token", "add", "adm", "--scope", "admin", "--json").out)
        base = up.url.partition("/mcp")[0]
        headers = {"Authorization": f"Bearer {made['token']}", "Content-Type": "application/json"}
        asked = urllib.request.Request(f"{base}/api/dashboard-links", b"{}", headers)
        with urllib.request.urlopen(asked, timeout=SECONDS) as response:
            code = json.load(response)["links"][-1].partition("?")[2]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(f"{base}/login?{code}", timeout=SECONDS) as inside:
            place = inside.url
            assert "/~" in place
        assert fairlead("gateway", "token", "remove", "adm").status == 0
        with browser.open(place, timeout=SECONDS) as outside:
            assert outside.url == f"{base}/login"


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
