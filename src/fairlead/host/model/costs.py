"""Token cost of tool definitions: given directly, behind meta-tools, and per search with those."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.signatures import estimate, exact
from fairlead.catalog.tools import Listing, ToolEntry, ToolKey
from fairlead.host.model.bundles import Selection
from fairlead.host.model.catalogs import cost_of, has_reading, is_direct
from fairlead.host.model.meta_tools import HostTools, MetaTools, SearchableTools
from fairlead.host.model.resource_tools import ArtifactTools, ReadingHost, ReadingTools
from fairlead.host.model.search_answers import RankedTools, rank_tools
from fairlead.host.records import Artifacts
from fairlead.host.search_memory import SearchSession

SEARCHES = 20
"""How many searches the average cost of one is estimated from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Tokens of a catalog, in each way to hand it to a model."""

    tools: Mapping[ToolKey, int]
    """The definition of each tool that is offered."""
    direct: frozenset[ToolKey]
    """The tokens of tools that a model gets directly, as configured."""
    meta: int
    """The definitions of the meta-tools."""
    reading: int
    """The tokens of the tools for resources and prompts; 0 if there are none to read."""
    artifacts: int
    """That of the tool for what does not fit into results; 0 where there are no tools."""
    search: int
    """The average tokens of one search result."""
    exact: bool

    @property
    def all_direct(self) -> int:
        """The tokens of all tools given directly."""
        return sum(self.tools.values())

    @property
    def configured(self) -> int:
        """The tokens that a model gets before its first call, as configured."""
        given = sum(self.tools[key] for key in self.direct)
        meta = self.meta if len(self.direct) < len(self.tools) else 0
        return given + meta + self.reading + self.artifacts


async def costs_of(catalog: Catalog, selection: Selection, listings: Mapping[str, Listing]) -> Costs:
    """Count a catalog: exactly where the tokenizer is at hand, else by its size."""
    chosen = [listing for server_id, listing in listings.items() if selection.has(server_id)]
    reading = ReadingTools(cast("ReadingHost", None), selection)  # defined, and never called
    meta = MetaTools(cast("SearchableTools", _FixedToolset(catalog)))
    together = cost_of(catalog)
    some = catalog.tools[:: len(catalog) // SEARCHES + 1]
    queries = (_sample_query(tool.entry)[:200] for tool in some)
    found = [await meta.call("mcp_search_tools", {"queries": [query]}) for query in queries]
    return Costs(
        tools={tool.key: tool_tokens(tool.entry) for tool in catalog.tools},
        direct=frozenset(tool.key for tool in catalog.tools if is_direct(tool.key, selection, together)),
        meta=_cost_of(meta),
        reading=_cost_of(reading) if has_reading(selection, chosen) else 0,
        artifacts=_cost_of(ArtifactTools(cast("Artifacts", None))) if catalog.tools else 0,
        search=round(sum(tokens(result.text.encode()) for result in found) / max(1, len(found))),
        exact=exact() is not None,
    )


def tokens(text: bytes) -> int:
    """The number of tokens of a text: exact if the tokenizer is installed, else estimated by size."""
    count = exact()
    return estimate(text) if count is None else count(text.decode("utf-8", "replace"))


def tool_tokens(entry: ToolEntry) -> int:
    """The number of tokens of a server's tool as models get it: its definition, and its origin."""
    return tokens(entry.definition) + tokens(entry.key.origin.encode())


def _cost_of(tools: HostTools) -> int:
    return sum(tokens(entry.definition) for _, entry in tools.entries())


def _sample_query(entry: ToolEntry) -> str:
    """A query that a model would search with to find a tool."""
    return (entry.description or entry.title or "").strip().partition(".")[0] or entry.key.tool


class _FixedToolset:
    """The part of a toolset that searching needs, over a fixed catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    @property
    def session(self) -> SearchSession:
        """A new one: every search is the first."""
        return SearchSession()

    @property
    def unavailable_to_model(self) -> dict[str, str]:
        return {}

    async def rank(self, queries: Sequence[str], *, server: str | None = None) -> RankedTools:
        return rank_tools(self.catalog, queries, server=server)
