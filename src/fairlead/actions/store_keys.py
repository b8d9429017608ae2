"""The cluster key of the shared store: a new one, and re-encryption after a change."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.actions.context import ActionContext, Notice
from fairlead.config.document.files import hold_lock, read_text, write_atomic
from fairlead.config.store_location import RedisLocation, key_file
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedKey:
    """Outcome of saving a new cluster key."""

    path: Path
    keys: int
    """How many keys the file has now: the first encrypts, all decrypt."""


def save_new_key(env: Mapping[str, str]) -> SavedKey:
    """Make a cluster key and write it into the configuration folder, in front of those that are there.

    There is no audit record of it: one in Redis would be encrypted with a key that no other replica has yet.

    Raises:
        ConfigUnreadable: The file cannot be read.
        ConfigUnwritable: It cannot be written.
    """
    from fairlead.store.cluster_key import new_cluster_key

    path = key_file(env)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with hold_lock(path):
        before = read_text(path).split() if path.exists() else []
        write_atomic(path, "\n".join([new_cluster_key(), *before]) + "\n", mode=0o600)
    return SavedKey(path=path, keys=1 + len(before))
