"""A thousand malformed and rare definitions behind one gateway: clients list and call all that is sound."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.catalog.naming import name_tools
from fairlead.catalog.tools import ToolKey
from tests.conformance.suite import PROGRAMS, ROOT, TOOLS
from tests.conftest import Machine
from tests.fixtures.definitions_corpus import cases, read_corpus
from tests.gateway.exam_support import running_gateway
from tests.real.servers import HANDSHAKE, MODERN

SCRIPTS = Path(__file__).with_name("clients")
SDKS = TOOLS.parent / "sdks"
FASTMCP = TOOLS.parent / "fastmcp"
INSPECTOR = TOOLS.parent / "clients" / "node_modules" / ".bin" / "mcp-inspector"
SECONDS = 240
ERAS = {"legacy": HANDSHAKE, "modern": MODERN}

pytestmark = pytest.mark.slow
CLIENTS = [
    ("python", "legacy"),
    ("python", "modern"),
    ("typescript_1", "legacy"),
    *(
        pytest.param(family, era, marks=pytest.mark.long)
        for family in ("typescript_2", "fastmcp", "inspector")
        for era in ERAS
    ),
]

needs_sdks = pytest.mark.skipif(
    not (SDKS / ".installed").exists(), reason="no TypeScript SDKs: run tests/tools/install"
)


@dataclass(frozen=True)
class Front:
    """A running gateway, and what its clients must find."""

    url: str
    token: str
    tools: tuple[str, ...]
    lists: Mapping[str, set[str]]

    def arguments(self, era: str) -> list[str]:
        """What the scripts are told: to call every tool."""
        calls: list[dict[str, Any]] = [{"name": name, "arguments": {}} for name in self.tools]
        return [self.url, self.token, era, json.dumps(calls), "all"]

    def check(self, era: str, said: Mapping[str, Any]) -> None:
        """Every list must be whole, and every call answered."""
        assert said["version"] == ERAS[era]
        assert {*self.tools} == _of_the_corpus(said["tools"])
        for kind, expected in self.lists.items():
            assert expected == _as_the_server_has_them(said[kind]), kind
        failed = [
            (name, result)
            for name, result in zip(self.tools, said["results"], strict=True)
            if result.get("isError") or result["content"][0]["text"] != "done"
        ]
        assert not failed


def _of_the_corpus(names: Iterable[str]) -> set[str]:
    """Without the gateway's own tools."""
    return {name for name in names if name.startswith("c_")}


def _as_the_server_has_them(uris: Iterable[str]) -> set[str]:
    """Without the owner's name, which all but the first templates of a server have."""
    return {uri.removeprefix("fairlead://server/c/") for uri in uris}


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Generator[Front]:
    """One gateway for all clients, with the corpus and nothing else behind it."""
    home, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    machine = Machine(
        home, project, {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}
    )
    entry = {
        "command": sys.executable,
        "args": ["-m", "tests.fixtures.definitions_stdio"],
        "cwd": str(ROOT),
        "trust": "trusted",
    }
    document = {
        "servers": {"c": entry},
        "gateway": {"mode": "direct"},
        "policy": {"approval": "allow"},
    }
    machine.write_user(json.dumps(document))
    kept = [case for case in read_corpus() if case["kept"]]

    def names(kind: str, field: str) -> list[str]:
        return [case["definition"][field] for case in kept if case["kind"] == kind]

    def public(kind: str) -> set[str]:
        return {*name_tools([ToolKey("c", name) for name in names(kind, "name")], "gateway").names.values()}

    lists = {
        "resources": {*names("resource", "uri")},
        "templates": {*names("template", "uriTemplate")},
        "prompts": public("prompt"),
    }
    with running_gateway(machine) as gateway:
        yield Front(gateway.url, gateway.token, tuple(sorted(public("tool"))), lists)


def run(command: Sequence[str | Path], *, cwd: Path, script: str = "") -> dict[str, Any]:
    """What a client printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"},
        input=script,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def run_node(front: Front, script: str, era: str) -> dict[str, Any]:
    # A script that comes on stdin finds packages where it is run.
    command = ["node", "--input-type=module", "-", *front.arguments(era)]
    return run(command, cwd=SDKS, script=(SCRIPTS / script).read_text(encoding="utf-8"))


def test_the_corpus_is_what_its_generator_makes() -> None:
    assert read_corpus() == json.loads(json.dumps([*cases()]))
    assert len(read_corpus()) >= 500


@needs_sdks
@pytest.mark.requirement("HARD-85")
@pytest.mark.parametrize(("family", "era"), CLIENTS)
def test_a_client_lists_and_calls_all_that_is_sound(
    front: Front, family: str, era: str, tmp_path: Path
) -> None:
    match family:
        case "python":
            command = [sys.executable, SCRIPTS / "python_sdk.py", *front.arguments(era)]
            front.check(era, run(command, cwd=tmp_path))
        case "fastmcp":
            command = [FASTMCP / "bin" / "python", SCRIPTS / "fastmcp_client.py", *front.arguments(era)]
            front.check(era, run(command, cwd=tmp_path))
        case "inspector":
            check_with_inspector(front, era, tmp_path)
        case _:
            front.check(era, run_node(front, f"{family}.mjs", era))


def check_with_inspector(front: Front, era: str, folder: Path) -> None:
    """List everything, and call some tools: it makes one request at a time and then ends."""

    def inspect(*options: str) -> dict[str, Any]:
        header = ("--header", f"Authorization: Bearer {front.token}")
        command = [INSPECTOR, "--cli", front.url, *header, "--protocol-era", era, *options]
        said = run([*command, "--format", "json", "-q"], cwd=folder)
        return said.get("result", said)

    def listed(method: str, kind: str, field: str) -> set[str]:
        return {entry[field] for entry in inspect("--method", method)[kind]}

    assert _of_the_corpus(listed("tools/list", "tools", "name")) == {*front.tools}
    assert listed("resources/list", "resources", "uri") == front.lists["resources"]
    templates = listed("resources/templates/list", "resourceTemplates", "uriTemplate")
    assert _as_the_server_has_them(templates) == front.lists["templates"]
    assert listed("prompts/list", "prompts", "name") == front.lists["prompts"]
    for name in front.tools[:: len(front.tools) // 4]:
        result = inspect("--method", "tools/call", "--tool-name", name, "--tool-args-json", "{}")
        assert result["content"][0]["text"] == "done"
