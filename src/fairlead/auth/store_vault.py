"""Vault of a shared store: the logins of all principals, for every replica of a gateway.

Each login is a value of its own, which the store encrypts with the cluster key; names tell no more than
digests do. The keyring and files of single machines are not used.
"""

import hashlib
import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from fairlead.auth.tokens import Login, LoginKey
from fairlead.auth.vault import name_of
from fairlead.errors import StoreError, StoreUnavailable
from fairlead.store.protocol import ANY, Store, StoredValue

NAMESPACE: Final = "logins"

logger = logging.getLogger(__name__)


class StoreVault:
    """All logins in a shared store. Every method may raise `StoreError`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: dict[str, Login] = {}

    async def get(self, key: LoginKey) -> Login | None:
        """The login under a key."""
        name = _name(key)
        await self._save_pending()
        login = self._unsaved.get(name)
        if login is None:
            found = await self._store.get(NAMESPACE, name)
            login = _read(found) if found is not None else None
        return login if login is not None and login.key == key else None

    async def find(self, principal: str, account: str, resource: str) -> Login | None:
        """The login for a server, of any issuer: the newest, preferably one that is not over."""
        await self._save_pending()
        logins = _readable(map(_read, await self._scan(_prefix(principal, account, resource))))
        logins = [login for login in logins if (login.principal, login.account) == (principal, account)]
        return next((login for login in reversed(logins) if not login.is_over), next(reversed(logins), None))

    async def put(self, login: Login) -> None:
        """Keep a login. One that cannot be written now is kept in memory, and written with the next use."""
        name = _name(login.key)
        try:
            if (there := await self._store.get(NAMESPACE, name)) is not None:
                _read(there)  # which refuses one of a newer release
            await self._store.put(NAMESPACE, name, msgspec.json.encode(login), expect=ANY)
        except StoreUnavailable:
            # The issuer may have replaced the refresh token already: this is the only one that works.
            self._unsaved[name] = login
            logger.warning("a login is kept in memory until the store answers", exc_info=True)
        else:
            self._unsaved.pop(name, None)

    async def delete(self, key: LoginKey) -> None:
        """Remove a login."""
        self._unsaved.pop(_name(key), None)
        await self._store.delete(NAMESPACE, _name(key), expect=ANY)

    async def logins(self, principal: str | None = None) -> list[Login]:
        """All logins, or one principal's; the one that was kept last comes last."""
        logins = _readable(map(_read_leniently, await self._scan()))
        return [login for login in logins if principal in (None, login.principal)]

    async def _scan(self, prefix: str = "") -> list[StoredValue]:
        return sorted(await self._store.scan(NAMESPACE, prefix), key=lambda found: found.version)

    async def _save_pending(self) -> None:
        for login in list(self._unsaved.values()):
            await self.put(login)


def _prefix(principal: str, account: str, resource: str) -> str:
    return hashlib.sha256("\0".join((principal, account, resource)).encode()).hexdigest()[:32]


def _name(key: LoginKey) -> str:
    return f"{_prefix(key.principal, key.account, key.resource)}/{name_of(key)}"


def _readable(logins: Iterable[Login | None]) -> list[Login]:
    return [login for login in logins if login is not None]


def _read(stored: StoredValue) -> Login | None:
    """Decode a login; None for one that is damaged. Raises `StoreError` for one of a newer release."""
    try:
        return msgspec.json.decode(stored.value, type=Login)
    except msgspec.ValidationError as exc:
        raise StoreError(
            "the login in the store was written by a newer Fairlead",
            hint="update Fairlead, or log out and in again",
        ) from exc
    except (msgspec.DecodeError, RecursionError):
        return None


def _read_leniently(stored: StoredValue) -> Login | None:
    """Decode a login; None for one that cannot be read, so that it costs no other."""
    try:
        return _read(stored)
    except StoreError:
        logger.warning("a login in the store was written by a newer Fairlead", extra={"key": stored.key})
        return None
