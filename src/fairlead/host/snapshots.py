"""Snapshots: listings of servers, saved between runs, so that tools are known before any server starts."""

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import anyio
import msgspec
from anyio import to_thread

from fairlead.catalog.sanitize.definitions import mask_listing
from fairlead.catalog.tools import Listing, RejectedTool, read_tools
from fairlead.config.consent import entry_digest
from fairlead.config.load import LoadedServer
from fairlead.config.principal import LOCAL
from fairlead.errors import FairleadError, StoreError
from fairlead.host.background import USUAL_BYTES, run_off_loop, size_of
from fairlead.policy.consent import NAMESPACE as CONSENT
from fairlead.policy.consent import consent_store_key
from fairlead.policy.lockfile import LockedServer, locks_of
from fairlead.policy.pins import NAMESPACE as PINS
from fairlead.policy.pins import Pins, UntrustedPins, is_guarded, pins_key, read_pins, save_first_use
from fairlead.policy.quarantine import prepare
from fairlead.policy.upgrade import follows_trust, load_before_defaults
from fairlead.store.protocol import MAX_VALUE_BYTES, NewValue, Store

logger = logging.getLogger(__name__)

NAMESPACE = "catalog"
TROUBLE = "trouble"
_POLICY = frozenset({"allow_tools", "approval", "deny_tools", "trust"})
FORMAT = 2
"""Format of stored snapshots. Those of format 1 hold unmasked definitions, with secrets that only a process
which started the server knows: they are not read, and the server is listed again."""
VERSION_SECONDS = 7 * 24 * 3600.0
"""How long a saved handshake version is trusted before the stateless protocol is probed again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A listing and when it was made."""

    listing: Listing
    version: str
    saved_at: float
    keeps_sessions: bool = False
    """Whether it was a gateway that keeps sessions for stateless requests."""

    @property
    def known_version(self) -> str | None:
        """The protocol version to begin with, while it is likely to hold."""
        return self.version if time.time() - self.saved_at < VERSION_SECONDS else None

    def is_stale(self, ttl_ms: int) -> bool:
        """Whether it is older than its time to live: the server's, or ours if that is missing or zero."""
        return time.time() - self.saved_at > (self.listing.ttl_ms or ttl_ms) / 1000


class LastFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The last error of a server. A later listing replaces it."""

    state: str
    message: str
    hint: str | None = None
    at: float

    @classmethod
    def make_cleared(cls, at: float) -> "LastFailure":
        """The stored value once the server works again."""
        return cls(state="ready", message="", at=at)

    @property
    def is_cleared(self) -> bool:
        """Whether the server has worked since."""
        return self.state == "ready"


class StoredSnapshot(msgspec.Struct):
    """A snapshot as it is stored, and sent to commands."""

    version: str
    saved_at: float
    tools: list[msgspec.Raw]
    rejected: list[tuple[str, str]]
    resources: list[msgspec.Raw]
    templates: list[msgspec.Raw]
    prompts: list[msgspec.Raw]
    instructions: str | None
    ttl_ms: int | None
    notes: list[str] = []
    keeps_sessions: bool = False
    format: int = 1
    """See `FORMAT`; snapshots of the first releases do not say it."""
    listed_digests: dict[str, tuple[tuple[str, str], ...]] = {}
    """Of tools whose definitions have secrets masked: what pins compare (`ToolEntry.listed_digests`)."""
    server_id: str = ""
    """Whose listing it is, for `fairlead forget`: the key does not tell."""
    principal: str = ""


_encode = msgspec.json.Encoder().encode
_decode_trouble = msgspec.json.Decoder(LastFailure).decode
_decode = msgspec.json.Decoder(StoredSnapshot).decode


def definition_digest(server: LoadedServer) -> str:
    """A digest of the entry of a server, without what only says who may use it."""
    return entry_digest({name: value for name, value in server.entry.items() if name not in _POLICY})


def snapshot_key(server: LoadedServer, principal: str = LOCAL) -> str:
    """Key of a server's snapshot in the store. A changed entry, or one in another place, has another key.

    What only says who may use them is no change. What a server offers to one login is not shown to another.
    """
    where = f"{server.server_id}\0{server.definition.source.base}\0{definition_digest(server)}"
    if principal != LOCAL:
        where += f"\0{principal}"
    return hashlib.sha256(where.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownServerState:
    """The stored state of a server: snapshot, pins, lock and consent."""

    snapshot: Snapshot | None = None
    pins: Pins | UntrustedPins | None = None
    """Its pins, if any, or why they cannot be trusted."""
    lock: LockedServer | str | None = None
    """Its entry in the lockfile, or why that cannot be read."""
    approved: bool = False
    """Whether the user consented to its entry in a project file as it is now."""
    before_defaults: bool = False
    """Whether its calls need approval as in releases before annotations of trusted servers counted."""


async def load_known(
    store: Store | None,
    servers: Sequence[LoadedServer],
    *,
    no_pins: UntrustedPins | None = None,
    principal: str = LOCAL,
) -> dict[str, KnownServerState]:
    """Load the stored state of each server. An unreadable snapshot counts as none; unreadable pins do not.

    Args:
        store: Where it is kept.
        servers: The servers.
        no_pins: Why there is no store that could have pins.
        principal: Whose listings are wanted, of servers that have logins.
    """
    snapshots: dict[str, Snapshot | None] = {}
    pins: dict[str, Pins | UntrustedPins | None] = {}
    approved: dict[str, bool] = {}
    before_defaults: dict[str, bool] = {}
    if no_pins is not None:
        pins = {server.server_id: no_pins for server in servers if is_guarded(server)}
        before_defaults = {server.server_id: follows_trust(server) for server in servers}

    async def load(server: LoadedServer, store: Store) -> None:
        snapshots[server.server_id] = await load_snapshot(store, server, principal)

    async def load_pinned(server: LoadedServer, store: Store) -> None:
        pins[server.server_id] = await load_pins(store, server)

    async def load_consent(server: LoadedServer, store: Store) -> None:
        approved[server.server_id] = server.needs_consent and await is_approved(store, server)

    async def load_defaults(server: LoadedServer, store: Store) -> None:
        before_defaults[server.server_id] = await load_before_defaults(store, server)

    # Read together, they cost one wait for the store rather than one each.
    if store is not None:
        async with anyio.create_task_group() as tasks:
            for server, part in product(servers, (load, load_pinned, load_consent, load_defaults)):
                tasks.start_soon(part, server, store)
    locks = locks_of(servers)
    for server in servers:
        snapshot = snapshots.get(server.server_id)
        if snapshot is not None:
            held_to = (pins.get(server.server_id), locks.get(server.server_id))
            await run_off_loop(
                partial(prepare, server, snapshot.listing, *held_to), size_of(snapshot.listing)
            )
    return {
        name: KnownServerState(
            snapshot=snapshots.get(name),
            pins=pins.get(name),
            lock=locks.get(name),
            approved=approved.get(name, False),
            before_defaults=before_defaults.get(name, False),
        )
        for name in (server.server_id for server in servers)
    }


async def is_approved(store: Store, server: LoadedServer) -> bool:
    """Whether the user consented to a server's entry in a project file as it is now."""
    try:
        key = await to_thread.run_sync(lambda: server.consent)
        return key is None or await store.get(CONSENT, consent_store_key(key)) is not None
    except FairleadError:
        logger.warning("consent cannot be read", exc_info=True, extra={"server_id": server.server_id})
        return False


