"""A gateway of several processes, and connections to it that stay open."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from fairlead.gateway.access.tokens import decide_token
from tests.cli.gateway_support import INITIALIZE, INITIALIZED, SERVER, Up, command
from tests.conftest import Machine

T = TypeVar("T")

PATIENCE = 120.0
MODERN = "2026-07-28"


def new_machine(folder: Path) -> Machine:
    """A machine with one server, one of whose tools asks first."""
    home, project = folder / "home", folder / "project"
    home.mkdir(parents=True)
    project.mkdir()
    env = {"HOME": str(home), "USERPROFILE": str(home), "PATH": os.environ["PATH"]}
    env |= {"FAIRLEAD_VAULT": "file", "FAIRLEAD_BUILTINS": "off"}
    machine = Machine(home=home, project=project, env=env)
    configure(machine, "s", "modern")
    return machine


def configure(machine: Machine, *servers: str) -> None:
    """Have a machine's configuration name these servers."""
    gateway = {"startup_wait_ms": 60_000, "approvals": "client"}
    document = {"servers": {name: scripted_entry(machine, name) for name in servers}, "gateway": gateway}
    machine.write_user(json.dumps(document))


def scripted_entry(machine: Machine, name: str) -> dict[str, object]:
    """A server that all clients share; `modern` speaks the protocol without sessions."""
    script: dict[str, object] = {"tools": ["echo", "ask_first", "pid"], "any_tool": True}
    script["record"] = str(machine.home / f"{name}.record")
    if name == "modern":
        script |= {"version": MODERN, "probe": "answer"}
    return {
        "command": sys.executable,
        "args": [SERVER, json.dumps(script)],
        "trust": "trusted",
        "approval": {"default": "allow", "tools": {"ask_first": "ask"}},
        "sharing": "shared",
    }


@contextmanager
def serving(machine: Machine, *words: str) -> Generator[Up]:
    """Run a gateway with two workers; its end is waited for, and no process is left."""
    process = subprocess.Popen(
        command("gateway", "--port", "0", "--json", "--workers", "2", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=machine.project,
        env=machine.env,
    )
    limit = threading.Timer(PATIENCE, process.kill)  # of its start: the tests bound their own waits
    limit.start()
    try:
        assert process.stdout is not None
        said, text = None, ""
        while said is None:
            line = process.stdout.readline()
            assert line, "the gateway does not start"
            text += line
            with suppress(ValueError):
                said = json.loads(text)
        limit.cancel()
        decide = decide_token(machine.env)
        yield Up(process=process, url=said["url"], token=said["token"], said=said, decide=decide)
    finally:
        limit.cancel()
        process.terminate()
        process.communicate(timeout=PATIENCE)


def workers_of(up: Up) -> list[int]:
    """The process ids of the workers."""
    children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"--worker" in _command_line(int(pid))]


def sockets_of(pid: int) -> list[Path]:
    """The Unix sockets that a process listens at."""
    inodes = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    # A connection that was accepted has the name of the socket that it came to.
    names = {line[7] for line in lines if len(line) > 7 and f"socket:[{line[6]}]" in inodes}
    return [Path(name) for name in sorted(names)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def eventually(look: Callable[[], T]) -> T:
    """Look again until there is something."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)
    return found


@dataclass
class Answered:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    def message(self, number: int) -> dict[str, Any]:
        """The answer to a request, by its id."""
        text = self.body.decode()
        lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
        found = [json.loads(line) for line in lines] if lines else [json.loads(text)]
        return next(each for each in found if each.get("id") == number)


class Client:
    """One connection, kept open, and what is sent on it."""

    def __init__(self, up: Up, token: str | None = None) -> None:
        self.token = token or up.token or ""
        self.decide = up.decide
        place = urlsplit(up.url)
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=PATIENCE)

    def __enter__(self) -> Self:
        self._connection.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, path: str, body: object = None, **headers: str) -> Answered:
        own = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        own.setdefault("Authorization", f"Bearer {self.token if path == '/mcp' else self.decide}")
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        self._connection.request(method, path, data, own)
        response = self._connection.getresponse()
        return Answered(response.status, dict(response.headers.items()), response.read())

    def open_session(self) -> str:
        """Shake hands; the id says which worker this connection is at."""
        answered = self.send("/mcp", INITIALIZE)
        assert answered.status == 200, answered
        session = answered.headers["mcp-session-id"]
        self.send("/mcp", INITIALIZED, Mcp_Session_Id=session)
        return session

    def list_tools(self, session: str) -> Answered:
        message = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
        return self.send("/mcp", message, Mcp_Session_Id=session)

    def call(self, session: str, tool: str, /, **arguments: object) -> Answered:
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": params}
        return self.send("/mcp", message, Mcp_Session_Id=session)


def modern_call(
    tool: str, meta: dict[str, object], **params: object
) -> tuple[dict[str, Any], dict[str, str]]:
    """A call of the protocol without sessions, and the headers that repeat it."""
    whole = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        **meta,
    }
    message = {"name": tool, "arguments": {}, "_meta": whole, **params}
    headers = {"Mcp_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": tool}
    return {"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": message}, headers


def worker_of(session: str) -> str:
    """The part of a session's id that says which worker has it."""
    return session.partition("-")[0]
