"""The memory of searches, without a host: read what searches led to, and forget it."""

import time

from fairlead.actions.context import ActionContext, Notice
from fairlead.catalog.search.memory import PastQueries
from fairlead.config.principal import LOCAL
from fairlead.errors import StoreError
from fairlead.host.search_memory import NAMESPACE, keep_newest, memory_prefix, read_memory
from fairlead.store.opening import open_database, open_database_for_reading
from fairlead.store.protocol import ANY


def read_past_queries(context: ActionContext, principal: str = LOCAL) -> PastQueries:
    """The past queries of a principal; none where they are not remembered or cannot be read."""
    if not context.loaded.config.search.memory or not context.store.exists():
        return PastQueries()
    try:
        with open_database_for_reading(context.store) as database:
            stored = database.scan(NAMESPACE, memory_prefix(principal))
    except StoreError:
        return PastQueries()
    return PastQueries(keep_newest(read_memory(stored), time.time()))


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
