"""A team of three shares a gateway: a bundle and a token for each, made by commands and in the dashboard.

Nothing is edited: what is in the configuration at the end was written by what the person typed and clicked.
"""

import json
import re
import shutil

import pytest

from tests.journeys.support.agents import UrlAgent, text_of
from tests.journeys.support.browser import Visitor, browser
from tests.journeys.support.person import Journey
from tests.journeys.support.terminal import Terminal, start_gateway, stop_gateway, terminal

if shutil.which("chromium") is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)

TEAM = {"ada": "reading", "grace": "writing"}


def add(shell: Terminal, name: str, tools: int) -> None:
    shell.types(f"fairlead add {name} --scope user -- {name}-mcp")
    shell.sees(f"What may these {tools} tools do?")
    shell.answers("allow")
    assert shell.waits() == 0, shell.shown


def token_in(shown: str) -> str:
    found = re.search(r"\bfl_[\w-]+", shown)
    assert found, shown
    return found[0]


@pytest.mark.slow
@pytest.mark.requirement("HARD-54")
def test_a_team_of_three_has_its_own_tools_each_without_an_edit_of_a_file(journey: Journey) -> None:
    journey.install("github-mcp", tools=["get_file", "merge"])
    journey.install("notes-mcp", tools=["find_note", "write_note"])
    with terminal(journey) as gateway, terminal(journey) as shell, browser() as visitor:
        add(shell, "github", 2)
        add(shell, "notes", 2)
        shell.runs("fairlead bundle add reading --scope user github.get_file notes.find_note")
        shell.runs("fairlead bundle add writing --scope user github notes")
        url, _ = start_gateway(gateway)
        agents: dict[str, UrlAgent] = {}
        for name, bundle in TEAM.items():
            shown = shell.runs(f"fairlead gateway token add {name} --bundle {bundle}")
            assert f"connects to {url}/mcp/{bundle}" in shown
            agents[name] = UrlAgent(f"{url}/mcp/{bundle}", token_in(shown))
        agents["linus"] = third_member(shell, visitor, url)
        assert agents["ada"].begin() == ["github_get_file", "notes_find_note"]
        assert agents["linus"].begin() == ["notes_find_note"]
        everything = ["github_get_file", "github_merge", "notes_find_note", "notes_write_note"]
        assert agents["grace"].begin() == everything
        assert text_of(agents["grace"], "github_merge") == "{}"
        assert "not listed in allow_tools of the bundle `reading`" in text_of(agents["ada"], "github_merge")
        # A token opens its own bundle alone, and the refusal says which that is.
        elsewhere = UrlAgent(f"{url}/mcp/writing", agents["ada"].token)
        assert elsewhere.begin() == []
        assert "/mcp/reading" in elsewhere.refusal
        audit = shell.runs("fairlead audit")
        assert re.search(r"grace.*github.merge|github.merge.*grace", audit)
        # One leaves the team, and is refused at once.
        shell.runs("fairlead gateway token remove grace")
        assert UrlAgent(f"{url}/mcp/writing", agents["grace"].token).begin() == []
        assert agents["ada"].begin() != []
        stop_gateway(gateway)
    written = json.loads(journey.file.read_text())
    assert [*written["bundles"]] == ["reading", "writing", "notes-only"]


def third_member(shell: Terminal, visitor: Visitor, url: str) -> UrlAgent:
    """The third gets bundle and token in the dashboard."""
    link = re.search(r"http://\S+/login\?code=\S+", shell.runs("fairlead gateway dashboard"))
    assert link
    visitor("open", link[0])
    visitor("click", "#to-Tokens")
    visitor("click", "text=Make or remove bundles")
    visitor("fill", "#f-name", "notes-only")
    visitor("fill", "#f-tools", "notes.find_note")
    visitor("click", "#make-bundle")
    visitor("see", "#said", "Saved the bundle notes-only")
    visitor("click", "#to-Tokens")
    visitor("fill", "#f-name", "linus")
    visitor("click", "label:has-text('notes-only')")
    visitor("click", "#make-token")
    visitor("see", ".hint", "/mcp/notes-only")
    token = visitor("value", "document.querySelector('#f-token').value")
    assert visitor("complaints") == []
    return UrlAgent(f"{url}/mcp/notes-only", token)
