"""The gateway's command is tried as an agent of the desktop starts it."""

import json
import sys
from pathlib import Path

import pytest

from fairlead.actions.agents import desktop_route, try_route
from fairlead.errors import FairleadError
from fairlead.gateway.install import GatewayRoute
from fairlead.testing import scripted_program
from tests.conftest import Machine


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_a_trial_lists_what_an_agent_gets_and_leaves_nothing_behind(
    machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = (sys.executable, "-I", "-S", scripted_program.__file__)
    record = tmp_path_factory.mktemp("record") / "starts"
    script = json.dumps({"tools": ["one", "two"], "record": str(record)})
    before = files_in(machine.home)
    found = await try_route(machine.env, GatewayRoute(command=(*program, script)))
    assert found.tools == 2
    assert files_in(machine.home) == before


async def test_a_trial_that_fails_says_why(machine: Machine) -> None:
    with pytest.raises(FairleadError, match="no program"):
        await try_route(machine.env, GatewayRoute(command=("/nowhere/fairlead", "gateway")))


def test_the_command_for_the_desktop_needs_no_path(machine: Machine) -> None:
    route = desktop_route({"PATH": "/a:/b:/a"}, config=Path("x.json"), bundle="work")
    assert Path(route.command[0]).is_absolute()
    assert route.command[-4:] == ("--stdio", "--start", "--bundle", "work")
    assert str(Path("x.json").absolute()) in route.command
    assert route.environment == {"PATH": "/a:/b"}
