"""The lines below the prompt: where servers stand, what is under way, and which model listens."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from fairlead.console.lines import RunningLine
from fairlead.terminal.output import printable

if TYPE_CHECKING:
    from fairlead.host.managed_server import ServerStatus

MOST_LINES: Final = 5
BAR_CELLS: Final = 20

_WORDS: Final = {
    "ready": "ready",
    "connecting": "starting",
    "error": "failed",
    "auth_required": "want a login",
    "idle": "idle",
}


def toolbar(
    servers: "Iterable[ServerStatus] | None", running: Sequence[RunningLine], model: str | None, width: int
) -> str:
    """The lines. `servers` is None while the host is not there yet."""
    parts = ["starting …" if servers is None else servers_line(servers)]
    if model:
        parts.append(printable(model))
    parts.append("Ctrl-C cancels" if running else "/help")
    lines = [_bar_line(each) for each in running[:MOST_LINES]]
    if len(running) > MOST_LINES:
        lines.append(f"and {len(running) - MOST_LINES} more")
    return "\n".join(f" {line}"[:width] for line in (" · ".join(parts), *lines))


def servers_line(servers: "Iterable[ServerStatus]") -> str:
    """How many servers are in which state."""
    counts = Counter(status.state for status in servers if status.enabled)
    if not counts:
        return "no servers"
    return ", ".join(f"{counts[state]} {words}" for state, words in _WORDS.items() if counts[state])


def _bar_line(running: RunningLine) -> str:
    parts = [printable(running.label)]
    if running.progress is not None and running.total:
        share = min(1.0, max(0.0, running.progress / running.total))
        full = round(share * BAR_CELLS)
        parts.append(f"[{'█' * full}{'░' * (BAR_CELLS - full)}] {share:.0%}")
    elif running.progress is not None:
        parts.append(f"{running.progress:g}")
    if running.message:
        parts.append(printable(running.message))
    parts.append(f"{running.seconds:.0f} s")
    return "  ".join(parts)
