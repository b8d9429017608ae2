"""From the files of eleven agents to their tools in one: at most four commands, and nothing is lost."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.support.agents import started_agent, text_of
from tests.journeys.support.person import Journey
from tests.journeys.support.terminal import terminal

pytestmark = pytest.mark.slow

MOST_COMMANDS = 4
SECRET = "sk-of-the-import-journey-0123456789"


def write(home: Path, path: str, content: str | dict[str, Any]) -> None:
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))


def under(key: str, path: str) -> Callable[[Path, str], None]:
    """Writes a file with one server under a key, as most agents have it."""
    return lambda home, program: write(home, path, {key: {program: {"command": program, "args": []}}})


def codex(home: Path, program: str) -> None:
    write(home, ".codex/config.toml", f'model = "o9"\n\n[mcp_servers.{program}]\ncommand = "{program}"\n')


def goose(home: Path, program: str) -> None:
    entry = f"  {program}:\n    type: stdio\n    enabled: true\n    name: {program}\n    cmd: {program}\n"
    write(home, ".config/goose/config.yaml", f"extensions:\n{entry}    args: []\n")


def opencode(home: Path, program: str) -> None:
    entry = {"type": "local", "command": [program], "enabled": True}
    write(home, ".config/opencode/opencode.json", {"mcp": {program: entry}})


AGENTS: dict[str, Callable[[Path, str], None]] = {
    "claude": under("mcpServers", ".claude.json"),
    "claude-desktop": under("mcpServers", ".config/Claude/claude_desktop_config.json"),
    "cursor": under("mcpServers", ".cursor/mcp.json"),
    "vscode": under("servers", ".config/Code/User/mcp.json"),
    "codex": codex,
    "opencode": opencode,
    "gemini": under("mcpServers", ".gemini/settings.json"),
    "goose": goose,
    "zed": under("context_servers", ".config/zed/settings.json"),
    "windsurf": under("mcpServers", ".codeium/windsurf/mcp_config.json"),
    "cline": under("mcpServers", ".cline/data/settings/cline_mcp_settings.json"),
}


@pytest.mark.requirement("NEED-1")
def test_the_servers_of_eleven_agents_are_in_one_agent_after_four_commands(journey: Journey) -> None:
    for agent, write_file in AGENTS.items():
        program = f"{agent.replace('-', '')}tools"
        journey.install(program, tools=[{"name": "look", "annotations": {"readOnlyHint": True}}, "write"])
        write_file(journey.home, program)
    # What people have in several agents is taken over once, and what is a secret does not stay in a file.
    cursor = journey.home / ".cursor/mcp.json"
    servers = json.loads(cursor.read_text())["mcpServers"]
    servers["cursortools"]["env"] = {"API_KEY": SECRET}
    servers["claudetools"] = {"command": "claudetools", "args": []}
    before = json.dumps({"mcpServers": servers}, indent=4) + "\n"
    cursor.write_text(before)
    with terminal(journey) as shell:
        shell.types("fairlead import")
        shown = shell.sees("Add these 11 servers?")
        assert re.search(r"skip +claudetools .* ~/.cursor/mcp.json +the same as in ~/.claude.json", shown)
        shell.answers("y")
        shown = shell.sees("Record these answers?")
        assert shown.count("claims: read-only") == 11
        assert SECRET not in shown
        shell.answers("all")
        assert shell.waits() == 0, shell.shown
        shell.types("fairlead gateway --install cursor")
        shell.sees("Write this to ~/.cursor/mcp.json?")
        shell.answers("y")
        assert shell.waits() == 0, shell.shown
        with started_agent("cursor", journey) as agent:
            offered = {name.rpartition("_")[0] for name in agent.begin()}
            assert offered == {f"{name.replace('-', '')}tools" for name in AGENTS}
            assert text_of(agent, "goosetools_look") == "{}"
            assert text_of(agent, "codextools_look") == "{}"
        assert journey.commands <= MOST_COMMANDS
        assert SECRET not in journey.file.read_text()
        shell.runs("fairlead gateway --uninstall cursor --yes")
        assert cursor.read_bytes() == before.encode()
        assert journey.commands <= MOST_COMMANDS
