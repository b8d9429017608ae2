"""The large set of real servers: each by itself, and all behind one gateway with every family of clients.

A step of its own in `.ci/full`: see `tests/real/more_servers.py`. Prints a table at the end.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from fairlead.catalog.naming import name_tools
from fairlead.catalog.tools import ToolKey
from fairlead.errors import CallRejected
from fairlead.host.host import Host
from tests.conformance.suite import PROGRAMS, TOOLS
from tests.conftest import Machine
from tests.gateway.exam_support import RunningGateway, running_gateway
from tests.gateway.real_servers import serving_site
from tests.real.direct import Offers, list_directly
from tests.real.more_servers import QUICK, ROWS, Call, Examined, all_servers
from tests.real.processes import alive, descendants, first_started, marked, until
from tests.real.servers import HANDSHAKE, MODERN, mark_of, open_host
from tests.real.test_servers import until_state

SCRIPTS = Path(__file__).parents[1] / "gateway" / "clients"
SDKS = TOOLS.parent / "sdks"
FASTMCP = TOOLS.parent / "fastmcp"
INSPECTOR = TOOLS.parent / "clients" / "node_modules" / ".bin" / "mcp-inspector"

ERAS = {"legacy": HANDSHAKE, "modern": MODERN}
FAMILIES = [
    *(("python", era) for era in ERAS),
    *(("fastmcp", era) for era in ERAS),
    ("typescript_1", "legacy"),
    *(("typescript_2", era) for era in ERAS),
]

# On two busy cores: all but a few servers are ready within seconds.
SERVER_SECONDS = 300
CLIENT_SECONDS = 600
ALL_LISTED_SECONDS = 600

HEAD = (
    "server",
    "package",
    "protocol",
    "tools/resources/prompts",
    "ms to ready",
    "call",
    "after kill",
    "exit",
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not all((row.folder / ".installed").exists() for row in ROWS.values()),
        reason="the large set of servers is not installed: run tests/tools/install-more-servers",
    ),
]


@dataclass(frozen=True)
class Findings:
    """What the tests found out, for those that come later and for the table."""

    offers: dict[str, Offers] = field(default_factory=dict[str, Offers])
    rows: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    async def offers_of(self, server: Examined, machine: Machine) -> Offers:
        """What a server offers, asked without Fairlead."""
        if server.server_id not in self.offers:
            self.offers[server.server_id] = await anyio.to_thread.run_sync(
                list_directly, server.entry, machine.env, str(machine.project)
            )
        return self.offers[server.server_id]

    def render(self) -> list[str]:
        rows = [list(HEAD), *(row + ["FAILED"] * (len(HEAD) - len(row)) for row in self.rows.values())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


@pytest.fixture(scope="module")
def findings(request: pytest.FixtureRequest) -> Generator[Findings]:
    findings = Findings()
    yield findings
    plugins = request.config.pluginmanager
    reporter: Any = plugins.get_plugin("terminalreporter")
    capture: Any = plugins.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for line in ["", "", *findings.render()] if findings.rows else ():
            reporter.write_line(line)


@pytest.fixture(scope="module")
def web() -> Generator[str]:
    with serving_site() as site:
        yield site


async def check_call(host: Host, server: Examined, call: Call) -> None:
    """Make a call, and see that it ends as it should."""
    if call.outcome == "protocol error":
        with pytest.raises(CallRejected) as rejected:
            await host.call(server.server_id, call.tool, call.arguments)
        assert call.answer in str(rejected.value)
        return
    result = await host.call(server.server_id, call.tool, call.arguments)
    assert result.is_error == (call.outcome == "tool error"), result.text
    assert call.answer in result.text


async def check_calls(host: Host, server: Examined) -> None:
    for call in server.calls:
        await check_call(host, server, call)


@pytest.mark.requirement("NEED-1", "NEED-5", "NEED-8", "HARD-84", "HARD-85", "HARD-86")
@pytest.mark.parametrize("server_id", [*QUICK, *ROWS])
async def test_a_server_is_used_killed_and_closed_and_leaves_nothing(
    server_id: str, machine: Machine, web: str, findings: Findings
) -> None:
    server = all_servers(machine, web)[server_id]
    mark = mark_of(machine, server_id)
    row = findings.rows[server_id] = [server_id, server.package]
    before = descendants()
    with anyio.fail_after(SERVER_SECONDS):
        offers = await findings.offers_of(server, machine)
        assert not alive(dict(descendants().items() - before.items()))
        async with open_host(machine, {server_id: server.entry}) as host, host.events() as events:
            began = time.monotonic()
            assert await host.connect(server_id) == {}
            milliseconds = round((time.monotonic() - began) * 1000)
            assert host.status()[0].version == server.version
            listing = await host.offers(server_id)
            assert {tool.key.tool for tool in listing.tools} >= {*offers.tools}
            assert len(listing.resources) >= len(offers.resources)
            assert len(listing.prompts) >= len(offers.prompts)
            counts = [len(listing.tools), len(listing.resources), len(listing.prompts)]
            row += [server.version, "/".join(map(str, counts)), str(milliseconds)]
            await check_calls(host, server)
            row.append(server.calls[0].outcome)

            first = dict(descendants().items() - before.items())
            pids = marked(mark)
            os.kill(first_started(pids), signal.SIGKILL)
            with anyio.fail_after(20):
                await until_state(events, "error")
            killed = {pid: start for pid, start in first.items() if pid in pids}
            await until(lambda: not alive(killed), 20)
            await check_calls(host, server)
            assert host.status()[0].connects == 2
            row.append(server.calls[0].outcome)

            second = dict(descendants().items() - before.items())
            await host.close(server_id)
            assert not marked(mark)
            await check_calls(host, server)
            assert (host.status()[0].connects, host.status()[0].version) == (3, server.version)
            third = dict(descendants().items() - before.items())
        assert not marked(mark)
        assert not alive(first | second | third)
    row.append("clean")


@dataclass(frozen=True)
class Front:
    """A running gateway with all servers behind it, and what its clients must find."""

    gateway: RunningGateway
    tools: Mapping[ToolKey, str]
    prompts: frozenset[str]
    resources: frozenset[str]
    calls: Mapping[str, Call]

    def arguments(self, era: str, *, calls: bool = True) -> list[str]:
        """What the scripts are told."""
        wanted = [
            {"name": self.tools[ToolKey(server_id, call.tool)], "arguments": call.arguments}
            for server_id, call in self.calls.items()
        ]
        return [self.gateway.url, self.gateway.token, era, json.dumps(wanted if calls else []), "all"]

    def run(self, family: str, era: str, folder: Path, *, calls: bool = True) -> dict[str, Any]:
        """What a client saw, and what its calls brought."""
        arguments = self.arguments(era, calls=calls)
        if family == "python":
            return run([sys.executable, SCRIPTS / "python_sdk.py", *arguments], cwd=folder)
        if family == "fastmcp":
            return run([FASTMCP / "bin" / "python", SCRIPTS / "fastmcp_client.py", *arguments], cwd=folder)
        # A script that comes on stdin finds packages where it is run.
        source = (SCRIPTS / f"{family}.mjs").read_text(encoding="utf-8")
        return run(["node", "--input-type=module", "-", *arguments], cwd=SDKS, script=source)

    def missing(self, said: Mapping[str, Any]) -> list[str]:
        """What a client should have seen and did not."""
        # Where two servers have the same URI, or a client needs to know, the owner's name stands before it.
        uris = {uri.partition("fairlead://server/")[2].partition("/")[2] or uri for uri in said["resources"]}
        lost = {*self.tools.values()} - {*said["tools"]}
        return sorted(lost | (self.prompts - {*said["prompts"]}) | (self.resources - uris))


def run(command: Sequence[str | Path], *, cwd: Path, script: str = "") -> dict[str, Any]:
    """What a client printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
        input=script,
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def check_result(call: Call, result: Mapping[str, Any]) -> str | None:
    """What is wrong with what a client got, if anything."""
    said = result.get("error") or "".join(block.get("text", "") for block in result["content"])
    outcome = "protocol error" if "error" in result else "tool error" if result.get("isError") else "result"
    return None if call.answer in said and outcome == call.outcome else f"{outcome}: {said[:500]}"


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, web: str, findings: Findings) -> Generator[Front]:
    """One gateway for all clients, as a person runs it, once every server behind it has been listed."""
    home, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    machine = Machine(
        home, project, {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}
    )
    servers = all_servers(machine, web)
    document = {
        "servers": {server_id: server.entry for server_id, server in servers.items()},
        "gateway": {"mode": "direct"},
        "policy": {"approval": "allow"},
        # A modern client's servers outlive it; those of all clients together would not fit into memory.
        "defaults": {"idle_stop_ms": 60_000, "startup_timeout_ms": 120_000},
    }
    machine.write_user(json.dumps(document))
    offers = {
        server_id: anyio.run(findings.offers_of, server, machine) for server_id, server in servers.items()
    }
    tools = name_tools([ToolKey(name, tool) for name in offers for tool in offers[name].tools], "gateway")
    prompts = name_tools([ToolKey(name, each) for name in offers for each in offers[name].prompts], "gateway")
    with running_gateway(machine) as gateway:
        front = Front(
            gateway=gateway,
            tools=tools.names,
            prompts=frozenset(prompts.names.values()),
            resources=frozenset(uri for each in offers.values() for uri in each.resources),
            calls={server_id: server.calls[0] for server_id, server in servers.items()},
        )
        deadline = time.monotonic() + ALL_LISTED_SECONDS
        while missing := front.missing(front.run("python", "legacy", project, calls=False)):
            assert time.monotonic() < deadline, missing
        yield front
    left = {server_id for server_id in servers if marked(mark_of(machine, server_id))}
    assert not left


