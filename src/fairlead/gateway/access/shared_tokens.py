"""Named tokens of a gateway whose replicas share a store: made and revoked once, for all of them.

They are digests, as in the file of a single machine. Each replica follows the list and decides from memory: a
revoked token is refused as soon as the store's message arrives, and within two seconds without one. A token
that is not in memory is looked up in the store before it is refused: another replica may just have made it.
"""

import logging
import math
import random
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from fairlead.config.store_location import RedisLocation
from fairlead.errors import ConfigUnreadable, StoreError, VersionConflict
from fairlead.gateway.access.tokens import NamedToken, TokenFile, TokenOwner, decode_tokens, encode_tokens
from fairlead.store.opening import open_database
from fairlead.store.protocol import Store, StoredValue

NAMESPACE: Final = "gateway tokens"
KEY: Final = "named"
TOPIC: Final = "gateway tokens"
LOOK_SECONDS: Final = 2.0
LOOKUP_TIMEOUT_SECONDS: Final = 2.0
"""How long a request with an unknown token waits for the store before it is refused."""

logger = logging.getLogger(__name__)


class StoredTokens(TokenFile):
    """The named tokens in a shared store, for commands that list, make and revoke them.

    A gateway accepts those in the file of its machine, too: of installed agents, and of the time before its
    store was a shared one. What is accepted has to be listed, and can be revoked.

    Args:
        location: The shared store.
        machine: The tokens that only this machine accepts.
    """

    def __init__(self, location: RedisLocation, machine: TokenFile) -> None:
        self._location = location
        self._machine = machine

    def read(self) -> list[NamedToken]:
        """Return all tokens that this machine accepts. Raises `StoreError` or `ConfigUnreadable`."""
        with open_database(self._location) as database:
            shared = _read(database.get(NAMESPACE, KEY))
        return [*shared, *self._machine.read()]

    def read_unshared(self) -> list[NamedToken]:
        """Return those that only this machine accepts. Raises `ConfigUnreadable`."""
        return self._machine.read()

    def remove(self, name: str) -> bool:
        """Revoke a token, here and at all replicas. Returns whether there was one."""
        # First what needs no store: a token that must go should not stay because the store is away.
        is_here = any(token.name == name for token in self._machine.read()) and self._machine.remove(name)
        return super().remove(name) or is_here

    def _require_new(self, name: str, kept: list[NamedToken]) -> None:
        super()._require_new(name, [*kept, *self._machine.read()])

    def _change(self, change: Callable[[list[NamedToken]], list[NamedToken]]) -> None:
        with open_database(self._location) as database:
            while True:
                found = database.get(NAMESPACE, KEY)
                value = encode_tokens(change(_read(found)))
                try:
                    database.put(NAMESPACE, KEY, value, expect=found.version if found else None)
                except VersionConflict:
                    continue  # another made one at the same moment
                database.publish(TOPIC, b"")
                return


class TokenMirror:
    """The named tokens of a shared store, as one replica knows them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.owners: dict[str, TokenOwner] = {}
        """Whom each token stands for, by its digest."""
        self.version = 0
        """Of the list in the store: another one means other owners."""
        self._lookup = anyio.Lock()
        self._lookup_began = -math.inf

    async def look_once_more(self) -> None:
        """Read the tokens for a request whose token is not known: one read for all that wait for it.

        A store that is away or slow leaves the tokens as they are.
        """
        asked = anyio.current_time()
        try:
            with anyio.fail_after(LOOKUP_TIMEOUT_SECONDS):
                async with self._lookup:
                    # A read that began later has seen all that was there when this one was asked for.
                    if self._lookup_began <= asked:
                        self._lookup_began = anyio.current_time()
                        await self.look()
        except (StoreError, ConfigUnreadable, TimeoutError) as exc:
            logger.warning("an unknown token was not looked up", extra={"reason": str(exc)})

    async def look(self) -> None:
        """Read the tokens from the store."""
        found = await self._store.get(NAMESPACE, KEY)
        version = found.version if found is not None else 0
        if version != self.version:
            self.owners = {token.digest: token.owner for token in _read(found)}
            self.version = version

    async def follow(self) -> None:
        """Follow the tokens in the store, until cancelled."""
        while True:
            try:
                async with self._store.subscribe(TOPIC) as hints:
                    while True:
                        await self.look()
                        with anyio.move_on_after(LOOK_SECONDS):
                            await anext(hints)
            except StopAsyncIteration:
                return  # the store is closed
            except (StoreError, ConfigUnreadable):
                logger.warning("list of named tokens not refreshed", exc_info=True)
                await anyio.sleep(LOOK_SECONDS * random.uniform(0.5, 1))  # noqa: S311 - not all at once


def _read(found: StoredValue | None) -> list[NamedToken]:
    if found is None:
        return []
    try:
        return decode_tokens(found.value.decode(), "the list of tokens in the store")
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        hint = "revoke all tokens, and make new ones"
        raise ConfigUnreadable("the list of tokens in the store is damaged", hint=hint) from exc
