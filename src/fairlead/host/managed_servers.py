"""The managed servers of a host: added, replaced and removed, their pins watched, their snapshots saved."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

import anyio
import msgspec

from fairlead.config.consent import ConsentKey
from fairlead.config.load import LoadedServer
from fairlead.config.models import Server
from fairlead.config.validate import suggestion
from fairlead.errors import ConsentRequired, StoreError, UnknownServer
from fairlead.host.call import require_approved
from fairlead.host.managed_server import ManagedServer, ServerContext
from fairlead.host.operator import Ability
from fairlead.host.server_status import ServerStatus, combine
from fairlead.host.snapshots import (
    KnownServerState,
    Snapshot,
    SnapshotUpdate,
    is_approved,
    load_known,
    load_pins,
    load_snapshot,
    save_news,
    snapshot_key,
)
from fairlead.policy.lockfile import LockedServer, locks_of
from fairlead.policy.pins import (
    REVIEWED,
    Pins,
    UntrustedPins,
    is_guarded,
    may_be_pinned,
    merge_pins,
    pins_key,
)
from fairlead.store.protocol import Store

logger = logging.getLogger(__name__)

SAVE_SECONDS = 0.1
"""How long changes wait to be saved, so that those of many servers are one write."""
RETRY_SECONDS = 2.0
"""How long after a failure the store is tried again."""
QUARANTINED = "tools quarantined"
"""The topic that tells other processes which tools of a server changed."""


class _Quarantined(msgspec.Struct, frozen=True):
    """The quarantine findings of a listing, as published to other processes."""

    pins_key: str
    listed_at: float
    tools: dict[str, str]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Quarantined).decode


class HostServers(Protocol):
    """The servers as one host sees them: those it manages, and those it shares with the host above."""

    @property
    def generation(self) -> int | None:
        """Increases whenever servers, or what may be offered of them, change; None if that is not counted."""
        ...

    def __iter__(self) -> Iterator[ManagedServer]: ...

    def __getitem__(self, server_id: str) -> ManagedServer:
        """A server to use. Raises `UnknownServer` if there is none with this id."""
        ...

    def get_known(self, server_id: str) -> ManagedServer:
        """A server to inspect rather than to call: no connection is made for that."""
        ...

    def list_offered(self) -> Iterable[ManagedServer]:
        """The servers whose listings make up the catalog."""
        ...

    @property
    def offers_the_same(self) -> bool:
        """Whether every listing is that of the host above."""
        ...

    def owner(self, server_id: str) -> "ManagedServers":
        """The servers that this one is saved, pinned and reviewed with: of this host, or one above."""
        ...

    async def take(self, servers: Iterable[LoadedServer]) -> list[ManagedServer]:
        """Apply a configuration. Returns the new ones."""
        ...

    def drop(self, server_id: str) -> None:
        """Remove a server. Its calls under way finish first."""
        ...

    def keep_only(self, server_ids: Iterable[str]) -> None:
        """Remove all other servers."""
        ...

    async def end(self, server_id: str) -> None:
        """End this host's connections to a server. The next use starts it again."""
        ...

    async def close(self) -> None:
        """End this host's connections to all servers, in bounded time."""
        ...

    def statuses_besides(self, server_id: str) -> list[ServerStatus]:
        """The states of a server's connections that belong to single principals and clients."""
        ...


