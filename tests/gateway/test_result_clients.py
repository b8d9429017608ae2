"""The corpus of results behind one gateway: every client gets an answer that it accepts, and none is lost."""

import json
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.catalog.repair.protocol_versions import VERSIONS
from tests.conformance.suite import ROOT
from tests.conftest import Machine
from tests.fixtures.results_corpus import Case, read_corpus
from tests.gateway.exam_support import running_gateway
from tests.gateway.strict_client import METHODS, check
from tests.gateway.support import MODERN, Raw, serving
from tests.gateway.test_definitions import (
    CLIENTS,
    ERAS,
    FASTMCP,
    INSPECTOR,
    SCRIPTS,
    SDKS,
    needs_sdks,
    run,
)

pytestmark = pytest.mark.requirement("HARD-87")

ENTRY = {
    "command": sys.executable,
    "args": ["-m", "tests.fixtures.results_corpus_stdio"],
    "cwd": str(ROOT),
    "trust": "trusted",
    "approval": "allow",
}
OUR_ERROR = -32603
NAME = "c_give"


def numbered() -> list[Case]:
    """The cases as the scripts are told of them: each by its number among those of its kind."""
    counts: dict[str, int] = {}
    asked: list[Case] = []
    for case in read_corpus():
        number = counts[case["kind"]] = counts.get(case["kind"], -1) + 1
        asked.append({"kind": case["kind"], "name": NAME, "case": number, "mark": case["mark"]})
    return asked


def params_of(case: Case) -> dict[str, Any]:
    number = str(case["case"])
    match case["kind"]:
        case "tool":
            return {"name": NAME, "arguments": {"case": case["case"]}}
        case "prompt":
            return {"name": NAME, "arguments": {"case": number}}
        case "resource":
            return {"uri": f"case://{number}"}
        case _:
            return {
                "ref": {"type": "ref/prompt", "name": NAME},
                "argument": {"name": "case", "value": number},
            }


@pytest.mark.parametrize("version", VERSIONS)
async def test_answers_of_the_gateway_are_valid_for_every_protocol_version(
    tmp_path: Path, version: str
) -> None:
    async with serving(tmp_path, c=ENTRY) as served, aiohttp.ClientSession() as http:
        client = Raw(http, f"{served.url}/mcp", "strict")
        if version != MODERN:
            await client.begin(version=version)
        request = client.modern if version == MODERN else client.older
        asked = numbered()
        for case in [case for case in asked if case["kind"] == "completion"][::5] + asked[::29]:
            answer = await request(METHODS[case["kind"]], 7, **params_of(case))
            if "error" in answer:
                assert answer["error"]["code"] == OUR_ERROR, (case, answer)
                assert not case["mark"], (case, answer)
                assert "it has no" in answer["error"]["message"], (case, answer)
                continue
            check(case["kind"], version, answer["result"])
            assert not case["mark"] or "marker" in json.dumps(answer), (case, answer)


@dataclass(frozen=True)
class Front:
    """A running gateway in front of the corpus, and a file with what its clients ask for."""

    url: str
    token: str
    cases: Path

    def arguments(self, era: str) -> list[str]:
        return [self.url, self.token, era, str(self.cases), "cases"]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Generator[Front]:
    home, project = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("project")
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "FAIRLEAD_BUILTINS": "off"}
    machine = Machine(home, project, environment)
    machine.write_user(json.dumps({"servers": {"c": ENTRY}, "gateway": {"mode": "direct"}}))
    cases = home / "cases.json"
    every = numbered() if os.environ.get("FAIRLEAD_FULL") else numbered()[::4]
    cases.write_text(json.dumps(every), encoding="utf-8")
    with running_gateway(machine) as gateway:
        yield Front(gateway.url, gateway.token, cases)


def check_all(front: Front, era: str, said: dict[str, Any]) -> None:
    assert said["version"] == ERAS[era]
    asked: list[Case] = json.loads(front.cases.read_text(encoding="utf-8"))
    wrong = [
        (case, result)
        for case, result in zip(asked, said["results"], strict=True)
        if (case["mark"] and "marker" not in json.dumps(result))
        or ("failed" in result and result["code"] != OUR_ERROR)
    ]
    assert not wrong, f"{len(wrong)} in all: {wrong[:10]}"


@pytest.mark.slow
@needs_sdks
@pytest.mark.parametrize(("family", "era"), CLIENTS)
def test_a_client_accepts_every_answer(front: Front, family: str, era: str, tmp_path: Path) -> None:
    match family:
        case "python":
            command = [sys.executable, SCRIPTS / "python_sdk.py", *front.arguments(era)]
            check_all(front, era, run(command, cwd=tmp_path))
        case "fastmcp":
            command = [FASTMCP / "bin" / "python", SCRIPTS / "fastmcp_client.py", *front.arguments(era)]
            check_all(front, era, run(command, cwd=tmp_path))
        case "inspector":
            check_with_inspector(front, era, tmp_path)
        case _:
            # A script that comes on stdin finds packages where it is run.
            command = ["node", "--input-type=module", "-", *front.arguments(era)]
            script = (SCRIPTS / f"{family}.mjs").read_text(encoding="utf-8")
            check_all(front, era, run(command, cwd=SDKS, script=script))


def check_with_inspector(front: Front, era: str, folder: Path) -> None:
    """Ask for some: it makes one request at a time and then ends."""

    def inspect(*options: str) -> str:
        header = ("--header", f"Authorization: Bearer {front.token}")
        command = [INSPECTOR, "--cli", front.url, *header, "--protocol-era", era, *options]
        return json.dumps(run([*command, "--format", "json", "-q"], cwd=folder))

    marked = [case for case in numbered() if case["mark"]]
    for kind in ("tool", "prompt", "resource"):
        cases = [case["case"] for case in marked if case["kind"] == kind]
        for number in cases[:: len(cases) // 3]:
            options = {
                "tool": ("--tool-name", NAME, "--tool-args-json", json.dumps({"case": number})),
                "prompt": ("--prompt-name", NAME, "--prompt-args", f"case={number}"),
                "resource": ("--uri", f"case://{number}"),
            }[kind]
            assert "marker" in inspect("--method", METHODS[kind], *options), (kind, number)