async def load_pins(store: Store, server: LoadedServer) -> Pins | UntrustedPins | None:
    """The pins of a server, if any, or why they cannot be trusted."""
    try:
        found = await store.get(PINS, pins_key(server))
        if found is None:
            return None
        read = partial(read_pins, found.value, server.server_id)
        return await run_off_loop(read, len(found.value) // USUAL_BYTES)
    except StoreError as exc:
        logger.warning("pins cannot be read", exc_info=True, extra={"server_id": server.server_id})
        return UntrustedPins.because(exc)


async def load_snapshot(store: Store, server: LoadedServer, principal: str = LOCAL) -> Snapshot | None:
    """The snapshot of a server, of any process; None if there is no readable one."""
    try:
        found = await store.get(NAMESPACE, snapshot_key(server, principal))
        if found is None:
            return None
        return await run_off_loop(
            partial(read_snapshot, server.server_id, found.value), len(found.value) // USUAL_BYTES
        )
    except (StoreError, ValueError, RecursionError):
        logger.warning("a saved catalog cannot be read", exc_info=True, extra={"server_id": server.server_id})
        return None


def read_snapshot(server_id: str, value: bytes) -> Snapshot | None:
    """Read a stored snapshot; None for one of another format."""
    found = _decode(value)
    return snapshot_of(server_id, found) if found.format == FORMAT else None


def snapshot_of(server_id: str, stored: StoredSnapshot) -> Snapshot:
    """The snapshot in its stored form."""
    tools, _ = read_tools(server_id, iter(stored.tools))
    if digests := stored.listed_digests:
        tools = [replace(tool, listed_digests=digests.get(tool.key.tool)) for tool in tools]
    listing = Listing(
        tools=tuple(tools),
        rejected=tuple(RejectedTool(name=name, reason=reason) for name, reason in stored.rejected),
        resources=tuple(map(bytes, stored.resources)),
        templates=tuple(map(bytes, stored.templates)),
        prompts=tuple(map(bytes, stored.prompts)),
        instructions=stored.instructions,
        ttl_ms=stored.ttl_ms,
        notes=tuple(stored.notes),
    )
    return Snapshot(
        listing=listing,
        version=stored.version,
        saved_at=stored.saved_at,
        keeps_sessions=stored.keeps_sessions,
    )


def read_trouble(value: bytes) -> LastFailure:
    """Read a stored error of a server."""
    return _decode_trouble(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotUpdate:
    """The state of a server to save."""

    server: LoadedServer
    snapshot: Snapshot | None
    trouble: LastFailure | None
    pins: Pins | None
    """The pins of the first use."""
    principal: str = LOCAL
    """The principal whose login was used."""


async def save_news(store: Store, news: Sequence[SnapshotUpdate]) -> dict[str, StoreError]:
    """Save snapshots, pins and errors of servers. Returns why pins were not saved, by server."""
    values: list[NewValue] = []
    for of_one in news:
        size = size_of(of_one.snapshot.listing) if of_one.snapshot else 0
        values += await run_off_loop(partial(_values, of_one), size)
    try:
        if values:
            await store.put_all(values)
    except StoreError:
        logger.warning("what servers offer could not be saved", exc_info=True)
    failures: dict[str, StoreError] = {}
    for of_one in news:
        try:
            if of_one.pins is not None:
                await save_first_use(store, of_one.server, of_one.pins)
        except StoreError as exc:
            logger.warning("pins could not be saved", exc_info=True)
            failures[of_one.server.server_id] = exc
    return failures


def _values(news: SnapshotUpdate) -> list[NewValue]:
    key = snapshot_key(news.server, news.principal)
    values: list[NewValue] = []
    if news.snapshot is not None:
        stored = snapshot_to_store(news.snapshot)
        stored.server_id, stored.principal = news.server.server_id, news.principal
        value = _encode(stored)
        if len(value) <= MAX_VALUE_BYTES:
            values.append((NAMESPACE, key, value))
        else:
            logger.warning("a listing is too large to be kept", extra={"server_id": news.server.server_id})
    if news.trouble is not None:
        values.append((TROUBLE, key, _encode(news.trouble)))
    return values


def snapshot_to_store(snapshot: Snapshot) -> StoredSnapshot:
    """A snapshot to store, or to send to a command: without the secrets that are known here."""
    listing = mask_listing(snapshot.listing)
    return StoredSnapshot(
        version=snapshot.version,
        saved_at=snapshot.saved_at,
        tools=[msgspec.Raw(entry.definition) for entry in listing.tools],
        rejected=[(tool.name, tool.reason) for tool in listing.rejected],
        resources=list(map(msgspec.Raw, listing.resources)),
        templates=list(map(msgspec.Raw, listing.templates)),
        prompts=list(map(msgspec.Raw, listing.prompts)),
        instructions=listing.instructions,
        ttl_ms=listing.ttl_ms,
        notes=list(listing.notes),
        keeps_sessions=snapshot.keeps_sessions,
        format=FORMAT,
        listed_digests={
            entry.key.tool: entry.listed_digests for entry in listing.tools if entry.listed_digests
        },
    )
