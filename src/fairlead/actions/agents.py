"""Connect agents to the gateway: which of them have its entry, write it, take it out, and test it."""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from fairlead.actions.context import ActionContext, Notice
from fairlead.config.sources import place_of
from fairlead.errors import ConfigError, FairleadError
from fairlead.gateway.access.tokens import has_agent_token, remove_agent_token
from fairlead.gateway.install import (
    AGENTS,
    NAME,
    FileChange,
    GatewayRoute,
    apply,
    dialect_of,
    file_of,
    find_installed_entry,
    plan_install,
    plan_uninstall,
)
from fairlead.gateway.service import is_temporary

AgentChange = Literal["install", "uninstall"]

_OUR_SETTINGS: Final = ("FAIRLEAD_CONFIG_PATH", "FAIRLEAD_CONFIG_JSON")
"""Variables that would have a test read other servers than the one entry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentInstallation:
    """An agent, its configuration file, and whether the gateway is in it."""

    agent: str
    title: str
    path: Path
    has_file: bool
    """The agent has a configuration file, so that it is probably in use here."""
    entry: Mapping[str, Any] | None = None
    """The gateway's entry, in our own format; None where the file has none."""
    problem: str | None = None
    """Why the file cannot be read."""

    @property
    def state(self) -> str:
        """The state of its file: `installed`, `not installed`, `no file` or `unreadable`."""
        if self.problem is not None:
            return "unreadable"
        if self.entry is not None:
            return "installed"
        return "not installed" if self.has_file else "no file"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedAgent:
    """A change of an agent's file that was written."""

    backup: Path | None
    """Where the file as it was is kept; None where there was none."""
    notices: list[Notice]


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentTest:
    """Outcome of a connection by an agent's entry: the tools it gets."""

    seconds: float
    protocol_version: str
    tools: int

    def __str__(self) -> str:
        count = f"{self.tools} tool{'' if self.tools == 1 else 's'}"
        return f"{count} in {self.seconds:.1f} s, protocol version {self.protocol_version}"


def list_agents(context: ActionContext) -> list[AgentInstallation]:
    """List the agents that the gateway can be written for, with the state of their files."""
    return [_installation(context, agent) for agent in AGENTS]


def _installation(context: ActionContext, agent: str) -> AgentInstallation:
    place = place_of(context.env, Path.cwd())
    dialect = dialect_of(agent)
    path = file_of(dialect, place)
    try:
        entry, problem = find_installed_entry(agent, place), None
    except FairleadError as exc:
        entry, problem = None, str(exc)
    return AgentInstallation(
        agent=agent, title=dialect.title, path=path, has_file=path.exists(), entry=entry, problem=problem
    )


def cache_notice(command: Sequence[str], then: str) -> Notice | None:
    """The notice that a program may vanish, which is written into a file to be started from there.

    Args:
        command: The program and its arguments.
        then: What to do once Fairlead is installed.
    """
    if not is_temporary(command):
        return None
    return Notice(
        message=f"`{command[0]}` is in a cache, and gone when that is emptied",
        hint=f"install Fairlead (`uv tool install .` in a clone), and {then}",
    )


def plan_agent(context: ActionContext, agent: str, route: GatewayRoute | None) -> FileChange:
    """Plan a change of an agent's file, without writing it.

    Args:
        context: Who plans it.
        agent: One of `AGENTS`.
        route: How the agent gets to the gateway; None to take the gateway out.

    Raises:
        ConfigError: There is no such agent, or its file cannot be read or edited.
    """
    if agent not in AGENTS:
        raise ConfigError(f"there is no agent `{agent}`", hint=f"choose one of {', '.join(AGENTS)}")
    place = place_of(context.env, Path.cwd())
    return plan_uninstall(agent, place) if route is None else plan_install(agent, place, route)


def change_agent(
    context: ActionContext, agent: str, change: FileChange, kind: AgentChange, *, by_url: bool = False
) -> ChangedAgent:
    """Write a planned change of an agent's file, and record it.

    Args:
        context: Who does it.
        agent: The agent.
        change: What was planned, and shown.
        kind: Which of the two it is.
        by_url: The entry names the gateway's URL, so that the agent needs the token that was made for it.

    Raises:
        ConfigUnwritable: The file changed since it was planned, or cannot be written.
    """
    backup = apply(change, context.env)
    if not by_url and has_agent_token(context.env, agent):
        remove_agent_token(context.env, agent)  # of an earlier installation by URL
    return ChangedAgent(backup=backup, notices=context.record(kind, "", agent=agent, file=str(change.path)))


async def try_agent(context: ActionContext, agent: str) -> AgentTest:
    """Connect as an agent would: by the entry in its file, outside of any project.

    Raises:
        ConfigError: The agent's file has no entry of the gateway.
        ServerError: The entry does not lead to a gateway that answers.
    """
    from fairlead.host.host import Host

    found = _installation(context, agent)
    if found.entry is None:
        raise ConfigError(
            f"the gateway is not in the configuration of {found.title}",
            hint=f"run `fairlead gateway --install {agent}`",
        )
    entry = {**found.entry, "trust": "trusted"}
    if "command" in entry:
        entry.setdefault("cwd", "/")  # as a program of the desktop starts it
    env = {name: value for name, value in context.env.items() if name not in _OUR_SETTINGS}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fairlead-agent-test-") as folder:
        # A file and a store of its own: the test leaves nothing in the user's.
        file = Path(folder) / "fairlead.json"
        file.write_text(json.dumps({"servers": {NAME: entry}, "store": {"path": f"{folder}/state.db"}}))
        env["FAIRLEAD_BUILTINS"] = "off"
        async with Host.open(path=file, env=env, cwd=folder) as host:
            info = await host.describe(NAME)
            listing = await host.list_now(NAME)
    return AgentTest(
        seconds=time.monotonic() - started, protocol_version=info.version, tools=len(listing.tools)
    )
