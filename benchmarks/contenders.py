"""Gateways, each in a process of its own in front of one server, and how each is reached."""

import json
import os
import shutil
import socket
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.callers import ALLOWED, Entry
from benchmarks.load import Target, Wire
from benchmarks.measuring import ROOT, machine
from benchmarks.processes import started

TOOLS = Path(os.environ.get("FAIRLEAD_BENCH_TOOLS", ROOT / ".bench-tools"))
START_SECONDS = 60.0


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
def fairlead(servers: Mapping[str, Entry], **settings: object) -> Generator[Running]:
    """`fairlead gateway` as anybody starts it: its token, the policy, pins and the audit are all there."""
    document = {"servers": servers, "gateway": {"requests_per_minute": None}, **settings}
    with machine() as env:
        home = {**env, "FAIRLEAD_BUILTINS": "off", "FAIRLEAD_CONFIG_JSON": json.dumps(document)}
        argv = [sys.executable, "-m", "fairlead", "gateway", "--port", "0", "--mode", "direct", "--json"]
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

_INSTALLED = {
    "fastmcp": "fastmcp",
    "fastmcp, connected": "fastmcp",
    "mcp-proxy": "mcp-proxy",
    "mcp-hub": "mcp-hub",
}


def available(contenders: Sequence[Contender]) -> list[Contender]:
    """Those of them that can be run here; of the others it is said how they are had."""
    found: list[Contender] = []
    for contender in contenders:
        folder = _INSTALLED.get(contender.name)
        if folder is None or (TOOLS / folder / ".installed").exists():
            found.append(contender)
        else:
            print(f"{contender.name} is left out: `benchmarks/install-gateways` installs it")
    return found
