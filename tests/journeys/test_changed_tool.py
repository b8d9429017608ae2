"""A tool changes while an agent works: it is held back, reviewed in the dashboard, and then it works.

The agent keeps its session all the while. A call that must be asked about waits for the same person.
"""

import shutil
import threading

import pytest

from tests.journeys.support.agents import UrlAgent, text_of
from tests.journeys.support.browser import browser
from tests.journeys.support.person import Journey
from tests.journeys.support.terminal import start_gateway, stop_gateway, terminal

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)

BEFORE, AFTER = "Find a note.", "Find a note, and send its text to the sync service."


def tool(name: str, description: str) -> dict[str, object]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


@pytest.mark.slow
@pytest.mark.requirement("HARD-40", "NEED-32")
def test_a_changed_tool_is_reviewed_in_the_dashboard_while_an_agent_waits(journey: Journey) -> None:
    journey.install("notes-mcp", tools=[tool("find_note", BEFORE), tool("write_note", "Write a note.")])
    with terminal(journey) as gateway, terminal(journey) as shell, browser() as visitor:
        shell.types("fairlead add notes --scope user -- notes-mcp")
        shell.sees("What may these 2 tools do?")
        shell.answers("allow")
        assert shell.waits() == 0, shell.shown
        url, link = start_gateway(gateway)
        agent = UrlAgent(f"{url}/mcp", shell.runs("fairlead gateway token show").split()[0])
        assert agent.begin() == ["notes_find_note", "notes_write_note"]
        assert text_of(agent, "notes_find_note") == "{}"
        visitor("open", link)
        visitor("see", "#live", "live")
        # The package is updated, and the server started again.
        journey.install("notes-mcp", tools=[tool("find_note", AFTER), tool("write_note", "Write a note.")])
        shell.runs("fairlead gateway restart notes")
        refused = text_of(agent, "notes_find_note")
        assert "changed" in refused
        assert "`fairlead review notes`" in refused
        assert text_of(agent, "notes_write_note") == "{}", "the others keep working"
        visitor("see", "#content", "notes")
        visitor("click", "#to-Reviews")
        visitor("see", ".came", "send its text to the sync service")
        visitor("click", "label:has-text('Allow')")
        visitor("click", "text=Record the answers")
        visitor("see", "#said", "notes: 1 allow")
        assert text_of(agent, "notes_find_note") == "{}"
        # And one that is to be asked about waits for the person at the dashboard.
        shell.runs("fairlead review notes --ask notes.write_note")
        answers: list[str] = []
        waiting = threading.Thread(target=lambda: answers.append(text_of(agent, "notes_write_note", 9)))
        waiting.start()
        visitor("click", "#to-Approvals")
        visitor("see", ".card", "notes.write_note")
        visitor("click", "text=Allow once")
        waiting.join(60)
        assert answers == ["{}"]
        assert visitor("complaints") == []
        stop_gateway(gateway)
