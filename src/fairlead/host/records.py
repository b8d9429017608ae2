"""What a host keeps: its store, the audit of its calls, and what did not fit into their results."""

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from fairlead.config.models import Config
from fairlead.config.paths import state_folder, store_file
from fairlead.errors import StoreError
from fairlead.host.artifacts import Artifacts
from fairlead.policy.audit import AuditLog
from fairlead.store.sqlite import SqliteStore
from fairlead.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """Where things are kept. A host without a store remembers nothing, and has no tools that need pins."""

    store: Store | None
    audit: AuditLog
    artifacts: Artifacts
    store_error: StoreError | None = None
    """Why there is no store."""


async def open_records(stack: AsyncExitStack, config: Config, env: Mapping[str, str]) -> Records:
    """Open what a configuration says, until the stack is left."""
    store: Store | None = None
    failure: StoreError | None = None
    try:
        path = store_file(env, config.store.path)
        store = await stack.enter_async_context(SqliteStore.open(path))
    except StoreError as exc:
        failure = exc
        logger.warning("no store: nothing is remembered", exc_info=True)
    return Records(
        store=store,
        audit=await AuditLog.open(store, config.audit),
        artifacts=Artifacts(store, state_folder(env) / "artifacts", config.artifacts),
        store_error=failure,
    )
