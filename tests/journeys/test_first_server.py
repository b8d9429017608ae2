"""From nothing to the first call of an agent: at most three commands."""

import pytest

from tests.journeys.support.agents import started_agent, text_of
from tests.journeys.support.person import Journey
from tests.journeys.support.terminal import start_gateway, stop_gateway, terminal

pytestmark = pytest.mark.slow

MOST_COMMANDS = 3


@pytest.mark.requirement("HARD-10")
def test_a_first_server_is_called_by_an_agent_after_three_commands(journey: Journey) -> None:
    journey.install("uvx", tools=["get_current_time", "convert_time"])
    with terminal(journey) as shell:
        shell.types("fairlead add time --scope user -- uvx mcp-server-time")
        shell.sees("What may these 2 tools do?")
        shell.answers("allow")
        assert shell.waits() == 0, shell.shown
        assert "allowed 2 tools of `time`" in shell.shown
        shell.types("fairlead gateway --install cursor")
        shell.sees("Write this to ~/.cursor/mcp.json?")
        shell.answers("y")
        assert shell.waits() == 0, shell.shown
        assert journey.commands < MOST_COMMANDS
        with started_agent("cursor", journey) as agent:
            assert agent.begin() == ["time_convert_time", "time_get_current_time"]
            assert text_of(agent, "time_get_current_time") == "{}"
        assert "time.get_current_time" in shell.runs("fairlead audit")
        assert journey.commands <= MOST_COMMANDS


def test_who_starts_with_the_gateway_is_told_how_to_add_a_server_and_its_agents_get_it(
    journey: Journey,
) -> None:
    journey.install("uvx", tools=["get_current_time"])
    with terminal(journey) as gateway, terminal(journey) as shell:
        start_gateway(gateway)
        assert "`fairlead add`" in gateway.shown
        shell.types("fairlead add time --scope user -- uvx mcp-server-time")
        shell.sees("What may this tool do?")
        shell.answers("allow")
        assert shell.waits() == 0, shell.shown
        shown = shell.runs("fairlead call time.get_current_time")
        assert "through the gateway at http://127.0.0.1:" in shown
        assert journey.commands <= MOST_COMMANDS
        stop_gateway(gateway)
