"""Tables and rows that several surfaces show: audit records, token costs, and finished calls.

What tools cost a model to read, for people: by server or by tool, with a bar for each on a terminal.

Output about a model's run.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.loop.events import RunOutcome, ToolReturned
from fairlead.policy.audit import AuditRecord
from fairlead.terminal.output import print_data, print_json, print_table, printable, say

if TYPE_CHECKING:
    from fairlead.actions.known_catalog import KnownCatalog
    from fairlead.host.model.bundles import Selection
    from fairlead.host.model.costs import Costs


COLUMNS: Final = ("time", "who", "what", "decision", "outcome", "ms", "bytes")


def audit_row(record: AuditRecord) -> tuple[str, ...]:
    """Row for an audit record: principal, action, decision and outcome."""
    return (
        f"{datetime.fromtimestamp(record.at).astimezone():%Y-%m-%d %H:%M:%S}",
        record.principal or "-",
        _describe_record(record),
        _decision(record),
        _outcome(record),
        "-" if record.seconds is None else f"{record.seconds * 1000:.1f}",
        "-" if record.bytes is None else str(record.bytes),
    )


def _describe_record(record: AuditRecord) -> str:
    if record.kind == "call":
        return ToolKey(record.server, record.tool).qualified
    details = " ".join(f"{name}={value}" for name, value in (record.details or {}).items())
    return " ".join(filter(None, (record.kind, record.server, details)))


def _decision(record: AuditRecord) -> str:
    if not record.verdict:
        return "-"
    whose = "" if record.by in ("", "policy") else f" by {record.by}"
    return f"{record.verdict}{whose}" + (f": {record.reason}" if record.reason else "")


def _outcome(record: AuditRecord) -> str:
    match record.stage:
        case "asked":
            return "not answered"
        case "sent":
            return "not finished"  # under way, or its host died
        case _:
            unsure = record.delivery == "unknown"
            found = f" ({', '.join(record.findings)})" if record.findings else ""
            return f"{record.outcome or '-'}{', delivery unknown' if unsure else ''}{found}"


LONGEST_BAR = 30
WAYS = ("given as", "tokens", "what a model reads")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCost:
    """Token cost of one tool."""

    server: str
    tool: str
    tokens: int
    offered: bool
    """Do agents get it at all?"""
    direct: bool
    """As it is, rather than behind the meta-tools?"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCost:
    """Token cost of all that is offered of one server."""

    server: str
    tools: int
    offered: int
    tokens: int

    @property
    def count(self) -> str:
        """Number of its tools that are offered."""
        every = self.offered == self.tools
        return f"{self.tools}" if every else f"{self.offered} of {self.tools}"


def show_costs(found: "KnownCatalog", entries: Sequence[ToolEntry], *, by_tool: bool, as_json: bool) -> None:
    """Show the token costs of entries, and of the whole selection in each way to give it to a model."""
    import anyio

    from fairlead.host.model.costs import costs_of

    costs = anyio.run(costs_of, found.catalog, found.selection, found.listings)
    tools = tool_costs(costs, entries)
    if as_json:
        of_servers = [asdict(server) for server in by_server(tools)]
        print_json(
            {**_totals(found, costs), "servers": of_servers, "tools": [asdict(tool) for tool in tools]}
        )
    elif by_tool:
        ordered = sorted(tools, key=lambda tool: -tool.tokens)
        _chart(
            ("tool", "offered", "tokens"),
            [(tool.tool, "yes" if tool.offered else "no", tool.tokens) for tool in ordered],
        )
    else:
        _chart(
            ("server", "tools", "tokens"),
            [(server.server, server.count, server.tokens) for server in by_server(tools)],
        )
        print_data("")
        print_table(WAYS, ways(costs))
        say(f"\n{cost_in_short(costs, found.selection)}")
        say(describe_token_count(costs))


def tool_costs(costs: "Costs", entries: Iterable[ToolEntry]) -> list[ToolCost]:
    """Token cost of each entry."""
    from fairlead.host.model.costs import tool_tokens

    return [
        ToolCost(
            server=entry.key.server_id,
            tool=entry.key.shown_tool,
            tokens=tool_tokens(entry),
            offered=entry.key in costs.tools,
            direct=entry.key in costs.direct,
        )
        for entry in entries
    ]


