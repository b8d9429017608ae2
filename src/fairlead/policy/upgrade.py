"""Keep the permissions of servers that were configured with an earlier release: never wider than they were.

Since this release the tools of a trusted server go by their annotations where no rule and no mode matches;
before, the user was asked about each of them. A store of an earlier release (it has no `GENERATION`) keeps
that for every trusted server, until the server is added, imported or reviewed with this release.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fairlead.config.load import LoadedServer
from fairlead.errors import StoreError
from fairlead.policy.pins import pins_key
from fairlead.store.protocol import ANY, Store
from fairlead.store.sqlite import Database
from fairlead.store.sqlite_file import GENERATION, STORE_NAMESPACE

logger = logging.getLogger(__name__)

NAMESPACE: Final = "permission defaults"


def follows_trust(server: LoadedServer) -> bool:
    """Does the default of its tools depend on whether it is trusted, and was that another default before?"""
    return (
        server.config is not None
        and server.config.trust == "trusted"
        and server.transport not in ("builtin", "in_process")
    )


async def load_before_defaults(store: Store, server: LoadedServer) -> bool:
    """Do the calls of a server stay asked about, as they were with an earlier release?

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
    """The same, without a host."""
    if not follows_trust(server) or database.get(STORE_NAMESPACE, GENERATION) is not None:
        return False
    return database.get(NAMESPACE, pins_key(server)) is None


def record_defaults(store_path: Path, servers: Iterable[LoadedServer]) -> None:
    """Have servers go by the defaults of this release: the user just wrote or reviewed their entries."""
    trusted = [server for server in servers if follows_trust(server)]
    if trusted and store_path.exists():
        with Database.open(store_path) as database:
            if database.get(STORE_NAMESPACE, GENERATION) is None:
                for server in trusted:
                    database.put(NAMESPACE, pins_key(server), b"{}", expect=ANY)
