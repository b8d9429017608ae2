"""The gateway's own tokens: that of this machine's user, and named ones, of which only digests are kept."""

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fairlead.config.files import locked, read_text, write_atomic
from fairlead.config.principal import LOCAL
from fairlead.errors import ConfigError, ConfigUnreadable
from fairlead.gateway.folder import gateway_folder, require_plain

logger = logging.getLogger(__name__)

SCOPES: Final = frozenset(("mcp", "status", "admin"))
"""What a token can be for: speaking MCP, looking at the state of things, and deciding in the dashboard."""

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """Who a token stands for, and what it is for."""

    principal: str
    bundles: frozenset[str] | None = None
    scopes: frozenset[str] = SCOPES


class NamedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept: enough to know it again, and not enough to use it."""

    name: str
    digest: str
    created_at: float
    bundles: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ("mcp",)

    @property
    def owner(self) -> Owner:
        """Whom it stands for: a principal of its own, which no other kind of login can have."""
        bundles = None if self.bundles is None else frozenset(self.bundles)
        return Owner(principal=f"token:{self.name}", bundles=bundles, scopes=frozenset(self.scopes))


_decode = msgspec.json.Decoder(list[NamedToken]).decode


class TokenFile:
    """The named tokens of a gateway."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[NamedToken]:
        """All of them; `ConfigUnreadable` where the file is not what was written."""
        require_plain(self.path)
        if not self.path.exists():
            return []
        try:
            return _decode(read_text(self.path))
        except msgspec.MsgspecError as exc:
            hint = "move it away, and make new tokens"
            raise ConfigUnreadable(f"`{self.path}` is damaged", hint=hint) from exc

    def add(self, name: str, *, bundles: tuple[str, ...] = (), scopes: tuple[str, ...] = ("mcp",)) -> str:
        """Make a token and return it: it is nowhere else from now on."""
        if not _NAME.fullmatch(name):
            raise ConfigError("a token's name is 1 to 64 letters, digits, `_`, `.` or `-`")
        if unknown := sorted(set(scopes) - SCOPES):
            raise ConfigError(f"there is no scope `{unknown[0]}`", hint=f"there are {_listed(SCOPES)}")
        if bundles and set(scopes) != {"mcp"}:
            raise ConfigError(
                "a token for some bundles cannot see or decide about all of them",
                hint="leave out `--scope`, or `--bundle`",
            )
        token = f"fl_{secrets.token_urlsafe(32)}"
        made = NamedToken(
            name=name,
            digest=digest_of(token),
            created_at=time.time(),
            bundles=bundles or None,
            scopes=tuple(sorted(set(scopes))),
        )

        def change(kept: list[NamedToken]) -> list[NamedToken]:
            if any(other.name == name for other in kept):
                raise ConfigError(f"there is a token `{name}` already", hint="remove it first")
            return [*kept, made]

        self._change(change)
        return token

    def remove(self, name: str) -> bool:
        """Have a token open nothing any more. Returns whether there was one."""
        found = False

        def change(kept: list[NamedToken]) -> list[NamedToken]:
            nonlocal found
            rest = [token for token in kept if token.name != name]
            found = len(rest) < len(kept)
            return rest

        self._change(change)
        return found

    def _change(self, change: Callable[[list[NamedToken]], list[NamedToken]]) -> None:
        with locked(self.path):
            text = msgspec.json.encode(change(self.read()))
            write_atomic(self.path, msgspec.json.format(text, indent=2).decode() + "\n", mode=0o600)


def token_file(env: Mapping[str, str]) -> TokenFile:
    """Where this user's named tokens are."""
    return TokenFile(gateway_folder(env) / "tokens.json")


class Tokens:
    """Knows tokens again. What `fairlead gateway token` changes counts within a second."""

    def __init__(
        self, local: str | None, named: TokenFile | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._local = {digest_of(local): Owner(principal=LOCAL)} if local else {}
        self._named = named
        self._clock = clock
        self._looked_at = -_LOOK_AGAIN_SECONDS
        self._stamp: tuple[int, int] | None = None
        self._owners: dict[str, Owner] = self._local
        self._latest: tuple[bytes, Owner] | None = None

    def owner(self, token: str) -> Owner | None:
        """Whose token this is.

        Looked up by its digest: how long that takes says something about the digest at most, from which no
        token can be guessed. The one that came last is known without: most come again and again.
        """
        self._look()
        sent = token.encode("utf-8", "surrogatepass")
        if self._latest is not None and hmac.compare_digest(self._latest[0], sent):
            return self._latest[1]
        owner = self._owners.get(digest_of(token))
        if owner is not None:
            self._latest = (sent, owner)
        return owner

    def _look(self) -> None:
        now = self._clock()
        if self._named is None or now - self._looked_at < _LOOK_AGAIN_SECONDS:
            return
        self._looked_at = now
        stamp = _stamp(self._named.path)
        if stamp != self._stamp:
            self._stamp = stamp
            self._latest = None
            self._owners = self._local | self._read()

    def _read(self) -> dict[str, Owner]:
        try:
            return {token.digest: token.owner for token in self._named.read()} if self._named else {}
        except ConfigError as exc:
            # Nobody is let in on the word of a file that cannot be read; the local user still is.
            logger.error("named tokens cannot be read", extra={"reason": str(exc)})  # noqa: TRY400 - no trace needed
            return {}


def digest_of(token: str) -> str:
    """What is kept of a token. It is as random as a key, so nothing slower is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _listed(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
