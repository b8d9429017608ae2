"""Permissions of servers configured with an earlier release: never wider than they were.

Since this release tools of a trusted server follow their annotations where no rule and no mode matches;
before, each call needed approval. A store of an earlier release (without `GENERATION`) keeps that for every
trusted server until the server is added, imported or reviewed with this release.
"""

import logging
from collections.abc import Iterable
from typing import Final

from fairlead.config.load import LoadedServer
from fairlead.config.store_location import StoreLocation
from fairlead.errors import StoreError
from fairlead.policy.pins import pins_key
from fairlead.store.opening import open_database
from fairlead.store.protocol import ANY, Database, Store
from fairlead.store.sqlite_file import GENERATION, STORE_NAMESPACE

logger = logging.getLogger(__name__)

NAMESPACE: Final = "permission defaults"


def follows_trust(server: LoadedServer) -> bool:
    """Whether the default for a server's tools depends on its trust, and was stricter before."""
    return (
        server.config is not None
        and server.config.trust == "trusted"
        and server.transport not in ("builtin", "in_process")
    )


async def load_before_defaults(store: Store, server: LoadedServer) -> bool:
    """Whether calls to a server still need approval, as with an earlier release.

    A store that cannot be read counts as one of an earlier release.
    """
    if not follows_trust(server):
        return False
    try:
        if await store.get(STORE_NAMESPACE, GENERATION) is not None:
            return False
        return await store.get(NAMESPACE, pins_key(server)) is None
    except StoreError:
        logger.warning("the store cannot be read", exc_info=True, extra={"server_id": server.server_id})
        return True


def read_before_defaults(database: Database, server: LoadedServer) -> bool:
    """Like `load_before_defaults`, without a host."""
    if not follows_trust(server) or database.get(STORE_NAMESPACE, GENERATION) is not None:
        return False
    return database.get(NAMESPACE, pins_key(server)) is None


def record_defaults(store_path: StoreLocation, servers: Iterable[LoadedServer]) -> None:
    """Apply the defaults of this release to servers whose entries the user just wrote or reviewed."""
    trusted = [server for server in servers if follows_trust(server)]
    if trusted and store_path.exists():
        with open_database(store_path) as database:
            if database.get(STORE_NAMESPACE, GENERATION) is None:
                for server in trusted:
                    database.put(NAMESPACE, pins_key(server), b"{}", expect=ANY)
