"""Other people's clients, in every era they know, through one gateway to eight real servers at once."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.catalog.naming import name_tools
from fairlead.catalog.tools import ToolKey
from tests.conformance.suite import PROGRAMS, TOOLS
from tests.conftest import Machine
from tests.gateway.exam_support import running_gateway
from tests.gateway.real_servers import eight_servers, serving_site
from tests.real.servers import HANDSHAKE, MODERN, NPM_BIN, PYTHON_BIN, RealServer

SCRIPTS = Path(__file__).with_name("clients")
SDKS = TOOLS.parent / "sdks"
FASTMCP = TOOLS.parent / "fastmcp"
INSPECTOR = TOOLS.parent / "clients" / "node_modules" / ".bin" / "mcp-inspector"
INSTALLED = (
    TOOLS / ".installed",
    SDKS / ".installed",
    FASTMCP / ".installed",
    INSPECTOR,
    NPM_BIN,
    PYTHON_BIN,
)

SECONDS = 120
VERSIONS = {"legacy": HANDSHAKE, "auto": MODERN, "modern": MODERN}
ERAS = tuple(VERSIONS)
MARKED_ERAS = ["legacy", pytest.param("auto", marks=pytest.mark.long), "modern"]
"""A client that finds out by itself ends where a modern one does."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(path.exists() for path in INSTALLED),
        reason="no clients or no servers: run tests/tools/install and tests/tools/install-servers",
    ),
]


@dataclass(frozen=True)
class Front:
    """A running gateway, and what is behind it."""

    url: str
    token: str
    servers: Mapping[str, RealServer]

    def __post_init__(self) -> None:
        assert len(self.servers) >= 8

    @property
    def names(self) -> Mapping[ToolKey, str]:
        keys = [ToolKey(server.server_id, tool) for server in self.servers.values() for tool in server.tools]
        return name_tools(keys, "gateway").names

    def call_of(self, server: RealServer) -> dict[str, Any]:
        """The call of a server whose answer is known."""
        return {"name": self.names[ToolKey(server.server_id, server.tool)], "arguments": server.arguments}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Generator[Front]:
    """One gateway for all clients, run as a person runs it."""
    home, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    machine = Machine(
        home, project, {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}
    )
    with serving_site() as site:
        servers = eight_servers(machine, site)
        document = {
            "servers": {server_id: server.entry for server_id, server in servers.items()},
            "gateway": {"mode": "direct"},
            "policy": {"approval": "allow"},
        }
        machine.write_user(json.dumps(document))
        with running_gateway(machine) as gateway:
            front = Front(gateway.url, gateway.token, servers)
            wait_for_tools(front, project)
            yield front


def wait_for_tools(front: Front, cwd: Path) -> None:
    """List until every server is there: a first list waits only a few seconds for those that start slowly."""
    command = [sys.executable, SCRIPTS / "python_sdk.py", front.url, front.token, "legacy", "[]"]
    for _ in range(20):
        if {*front.names.values()} <= {*run(command, cwd=cwd)["tools"]}:
            return
    raise AssertionError("not all servers were ready after 20 lists")


def run(command: Sequence[str | Path], *, cwd: Path, script: str = "", status: int = 0) -> dict[str, Any]:
    """What a client printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={
            **os.environ,
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        },  # a Node that is new enough
        input=script,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def check_answer(server: RealServer, result: Mapping[str, Any]) -> None:
    assert not result.get("isError"), result
    assert server.answer in "".join(block.get("text", "") for block in result["content"])


def check(front: Front, era: str, said: Mapping[str, Any]) -> None:
    """A client must have seen all tools, and got every answer."""
    assert said["version"] == VERSIONS[era]
    assert {*front.names.values()} <= {*said["tools"]}
    for server, result in zip(front.servers.values(), said["results"], strict=True):
        check_answer(server, result)


def arguments(front: Front, era: str) -> list[str]:
    """What the scripts are told."""
    calls = [front.call_of(server) for server in front.servers.values()]
    return [front.url, front.token, era, json.dumps(calls)]


@pytest.mark.parametrize("era", MARKED_ERAS)
def test_the_python_sdk_lists_and_calls(front: Front, era: str, tmp_path: Path) -> None:
    command = [sys.executable, SCRIPTS / "python_sdk.py", *arguments(front, era)]
    check(front, era, run(command, cwd=tmp_path))


@pytest.mark.parametrize("era", MARKED_ERAS)
def test_fastmcp_lists_and_calls(front: Front, era: str, tmp_path: Path) -> None:
    command = [FASTMCP / "bin" / "python", SCRIPTS / "fastmcp_client.py", *arguments(front, era)]
    check(front, era, run(command, cwd=tmp_path))


@pytest.mark.parametrize(
    ("script", "era"),
    [("typescript_1.mjs", "legacy"), ("typescript_2.mjs", "legacy"), ("typescript_2.mjs", "modern")],
)
def test_the_typescript_sdks_list_and_call(front: Front, script: str, era: str) -> None:
    # A script that comes on stdin finds packages where it is run.
    command = ["node", "--input-type=module", "-", *arguments(front, era)]
    source = (SCRIPTS / script).read_text(encoding="utf-8")
    check(front, era, run(command, cwd=SDKS, script=source))


@pytest.mark.parametrize("era", MARKED_ERAS)
def test_the_inspector_lists_and_calls(front: Front, era: str, tmp_path: Path) -> None:
    def inspect(*options: str) -> dict[str, Any]:
        header = ("--header", f"Authorization: Bearer {front.token}")
        command = [INSPECTOR, "--cli", front.url, *header, "--protocol-era", era, *options]
        said = run([*command, "--format", "json", "-q"], cwd=tmp_path)
        return said.get("result", said)

    listed = inspect("--method", "tools/list")
    assert {*front.names.values()} <= {tool["name"] for tool in listed["tools"]}
    # It makes one call at a time and then ends, so that each era gets a part of the servers to itself.
    for server in [*front.servers.values()][ERAS.index(era) :: len(ERAS)]:
        call = front.call_of(server)
        options = ("--tool-name", call["name"], "--tool-args-json", json.dumps(call["arguments"]))
        check_answer(server, inspect("--method", "tools/call", *options))
