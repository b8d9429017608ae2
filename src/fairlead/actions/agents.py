"""The gateway in the files of other agents: where it is, how it gets there and out, and whether it works."""

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from fairlead.actions.context import ActionContext, Notice
from fairlead.config.sources import place_of
from fairlead.errors import FairleadError
from fairlead.gateway.access.tokens import has_agent_token, remove_agent_token
from fairlead.gateway.install import (
    AGENTS,
    NAME,
    FileChange,
    GatewayRoute,
    apply,
    dialect_of,
    file_of,
    is_installed,
    plan_install,
    plan_uninstall,
)
from fairlead.gateway.service import own_command

_FOR_THE_DESKTOP: Final = (
    "PATH",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "FAIRLEAD_CONFIG_PATH",
    "FAIRLEAD_BUILTINS",
)
"""What a program of the desktop lacks: where programs are found, and our own files."""
TRY_SECONDS: Final = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentFile:
    """The file of an agent that the gateway's entry goes to."""

    agent: str
    title: str
    """Name of the agent, for display."""
    path: Path
    has_file: bool
    """Does the agent have such a file? If not, it may not be on this machine."""
    is_installed: bool = False
    """Is the gateway in it?"""
    problem: str | None = None
    """Why the file cannot be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteCheck:
    """What an agent gets that starts the gateway's command."""

    tools: int
    seconds: float


def desktop_route(
    env: Mapping[str, str], *, config: Path | None = None, bundle: str | None = None
) -> GatewayRoute:
    """The gateway as a command that an app of the desktop can start: it needs no PATH and no variable."""
    before = ["--config", str(config.absolute())] if config else []
    after = ["--bundle", bundle] if bundle else []
    variables = {name: env[name] for name in _FOR_THE_DESKTOP if env.get(name)}
    if "PATH" in variables:
        variables["PATH"] = os.pathsep.join(dict.fromkeys(variables["PATH"].split(os.pathsep)))
    command = (*own_command(), *before, "gateway", "--stdio", "--start", *after)
    return GatewayRoute(command=command, environment=variables)


def agent_files(env: Mapping[str, str]) -> list[AgentFile]:
    """The files of all agents that the gateway can be written for."""
    place = place_of(env, Path.cwd())
    found: list[AgentFile] = []
    for agent in AGENTS:
        dialect = dialect_of(agent)
        path = file_of(dialect, place)
        has_file, installed, problem = path.exists(), False, None
        try:
            installed = is_installed(agent, place)
        except FairleadError as exc:
            problem = str(exc)
        found.append(
            AgentFile(
                agent=agent,
                title=dialect.title,
                path=path,
                has_file=has_file,
                is_installed=installed,
                problem=problem,
            )
        )
    return found


def plan_change(env: Mapping[str, str], agent: str, route: GatewayRoute | None) -> FileChange:
    """What would become of an agent's file: the gateway by this route in it, or none."""
    place = place_of(env, Path.cwd())
    return plan_install(agent, place, route) if route else plan_uninstall(agent, place)


def write_change(
    context: ActionContext, kind: Literal["install", "uninstall"], agent: str, change: FileChange
) -> tuple[Path | None, list[Notice]]:
    """Write what was planned and shown. Returns where the old file is kept, and what the user should know.

    Raises:
        ConfigUnwritable: The file changed since, or cannot be written.
    """
    backup = apply(change, context.env)
    return backup, context.record(kind, "", agent=agent, file=str(change.path))


def drop_agent_token(env: Mapping[str, str], agent: str) -> None:
    """Take back the token of an agent whose file does not use one any more."""
    if has_agent_token(env, agent):
        remove_agent_token(env, agent)


async def try_route(env: Mapping[str, str], route: GatewayRoute) -> RouteCheck:
    """Start the gateway's command as an app of the desktop does, and list what it offers.

    It gets no other variables than its entry has and a login shell would set, and starts in the home.

    Raises:
        FairleadError: It did not work, with the reason and a hint.
    """
    from fairlead.host.host import Host

    entry = route.entry(None)
    home = env.get("HOME") or str(Path.home())
    given = {**entry.get("env", {}), "HOME": home.replace("${", "$${")}
    server = {**entry, "env": given, "cwd": home, "startup_timeout_ms": TRY_SECONDS * 1000}
    # The trial leaves nothing behind: what is kept about servers goes to a folder of its own.
    with tempfile.TemporaryDirectory(prefix="fairlead-try-") as folder:
        own = {"HOME": folder, "PATH": env.get("PATH", ""), "FAIRLEAD_BUILTINS": "off"}
        began = time.perf_counter()
        async with Host.open(env=own, cwd=folder, overrides={"servers": {NAME: server}}) as host:
            listing = await host.list_now(NAME)
        return RouteCheck(tools=len(listing.tools), seconds=time.perf_counter() - began)