@pytest.mark.requirement("HARD-85", "HARD-86")
@pytest.mark.parametrize(("family", "era"), FAMILIES)
def test_a_client_sees_and_calls_every_server_behind_one_gateway(
    front: Front, family: str, era: str, tmp_path: Path
) -> None:
    said = front.run(family, era, tmp_path)
    assert said["version"] == ERAS[era]
    assert front.missing(said) == []
    results = zip(front.calls.items(), said["results"], strict=True)
    wrong = {server_id: check_result(call, result) for (server_id, call), result in results}
    assert {server_id: fault for server_id, fault in wrong.items() if fault} == {}


@pytest.mark.requirement("HARD-85", "HARD-86")
@pytest.mark.parametrize("era", ERAS)
def test_the_inspector_sees_every_server_and_calls_some(front: Front, era: str, tmp_path: Path) -> None:
    def inspect(*options: str) -> dict[str, Any]:
        header = ("--header", f"Authorization: Bearer {front.gateway.token}")
        command = [INSPECTOR, "--cli", front.gateway.url, *header, "--protocol-era", era, *options]
        said = run([*command, "--format", "json", "-q"], cwd=tmp_path)
        return said.get("result", said)

    listed = {tool["name"] for tool in inspect("--method", "tools/list")["tools"]}
    assert {*front.tools.values()} - listed == set()
    # It makes one call at a time and then ends, and fails as a command where the tool does.
    answered = [(server_id, call) for server_id, call in front.calls.items() if call.outcome == "result"]
    for server_id, call in answered[:: len(answered) // 6]:
        name = front.tools[ToolKey(server_id, call.tool)]
        options = ("--tool-name", name, "--tool-args-json", json.dumps(call.arguments))
        assert check_result(call, inspect("--method", "tools/call", *options)) is None
