"""Search memory and embeddings: past queries of a principal, and the model of `search.embeddings`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio

from fairlead.actions.context import ActionContext, Notice
from fairlead.actions.known_catalog import KnownCatalog
from fairlead.catalog.search.evaluation import SearchQuestion
from fairlead.catalog.search.memory import PastQueries, ToolMemory
from fairlead.catalog.search.score import SemanticIndex
from fairlead.config.principal import LOCAL
from fairlead.errors import StoreError
from fairlead.host.search_memory import NAMESPACE, keep_newest, memory_prefix, read_memory
from fairlead.store.opening import open_database, open_database_for_reading
from fairlead.store.protocol import ANY

MAKE_SECONDS: Final = 60.0
"""How long a search waits for the vectors of tools that have none: a short command has no later search."""


async def embed_queries(
    context: ActionContext, found: KnownCatalog, queries: Sequence[str]
) -> Mapping[str, SemanticIndex]:
    """Compare tools with queries by the model of `search.embeddings`, as the searches of agents do.

    Vectors of tools that have none are made first and kept, as long as that takes less than a minute.

    Args:
        context: Who searches.
        found: The tools.
        queries: The texts of the searches.

    Returns:
        The comparison for each query; empty where no model is configured. A query for which the model is away
        is not in it: that search is by words.
    """
    # Loads the host and its HTTP client, which a search by words does without.
    from fairlead.host.host import Host
    from fairlead.host.model.embeddings import BATCH

    settings = found.selection.embeddings
    if settings is None:
        return {}
    compared: dict[str, SemanticIndex] = {}
    async with Host.open(replace(context.loaded, servers={}), env=context.env) as host:
        for start in range(0, len(queries), BATCH):
            some = queries[start : start + BATCH]
            meaning = await host.embeddings.compare(settings, found.catalog, some)
            if meaning is None:
                with anyio.move_on_after(MAKE_SECONDS):
                    await host.embeddings.wait()
                meaning = await host.embeddings.compare(settings, found.catalog, some)
            if meaning is None:
                break  # it is away: the other queries need not wait for it again
            compared.update(dict.fromkeys(some, meaning))
    return compared


def read_past_queries(context: ActionContext, principal: str = LOCAL) -> PastQueries:
    """The past queries of a principal; none where they are not remembered or cannot be read."""
    return PastQueries(_read_remembered(context, principal))


def read_past_questions(context: ActionContext, principal: str = LOCAL) -> list[SearchQuestion]:
    """The past queries of a principal as questions, the oldest first; answers are the tools they led to."""
    found: dict[str, tuple[float, set[str]]] = {}
    for memory in _read_remembered(context, principal):
        for past in memory.queries:
            last_used, keys = found.get(past.text, (0.0, set[str]()))
            found[past.text] = max(last_used, past.last_used), {*keys, str(memory.key)}
    ordered = sorted(found.items(), key=lambda item: (item[1][0], item[0]))
    return [
        SearchQuestion(question_id=str(number), text=text, gold=(frozenset(keys),), searches=(text,))
        for number, (text, (_, keys)) in enumerate(ordered, start=1)
    ]


def _read_remembered(context: ActionContext, principal: str) -> list[ToolMemory]:
    if not context.loaded.config.search.memory or not context.store.exists():
        return []
    try:
        with open_database_for_reading(context.store) as database:
            stored = database.scan(NAMESPACE, memory_prefix(principal))
    except StoreError:
        return []
    return keep_newest(read_memory(stored), time.time())


def forget_searches(context: ActionContext, principal: str = LOCAL) -> tuple[int, list[Notice]]:
    """Forget which tools the searches of a principal led to.

    Returns:
        How many queries were forgotten, and what the user should know.
    """
    if not context.store.exists():
        return 0, []
    with open_database(context.store) as database:
        stored = database.scan(NAMESPACE, memory_prefix(principal))
        for value in stored:
            database.delete(NAMESPACE, value.key, expect=ANY)
    count = sum(len(memory.queries) for memory in read_memory(stored))
    return count, context.record("forget searches", "", of=principal, queries=count) if stored else []
