"""The gateway's own bearer tokens: this machine's user's, and named ones, of which only digests are kept.

A token is (principal, client label, scopes). All tokens of this machine's user belong to the principal
`local`: those of agents have the scope `mcp`, the user's own has `decide` and `admin`.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

import msgspec

from fairlead.config.document.files import hold_lock, read_text, write_atomic
from fairlead.config.paths import STATE_HINT
from fairlead.config.principal import LOCAL, TOKEN_OWNER
from fairlead.config.secrets.masking import SECRETS
from fairlead.config.untyped import as_list, as_object, is_list
from fairlead.errors import ConfigError, ConfigUnreadable, ConfigUnwritable
from fairlead.gateway.registry import (
    agent_token_file,
    decide_token_file,
    gateway_folder,
    local_token_file,
    require_plain,
)
from fairlead.servers.framework.http import own_token

logger = logging.getLogger(__name__)

SCOPES: Final = frozenset(("mcp", "status", "decide", "admin"))
"""What a token can be for.

`mcp` speaks MCP and nothing else, `status` reads status and metrics, `decide` answers the approvals of its
own principal, `admin` decides for every principal and changes the gateway. `admin` implies `decide`.
"""
AGENT_SCOPES: Final = frozenset(("mcp",))
PERSON_SCOPES: Final = frozenset(("status", "decide", "admin"))
"""The scopes of the token of this machine's user. Without `mcp`: no agent has a use for that token."""

_PREFIX = "fl_"
"""How every named token begins."""
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenOwner:
    """The principal that a token stands for, the client that has it, and its scopes."""

    principal: str
    credential: str
    """The token's digest: requests and sessions are bound to it, so that they end when it is removed."""
    label: str | None = None
    bundles: frozenset[str] | None = None
    scopes: frozenset[str] = AGENT_SCOPES
    is_of_machine: bool = False
    """Whether other replicas of the gateway do not know it."""


class NamedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept: enough to know it again, and not enough to use it."""

    name: str
    digest: str
    created_at: float
    bundles: tuple[str, ...] | None = None
    scopes: tuple[str, ...] = ("mcp",)
    principal: str | None = None
    """Its principal; None, as in files of older versions, for a user named like the token."""

    @property
    def owner(self) -> TokenOwner:
        """Its owner. The name is prefixed, so that it cannot be `local` or a subject of an issuer."""
        name = self.principal or self.name
        return TokenOwner(
            principal=LOCAL if self.principal == LOCAL else f"{TOKEN_OWNER}{name}",
            credential=self.digest,
            label=self.name,
            bundles=None if self.bundles is None else frozenset(self.bundles),
            scopes=_expand_scopes(frozenset(self.scopes)),
        )


VERSION: Final = 1
"""Of the file with the named tokens. The first releases wrote the list alone, which counts as version 1."""


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """The file with the named tokens."""

    version: int = VERSION
    tokens: list[NamedToken] = []


def decode_tokens(text: str, place: str) -> list[NamedToken]:
    """The tokens of a file or a store; `ConfigUnreadable` for a version or fields that are not known here.

    A field that it does not know may restrict a token, and would be lost when the file is written.
    """
    document: object = msgspec.json.decode(text)
    if is_list(document):
        document = {"tokens": document}
    fields = as_object(document)
    version, tokens = fields.get("version", VERSION), map(as_object, as_list(fields.get("tokens")))
    known = (
        (not isinstance(version, int) or version <= VERSION)
        and fields.keys() <= set(_Document.__struct_fields__)
        and all(token.keys() <= set(NamedToken.__struct_fields__) for token in tokens)
    )
    if not known:
        raise ConfigUnreadable(f"{place} was written by a newer Fairlead", hint="update Fairlead")
    found = msgspec.convert(document, _Document)
    if found.version != VERSION or "tokens" not in fields:
        raise msgspec.ValidationError("not a file of tokens")
    return found.tokens


def encode_tokens(tokens: list[NamedToken]) -> bytes:
    """The text that `decode_tokens` reads."""
    return msgspec.json.format(msgspec.json.encode(_Document(tokens=tokens)), indent=2) + b"\n"


class TokenFile:
    """The named tokens of a gateway."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[NamedToken]:
        """Return all tokens. Raises `ConfigUnreadable` for a damaged file."""
        require_plain(self.path)
        if not self.path.exists():
            return []
        try:
            return decode_tokens(read_text(self.path), f"`{self.path}`")
        except msgspec.MsgspecError as exc:
            hint = "move it away, and make new tokens"
            raise ConfigUnreadable(f"`{self.path}` is damaged", hint=hint) from exc

    def read_unshared(self) -> list[NamedToken]:
        """Return those that other replicas do not accept: none, where this machine's are all there are."""
        return []

    def add(
        self,
        name: str,
        *,
        bundles: tuple[str, ...] = (),
        scopes: tuple[str, ...] = ("mcp",),
        principal: str | None = None,
    ) -> str:
        """Make a token and return it: it is nowhere else from now on.

        Args:
            name: What the client with this token is called.
            bundles: The only bundles it may use; none for all.
            scopes: What it is for.
            principal: Whose it is: `local` for this machine's user, another name for another user. A user
                that is not named is one of their own, known by the token's name.
        """
        for given in (name, principal):
            if given is not None and not _NAME.fullmatch(given):
                raise ConfigError("a token's name is 1 to 64 letters, digits, `_`, `.` or `-`")
        if unknown := sorted(set(scopes) - SCOPES):
            raise ConfigError(f"there is no scope `{unknown[0]}`", hint=f"there are {_join_names(SCOPES)}")
        if bundles and set(scopes) != {"mcp"}:
            raise ConfigError(
                "a token for some bundles cannot see or decide about all of them",
                hint="leave out `--scope`, or `--bundle`",
            )
        token = f"{_PREFIX}{secrets.token_urlsafe(32)}"
        made = NamedToken(
            name=name,
            digest=digest_of(token),
            created_at=time.time(),
            bundles=bundles or None,
            scopes=tuple(sorted(set(scopes))),
            principal=principal,
        )

        def change(kept: list[NamedToken]) -> list[NamedToken]:
            self._require_new(name, kept)
            return [*kept, made]

        self._change(change)
        SECRETS.learn(token)
        return token

    def _require_new(self, name: str, kept: list[NamedToken]) -> None:
        if any(other.name == name for other in kept):
            raise ConfigError(f"there is a token `{name}` already", hint="remove it first")

    def remove(self, name: str) -> bool:
        """Revoke a token. Returns whether there was one."""
        found = False

        def change(kept: list[NamedToken]) -> list[NamedToken]:
            nonlocal found
            rest = [token for token in kept if token.name != name]
            found = len(rest) < len(kept)
            return rest

        self._change(change)
        return found

    def _change(self, change: Callable[[list[NamedToken]], list[NamedToken]]) -> None:
        with hold_lock(self.path):
            text = encode_tokens(change(self.read())).decode()
            write_atomic(self.path, text, mode=0o600)


