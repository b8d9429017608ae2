"""`gateway --install` for each of the six agents: it works from the desktop, and leaves no byte behind."""

from pathlib import Path

import pytest

from fairlead.gateway.install import AGENTS
from tests.journeys.support.agents import file_of, started_agent, text_of
from tests.journeys.support.person import Journey
from tests.journeys.support.terminal import terminal

pytestmark = pytest.mark.slow

BEFORE = {
    "codex": '# mine\nmodel = "o9"   # the large one\n\n[mcp_servers.other]\ncommand = "other"\n',
    "gemini": '{\n  // mine\n  "theme": "dark", "mcpServers": {"other": {"command": "other"}}\n}',
    "opencode": '{"mcp": {"other": {"type": "local", "command": ["other"]}}}\r\n',
    "vscode": '{\n\t"servers": {\n\t\t"other": {"command": "other"}\n\t},\n\t"inputs": []\n}\n',
}
USUAL = '{"mcpServers":{"other":{"command":"other"}},   "numbers":[1,2]}'


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.requirement("NEED-30")
def test_an_agent_of_the_desktop_gets_the_tools_and_its_bytes_back(journey: Journey, agent: str) -> None:
    journey.configure(time={"command": str(journey.install("server", tools=["now"])), "approval": "allow"})
    file: Path = file_of(agent, journey.home)
    before = BEFORE.get(agent, USUAL).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(before)
    with terminal(journey) as shell:
        shell.types(f"fairlead gateway --install {agent}")
        shell.sees("Write this to")
        assert "export " not in shell.shown
        shell.answers("y")
        assert shell.waits() == 0, shell.shown
        assert file.read_bytes() != before
        with started_agent(agent, journey) as started:
            assert started.begin() == ["time_now"]
            assert text_of(started, "time_now") == "{}"
        shell.runs(f"fairlead gateway --uninstall {agent} --yes")
        assert file.read_bytes() == before