class ManagedServers:
    """The servers that one host manages, by id: the host of a program, or that of a gateway's principal."""

    def __init__(self, context: ServerContext, no_pins: UntrustedPins | None = None) -> None:
        self.context = context
        self._tasks = context.tasks
        self._store = context.store
        self._by_id: dict[str, ManagedServer] = {}
        self.generation = 0
        """Increases whenever servers, or what may be offered of them, change."""
        self._unsaved: set[ManagedServer] = set()
        self._saving = anyio.Lock()
        self._watches_pins = False
        self._no_pins = no_pins
        """Why there is no store for pins, if there is none."""
        self._clients: dict[str, dict[ManagedServer, Callable[[], None]]] = {}
        """The servers of clients with connections of their own, by id, and how each is dropped."""
        self._gone: dict[str, ServerStatus] = {}
        """The counters of clients' connections that ended."""
        self.listed_for: dict[tuple[str, frozenset[Ability]], Snapshot] = {}
        """Listings that depend on client capabilities, by server and the abilities declared to it."""
        self._newest: dict[str, tuple[float, Mapping[str, str]]] = {}
        """When each server was last listed over any connection, and what is quarantined since."""

    def __iter__(self) -> Iterator[ManagedServer]:
        return iter(self._by_id.values())

    def __getitem__(self, server_id: str) -> ManagedServer:
        managed = self._by_id.get(server_id)
        if managed is None:
            hint = suggestion(server_id, self._by_id) or "run `fairlead list` to see the configured servers"
            raise UnknownServer(f"there is no server `{server_id}`", hint=hint)
        return managed

    def get(self, server_id: str) -> ManagedServer | None:
        """A server, if there is one with this id."""
        return self._by_id.get(server_id)

    def get_known(self, server_id: str) -> ManagedServer:
        """A server to inspect; here the same as one to call."""
        return self[server_id]

    def list_offered(self) -> Iterable[ManagedServer]:
        """Every managed server."""
        return self._by_id.values()

    @property
    def offers_the_same(self) -> bool:
        """False: no host is above."""
        return False

    def owner(self, server_id: str) -> "ManagedServers":
        """This collection: no host is above."""
        return self

    async def require_approved(self, key: ConsentKey) -> None:
        """Raise `ConsentRequired` unless the user approved exactly this start of a project's server."""
        managed = self.get_known(key.server_id)
        try:
            await require_approved(key, self._store)
        except ConsentRequired:
            managed.set_approved(False)
            raise
        managed.set_approved(True)

    async def take(self, servers: Iterable[LoadedServer]) -> list[ManagedServer]:
        """Add servers. One with the same definition stays as it is. Returns the new ones."""
        wanted = list(servers)
        changed = [server for server in wanted if not self._has(server)]
        await self._learn_first_pins([server for server in wanted if self._has(server)])
        for server in wanted:
            if self._has(server):
                self._by_id[server.server_id].take_rules(server)
        self._relock([server for server in wanted if server.transport != "in_process"])
        await self._refresh([self._by_id[server.server_id] for server in wanted if self._has(server)])
        outside = [server for server in changed if server.transport != "in_process"]
        known = await load_known(
            self._store, outside, no_pins=self._no_pins, principal=self.context.human.principal
        )
        return [self.put(server, self._carry_over_state(server, known)) for server in changed]

    async def _learn_first_pins(self, kept: Iterable[LoadedServer]) -> None:
        """Load the pins of servers that had none, before an allowlist applies to them.

        A review writes pins first: its allowlist must not be taken for one that was written by hand, which
        pins on first use, instructions included.
        """
        store = self._store
        if store is None:
            return
        for server in kept:
            managed = self._by_id[server.server_id]
            if managed.pins is None and is_guarded(server):
                pins = await load_pins(store, server)
                if pins is not None:
                    await self._take_pins(store, managed, pins)

    async def _refresh(self, kept: Iterable[ManagedServer]) -> None:
        """Reload pins and consents of servers that stay: notifications of changes may have been missed."""
        store = self._store
        if store is None:
            return
        for managed in kept:
            if may_be_pinned(managed.server):
                pins = await load_pins(store, managed.server)
                if pins != managed.pins and managed.unsaved_pins is None:
                    await self._take_pins(store, managed, pins)
            if managed.awaits_consent and await is_approved(store, managed.server):
                managed.set_approved(True)
            if managed.snapshot is None:  # a command may have listed it meanwhile
                saved = await load_snapshot(store, managed.server, managed.principal)
                if saved is not None:
                    managed.adopt(saved)

    def _relock(self, servers: Iterable[LoadedServer]) -> None:
        """Apply the current lockfiles to every connection of servers that stay."""
        kept = [server for server in servers if self._has(server)]
        locks = locks_of(kept)
        for server in kept:
            for managed in self._connections(server.server_id):
                self.relock(managed, locks.get(server.server_id))

    def relock(self, managed: ManagedServer, lock: LockedServer | str | None) -> None:
        """Apply a lock to one connection, and drop findings of the previous lock."""
        if lock == managed.lock:
            return
        newest = self._newest.get(managed.server.server_id)
        if newest is not None:
            gone = managed.locked_out
            left = {tool: reason for tool, reason in newest[1].items() if gone.get(tool) != reason}
            self._newest[managed.server.server_id] = (newest[0], left)
        managed.relock(lock)

    def _carry_over_state(
        self, server: LoadedServer, known: Mapping[str, KnownServerState]
    ) -> KnownServerState:
        """The known state of a server; of the one it replaces if that is not saved yet."""
        found, old = known.get(server.server_id, KnownServerState()), self._by_id.get(server.server_id)
        if found.snapshot is None and old is not None and snapshot_key(old.server) == snapshot_key(server):
            return replace(found, snapshot=old.snapshot)
        return found

    def drop(self, server_id: str) -> None:
        """Remove a server. Its calls under way finish first."""
        self._by_id.pop(server_id).retire(self._tasks)
        self._bump_generation()

    def keep_only(self, server_ids: Iterable[str]) -> None:
        """Remove all other servers."""
        for server_id in self._by_id.keys() - set(server_ids):
            self.drop(server_id)

    async def close(self) -> None:
        """End every connection, in bounded time, and keep what is new."""
        async with anyio.create_task_group() as closing:
            for managed in self:
                if managed.connection is not None:
                    closing.start_soon(managed.connection.aclose)
        await self._save_now()

    def _has(self, server: LoadedServer) -> bool:
        managed = self._by_id.get(server.server_id)
        return managed is not None and same_definition(managed.server, server)

    def put(self, server: LoadedServer, known: KnownServerState) -> ManagedServer:
        """Add a server, or replace the one with its id, whose calls under way finish."""
        before, unsaved = self._by_id.get(server.server_id), None
        for key in [key for key in self.listed_for if key[0] == server.server_id]:
            del self.listed_for[key]
        if before is not None:
            before.retire(self._tasks)
            if pins_key(before.server) == pins_key(server):
                unsaved = before.pins if self._store is None else before.unsaved_pins
        if isinstance(unsaved, Pins) and not isinstance(known.pins, UntrustedPins):
            known = replace(known, pins=merge_pins(unsaved, known.pins))
        managed = self._by_id[server.server_id] = ManagedServer(
            server,
            self.context,
            known,
            save=self._save,
            changed=self._bump_generation,
            screened=self._on_screened,
        )
        self._bump_generation()
        self._share_pins(managed)
        if isinstance(unsaved, Pins) and self._store is not None:
            # Another may take its place before they are saved.
            managed.unsaved_pins = (
                merge_pins(managed.unsaved_pins, unsaved) if managed.unsaved_pins else unsaved
            )
            self._save(managed)
        self._watch_pins_of(managed)
        return managed

    def _bump_generation(self) -> None:
        self.generation += 1

    def _save(self, managed: ManagedServer) -> None:
        if managed.server.transport == "in_process":
            return  # it is part of the program, and the next one may have another under that name
        if not self._unsaved:
            self._tasks.start_soon(self._save_soon)
        self._unsaved.add(managed)

    async def _save_soon(self) -> None:
        await anyio.sleep(SAVE_SECONDS)
        await self._save_now()
        while self._unsaved:
            await anyio.sleep(RETRY_SECONDS)
            await self._save_now()

    async def _save_now(self) -> None:
        async with self._saving:  # so that closing waits for a save under way
            unsaved, self._unsaved = self._unsaved, set()
            if self._store is not None:
                news = {managed: _take_news(managed) for managed in unsaved}
                failures = await save_news(self._store, [*news.values()])
                for managed, saved in news.items():
                    failure = failures.get(managed.server.server_id)
                    if failure is not None:
                        # Tools whose pins are not kept would be pinned anew in the next run, changed or not.
                        self._unsaved.add(managed)
                        managed.repin(UntrustedPins.because(failure))
                    elif managed.unsaved_pins is saved.pins:
                        managed.unsaved_pins = None
                        if saved.pins is not None:
                            await self._go_by_saved_pins(self._store, managed)

    async def _go_by_saved_pins(self, store: Store, managed: ManagedServer) -> None:
        """Load the pins of the store: another process may have pinned other definitions first."""
        pins = await load_pins(store, managed.server)
        if pins != managed.pins:
            await self._take_pins(store, managed, pins)
            self._share_pins(managed)

    # Pins, reviews and quarantine are the same for all connections to a server.

    def _on_screened(self, managed: ManagedServer) -> None:
        """Have every connection to a server follow the newest listing, whichever connection listed it."""
        self._share_pins(managed)
        if managed.snapshot is not None:
            self.note_findings(managed, managed.snapshot.saved_at, managed.findings)

    def note_findings(self, source: ManagedServer, listed_at: float, findings: Mapping[str, str]) -> None:
        """Record the quarantine findings of a listing. The newest listing decides for all connections."""
        server_id = source.server.server_id
        newest = self._newest.get(server_id)
        if newest is not None and listed_at < newest[0]:
            source.follow(newest[1])
            return
        self._newest[server_id] = (listed_at, findings)
        for other in self._connections(server_id):
            if other is not source and other.snapshot is not None and other.snapshot.saved_at <= listed_at:
                other.follow({} if other.snapshot.saved_at == listed_at else findings)
        if findings and newest != (listed_at, findings) and self._store is not None:
            news = _Quarantined(pins_key(source.server), listed_at, dict(findings))
            self._tasks.start_soon(self._publish, self._store, news)

    async def _publish(self, store: Store, news: _Quarantined) -> None:
        try:
            await store.publish(QUARANTINED, _encode(news))
        except StoreError:
            logger.warning("other processes are not notified of a quarantine", exc_info=True)

    def _connections(self, server_id: str) -> list[ManagedServer]:
        own = [self._by_id[server_id]] if server_id in self._by_id else []
        return own + self.connections_besides(server_id)

    def _share_pins(self, managed: ManagedServer) -> None:
        """Apply the same pins to the connections of clients."""
        if self._by_id.get(managed.server.server_id) is managed:
            for other in self.connections_besides(managed.server.server_id):
                if other.pins is not managed.pins:
                    other.repin(managed.pins)

    def add_client(self, managed: ManagedServer, drop: Callable[[], None]) -> Callable[[], None]:
        """Have the connection that a client has to a server follow its pins, reviews and quarantines.

        Args:
            managed: The client's own managed server.
            drop: Removes it from the client's servers, so that the next use connects anew.

        Returns:
            What the client calls when the connection ends. Its counters are kept: they never decrease.
        """
        clients = self._clients.setdefault(managed.server.server_id, {})
        clients[managed] = drop

        def leave() -> None:
            clients.pop(managed, None)
            self._count_gone(managed.status())

        return leave

    def _count_gone(self, status: ServerStatus) -> None:
        # What it noted is of its own time: a review or a new listing may have settled it since.
        ended = replace(status, state="idle", last_error=None, last_error_at=None, hint=None, notes=())
        known = self._gone.get(status.server_id)
        self._gone[status.server_id] = ended if known is None else combine(known, [ended])

    def statuses_besides(self, server_id: str) -> list[ServerStatus]:
        """The states of a server's connections of clients, including those that ended."""
        gone = [self._gone[server_id]] if server_id in self._gone else []
        return [*(managed.status() for managed in self.connections_besides(server_id)), *gone]

    def connections_besides(self, server_id: str) -> list[ManagedServer]:
        """The managed servers of clients that have a connection of their own to a server."""
        return [*self._clients.get(server_id, ())]

    async def end(self, server_id: str) -> None:
        """End every connection to a server, those of clients too. The next use starts it again."""
        async with anyio.create_task_group() as closing:
            for managed in self._connections(server_id):
                if managed.connection is not None:
                    closing.start_soon(managed.connection.aclose)

    def _watch_pins_of(self, managed: ManagedServer) -> None:
        """Follow reviews and quarantines in any process, and whether the store can be trusted."""
        if may_be_pinned(managed.server) and self._store is not None and not self._watches_pins:
            self._watches_pins = True
            self._tasks.start_soon(self._watch_reviews, self._store)
            self._tasks.start_soon(self._watch_quarantines, self._store)

    async def _watch_reviews(self, store: Store) -> None:
        while True:
            try:
                async with store.subscribe(REVIEWED) as messages:
                    # Subscribed first: a review between loading and subscribing would otherwise be missed.
                    if any(isinstance(managed.pins, UntrustedPins) for managed in self):
                        await self._load_pins(store)
                    async for payload in messages:
                        await self._load_pins(store, payload.decode() if payload is not None else None)
                    return  # the store is closed
            except StoreError as exc:
                logger.warning("the store cannot be trusted: tools that need pins wait", exc_info=True)
                for managed in [*self]:
                    if is_guarded(managed.server):
                        managed.repin(UntrustedPins.because(exc))
            await anyio.sleep(RETRY_SECONDS)

    async def _load_pins(self, store: Store, reviewed: str | None = None) -> None:
        """Load the pins of the server with that key: the one that was reviewed; without a key, of all."""
        for managed in [*self]:
            if may_be_pinned(managed.server) and reviewed in (None, pins_key(managed.server)):
                await self._take_pins(store, managed, await load_pins(store, managed.server))

    async def _take_pins(
        self, store: Store, managed: ManagedServer, pins: Pins | UntrustedPins | None
    ) -> None:
        before = managed.pins
        self._newest.pop(managed.server.server_id, None)
        managed.repin(pins)
        await self._renew(store, managed, _find_newly_pinned(before, pins))

    async def _renew(self, store: Store, managed: ManagedServer, reviewed: frozenset[str]) -> None:
        """Reconnect where a review approved another definition than a connection listed, or a new tool.

        A connection that listed another definition comes to its end, after its calls under way; the next
        use lists the server again. One that has yet to list goes on: calls wait for that, and must not fail
        because of a review. One that never listed a tool requests its list again.
        """
        server_id = managed.server.server_id
        every = self._connections(server_id)
        known = [each.snapshot for each in every if each.snapshot is not None]
        lacking = [each for each in every if each.lacks(reviewed)]
        for own, drop in [*self._clients.get(server_id, {}).items()]:
            if own.findings.keys() & reviewed and not own.is_connecting:
                drop()
        is_other = bool(managed.findings.keys() & reviewed) and not managed.is_connecting
        if not is_other and not lacking:
            return
        if is_other and managed.connection is not None:
            managed.connection.renew()
        saved = await load_snapshot(store, managed.server)  # a review lists the server and saves that
        if saved is not None:
            known.append(saved)
        newest = max(known, key=lambda snapshot: snapshot.saved_at, default=None)
        if newest is None:
            return
        if is_other:
            managed.adopt(newest, ends=True)
        for each in lacking:
            each.catch_up(newest)

    async def _watch_quarantines(self, store: Store) -> None:
        while True:
            try:
                async with store.subscribe(QUARANTINED) as messages:
                    async for payload in messages:
                        if payload is not None:
                            self._on_quarantine_message(payload)
                    return  # the store is closed
            except StoreError:
                logger.warning("quarantines of other processes are not noticed", exc_info=True)
            await anyio.sleep(RETRY_SECONDS)

    def _on_quarantine_message(self, payload: bytes) -> None:
        """Follow a quarantine in another process, or in this one."""
        try:
            news = _decode(payload)
        except msgspec.DecodeError:
            logger.warning("a message about a quarantine cannot be read")
            return
        for managed in [*self]:
            server_id = managed.server.server_id
            newest = self._newest.get(server_id)
            if pins_key(managed.server) != news.pins_key or (newest and newest[0] >= news.listed_at):
                continue
            self._newest[server_id] = (news.listed_at, news.tools)
            for each in self._connections(server_id):
                each.follow(news.tools)


