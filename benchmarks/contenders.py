"""Gateways, each in a process of its own in front of one server, and how each is reached."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.callers import ALLOWED, Entry
from benchmarks.load import Target, Wire
from benchmarks.measuring import ROOT, leave_out, machine
from benchmarks.peers import INSTALL, TOOLS, is_installed, name_installed
from benchmarks.processes import started

START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A gateway that runs."""

    pid: int
    url: str
    token: str | None = None

    def target(self, wire: Wire) -> Target:
        """Where it is, spoken to in one of the ways it knows."""
        return Target(url=self.url, wire=wire, token=self.token)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """A gateway that can be run in front of a server."""

    name: str
    wires: tuple[Wire, ...]
    run: Callable[[Entry], AbstractContextManager[Running]]


# ── ours ──


@contextmanager
def fairlead(
    servers: Mapping[str, Entry], *, options: Sequence[str] = (), **settings: object
) -> Generator[Running]:
    """`fairlead gateway` as anybody starts it: its token, the policy, pins and the audit are all there."""
    document = {"servers": servers, "gateway": {"requests_per_minute": None}, **settings}
    with machine() as env:
        home = {**env, "FAIRLEAD_BUILTINS": "off", "FAIRLEAD_CONFIG_JSON": json.dumps(document)}
        argv = [sys.executable, "-m", "fairlead", "gateway", "--port", "0", "--mode", "direct", "--json"]
        argv += options
        with started(argv, home) as process:
            assert process.stdout is not None
            text = ""
            while not text.endswith("}\n"):
                line = process.stdout.readline()
                assert line, "the gateway did not start"
                text += line
            about = json.loads(text)
            yield Running(pid=about["pid"], url=about["url"], token=about["token"])


def _ours(entry: Entry) -> AbstractContextManager[Running]:
    return fairlead({"bench": {"allow_tools": ALLOWED, "approval": "allow", **entry}})


# ── others ──


@contextmanager
def _python(argv: Sequence[str], entry: Entry | None, *more: str) -> Generator[Running]:
    """A program of `benchmarks/gateways`, which prints its port."""
    arguments = [] if entry is None else [json.dumps(entry)]
    with started([*argv, *arguments, *more]) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Running(pid=process.pid, url=f"http://127.0.0.1:{port}/mcp")


def _floor(entry: Entry) -> AbstractContextManager[Running]:
    return _python([sys.executable, "-m", "benchmarks.gateways.floor"], None)


def _naive(entry: Entry) -> AbstractContextManager[Running]:
    return _python([sys.executable, "-m", "benchmarks.gateways.naive"], entry)


def _fastmcp(kind: str, entry: Entry) -> AbstractContextManager[Running]:
    program = str(ROOT / "benchmarks" / "gateways" / "fastmcp_proxy.py")
    return _python([str(TOOLS / "fastmcp/bin/python"), program], entry, kind)


@contextmanager
def _mcp_proxy(entry: Entry) -> Generator[Running]:
    port = _free_port()
    program = [str(TOOLS / "mcp-proxy/bin/mcp-proxy"), "--port", str(port), "--log-level", "ERROR"]
    with started(
        [*program, "--pass-environment", entry["command"], "--", *entry["args"]], heard=False
    ) as process:
        _wait_for(lambda: _is_listening(port))
        yield Running(pid=process.pid, url=f"http://127.0.0.1:{port}/mcp/")


@contextmanager
def _mcp_hub(entry: Entry) -> Generator[Running]:
    port = _free_port()
    node = shutil.which("node")
    assert node is not None, "whoever has npm has node"
    with TemporaryDirectory() as home:
        config = Path(home) / "hub.json"
        config.write_text(json.dumps({"mcpServers": {"bench": entry}}))
        program = [node, str(TOOLS / "mcp-hub/node_modules/mcp-hub/dist/cli.js")]
        env = {**os.environ, "HOME": home, "XDG_STATE_HOME": home}
        with started([*program, "--port", str(port), "--config", str(config)], env, heard=False) as process:
            _wait_for(lambda: _is_healthy(port))
            yield Running(pid=process.pid, url=f"http://127.0.0.1:{port}/mcp")