def by_server(tools: Iterable[ToolCost]) -> list[ServerCost]:
    """Token costs added up by server, the highest first."""
    by_server: dict[str, list[ToolCost]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(tool)
    sums = [
        ServerCost(
            server=server_id,
            tools=len(of_server),
            offered=sum(tool.offered for tool in of_server),
            tokens=sum(tool.tokens for tool in of_server if tool.offered),
        )
        for server_id, of_server in by_server.items()
    ]
    return sorted(sums, key=lambda server: -server.tokens)


def _chart(columns: tuple[str, str, str], rows: Sequence[tuple[str, str, int]]) -> None:
    """A table whose last column is a number."""
    most = max((number for *_, number in rows), default=0)
    width = max(len(columns[-1]), len(f"{most:,}"))
    cells = [(name, note, f"{number:>{width},}") for name, note, number in rows]
    if not sys.stdout.isatty():
        print_table(columns, cells)
        return
    bars = ["▇" * round(LONGEST_BAR * number / (most or 1)) for *_, number in rows]
    print_table((*columns, ""), [(*row, bar) for row, bar in zip(cells, bars, strict=True)])


def _totals(found: "KnownCatalog", costs: "Costs") -> dict[str, Any]:
    return {
        "exact": costs.exact,
        "direct": costs.all_direct,
        "meta": costs.meta,
        "reading": costs.reading,
        "artifacts": costs.artifacts,
        "search": costs.search,
        "configured": costs.configured,
        "mode": found.selection.mode,
        "token_budget": found.selection.token_budget,
    }


def ways(costs: "Costs") -> list[tuple[str, str, str]]:
    """Rows of a table: the token cost of each way to give a model all tools."""
    found = [
        ("direct", costs.all_direct, "the definitions of all tools, in every request"),
        ("meta", costs.meta, "the meta-tools in their place, in every request"),
        ("search", costs.search, "what one search with the meta-tools brings, on average"),
    ]
    if costs.reading:
        found.append(("reading", costs.reading, "the tools for resources and prompts, besides"))
    width = max(len("tokens"), *(len(f"{tokens:,}") for _, tokens, _ in found))
    return [(way, f"{tokens:>{width},}", what) for way, tokens, what in found]


def cost_in_short(costs: "Costs", selection: "Selection") -> str:
    """Token cost before a model's first call, in one line."""
    mode, budget = selection.mode, selection.token_budget
    how = f"`{mode}`, with a budget of {budget:,}" if mode == "auto" else f"`{mode}`"
    direct = f"{len(costs.direct)} of {len(costs.tools)} tools direct"
    return f"as configured ({how}): {costs.configured:,} tokens, {direct}"


def describe_token_count(costs: "Costs") -> str:
    """The method by which tokens were counted."""
    return "counted with o200k_base" if costs.exact else "estimated from their size"


ENDINGS: Final[dict[RunOutcome, str | None]] = {
    "finished": None,
    "needs_a_person": (
        "what the model called last needs a login, a consent or an approval, and no user could be prompted:"
        " the hint above says what settles it"
    ),
    "gave_up": "the model gave up",
    "cut_off": "the model's answer was cut off; `max_output_tokens` of `model` is its length",
    "max_steps": "stopped before the model was done; `--max-steps` limits the requests to it",
    "max_tokens": "stopped before the model was done: it has used its `--max-tokens`",
    "cancelled": "ended, as you wanted",
}
"""How a run ended, where that is worth saying."""


def call_line(event: ToolReturned, hint: str | None = None) -> str:
    """A call that is over, in a line, and below it whether its server may have carried it out, and the hint.

    The hint is that of the event, or another in its place.
    """
    line = f"  {printable(event.tool)}  {event.seconds:.2f} s"
    if not event.result.is_error:
        return line
    first = next((line for line in event.result.text.splitlines() if line.strip()), "")
    advice = hint or event.hint
    below = f"\n    hint: {printable(advice)}" if advice and advice not in first else ""
    doubt = f"\n    note: {notice}" if (notice := event.result.doubt) and notice not in first else ""
    return f"{line}  failed: {printable(first[:200])}{doubt}{below}"