def _find_newly_pinned(
    before: Pins | UntrustedPins | None, now: Pins | UntrustedPins | None
) -> frozenset[str]:
    """The tools that a review pinned."""
    if not isinstance(now, Pins):
        return frozenset()
    known = before.tools if isinstance(before, Pins) else {}
    return frozenset(tool for tool, pin in now.tools.items() if known.get(tool) != pin)


def _take_news(managed: ManagedServer) -> SnapshotUpdate:
    snapshot, managed.unsaved = managed.unsaved, None
    trouble, managed.unsaved_trouble = managed.unsaved_trouble, None
    # Pins that are not saved yet count together with those in the store, until they are saved.
    return SnapshotUpdate(
        server=managed.server,
        snapshot=snapshot,
        trouble=trouble,
        pins=managed.unsaved_pins,
        principal=managed.principal,
    )


_CALL_FIELDS: Final = {"allow_tools": None, "deny_tools": (), "approval": None}
"""The fields of an entry that are about calls alone, and what they are if not set: what a review writes."""


def same_definition(old: LoadedServer, new: LoadedServer) -> bool:
    """Whether two configurations define a server equally, apart from the permissions of its tools.

    Consent to a project's entry covers all of it, so there anything that changes is a change.
    """
    if (old.source, old.usable, old.needs_consent) != (new.source, new.usable, new.needs_consent):
        return False
    if old.files_stamp != new.files_stamp:
        return False  # a file of the extension was edited
    if (old.entry, old.config) == (new.entry, new.config):
        return True
    return not new.needs_consent and _definition(old) == _definition(new)


def _definition(server: LoadedServer) -> tuple[dict[str, Any], Server | None]:
    entry = {name: value for name, value in server.entry.items() if name not in _CALL_FIELDS}
    return entry, server.config.model_copy(update=_CALL_FIELDS) if server.config is not None else None
