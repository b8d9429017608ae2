"""How other agents get to the gateway: entries to paste, their files on this machine, and a trial."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from anyio import to_thread

from fairlead.actions.agents import (
    AgentFile,
    RouteCheck,
    agent_files,
    drop_agent_token,
    plan_change,
    try_route,
    write_change,
)
from fairlead.actions.context import ActionContext
from fairlead.config.dialects import syntax
from fairlead.config.principal import LOCAL
from fairlead.errors import ConfigError
from fairlead.gateway.install import AGENTS, FileChange, GatewayRoute, by_reference, dialect_of

ChangeKind = Literal["install", "uninstall"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentRoutes:
    """The ways to the gateway."""

    command: GatewayRoute
    """By a command, for agents on this machine."""
    url: GatewayRoute | None = None
    """By its address. The token in it stands for one that the reader has to put there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedChange:
    """What would become of an agent's file."""

    title: str
    path: str
    lines: Sequence[str]
    """The lines that come and go, as in a diff; what stays may hold secrets of other servers."""
    digest: str
    """Of the file before and after: what is written is what was shown."""
    is_none: bool


class AgentPanel:
    """Writes the gateway into agents' files for visitors of the dashboard, each time in a worker thread."""

    def __init__(self, actions: Callable[[str], ActionContext], routes: AgentRoutes) -> None:
        """Act with the context of actions of a principal, which the audit log names."""
        self._actions = actions
        self._routes = routes

    async def files(self) -> Sequence[AgentFile]:
        """The files of all agents, and whether the gateway is in them."""
        return await to_thread.run_sync(agent_files, self._actions(LOCAL).env)

    def snippet(self, agent: str, *, by_url: bool) -> str | None:
        """An entry to paste into an agent's file; None where there is no such way. It holds no token."""
        route = self._routes.url if by_url else self._routes.command
        if route is None:
            return None
        return syntax.dump(by_reference(agent, route).document, dialect_of(agent).syntax).strip()

    def advice(self, agent: str) -> str | None:
        """What the user has to do for an entry with the address to work."""
        return by_reference(agent, self._routes.url).advice if self._routes.url else None

    async def plan(self, agent: str, kind: ChangeKind) -> PlannedChange:
        """What installing or uninstalling would change. Raises `ConfigError`."""
        change = await to_thread.run_sync(self._plan, agent, kind)
        lines = [line for line in change.diff().splitlines() if line[:1] in "+-" and line[:3] not in _HEADS]
        return PlannedChange(
            title=change.title,
            path=str(change.path),
            lines=[f"  {line}" for line in lines],
            digest=_digest(change),
            is_none=change.is_none,
        )

    async def write(self, agent: str, kind: ChangeKind, digest: str, *, principal: str) -> str:
        """Write what was shown, and say so.

        Raises:
            ConfigError: It is no longer what was shown. Nothing was written.
        """

        def write() -> str:
            change = self._plan(agent, kind)
            if _digest(change) != digest:
                raise ConfigError(f"`{change.path}` changed meanwhile", hint="look at the change again")
            context = self._actions(principal)
            backup, notices = write_change(context, kind, agent, change)
            drop_agent_token(context.env, agent)
            done = "Connected" if kind == "install" else "Disconnected"
            kept = f" The file as it was: {backup}." if backup else ""
            said = "".join(f" {notice.message}." for notice in notices)
            return f"{done} {change.title}: {change.path} was written.{kept}{said} Start the agent again."

        return await to_thread.run_sync(write)

    async def try_command(self) -> RouteCheck:
        """Start the gateway's command as an agent does. Raises a `FairleadError` where that fails."""
        return await try_route(self._actions(LOCAL).env, self._routes.command)

    def _plan(self, agent: str, kind: ChangeKind) -> FileChange:
        if agent not in AGENTS:
            raise ConfigError("there is no such agent")
        route = self._routes.command if kind == "install" else None
        return plan_change(self._actions(LOCAL).env, agent, route)


_HEADS = ("+++", "---")


def _digest(change: FileChange) -> str:
    texts = (change.path, change.before is None, change.before, change.after is None, change.after)
    return hashlib.sha256(repr(texts).encode()).hexdigest()
