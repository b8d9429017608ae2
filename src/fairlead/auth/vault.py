"""The vault: stored logins, with secrets in the system's keyring where there is one, else in a file.

`mcp-auth.json`, readable by its owner only, has an entry for each login under `servers`, which says where the
secrets are, so that all processes look in the same place. A login stays where it is. New ones go to the
keyring if this process can use one, unless `FAIRLEAD_VAULT` (`file` or `keyring`) decides. Unknown entries
and fields are kept.
"""

import hashlib
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec
from anyio import to_thread

from fairlead.auth.tokens import Login, LoginKey, OAuthClient, Token
from fairlead.config.document.files import READ_LIMIT, hold_lock, write_atomic
from fairlead.config.paths import state_folder
from fairlead.config.secrets import keyring
from fairlead.errors import ConfigError, ConfigUnreadable, ConfigUnwritable, FairleadError, SecretUnavailable

VERSION: Final = 1

VaultEntry: TypeAlias = dict[str, Any]
Entries: TypeAlias = Mapping[str, VaultEntry]
Warn: TypeAlias = Callable[[FairleadError], None]
"""Warns the user: a message, and a hint what to do."""

_Stamp: TypeAlias = tuple[int, int, int]


class VaultFile:
    """The entries of one file: read again only when it changed, changed under a lock and in one step."""

    def __init__(self, path: Path, warn: Warn) -> None:
        self.path = path
        self._warn = warn
        self._turn = threading.Lock()
        self._stamp: _Stamp | None = None
        self._entries: Entries = {}

    def read(self) -> Entries:
        """All entries, none where there is no file. Raises `ConfigUnreadable` where it is not safe to use."""
        with self._turn:
            status = self._look()
            if status is None:
                self._stamp, self._entries = None, {}
            elif self._stamp != _stamp(status):
                # Stamped before it is read: a change in between is then seen the next time.
                self._stamp, self._entries = _stamp(status), _entries_of(self._document())
            return self._entries

    def change(self, change: Callable[[Entries], Entries]) -> None:
        """Replace the entries by what `change` makes of them; no change of other processes is lost.

        Raises `ConfigUnreadable` or `ConfigUnwritable`, and the file is then as it was.
        """
        with suppress(OSError):  # taking the lock meets the same trouble, and explains it
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._look()
        with hold_lock(self.path):
            document = self._read_locked_document()
            before = _entries_of(document)
            after = change(before)
            if list(after.items()) != list(before.items()):  # their order counts
                text = msgspec.json.encode({**document, "version": VERSION, "servers": after})
                write_atomic(self.path, msgspec.json.format(text, indent=2).decode() + "\n", mode=0o600)

    def _look(self) -> os.stat_result | None:
        """Check that no other user can have written or can read the file; None if there is no file."""
        status: os.stat_result | None = None
        for place, mode in ((self.path.parent, 0o700), (self.path, 0o600)):
            try:
                status = place.lstat()
                self._require_own(place, status)
                if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & 0o077:
                    place.chmod(mode)
            except FileNotFoundError:
                return None
            except OSError as exc:
                raise _unreadable(place, exc.strerror or str(exc), "check its permissions") from exc
        return status

    def _require_own(self, place: Path, status: os.stat_result) -> None:
        wanted, kind = (
            (stat.S_ISREG, "plain file") if place == self.path else (stat.S_ISDIR, "folder of its own")
        )
        if not wanted(status.st_mode):
            what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else f"no {kind}"
            raise _unreadable(place, f"it is {what}", f"logins need a {kind} there: move it away")
        if sys.platform != "win32" and status.st_uid != os.geteuid():
            raise _unreadable(place, "it belongs to another user", "give it to the user who runs Fairlead")

    def _document(self) -> dict[str, Any]:
        document = _parse_document(self._bytes())
        if document is not None:
            return document
        with hold_lock(self.path):
            return self._read_locked_document()

    def _read_locked_document(self) -> dict[str, Any]:
        document = _parse_document(self._bytes()) if self._look() else {}
        if document is None:
            self._set_aside()
        return document or {}

    def _bytes(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                content = file.read(READ_LIMIT + 1)
        except OSError as exc:
            raise _unreadable(self.path, exc.strerror or str(exc), "check its permissions") from exc
        if len(content) > READ_LIMIT:
            raise _unreadable(self.path, f"it is larger than {READ_LIMIT:,} bytes", "move it away")
        return content

    def _set_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        try:
            self.path.rename(aside)
        except OSError as exc:
            raise _unreadable(self.path, "it is damaged", "move it away, and log in again") from exc
        hint = f"log in again; what can be saved is in `{aside}`"
        self._warn(ConfigUnreadable(f"`{self.path}` was damaged, and is set aside", hint=hint))


def _parse_document(content: bytes) -> dict[str, Any] | None:
    """The document, or None where there is no making sense of it."""
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
    version = document.get("version", VERSION)
    if not isinstance(version, int) or not isinstance(document.get("servers", {}), dict):
        return None
    if version > VERSION:
        raise ConfigUnreadable("cannot read the logins: a newer Fairlead wrote them", hint="update Fairlead")
    return document


def _entries_of(document: dict[str, Any]) -> Entries:
    return cast("Entries", document.get("servers", {}))


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _unreadable(place: Path, reason: str, hint: str) -> ConfigUnreadable:
    return ConfigUnreadable(f"logins are not kept in `{place}`: {reason}", hint=hint)


PUBLIC: Final = frozenset(
    {
        *("principal", "account", "issuer", "resource", "audience", "token_endpoint"),
        *("token_type", "expires_at", "issued_at", "scope"),
        *("client_id", "client_auth", "client_origin", "client_redirect_uri", "client_secret_expires_at"),
    }
)
"""Fields that may stand in a file where secrets are elsewhere. All others count as secrets."""


def name_of(key: LoginKey) -> str:
    """The unique name of a login's entry: the server's host and a digest."""
    text = "\0".join((key.principal, key.account, key.issuer, key.resource))
    return f"{urlsplit(key.resource).hostname}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def entry_of(login: Login) -> VaultEntry:
    """Entry of a login: its fields, without those that are unset."""
    fields: VaultEntry = msgspec.to_builtins(login)
    client, token = fields.pop("client"), fields.pop("token")
    fields |= token | {_client_field(name): value for name, value in client.items()}
    return {name: value for name, value in fields.items() if value is not None}


def login_of(entry: VaultEntry) -> Login | None:
    """The login of an entry, or None where a required part is missing."""
    fields: dict[str, Any] = {
        **entry,
        "token": entry,
        "client": {name: entry[_client_field(name)] for name in _CLIENT if _client_field(name) in entry},
    }
    try:
        return msgspec.convert(fields, Login)
    except msgspec.ValidationError:
        return None


def _client_field(name: str) -> str:
    return name if name.startswith("client_") else f"client_{name}"


_CLIENT: Final = tuple(OAuthClient.__struct_fields__)

FIELDS: Final = frozenset(
    {*Login.__struct_fields__, *Token.__struct_fields__, *map(_client_field, _CLIENT)} - {"client", "token"}
)
"""All fields of an entry that are ours."""


SERVICE: Final = "fairlead"
PART_CHARACTERS: Final = 1200 if sys.platform == "win32" else 30_000
"""Windows keeps 2,560 bytes, and two for each character. Others have no limit that a login would meet."""


def put(name: str, text: str) -> int | None:
    """Store a text under a name. Returns the number of its parts, or None where no keyring takes it."""
    parts = [text[start : start + PART_CHARACTERS] for start in range(0, len(text), PART_CHARACTERS)]
    for number, part in enumerate(parts):
        if not keyring.put(SERVICE, f"{name}/{number}", part):
            return None
    return len(parts)


def get(name: str, parts: int) -> str | None:
    """The text under a name, or None where a part of it is missing."""
    texts = [keyring.get(SERVICE, f"{name}/{number}") for number in range(parts)]
    return "".join(text for text in texts if text is not None) if None not in texts else None


def delete(name: str, parts: int) -> None:
    """Remove a text."""
    for number in range(parts):
        keyring.delete(SERVICE, f"{name}/{number}")


FILE_NAME: Final = "mcp-auth.json"
VAULT_VARIABLE: Final = "FAIRLEAD_VAULT"

VaultPlace: TypeAlias = Literal["auto", "file", "keyring"]

_KEYRING: Final = "keyring"
"""The field that says under which name, and in how many parts, the keyring has an entry's secrets."""

logger = logging.getLogger(__name__)


def log_warning(trouble: FairleadError) -> None:
    """Warn in the log: the default without a surface."""
    logger.warning("login vault error", extra={"reason": str(trouble), "hint": trouble.hint})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unsaved:
    """A login that could not be written. It holds until another process writes one."""

    login: Login
    instead_of: VaultEntry | None


class Vault:
    """All logins of this user. Reading is cheap: the file is read again only where it changed.

    Args:
        path: The file. Tokens are in it, or in the keyring with only their names in the file.
        place: Where tokens go: the keyring, the file, or whichever this machine has.
        warn: Called with what went wrong without an error, in words.
    """

    def __init__(self, path: Path, *, place: VaultPlace = "auto", warn: Warn = log_warning) -> None:
        self._file = VaultFile(path, warn)
        self._place: VaultPlace = place
        self._warn = warn
        self._turn = threading.Lock()
        self._unsaved: dict[str, _Unsaved] = {}
        self._opened: dict[str, tuple[VaultEntry, Login | None]] = {}

    @classmethod
    def of(cls, env: Mapping[str, str], *, warn: Warn = log_warning) -> Self:
        """The vault of the user whose environment this is."""
        place = env.get(VAULT_VARIABLE) or "auto"
        if place not in ("auto", "file", "keyring"):
            raise ConfigError(f"`{VAULT_VARIABLE}` is `{place}`", hint="set it to `file` or to `keyring`")
        return cls(state_folder(env) / FILE_NAME, place=place, warn=warn)

    async def get(self, key: LoginKey) -> Login | None:
        """The login under a key. Raises `ConfigError` where there may be one that cannot be read."""
        login = await to_thread.run_sync(self._get, name_of(key))
        # Names are short digests, and users edit the file: the entry itself says whose login it is.
        return login if login is not None and login.key == key else None

    async def find(self, principal: str, account: str, resource: str) -> Login | None:
        """The login for a server, of any issuer: the newest, preferably one that is not over.

        Args:
            principal: Whose login.
            account: The account; an empty string for the only one.
            resource: The resource of the server.
        """
        wanted = {"principal": principal, "account": account, "resource": resource}
        logins = await to_thread.run_sync(self._find_matching, wanted)
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
        return await to_thread.run_sync(self._find_matching, wanted)

    def _get(self, name: str) -> Login | None:
        with self._turn:
            return self._current(name, self._entries())

    def _find_matching(self, wanted: dict[str, str]) -> list[Login]:
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
                self._save_pending()

    def _delete(self, name: str) -> None:
        with self._turn:
            self._unsaved.pop(name, None)
            self._opened.pop(name, None)
            old = self._file.read().get(name)
            self._file.change(lambda entries: {other: entries[other] for other in entries if other != name})
            self._clear_keyring(old)

    def _entries(self) -> Entries:
        """The entries of the file. One that cannot be used raises, unless there are unsaved logins."""
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

    def _open(self, entry: VaultEntry) -> Login | None:
        kept = _Kept.of(entry)
        if kept is None:
            return login_of(entry)
        if self._place == "file":
            return None
        try:
            text = get(kept.name, kept.parts)
        except SecretUnavailable as exc:
            hint = f"unlock the keyring, or log in again with `{VAULT_VARIABLE}=file`"
            raise SecretUnavailable(f"a login cannot be read: {exc}", hint=hint) from exc
        return login_of({**entry, **msgspec.json.decode(text, type=dict[str, Any])}) if text else None

    def _save(self, name: str, login: Login) -> None:
        old = self._file.read().get(name)
        entry = self._seal_entry(name, login, old)

        def replace(entries: Entries) -> Entries:
            unknown = {field: value for field, value in entries.get(name, {}).items() if field not in _OURS}
            # The newest comes last.
            return {**{other: entries[other] for other in entries if other != name}, name: unknown | entry}

        self._file.change(replace)
        # Only now: until the file named the new secrets, the old ones were the login.
        self._clear_keyring(old)

    def _save_pending(self) -> None:
        for name, unsaved in list(self._unsaved.items()):
            if self._file.read().get(name) == unsaved.instead_of:
                try:
                    self._save(name, unsaved.login)
                except ConfigError:
                    continue  # the user has been warned
            del self._unsaved[name]

    def _seal_entry(self, name: str, login: Login, old: VaultEntry | None) -> VaultEntry:
        """The entry of a login; its secrets go to the keyring where they belong there."""
        entry = entry_of(login)
        before = _Kept.of(old or {})
        if self._place == "file" or (self._place == "auto" and old is not None and before is None):
            return entry
        # Two names take turns, so that what the file names is whole at any time.
        slot = f"login/{name}/{'b' if before and before.name.endswith('/a') else 'a'}"
        secrets = {field: value for field, value in entry.items() if field not in PUBLIC}
        parts = put(slot, msgspec.json.encode(secrets).decode())
        if parts is not None:
            public = {field: value for field, value in entry.items() if field in PUBLIC}
            return {**public, _KEYRING: {"name": slot, "parts": parts}}
        if self._place == "keyring":
            raise SecretUnavailable(
                f"the keyring cannot be used, and `{VAULT_VARIABLE}` says `keyring`",
                hint=f"set `{VAULT_VARIABLE}` to `file`",
            )
        return entry

    def _clear_keyring(self, entry: VaultEntry | None) -> None:
        kept = _Kept.of(entry or {})
        if kept is None or self._place == "file":
            return
        try:
            delete(kept.name, kept.parts)
        except SecretUnavailable:
            logger.warning("old secrets stay in the keyring", exc_info=True)


def _matches(entry: object, wanted: dict[str, str]) -> bool:
    return isinstance(entry, dict) and wanted.items() <= cast("VaultEntry", entry).items()


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The place of an entry's secrets in the keyring."""

    name: str
    parts: int

    @classmethod
    def of(cls, entry: VaultEntry) -> "_Kept | None":
        """The place that an entry names, if any."""
        try:
            return msgspec.convert(entry.get(_KEYRING), _Kept | None)
        except msgspec.ValidationError:
            return None


_OURS: Final = FIELDS | {_KEYRING}