@contextmanager
def _contextforge(entry: Entry) -> Generator[Running]:
    """ContextForge with one worker on SQLite, its own authentication on and its rate limit off, as ours."""
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    python = str(TOOLS / "contextforge/bin/python")
    with TemporaryDirectory() as home:
        env = {
            **os.environ,
            "HOME": home,
            "DATABASE_URL": f"sqlite:///{home}/gateway.db",
            "AUTH_REQUIRED": "true",
            "RATE_LIMITING_ENABLED": "false",
            "SSRF_ALLOW_LOCALHOST": "true",
            "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
            "JWT_SECRET_KEY": secrets.token_hex(32),
            "AUTH_ENCRYPTION_SECRET": secrets.token_hex(32),
            "PLATFORM_ADMIN_EMAIL": "admin@example.com",
            "PLATFORM_ADMIN_PASSWORD": f"Aa1-{secrets.token_hex(16)}",
            "LOG_LEVEL": "ERROR",
        }
        program = [str(TOOLS / "contextforge/bin/mcpgateway"), "--host", "127.0.0.1", "--port", str(port)]
        with started(program, env, heard=False) as process:
            _wait_for(lambda: _is_listening(port))
            made = [python, "-m", "mcpgateway.utils.create_jwt_token", "--admin", "--exp", "600"]
            made += ["--username", env["PLATFORM_ADMIN_EMAIL"], "--secret", env["JWT_SECRET_KEY"]]
            token = subprocess.run(made, env=env, check=True, capture_output=True, text=True)
            post = partial(_post, address, token.stdout.split()[-1])
            post("/gateways", {"name": "bench", "url": entry["url"], "transport": "STREAMABLEHTTP"})
            tools = [tool.id for tool in msgspec.json.decode(post("/tools", None), type=list[_Made])]
            answer = post("/servers", {"server": {"name": "bench", "associated_tools": tools}})
            url = f"{address}/servers/{msgspec.json.decode(answer, type=_Made).id}/mcp"
            yield Running(pid=process.pid, url=url, token=token.stdout.split()[-1])


class _Made(msgspec.Struct):
    id: str


def _post(address: str, token: str, path: str, document: object) -> bytes:
    """The answer to a POST, or to a GET where there is nothing to post."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(address + path, body, headers)
    with urllib.request.urlopen(request, timeout=START_SECONDS) as response:
        return response.read()


@contextmanager
def _litellm(entry: Entry) -> Generator[Running]:
    """LiteLLM's proxy with one MCP server and its master key."""
    port = _free_port()
    key = f"sk-{secrets.token_hex(16)}"
    with TemporaryDirectory() as home:
        config = Path(home) / "config.yaml"
        server = {"url": entry["url"], "transport": "http", "allow_all_keys": True}
        document = {"general_settings": {"master_key": key}, "mcp_servers": {"bench": server}}
        config.write_text(json.dumps(document))  # JSON is YAML
        program = [str(TOOLS / "litellm/bin/litellm"), "--config", str(config), "--telemetry", "False"]
        address = ["--host", "127.0.0.1", "--port", str(port)]
        env = {**os.environ, "HOME": home, "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        with started([*program, *address], env, heard=False) as process:
            _wait_for(lambda: _is_listening(port))
            yield Running(pid=process.pid, url=f"http://127.0.0.1:{port}/bench/mcp", token=key)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _is_healthy(port: int) -> bool:
    """Does the hub say that it is ready? It listens well before that."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health") as response:
            return json.load(response)["state"] == "ready"
    except (OSError, ValueError, KeyError):
        return False


def _wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"it was not ready after {START_SECONDS:g} s")
        time.sleep(0.1)


OURS = Contender(name="fairlead", wires=("modern", "legacy"), run=_ours)
FLOOR = Contender(name="ASGI floor", wires=("modern",), run=_floor)
NAIVE = Contender(name="SDK, naive", wires=("modern", "legacy"), run=_naive)
FASTMCP = Contender(name="fastmcp", wires=("modern", "legacy"), run=partial(_fastmcp, "plain"))
FASTMCP_BEST = Contender(
    name="fastmcp, connected", wires=("modern", "legacy"), run=partial(_fastmcp, "connected")
)
MCP_PROXY = Contender(name="mcp-proxy", wires=("legacy",), run=_mcp_proxy)
MCP_HUB = Contender(name="mcp-hub", wires=("sse",), run=_mcp_hub)
CONTEXTFORGE = Contender(name="ContextForge", wires=("legacy",), run=_contextforge)
LITELLM = Contender(name="LiteLLM", wires=("legacy",), run=_litellm)

_INSTALLED = {
    "fastmcp": "fastmcp",
    "fastmcp, connected": "fastmcp",
    "mcp-proxy": "mcp-proxy",
    "mcp-hub": "mcp-hub",
    "ContextForge": "contextforge",
    "LiteLLM": "litellm",
}


def available(contenders: Sequence[Contender]) -> list[Contender]:
    """Those of them that can be run here; of the others it is said how they are had."""
    found: list[Contender] = []
    for contender in contenders:
        folder = _INSTALLED.get(contender.name)
        if folder is None:
            found.append(contender)
        elif is_installed(folder):
            name_installed(folder)
            found.append(contender)
        else:
            leave_out(contender.name, INSTALL)
    return found
