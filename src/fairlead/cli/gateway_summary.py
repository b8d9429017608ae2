"""Summary that `fairlead gateway` prints when it is up: at most eight lines, and entries to paste."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairlead.actions.readiness import Obstacle, ObstacleKind, Readiness
from fairlead.config.sources import place_of
from fairlead.gateway.install import AGENTS, GatewayRoute, dialect_of, file_of, render_snippet
from fairlead.gateway.registry import RunningGateway
from fairlead.terminal.output import display_path, plural, print_data, printable, say

MAX_LINES: Final = 8
_FIXED_LINES: Final = 3
"""The URL, the dashboard and how agents get there."""
_NAMED: Final = 4
"""How many servers a line names; of more it says the number."""
_LABELS: Final[dict[ObstacleKind, tuple[str, str]]] = {
    "not approved": ("approve", "may not start yet"),
    "broken": ("broken", "did not work when last tried"),
    "needs a login": ("login", "wants a login"),
    "changed": ("changed", "has tools that changed and are held back"),
    "not reviewed": ("review", "has tools that no one reviewed"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedGateway:
    """Facts about a gateway that is up: URL, servers, and what is not ready."""

    reach: GatewayRoute
    dashboard: str
    """A link that logs its opener in, at a terminal; else the address: a log has other readers."""
    servers: list[str]
    ready: Readiness
    workers: int = 1

    def as_json(self) -> dict[str, Any]:
        """The facts as JSON: what is not ready by its reason, with the commands that fix it."""
        found = self.ready.obstacles
        return {
            "url": self.reach.url,
            "token": self.reach.token,
            "dashboard": self.dashboard,
            "servers": self.servers,
            "pid": os.getpid(),
            "workers": self.workers,
            "ready": list(self.ready.ready),
            "tools": self.ready.tools,
            "mode": self.ready.mode,
            "not_connected_yet": list(self.ready.unlisted),
            **{
                kind.replace(" ", "_"): [name for each in found for name in each.servers if each.kind == kind]
                for kind in _LABELS
            },
            "commands": [each.command for each in found],
        }


def introduce(served: ServedGateway, other: RunningGateway | None = None, printed: int = 0) -> None:
    """Print the URL, what agents can use of it, and the commands that fix the rest.

    Args:
        served: The gateway.
        other: One that runs already with the same configuration.
        printed: How many lines were printed before, of the eight that are read.
    """
    reach = served.reach
    is_open = " (no token: every program on this machine may call)" if reach.token_file is None else ""
    print_data(f"url        {reach.url}{is_open}")
    print_data(f"dashboard  {served.dashboard}")
    about = [_ready_line(served.ready), *map(_obstacle_line, served.ready.obstacles)]
    if served.workers > 1:
        about.insert(0, f"workers    {served.workers} processes serve this address")
    if other is not None:
        about.insert(
            0, f"also       {other.url}/mcp, process {other.pid}: `fairlead gateway stop` ends that one"
        )
    for line in _shorten(about, MAX_LINES - _FIXED_LINES - printed):
        say(printable(line))
    if sys.stderr.isatty():
        agents = f"`fairlead gateway --install {'|'.join(AGENTS)}`"
        say(f"agents     {agents}, or `--snippets` to paste; Ctrl-C stops")


def show_snippets(reach: GatewayRoute, agents: Sequence[str]) -> None:
    """Print entries to paste into agents' files, with the token, as requested."""
    place = place_of(os.environ, Path.cwd())
    for agent in agents:
        dialect = dialect_of(agent)
        where = "" if agent == "claude" else f", in {display_path(file_of(dialect, place))}"
        say(f"\n{dialect.title}{where}:")
        print_data("\n".join(f"  {line}" for line in render_snippet(agent, reach).splitlines()))


def _ready_line(ready: Readiness) -> str:
    if not ready.servers:
        return (
            "ready      no servers yet: `fairlead add` adds one, `fairlead import` takes over those of agents"
        )
    of_all = "" if len(ready.ready) == ready.servers else f" of {ready.servers}"
    words = f"ready      {len(ready.ready)}{of_all} {'server' if ready.servers == 1 else 'servers'}"
    if ready.tools:
        words += f", {plural(ready.tools, 'tool')}"
        if ready.mode == "meta":
            words += " behind meta-tools (`--mode direct` offers them all)"
    elif ready.ready:
        words += ", whose tools are listed at the first use"
    if ready.unlisted:
        verb = "connects" if len(ready.unlisted) == 1 else "connect"
        words += f"; {_names(ready.unlisted)} {verb} at the first use"
    return words


def _obstacle_line(obstacle: Obstacle) -> str:
    label, what = _LABELS[obstacle.kind]
    if len(obstacle.servers) > 1:
        what = what.replace("wants ", "want ").replace("has ", "have ")
    return f"{label:<11}{_names(obstacle.servers)} {what}: `{obstacle.command}`"


def _names(servers: Sequence[str]) -> str:
    if len(servers) > _NAMED:
        return f"{', '.join(servers[: _NAMED - 1])} and {len(servers) - _NAMED + 1} more"
    return " and ".join(filter(None, (", ".join(servers[:-1]), servers[-1])))


def _shorten(lines: list[str], limit: int) -> list[str]:
    if len(lines) <= limit:
        return lines
    return [*lines[: limit - 1], "more       `fairlead doctor` names the rest, with the fixes"]
