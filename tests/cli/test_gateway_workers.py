"""`fairlead gateway --workers`: what it takes and refuses."""

import os

import click
import pytest

from fairlead.cli.gateway_options import MAX_WORKERS, WORKERS, GatewayArguments, usable_cores
from tests.cli.gateway_support import Fairlead
from tests.conftest import Machine


def test_auto_is_the_number_of_cores_that_may_be_used() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    assert WORKERS.convert("auto", None, None) == min(usable_cores(), MAX_WORKERS)
    assert WORKERS.convert("3", None, None) == 3
    for wrong in ("0", "-1", "many", str(MAX_WORKERS + 1)):
        with pytest.raises(click.BadParameter, match="nor `auto`"):
            WORKERS.convert(wrong, None, None)


def test_a_gateway_in_the_background_gets_the_option() -> None:
    assert "--workers" not in GatewayArguments().words()
    assert GatewayArguments(workers=3).words() == ["--workers", "3"]


def test_workers_are_for_a_port(machine: Machine, fairlead: Fairlead) -> None:
    refused = fairlead("gateway", "--stdio", "--workers", "2")
    assert refused.status == 2
    assert "over stdio there is one client" in refused.err


def test_workers_and_a_redis_are_refused_with_what_works(machine: Machine, fairlead: Fairlead) -> None:
    refused = fairlead("gateway", "--port", "0", "--workers", "2", "--store", "redis://127.0.0.1:1/0")
    assert refused.status != 0
    assert "start one gateway for each core" in refused.err
