"""The conformance suite's verdict on our everything-server, and on a gateway with nothing else behind it.

Nothing is expected to fail.
"""

import itertools
from pathlib import Path

import anyio
import pytest

from tests.conformance.suite import TOOLS
from tests.conftest import Machine
from tests.gateway.exam_support import (
    REVISIONS,
    Upstream,
    everything_behind_a_gateway,
    everything_behind_two_gateways,
    everything_over_http,
    examine,
    scenarios_of,
)

SECONDS = 300

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (TOOLS / ".installed").exists(), reason="no conformance suite: run tests/tools/install"
    ),
]


def test_the_exam_has_as_many_scenarios_as_ever() -> None:
    assert {revision: len(scenarios_of(revision)) for revision in REVISIONS} == {
        "2025-11-25": 33,
        "2026-07-28": 40,
    }


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_everything_server_passes_by_itself(revision: str, tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        async with everything_over_http() as url:
            assert await examine(url, revision, tmp_path) == {}


@pytest.mark.parametrize(
    ("upstream", "revision"),
    [
        *itertools.product(["stdio", "http"], REVISIONS),
        # What the modern revision asks for, a server of the older era has not.
        pytest.param("older stdio", "2025-11-25", marks=pytest.mark.long),
    ],
)
async def test_the_gateway_passes_as_the_server_behind_it_does(
    machine: Machine, upstream: Upstream, revision: str, tmp_path: Path
) -> None:
    with anyio.fail_after(SECONDS):
        async with everything_behind_a_gateway(machine, upstream) as url:
            assert await examine(url, revision, tmp_path / "results") == {}


@pytest.mark.parametrize(
    ("upstream", "revision"),
    [
        ("stdio", "2026-07-28"),
        pytest.param("http", "2026-07-28", marks=pytest.mark.long),
        ("stdio", "2025-11-25"),
        pytest.param("http", "2025-11-25", marks=pytest.mark.long),
        pytest.param("older stdio", "2025-11-25", marks=pytest.mark.long),
    ],
)
async def test_two_gateways_in_a_row_pass_as_the_server_behind_them_does(
    machine: Machine, upstream: Upstream, revision: str, tmp_path: Path
) -> None:
    front = tmp_path / "front"
    front.mkdir()
    with anyio.fail_after(SECONDS):
        async with everything_behind_two_gateways(machine, front, upstream) as url:
            assert await examine(url, revision, tmp_path / "results") == {}
