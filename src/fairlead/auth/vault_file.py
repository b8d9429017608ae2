"""`mcp-auth.json`: a file that only its owner can read, with one entry for each login, under `servers`.

Entries and fields that nobody here knows are kept as they are. Blocking; `Vault` calls this from threads.
"""

import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec

from fairlead.config.files import READ_LIMIT, locked, write_atomic
from fairlead.errors import ConfigUnreadable, FairleadError

VERSION: Final = 1

Entry: TypeAlias = dict[str, Any]
Entries: TypeAlias = Mapping[str, Entry]
Warn: TypeAlias = Callable[[FairleadError], None]
"""Tells a person about trouble that nothing fails for: a message, and a hint what to do."""

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
        with locked(self.path):
            document = self._locked_document()
            before = _entries_of(document)
            after = change(before)
            if list(after.items()) != list(before.items()):  # their order counts
                text = msgspec.json.encode({**document, "version": VERSION, "servers": after})
                write_atomic(self.path, msgspec.json.format(text, indent=2).decode() + "\n", mode=0o600)

    def _look(self) -> os.stat_result | None:
        """Make sure that nobody else can have prepared or can read the file; None where there is none."""
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
        document = _parsed(self._bytes())
        if document is not None:
            return document
        with locked(self.path):
            return self._locked_document()

    def _locked_document(self) -> dict[str, Any]:
        document = _parsed(self._bytes()) if self._look() else {}
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


def _parsed(content: bytes) -> dict[str, Any] | None:
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