def token_file(env: Mapping[str, str]) -> TokenFile:
    """Return the file with this user's named tokens."""
    return TokenFile(gateway_folder(env) / "tokens.json")


class SharedOwners(Protocol):
    """Named tokens that all replicas accept."""

    @property
    def owners(self) -> Mapping[str, TokenOwner]:
        """The owner of each token, by the token's digest."""
        ...

    @property
    def version(self) -> int:
        """A number that is another one whenever the owners changed."""
        ...

    async def look_once_more(self) -> None:
        """Read them again, in bounded time, for a token that is not among them."""
        ...


class Tokens:
    """Recognizes tokens. A token that is removed from its file opens nothing from the next request on."""

    def __init__(
        self,
        local: str | Path | None,
        named: TokenFile | None = None,
        *,
        decide: str | Path | None = None,
        shared: SharedOwners | None = None,
    ) -> None:
        """Accept the agents' token of this machine's user, its `decide` token, and the named ones.

        Args:
            local: The agents' token, or the file that it is in.
            named: The named tokens of this machine.
            decide: The user's own token, or its file.
            shared: The named tokens of all replicas.
        """
        self._shared = shared
        self._shared_version = 0
        self._own = [(source, scopes) for source, scopes in _sources(local, decide) if source is not None]
        self._named = named
        files = [source for source, _ in self._own if isinstance(source, Path)]
        # As text: a `Path` would be spelled out again with every request.
        self._files = tuple(map(str, (*files, named.path) if named is not None else files))
        self._checked_by: asyncio.AbstractEventLoop | None = None
        """The loop that is about to run requests which were all read before the files were looked at."""
        self._stamps: tuple[tuple[int, ...] | None, ...] | None = None
        self._owners: dict[str, TokenOwner] = {}
        self._latest: tuple[bytes, TokenOwner] | None = None

    def owner(self, token: str) -> TokenOwner | None:
        """Return the owner of a token.

        Looked up by its digest: how long that takes says something about the digest at most, from which no
        token can be guessed. The one that came last is known without: most come again and again.
        """
        self._refresh()
        sent = token.encode("utf-8", "surrogatepass")
        if self._latest is not None and hmac.compare_digest(self._latest[0], sent):
            return self._latest[1]
        owner = self._owners.get(digest_of(token))
        if owner is not None:
            self._latest = (sent, owner)
            SECRETS.learn(token, owner=owner.credential)  # only its digest was known before
        return owner

    async def look_up(self, token: str) -> TokenOwner | None:
        """Return the owner of a token, after a look into the shared store where it is not known here yet."""
        owner = self.owner(token)
        if owner is None and self._shared is not None and token.startswith(_PREFIX):
            await self._shared.look_once_more()
            self._look_again()
            owner = self.owner(token)
        return owner

    def is_valid(self, credential: str) -> bool:
        """Return whether the token with this digest is still valid."""
        self._refresh()
        return credential in self._owners

    def _refresh(self) -> None:
        """Read the files again where they changed: what is removed must be refused at once.

        They are looked at for every request, except for those that the event loop runs in the same turn: it
        had read these before the first of them looked. A request that is sent after a change is in a later
        turn, after `_look_again`.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            pass  # there are no turns
        else:
            if self._checked_by is loop:
                return
            self._checked_by = loop
            loop.call_soon(self._look_again)
        stamps = tuple(map(_stamp, self._files))
        version = self._shared.version if self._shared is not None else 0
        if stamps != self._stamps or version != self._shared_version:
            self._stamps, self._shared_version = stamps, version
            self._latest = None
            shared = dict(self._shared.owners) if self._shared is not None else {}
            of_machine = self._read_own() | self._read_named()
            if self._shared is not None:
                of_machine = {key: replace(owner, is_of_machine=True) for key, owner in of_machine.items()}
            self._owners = shared | of_machine

    def _look_again(self) -> None:
        self._checked_by = None

    def _read_own(self) -> dict[str, TokenOwner]:
        found: dict[str, TokenOwner] = {}
        for source, scopes in self._own:
            try:
                token = source if isinstance(source, str) else _read_token(source)
            except (ConfigError, OSError) as exc:
                logger.error("a token file cannot be read", extra={"reason": str(exc)})  # noqa: TRY400 - no trace needed
                continue
            if token:
                SECRETS.learn(token)
                digest = digest_of(token)
                # Should both files hold the same token, it is an agent's: the narrower counts.
                found.setdefault(digest, TokenOwner(principal=LOCAL, credential=digest, scopes=scopes))
        return found

    def _read_named(self) -> dict[str, TokenOwner]:
        try:
            return {token.digest: token.owner for token in self._named.read()} if self._named else {}
        except ConfigError as exc:
            # A file that cannot be read lets no one in; the local user still is.
            logger.error("named tokens cannot be read", extra={"reason": str(exc)})  # noqa: TRY400 - no trace needed
            return {}


def _sources(
    local: str | Path | None, decide: str | Path | None
) -> tuple[tuple[str | Path | None, frozenset[str]], ...]:
    return (local, AGENT_SCOPES), (decide, PERSON_SCOPES)


def _read_token(path: Path) -> str:
    require_plain(path)
    return read_text(path).strip() if path.exists() else ""


def _expand_scopes(scopes: frozenset[str]) -> frozenset[str]:
    return scopes | {"decide"} if "admin" in scopes else scopes


def digest_of(token: str) -> str:
    """Return the digest of a token. It is as random as a key, so no slow hash is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    # What replaces a file can keep its modification time, but not its change time.
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def _join_names(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def local_token(env: Mapping[str, str]) -> str:
    """The agents' token; created the first time, readable by its owner alone."""
    return _load_own_token(local_token_file(env))


def decide_token(env: Mapping[str, str]) -> str:
    """The token that approves calls and changes the gateway; created the first time, like the other."""
    return _load_own_token(decide_token_file(env))


def agent_token(env: Mapping[str, str], agent: str) -> str:
    """Return the token of one installed agent of this machine's user; created where none is valid."""
    path, named, name = agent_token_file(env, agent), token_file(env), _agent_token_name(agent)
    require_plain(path)
    kept = read_text(path).strip() if path.exists() else ""
    if kept and any(token.digest == digest_of(kept) for token in named.read()):
        return kept
    named.remove(name)
    made = named.add(name, principal=LOCAL)
    write_atomic(path, made + "\n", mode=0o600)
    return made


def has_agent_token(env: Mapping[str, str], agent: str) -> bool:
    """Whether there is a token of this agent. Removing one that is needed would lock the agent out."""
    return any(token.name == _agent_token_name(agent) for token in token_file(env).read())


def remove_agent_token(env: Mapping[str, str], agent: str) -> None:
    """Revoke the token of an agent that was uninstalled."""
    token_file(env).remove(_agent_token_name(agent))
    agent_token_file(env, agent).unlink(missing_ok=True)


def _agent_token_name(agent: str) -> str:
    return f"agent-{agent}"


def _load_own_token(path: Path) -> str:
    require_plain(path)
    _make_private(path)
    token = own_token(path)
    SECRETS.learn(token)
    return token


def _make_private(path: Path) -> None:
    try:
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as exc:
        raise ConfigUnwritable(
            f"others can read `{path}`, and that cannot be changed: {exc.strerror}", hint=STATE_HINT
        ) from exc
