"""Where logins are kept between runs: secrets in the system's keyring where it has one, else in a file.

`mcp-auth.json` has an entry for each login in either case; it says where the secrets are, so that all
processes look in the same place. A login stays where it is. New ones go to the keyring where this process can
use one; `FAIRLEAD_VAULT` (`file` or `keyring`) decides otherwise.
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, cast

import msgspec
from anyio import to_thread

from fairlead.auth import keyring_parts
from fairlead.auth.tokens import Login, LoginKey
from fairlead.auth.vault_entries import FIELDS, PUBLIC, entry_of, login_of, name_of
from fairlead.auth.vault_file import Entries, Entry, VaultFile, Warn
from fairlead.config.paths import state_folder
from fairlead.errors import ConfigError, ConfigUnwritable, FairleadError, SecretUnavailable

FILE_NAME: Final = "mcp-auth.json"
VARIABLE: Final = "FAIRLEAD_VAULT"

Place: TypeAlias = Literal["auto", "file", "keyring"]

_KEYRING: Final = "keyring"
"""The field that says under which name, and in how many parts, the keyring has an entry's secrets."""

logger = logging.getLogger(__name__)


def log_warning(trouble: FairleadError) -> None:
    """Warn in the log, for want of somebody to tell."""
    logger.warning("trouble with kept logins", extra={"reason": str(trouble), "hint": trouble.hint})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unsaved:
    """A login that could not be written. It holds until somebody else writes another one."""

    login: Login
    instead_of: Entry | None


