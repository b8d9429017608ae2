"""The conformance suite's verdict on the host, in every version of the protocol that a scenario exists in."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.client import SCENARIOS

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("FAIRLEAD_TEST_TOOLS", ROOT / ".test-tools")) / "conformance"
PROGRAMS = TOOLS / "node_modules" / ".bin"
CLIENT = shlex.join([sys.executable, str(Path(__file__).with_name("client.py"))])

SECONDS = 90
"""How long the suite waits for a client, on a machine with much else to do."""

HANDSHAKE_VERSIONS = ("2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
EXTENSION = "extension"
"""What the suite says of scenarios that belong to no version; it plays them in the modern one."""

EXAM = {
    "initialize": HANDSHAKE_VERSIONS,
    "tools_call": (*HANDSHAKE_VERSIONS, MODERN_VERSION),
    "sse-retry": ("2025-11-25",),
    "request-metadata": (MODERN_VERSION,),
    "http-standard-headers": (MODERN_VERSION,),
    "http-custom-headers": (MODERN_VERSION,),
    "http-invalid-tool-headers": (MODERN_VERSION,),
    "json-schema-ref-no-deref": (MODERN_VERSION,),
    "json-schema-2020-12-preservation": ("2025-11-25", MODERN_VERSION),
    "elicitation-sep1034-client-defaults": ("2025-11-25",),
    "sep-2322-client-request-state": (MODERN_VERSION,),
    "sep-2640-client-no-prefetch": (EXTENSION,),
    "sep-2640-client-verify-digest": (EXTENSION,),
    "sep-2640-client-verify-size": (EXTENSION,),
    "sep-2640-client-verify-frontmatter": (EXTENSION,),
}

NOT_EXERCISED = {
    # A modern connection has no handshake.
    "ClientMcpMethodHeader_initialize",
    "ClientMcpMethodHeader_notifications_initialized",
}
"""The checks that may be skipped: whatever else the suite looks at, the host must have shown."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (TOOLS / ".installed").exists(), reason="no conformance suite: run tests/tools/install"
    ),
]


@dataclass(frozen=True)
class Verdict:
    """What the suite said at its end, and what it kept of each scenario."""

    status: int
    output: str
    results: Path

    def checks(self, scenario: str) -> list[dict[str, Any]]:
        return json.loads(self.kept(scenario, "checks.json"))

    def version(self, scenario: str) -> str:
        """The version the client says it spoke, which is the last it does."""
        return json.loads(self.kept(scenario, "stdout.txt"))["version"]

    def kept(self, scenario: str, name: str) -> str:
        (folder,) = self.results.glob(f"{scenario}-20*")
        return (folder / name).read_text(encoding="utf-8")


def run_suite(results: Path, *options: str) -> Verdict:
    limits = ("--timeout", str(SECONDS * 1000), "--output-dir", str(results))
    done = conformance("client", "--command", CLIENT, *options, *limits)
    return Verdict(done.returncode, done.stdout, results)


def conformance(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAMS / "conformance", *arguments],
        env={**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},  # its own Node first
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS + 30,
    )


def scenarios_of(version: str) -> set[str]:
    return {scenario for scenario, versions in EXAM.items() if version in versions}


def test_the_exam_is_every_version_that_the_suite_has_of_what_the_client_plays() -> None:
    listed = conformance("list", "--client").stdout
    lines = re.findall(r"^ +- (\S+) \[(.+)\]$", listed, re.MULTILINE)
    versions = {scenario: tuple(versions.split(",")) for scenario, versions in lines if scenario in SCENARIOS}
    assert versions == EXAM


@pytest.mark.parametrize(
    ("scenario", "version"),
    [(scenario, version) for scenario, versions in EXAM.items() for version in versions],
)
def test_the_host_passes_a_scenario(scenario: str, version: str, tmp_path: Path) -> None:
    of_version = () if version == EXTENSION else ("--spec-version", version)
    verdict = run_suite(tmp_path, "--scenario", scenario, *of_version)
    assert verdict.status == 0, verdict.output
    assert "Client exited with code" not in verdict.output  # which the suite forgives in some scenarios
    assert verdict.kept(scenario, "stderr.txt") == ""
    checks = verdict.checks(scenario)
    assert any(check["status"] == "SUCCESS" for check in checks)
    missed = {check["name"] for check in checks if check["status"] not in ("SUCCESS", "INFO")}
    assert missed <= NOT_EXERCISED, verdict.output
    assert (verdict.version(scenario) == MODERN_VERSION) == (version in (MODERN_VERSION, EXTENSION))


@pytest.mark.parametrize("version", ["2025-11-25", MODERN_VERSION])
def test_the_host_passes_with_all_scenarios_at_once(version: str, tmp_path: Path) -> None:
    # The status is that of all scenarios, of which the client plays some; what counts are their lines.
    verdict = run_suite(tmp_path, "--suite", "all", "--spec-version", version)
    passed = set(re.findall(r"^✓ (\S+): [1-9]\d* passed, 0 failed$", verdict.output, re.MULTILINE))
    assert scenarios_of(version) <= passed, verdict.output
