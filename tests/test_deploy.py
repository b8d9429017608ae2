"""The files in deploy/ name what there is. `tests/tools/check-deploy` checks their syntax."""

import re
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

import aiohttp
import pytest

from fairlead.cli.commands.gateway_ import command as gateway_command
from tests.conftest import Machine
from tests.web.support import dashboard

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTAINER = (DEPLOY / "Containerfile").read_text()
MANIFESTS = (DEPLOY / "kubernetes" / "fairlead.yaml").read_text()
UNIT = (DEPLOY / "systemd" / "fairlead-gateway.service").read_text()


def config_map() -> str:
    found = re.search(r"  fairlead\.json: \|\n((?:    .*\n)+)", MANIFESTS)
    assert found is not None
    return dedent(found[1])


@pytest.mark.parametrize("text", [(DEPLOY / "fairlead.json").read_text(), config_map()])
def test_the_configurations_load_without_a_problem(machine: Machine, text: str) -> None:
    machine.env["REDIS_PASSWORD"] = "hunter2hunter2"
    machine.write_user(text)
    loaded = machine.load()
    assert loaded.problems == ()
    assert loaded.server("time").problems == ()
    assert loaded.config.gateway.names == ("mcp.example.org",)
    assert loaded.config.store is not None


@pytest.mark.parametrize(
    "arguments",
    [
        re.findall(r'"([^"]+)"', re.findall(r"^CMD (.*)$", CONTAINER, re.MULTILINE)[-1]),
        re.findall(r'"([^"]+)"', re.findall(r"args: (\[\"gateway.*)", MANIFESTS)[0]),
        re.findall(r"^ExecStart=/usr/bin/env fairlead (.*)$", UNIT, re.MULTILINE)[0].split(),
    ],
)
def test_the_gateway_has_the_options_that_they_start_it_with(arguments: list[str]) -> None:
    assert arguments[0] == "gateway"
    with gateway_command.make_context("gateway", arguments[1:]) as context:
        assert context.params["host"] == arguments[-1]


@pytest.mark.parametrize("text", [(DEPLOY / "fairlead.json").read_text(), config_map()])
def test_a_replica_that_stops_serves_until_balancers_have_seen_it_and_is_given_the_time(
    machine: Machine, text: str
) -> None:
    machine.env["REDIS_PASSWORD"] = "hunter2hunter2"
    machine.write_user(text)
    drain = machine.load().config.gateway.drain_ms / 1000
    period, failures = re.findall(
        r"path: /readyz.*\n\s+periodSeconds: (\d+)\n\s+failureThreshold: (\d+)", MANIFESTS
    )[0]
    assert drain >= 2 * int(period) * int(failures)
    units = [path.read_text() for path in (DEPLOY / "systemd").iterdir()]
    given = [
        *re.findall(r"terminationGracePeriodSeconds: (\d+)", MANIFESTS),
        *re.findall(r"stop_grace_period: (\d+)s", (DEPLOY / "compose.yaml").read_text()),
        *(seconds for unit in units for seconds in re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)),
    ]
    assert given == ["45"] * 4
    team = (DEPLOY.parent / "docs" / "team.md").read_text()
    assert "give it 45 seconds" in team


async def test_probes_are_answered_under_the_name_that_they_use(machine: Machine) -> None:
    probes = re.findall(r"httpGet: \{ path: (\S+), .* name: Host, value: (\S+) \}", MANIFESTS)
    assert [path for path, _ in probes] == ["/readyz", "/healthz"]
    async with dashboard(machine, {}) as board, aiohttp.ClientSession() as client:
        for path, name in probes:
            async with client.get(f"{board.url}{path}", headers={"Host": name}) as answer:
                assert answer.status == 200, path
            async with client.get(f"{board.url}{path}", headers={"Host": "10.0.0.7:8130"}) as answer:
                assert answer.status == 421, "why the manifest names one"


def test_an_image_is_built_of_what_the_package_is_made_of_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    kept = {line.removeprefix("!") for line in patterns if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    project = PYPROJECT["project"]
    packages = {
        Path(each).parts[0] for each in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }
    assert kept == {"pyproject.toml", "uv.lock", project["readme"], *project["license-files"], *packages}


def test_the_source_distribution_has_what_its_tests_read() -> None:
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert {".ci", ".dockerignore", "deploy", "docs", "examples", "src", "typings", *folders} <= {*included}


@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").iterdir()), ids=lambda path: path.name)
def test_a_unit_says_how_its_user_gets_the_command(unit: Path) -> None:
    comments = [line for line in unit.read_text().splitlines() if line.startswith("#")]
    assert any("python3 -m venv /opt/fairlead" in line for line in comments)
    assert any("/usr/local/bin" in line for line in comments)