class Vault:
    """All logins of this user. Reading is cheap: the file is read again only where it changed."""

    def __init__(self, path: Path, *, place: Place = "auto", warn: Warn = log_warning) -> None:
        self._file = VaultFile(path, warn)
        self._place: Place = place
        self._warn = warn
        self._turn = threading.Lock()
        self._unsaved: dict[str, _Unsaved] = {}
        self._opened: dict[str, tuple[Entry, Login | None]] = {}

    @classmethod
    def of(cls, env: Mapping[str, str], *, warn: Warn = log_warning) -> Self:
        """The vault of the user whose environment this is."""
        place = env.get(VARIABLE) or "auto"
        if place not in ("auto", "file", "keyring"):
            raise ConfigError(f"`{VARIABLE}` is `{place}`", hint="set it to `file` or to `keyring`")
        return cls(state_folder(env) / FILE_NAME, place=place, warn=warn)

    async def get(self, key: LoginKey) -> Login | None:
        """The login under a key. Raises `ConfigError` where there may be one that cannot be read."""
        login = await to_thread.run_sync(self._get, name_of(key))
        # Names are short digests, and the file is anybody's to edit: whose a login is, it says itself.
        return login if login is not None and login.key == key else None

    async def find(self, principal: str, account: str, resource: str) -> Login | None:
        """The login for a server, whoever issued it: the newest, and rather one that is not over."""
        wanted = {"principal": principal, "account": account, "resource": resource}
        logins = await to_thread.run_sync(self._matching, wanted)
        return next((login for login in reversed(logins) if not login.is_over), next(reversed(logins), None))

    async def put(self, login: Login) -> None:
        """Keep a login. Where that fails it is kept in memory, and the user is warned."""
        await to_thread.run_sync(self._put, login)

    async def delete(self, key: LoginKey) -> None:
        """Remove a login. Raises `ConfigError` where that fails."""
        await to_thread.run_sync(self._delete, name_of(key))

    async def logins(self, principal: str | None = None) -> list[Login]:
        """All logins, or one principal's; the one that was kept last comes last."""
        wanted = {} if principal is None else {"principal": principal}
        return await to_thread.run_sync(self._matching, wanted)

    def _get(self, name: str) -> Login | None:
        with self._turn:
            return self._current(name, self._entries())

    def _matching(self, wanted: dict[str, str]) -> list[Login]:
        with self._turn:
            entries = self._entries()
            unsaved = {name: entry_of(unsaved.login) for name, unsaved in self._unsaved.items()}
            names = [name for name, entry in {**entries, **unsaved}.items() if _matches(entry, wanted)]
            logins = [self._current(name, entries) for name in names]
        return [login for login in logins if login is not None]

    def _put(self, login: Login) -> None:
        name = name_of(login.key)
        with self._turn:
            try:
                self._save(name, login)
            except ConfigError as exc:
                self._unsaved[name] = _Unsaved(login=login, instead_of=self._readable().get(name))
                message = f"the login to {login.resource} is kept in memory only: {exc}"
                self._warn(ConfigUnwritable(message, hint=exc.hint))
            else:
                self._unsaved.pop(name, None)
                self._save_the_unsaved()

    def _delete(self, name: str) -> None:
        with self._turn:
            self._unsaved.pop(name, None)
            self._opened.pop(name, None)
            old = self._file.read().get(name)
            self._file.change(lambda entries: {other: entries[other] for other in entries if other != name})
            self._clear_keyring(old)

    def _entries(self) -> Entries:
        """What the file holds. That it cannot be used is no reason to fail for whoever has other logins."""
        return self._readable() if self._unsaved else self._file.read()

    def _readable(self) -> Entries:
        try:
            return self._file.read()
        except ConfigError:
            return {}

    def _current(self, name: str, entries: Entries) -> Login | None:
        entry, unsaved = entries.get(name), self._unsaved.get(name)
        if unsaved is not None:
            if unsaved.instead_of == entry:
                return unsaved.login
            del self._unsaved[name]  # another process logged in or out since
        if not isinstance(entry, dict):
            return None
        if self._opened.get(name, (None, None))[0] != entry:
            self._opened[name] = entry, self._open(entry)
        return self._opened[name][1]

    def _open(self, entry: Entry) -> Login | None:
        kept = _Kept.of(entry)
        if kept is None:
            return login_of(entry)
        if self._place == "file":
            return None
        try:
            text = keyring_parts.get(kept.name, kept.parts)
        except SecretUnavailable as exc:
            hint = f"unlock the keyring, or log in again with `{VARIABLE}=file`"
            raise SecretUnavailable(f"a login cannot be read: {exc}", hint=hint) from exc
        return login_of({**entry, **msgspec.json.decode(text, type=dict[str, Any])}) if text else None

    def _save(self, name: str, login: Login) -> None:
        old = self._file.read().get(name)
        entry = self._sealed(name, login, old)

        def replace(entries: Entries) -> Entries:
            unknown = {field: value for field, value in entries.get(name, {}).items() if field not in _OURS}
            # The newest comes last.
            return {**{other: entries[other] for other in entries if other != name}, name: unknown | entry}

        self._file.change(replace)
        # Only now: until the file named the new secrets, the old ones were the login.
        self._clear_keyring(old)

    def _save_the_unsaved(self) -> None:
        for name, unsaved in list(self._unsaved.items()):
            if self._file.read().get(name) == unsaved.instead_of:
                try:
                    self._save(name, unsaved.login)
                except ConfigError:
                    continue  # the user has been told
            del self._unsaved[name]

    def _sealed(self, name: str, login: Login, old: Entry | None) -> Entry:
        """The entry of a login; its secrets go to the keyring where they belong there."""
        entry = entry_of(login)
        before = _Kept.of(old or {})
        if self._place == "file" or (self._place == "auto" and old is not None and before is None):
            return entry
        # Two names take turns, so that what the file names is whole at any time.
        slot = f"login/{name}/{'b' if before and before.name.endswith('/a') else 'a'}"
        secrets = {field: value for field, value in entry.items() if field not in PUBLIC}
        parts = keyring_parts.put(slot, msgspec.json.encode(secrets).decode())
        if parts is not None:
            public = {field: value for field, value in entry.items() if field in PUBLIC}
            return {**public, _KEYRING: {"name": slot, "parts": parts}}
        if self._place == "keyring":
            raise SecretUnavailable(
                f"the keyring cannot be used, and `{VARIABLE}` says `keyring`",
                hint=f"set `{VARIABLE}` to `file`",
            )
        return entry

    def _clear_keyring(self, entry: Entry | None) -> None:
        kept = _Kept.of(entry or {})
        if kept is None or self._place == "file":
            return
        try:
            keyring_parts.delete(kept.name, kept.parts)
        except SecretUnavailable:
            logger.warning("old secrets stay in the keyring", exc_info=True)


def _matches(entry: object, wanted: dict[str, str]) -> bool:
    return isinstance(entry, dict) and wanted.items() <= cast("Entry", entry).items()


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Where in the keyring the secrets of an entry are."""

    name: str
    parts: int

    @classmethod
    def of(cls, entry: Entry) -> "_Kept | None":
        """What an entry says of it, if anything."""
        try:
            return msgspec.convert(entry.get(_KEYRING), _Kept | None)
        except msgspec.ValidationError:
            return None


_OURS: Final = FIELDS | {_KEYRING}
