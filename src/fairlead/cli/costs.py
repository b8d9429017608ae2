"""What tools cost a model to read, for people: by server or by tool, with a bar for each on a terminal."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fairlead.catalog.entries import ToolEntry
from fairlead.cli.known import Known
from fairlead.cli.output import print_data, print_json, print_table, say

if TYPE_CHECKING:
    from fairlead.host.costs import Costs

LONGEST_BAR = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCost:
    """One tool."""

    server: str
    tool: str
    tokens: int
    offered: bool
    """Do agents get it at all?"""
    direct: bool
    """As it is, rather than behind the meta-tools?"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCost:
    """All that is offered of one server."""

    server: str
    tools: int
    offered: int
    tokens: int


def show_costs(found: Known, entries: Sequence[ToolEntry], *, by_tool: bool, as_json: bool) -> None:
    """Show what the entries cost, and what all tools of the choice cost in each way to hand them over."""
    import anyio

    from fairlead.host.costs import costs_of, tokens

    costs = anyio.run(costs_of, found.catalog, found.selection, found.listings)
    tools = [
        ToolCost(
            server=entry.key.server_id,
            tool=entry.key.shown_tool,
            tokens=tokens(entry.definition),
            offered=entry.key in costs.tools,
            direct=entry.key in costs.direct,
        )
        for entry in entries
    ]
    if as_json:
        of_servers = [asdict(server) for server in _by_server(tools)]
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
            [(server.server, _count(server), server.tokens) for server in _by_server(tools)],
        )
        _show_totals(found, costs)


def _by_server(tools: Iterable[ToolCost]) -> list[ServerCost]:
    """The most costly first."""
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


def _count(server: ServerCost) -> str:
    every = server.offered == server.tools
    return f"{server.tools}" if every else f"{server.offered} of {server.tools}"


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


def _totals(found: Known, costs: "Costs") -> dict[str, Any]:
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


def _show_totals(found: Known, costs: "Costs") -> None:
    count = len(costs.tools)
    ways = [
        ("direct", costs.all_direct, "the definitions of all tools, in every request"),
        ("meta", costs.meta, "the meta-tools in their place, in every request"),
        ("search", costs.search, "what one search with the meta-tools brings, on average"),
    ]
    if costs.reading:
        ways.append(("reading", costs.reading, "the tools for resources and prompts, besides"))
    width = max(len("tokens"), *(len(f"{tokens:,}") for _, tokens, _ in ways))
    rows = [(way, f"{tokens:>{width},}", what) for way, tokens, what in ways]
    print_data("")
    print_table(("given as", "tokens", "what a model reads"), rows)
    mode, budget = found.selection.mode, found.selection.token_budget
    how = f"`{mode}`, with a budget of {budget:,}" if mode == "auto" else f"`{mode}`"
    say(f"\nas configured ({how}): {costs.configured:,} tokens, {len(costs.direct)} of {count} tools direct")
    say("counted with o200k_base" if costs.exact else "estimated from their size")
