"""A gateway in a process of its own, as people and agents start it, and what speaks to it."""

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairlead.gateway.access.tokens import decide_token
from fairlead.testing import scripted_program
from tests.conftest import Machine, Outcome

Fairlead = Callable[..., Outcome]

SECONDS = 60
LIFETIME_SECONDS = 240
"""How long a process may run that a whole test uses: less than a test has, so that its own limit ends it."""
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
    limit = threading.Timer(LIFETIME_SECONDS, process.kill)
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


class DesktopAgent:
    """A program that starts the command of its file with as few variables as a desktop gives."""

    def __init__(self, home: Path, entry: Mapping[str, Any], cwd: Path) -> None:
        words = [entry["command"], *entry["args"]]
        assert Path(words[0]).is_absolute()
        env = {"HOME": str(home), **entry.get("env", {})}
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=cwd
        )

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message, and return its answer if it wants one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        while "id" in message:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == message["id"]:
                return answer
        return {}

    def begin(self) -> list[str]:
        """Shake hands, and return the names of the tools."""
        self.ask(INITIALIZE)
        self.ask(INITIALIZED)
        return served_by(self.ask(LIST))

    def end(self) -> int:
        """Close its input, and return the status that the command ends with."""
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode
