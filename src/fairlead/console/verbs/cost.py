"""`/cost`."""

from collections.abc import Mapping
from functools import partial

import anyio
from anyio import to_thread

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.tools import Listing, ToolEntry
from fairlead.console.session import ConsoleSession, Verb
from fairlead.host.model.bundles import Selection
from fairlead.host.model.costs import Costs, costs_of
from fairlead.terminal.tables import (
    WAYS,
    ServerCost,
    by_server,
    cost_in_short,
    describe_token_count,
    tool_costs,
    ways,
)


async def _run(session: ConsoleSession, rest: str) -> None:
    toolset = session.conversation.toolset
    listings = {
        status.server_id: listing
        for status in session.host.status()
        if status.enabled and (listing := session.host.listing(status.server_id)) is not None
    }
    entries = [tool.entry for tool in toolset.catalog.tools]
    # Counting takes the processor for a while, and the prompt needs it.
    counted = partial(_compute_costs, toolset.catalog, toolset.selection, listings, entries)
    costs, servers = await to_thread.run_sync(counted)
    rows = [(server.server, server.count, f"{server.tokens:,}") for server in servers]
    if rows:
        session.screen.table(("server", "tools", "tokens"), rows)
    session.screen.table(WAYS, ways(costs))
    session.screen.say(cost_in_short(costs, toolset.selection))
    session.screen.say(describe_token_count(costs))
    _show_usage(session)


def _compute_costs(
    catalog: Catalog, selection: Selection, listings: Mapping[str, Listing], entries: list[ToolEntry]
) -> tuple[Costs, list[ServerCost]]:
    costs = anyio.run(costs_of, catalog, selection, listings)
    return costs, by_server(tool_costs(costs, entries))


def _show_usage(session: ConsoleSession) -> None:
    usage = session.conversation.usage
    if usage.total:
        cached = f", {usage.cached_tokens:,} of them cached" if usage.cached_tokens else ""
        session.screen.say(
            f"this conversation: {usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"
        )


VERB = Verb(
    name="cost",
    usage="/cost",
    summary="the tokens that your tools and this conversation take",
    run=_run,
)
