"""The suite's verdict on a server, and the everything-server to be examined, bare or behind a gateway."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from anyio import open_process, to_thread
from ruamel.yaml import YAML

from fairlead.config.load import load_config
from fairlead.gateway.access.auth import TokenAuthenticator
from fairlead.gateway.access.middleware import GuardedApp
from fairlead.gateway.access.origin import OriginPolicy
from fairlead.gateway.gateway import open_gateway
from fairlead.net.listen import bind, listening, url_of
from tests.conformance.suite import REQUIREMENTS, ROOT, conformance
from tests.conftest import Machine

REVISIONS = ("2025-11-25", "2026-07-28")

Upstream = Literal["stdio", "older stdio", "http"]
Faults = Mapping[str, list[str]]

UNJUDGED = "Not testable"
"""How the suite begins to say that it could not judge."""


def scenarios_of(revision: str) -> set[str]:
    """What a revision asks of servers. Extensions are left out: a server need not have any."""
    document = YAML(typ="safe").load(REQUIREMENTS / f"{revision}.yaml")  # pyright: ignore[reportUnknownMemberType]
    unscored = {
        entry["scenario"]
        for entry in document["not_scored"]
        if entry["leg"] == "server" and entry["reason"] != "extension"
    }
    return {*document["server"], *unscored}


async def examine(url: str, revision: str, results: Path) -> Faults:
    """What the suite has to say against a server, by scenario. Warnings count: our own server gets none.

    The suite plays scenarios one after another against one server. Where a change that one of them caused (a
    tool that comes and goes) reaches the next, it says that it could not judge: that is played again alone.
    """
    options = ("--url", url, "--requirements", revision, "--output-dir", str(results))
    done = await to_thread.run_sync(conformance, "server", *options)
    found = _found(results)
    examined = scenarios_of(revision)
    assert examined <= found.keys(), done.stdout
    for scenario in examined:
        if not any(UNJUDGED in fault for fault in found[scenario]):
            continue
        again = results.with_name(f"{results.name}-{scenario}")
        alone = ("--scenario", scenario, "--spec-version", revision)
        await to_thread.run_sync(conformance, "server", "--url", url, *alone, "--output-dir", str(again))
        found[scenario] = _found(again)[scenario]
    return {scenario: faults for scenario, faults in sorted(found.items()) if scenario in examined and faults}


def _found(results: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in results.glob("server-*/checks.json"):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", file.parent.name.removeprefix("server-"))
        checks: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        found[scenario] = [
            f"{check['status']} {check['id']}: {check.get('errorMessage') or check['description']}"
            for check in checks
            if check["status"] not in ("SUCCESS", "INFO")
        ]
    return found


@asynccontextmanager
async def everything_over_http() -> AsyncGenerator[str]:
    """The URL of an everything-server, in a process of its own."""
    command = [sys.executable, "-m", "tests.fixtures.everything_server", "--http", "0"]
    async with await open_process(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield (await process.stdout.receive()).decode().strip()
        finally:
            process.terminate()


@asynccontextmanager
async def everything_entry(upstream: Upstream) -> AsyncGenerator[dict[str, Any]]:
    """How a configuration describes an everything-server, which is there for the length of the block."""
    if upstream != "http":
        args = ["-m", "tests.fixtures.everything_server", *(["--older"] if upstream == "older stdio" else [])]
        yield {"command": sys.executable, "args": args, "cwd": str(ROOT), "trust": "trusted"}
        return
    async with everything_over_http() as url:
        yield {"url": url, "trust": "trusted"}


@asynccontextmanager
async def everything_behind_a_gateway(machine: Machine, upstream: Upstream) -> AsyncGenerator[str]:
    """The URL of a gateway with nothing but an everything-server, whose tools keep their names.

    It wants no token, as the suite has none.
    """
    async with everything_entry(upstream) as entry:
        document: dict[str, Any] = {
            "servers": {"everything": {**entry, "sampling": {"max_tokens": 100_000}}},
            "bundles": {"exam": {"servers": {"everything": {}}, "names": "plain", "mode": "direct"}},
            "policy": {"approval": "allow"},
        }
        with bind("127.0.0.1", 0) as listener:
            gatekeeper = TokenAuthenticator(OriginPolicy("127.0.0.1", listener.getsockname()[1]), tokens=None)
            async with (
                open_gateway(machine.load(overrides=document), env=machine.env) as gateway,
                listening(GuardedApp(gateway.app(gatekeeper), gatekeeper), listener),
            ):
                yield f"{url_of(listener)}/mcp/exam"


@asynccontextmanager
async def everything_behind_two_gateways(
    machine: Machine, folder: Path, upstream: Upstream
) -> AsyncGenerator[str]:
    """The URL of a gateway in front of another one with nothing but an everything-server.

    Names and URIs stay as they are: both speak of a bundle with plain names.
    """
    async with everything_behind_a_gateway(machine, upstream) as behind:
        document: dict[str, Any] = {
            "servers": {"back": {"url": behind, "trust": "trusted", "sampling": {"max_tokens": 100_000}}},
            "bundles": {"exam": {"servers": {"back": {}}, "names": "plain", "mode": "direct"}},
            "policy": {"approval": "allow"},
        }
        env = {**machine.env, "HOME": str(folder), "USERPROFILE": str(folder)}
        loaded = load_config(None, document, env, folder)
        with bind("127.0.0.1", 0) as listener:
            gatekeeper = TokenAuthenticator(OriginPolicy("127.0.0.1", listener.getsockname()[1]), tokens=None)
            async with (
                open_gateway(loaded, env=env) as gateway,
                listening(GuardedApp(gateway.app(gatekeeper), gatekeeper), listener),
            ):
                yield f"{url_of(listener)}/mcp/exam"


@dataclass(frozen=True)
class RunningGateway:
    """Where a gateway is, and what opens it."""

    url: str
    token: str


@contextmanager
def running_gateway(machine: Machine) -> Generator[RunningGateway]:
    """`fairlead gateway` as a person runs it, on any port, with the configuration of the machine."""
    command = [sys.executable, "-m", "fairlead", "gateway", "--port", "0", "--json"]
    with subprocess.Popen(
        command,
        cwd=machine.project,
        env=machine.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            said = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            yield RunningGateway(said["url"], said["token"])
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0
