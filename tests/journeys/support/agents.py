"""Agents that use the gateway: what they find in their own files is all they know."""

import json
import re
import tomllib
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairlead.gateway.registry import living
from tests.cli.gateway_support import INITIALIZE, INITIALIZED, LIST, SECONDS, DesktopAgent, call, served_by
from tests.journeys.support.person import Journey

_FILES = {
    "claude": (".claude.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "gemini": (".gemini/settings.json", "mcpServers"),
    "opencode": (".config/opencode/opencode.json", "mcp"),
    "vscode": (".config/Code/User/mcp.json", "servers"),
}
"""Where agents keep their servers, and under which key."""


def file_of(agent: str, home: Path) -> Path:
    """The file that an agent reads."""
    return home / _FILES[agent][0]


def entry_of(agent: str, home: Path) -> dict[str, Any]:
    """The gateway's entry in an agent's file, as that agent reads it."""
    text = file_of(agent, home).read_text()
    without_comments = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    document: dict[str, Any] = tomllib.loads(text) if agent == "codex" else json.loads(without_comments)
    entry = document[_FILES[agent][1]]["fairlead"]
    if agent == "opencode":
        command, *arguments = entry["command"]
        return {"command": command, "args": arguments, "env": entry.get("environment", {})}
    return entry


@contextmanager
def started_agent(agent: str, journey: Journey) -> Generator[DesktopAgent]:
    """An agent that is started from the desktop: with no variable but HOME, in no folder in particular.

    The gateway that it started ends with it, rather than some time later.
    """
    started = DesktopAgent(journey.home, entry_of(agent, journey.home), Path("/"))
    try:
        yield started
        assert started.end() == 0
    finally:
        if started.process.poll() is None:
            started.process.kill()
            started.end()
        done = journey.run("gateway", "stop", "--all")
        journey.commands -= 1  # no person does that
        assert living(journey.env) == [], done.err


def text_of(agent: "DesktopAgent | UrlAgent", tool: str, number: int = 3) -> str:
    """What the agent gets from a call of a tool."""
    answer = agent.ask(call(number, tool))
    return answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]["message"]


class UrlAgent:
    """An agent that has a URL and a token, as somebody gave them to it."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self.token = token
        self.refusal = ""
        """Why it was not let in."""
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message, and return its answer if it wants one. A refusal is an answer as well."""
        request = urllib.request.Request(self._url, json.dumps(message).encode(), self._headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                if session := response.headers.get("Mcp-Session-Id"):
                    self._headers["Mcp-Session-Id"] = session
                text = response.read().decode()
                if response.headers.get_content_type() == "text/event-stream":
                    lines = [line.removeprefix("data:").strip() for line in text.splitlines()]
                    found = [json.loads(line) for line in lines if line.startswith("{")]
                    return next(each for each in found if each.get("id") == message.get("id"))
                return json.loads(text or "{}")
        except urllib.error.HTTPError as exc:
            with exc:
                return {"error": {"code": exc.code, "message": exc.read().decode()}}

    def begin(self) -> list[str]:
        """Shake hands, and return the names of the tools; none where it is refused."""
        if (answer := self.ask(INITIALIZE)) and "error" in answer:
            self.refusal = answer["error"]["message"]
            return []
        self.ask(INITIALIZED)
        return served_by(self.ask(LIST))
