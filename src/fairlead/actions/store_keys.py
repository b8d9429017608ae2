"""Re-encryption of the shared store after a change of the cluster key."""

from dataclasses import dataclass

from fairlead.actions.context import ActionContext, Notice
from fairlead.config.store_location import RedisLocation
from fairlead.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class RekeyedStore:
    """Result of re-encrypting a store."""

    values: int
    """How many values were written again."""
    notices: list[Notice]
    """What the user should know."""


def rekey_store(context: ActionContext) -> RekeyedStore:
    """Encrypt everything in Redis with the first cluster key, so that the others can be removed.

    Audit records stay as they were written.

    Args:
        context: Who does it.

    Returns:
        How much was encrypted anew.

    Raises:
        ConfigError: The store is a file, which has no key.
        StoreError: Redis cannot be reached, or holds what no key opens.
    """
    location = context.store
    if not isinstance(location, RedisLocation):
        raise ConfigError("the store is a file, which has no key", hint="name a Redis in `store`")
    from fairlead.store.redis_database import RedisDatabase  # an extra

    with RedisDatabase.open(location) as database:
        count = database.reseal_all()
    return RekeyedStore(values=count, notices=context.record("rekey", "", values=count))
