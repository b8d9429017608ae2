"""Other people's clients against servers of ours: the conformance suite's, and the Inspector."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from fairlead.servers.framework.http import serving_http
from fairlead.testing import write_tree
from tests.conformance.suite import PROGRAMS, ROOT, TOOLS, conformance
from tests.conformance.suite_tools import suite_server

SECONDS = 150
INSPECTOR = TOOLS.parent / "clients" / "node_modules" / ".bin" / "mcp-inspector"

# What a server without resources, prompts, completions, logging and questions of its own has to show.
EVERYWHERE = {"tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"}
OF_SESSIONS = {"server-initialize", "server-session-lifecycle", "ping"}
OF_TOOLS = {
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
}
EXPECTED = {"2025-11-25": EVERYWHERE | OF_SESSIONS, "2026-07-28": EVERYWHERE}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (TOOLS / ".installed").exists() or not INSPECTOR.exists(),
        reason="no conformance suite, or no Inspector: run tests/tools/install",
    ),
]


def examine(url: str, version: str) -> tuple[set[str], str]:
    """The scenarios of the suite that a server passed, and all that the suite said."""
    said = conformance("server", "--url", url, "--suite", "active", "--spec-version", version).stdout
    return set(re.findall(r"^✓ (\S+): [1-9]\d* passed, 0 failed$", said, re.MULTILINE)), said


@pytest.fixture
def served(tmp_path: Path) -> Generator[str]:
    """The URL of `fairlead serve`, run as a person runs it, without a token: the suite has none to send."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    write_tree(project, {"README.md": "# Hello\n", "src": {"main.py": "print('needle')\n"}})
    serve = ["serve", "--root", str(project), "--auth", "none", "--i-know", "--json"]
    command = [sys.executable, "-m", "fairlead", *serve]
    process = subprocess.Popen(
        command, cwd=project, env={**os.environ, "HOME": str(home)}, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        try:
            yield json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")["url"]
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("version", [*EXPECTED])
def test_what_is_served_passes_what_applies_to_it(served: str, version: str) -> None:
    passed, said = examine(served, version)
    assert EXPECTED[version] <= passed, said


@pytest.mark.parametrize("version", [*EXPECTED])
async def test_a_server_of_tool_definitions_passes_the_scenarios_of_tools(version: str) -> None:
    with anyio.fail_after(SECONDS):
        async with serving_http({"/mcp": suite_server().sdk_server()}, token=None) as endpoint:
            passed, said = await to_thread.run_sync(examine, f"{endpoint.url}/mcp", version)
    assert EXPECTED[version] | OF_TOOLS <= passed, said


def inspect(url: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [INSPECTOR, "--cli", url, *arguments, "--format", "json", "-q"],
        env={
            **os.environ,
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        },  # a Node that is new enough
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer.get("result", answer)


@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
def test_the_inspector_lists_and_calls(served: str, era: str) -> None:
    listed = inspect(served, "--method", "tools/list", "--protocol-era", era)
    assert [tool["name"] for tool in listed["tools"]] == [
        "repo.ripgrep",
        "repo.readFile",
        "repo.listDir",
        "docs.fetch",
    ]
    call = ("--method", "tools/call", "--tool-name", "repo.ripgrep", "--tool-args-json")
    found = inspect(served, *call, '{"query": "needle"}', "--protocol-era", era)
    match = found["structuredContent"]["matches"][0]
    assert (match["filePath"], match["lineNumber"]) == ("src/main.py", 1)
