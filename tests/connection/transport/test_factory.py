"""From a configuration to the transport that reaches a server, where that cannot be."""

from typing import Any

import pytest

from fairlead.errors import ConnectFailed
from fairlead.host.host import Host
from tests.conftest import Machine


async def failure_of(machine: Machine, entry: dict[str, Any]) -> ConnectFailed:
    servers = {"servers": {"x": entry}}
    async with Host.open(overrides=servers, env=machine.env, cwd=machine.project) as host:
        failure = (await host.connect("x"))["x"]
    assert isinstance(failure, ConnectFailed)
    return failure


async def test_a_builtin_server_does_not_read_a_whole_home(machine: Machine) -> None:
    failure = await failure_of(machine, {"builtin": "repo", "roots": [str(machine.home)]})
    assert "home" in str(failure)


@pytest.mark.requirement("NEED-22")
async def test_a_secret_that_is_gone_by_the_time_it_is_needed_names_its_field(machine: Machine) -> None:
    failure = await failure_of(machine, {"command": "true", "args": ["${file:nowhere}"]})
    assert "args[0]" in str(failure)
    assert "nowhere" in str(failure)
