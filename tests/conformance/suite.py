"""The conformance suite: how it is run, and what it and its clients leave behind."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("FAIRLEAD_TEST_TOOLS", ROOT / ".test-tools")) / "conformance"
PROGRAMS = TOOLS / "node_modules" / ".bin"
REQUIREMENTS = TOOLS / "node_modules" / "@modelcontextprotocol" / "conformance" / "requirements"

SECONDS = 600
"""How long a run may take on a busy machine. A client has a limit of its own, from when it is its turn."""

EXTENSION = "extension"
"""What the suite says of scenarios that belong to no version."""

NOT_EXERCISED = {
    # A modern connection has no handshake.
    "ClientMcpMethodHeader_initialize",
    "ClientMcpMethodHeader_notifications_initialized",
}
"""The checks that may be skipped: whatever else the suite looks at, the host must have shown."""


@dataclass(frozen=True)
class Played:
    """One scenario, played: what the suite looked at, and what the client said at its end."""

    scenario: str
    folder: Path

    @cached_property
    def ending(self) -> dict[str, str | None]:
        """The `version` and the `state` the client ended in, and the version it was `asked` for."""
        said = self.kept("stdout.txt")
        return json.loads(said) if said else {}

    def faults(self) -> list[str]:
        """What is not as it should be. The suite itself would forgive a client that fails in the end."""
        checks: list[dict[str, Any]] = json.loads(self.kept("checks.json"))
        missed = [check for check in checks if check["status"] not in ("SUCCESS", "INFO")]
        faults = [
            f"{check['status']} {check['name']}: {check.get('errorMessage') or check['description']}"
            for check in missed
            if check["name"] not in NOT_EXERCISED
        ]
        if not any(check["status"] == "SUCCESS" for check in checks):
            faults.append("nothing was checked")
        if not self.ending or self.kept("stderr.txt"):
            faults.append(f"the client failed: {self.kept('stderr.txt')}")
        return faults

    def kept(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Verdict:
    """One run of the suite."""

    status: int
    output: str
    played: dict[str, Played]


@contextmanager
def players(folder: Path) -> Generator[str]:
    """The command of a client, for as long as the block lasts."""
    path = folder / "players"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)
        descriptor = listener.fileno()
        program = [sys.executable, "-m", "tests.conformance.players", str(descriptor)]
        process = subprocess.Popen(program, cwd=ROOT, pass_fds=[descriptor])
    with process:
        try:
            yield shlex.join([sys.executable, "-IS", str(ROOT / "tests/conformance/player.py"), str(path)])
        finally:
            process.terminate()


def run_clients(command: str, results: Path, *options: str) -> Verdict:
    """Have a client play what the options say."""
    limits = ("--timeout", str(SECONDS * 1000), "--output-dir", str(results))
    done = conformance("client", "--command", command, *options, *limits)
    played: dict[str, Played] = {}
    for folder in (file.parent for file in results.rglob("checks.json")):
        scenario = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", folder.relative_to(results).as_posix())
        played[scenario] = Played(scenario, folder)
    return Verdict(done.returncode, done.stdout, played)


def conformance(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAMS / "conformance", *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},  # its own Node first
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS + 30,
    )


def scenarios_by_version() -> dict[str, set[str]]:
    """What the suite has for clients, by version, and under `EXTENSION` what belongs to none."""
    found: dict[str, set[str]] = {}
    listed = conformance("list", "--client").stdout
    for scenario, versions in re.findall(r"^ +- (\S+) \[(.+)\]$", listed, re.MULTILINE):
        for version in versions.split(","):
            found.setdefault(version, set()).add(scenario)
    return found


def required_scenarios(version: str) -> set[str]:
    """What a version of the protocol requires of clients, and what the suite plays with that unscored."""
    document = YAML(typ="safe").load(REQUIREMENTS / f"{version}.yaml")  # pyright: ignore[reportUnknownMemberType]
    unscored = {entry["scenario"] for entry in document["not_scored"] if entry["leg"] == "client"}
    return {*document["client"], *unscored}
