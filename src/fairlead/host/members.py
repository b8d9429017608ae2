"""The servers of a host: taken in, put in each other's place, let go, and what is new of them kept."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import anyio
from anyio.abc import TaskGroup

from fairlead.config.load import LoadedServer
from fairlead.config.validate import suggestion
from fairlead.connection.admission import Admission
from fairlead.connection.transports import Surroundings
from fairlead.errors import StoreError, UnknownServer
from fairlead.host.bus import EventBus
from fairlead.host.member import Member, Person
from fairlead.host.snapshots import Known, News, load_known, load_pins, save_news, snapshot_key
from fairlead.policy.pins import REVIEWED, is_guarded, joined, pins_key
from fairlead.store.store import Store

logger = logging.getLogger(__name__)

SAVE_SECONDS = 0.1
"""How long news of servers wait to be saved: what comes of many servers in that time is one write."""


class Members:
    """The servers of one host, by id."""

    def __init__(
        self,
        tasks: TaskGroup,
        around: Surroundings,
        store: Store | None,
        person: Person,
        bus: EventBus,
        admission: Admission | None = None,
    ) -> None:
        self._tasks = tasks
        self._around = around
        self._store = store
        self._person = person
        self._bus = bus
        self._admission = admission or Admission()
        self._by_id: dict[str, Member] = {}
        self.generation = 0
        """Another number whenever servers, or what may be offered of them, are others."""
        self._unsaved: set[Member] = set()
        self._saving = anyio.Lock()
        self._watches_reviews = False

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def __getitem__(self, server_id: str) -> Member:
        member = self._by_id.get(server_id)
        if member is None:
            hint = suggestion(server_id, self._by_id) or "run `fairlead list` to see the configured servers"
            raise UnknownServer(f"there is no server `{server_id}`", hint=hint)
        return member

    def known(self, server_id: str) -> Member:
        """A server to look at rather than to call: what others know of it will do."""
        return self[server_id]

    async def take(self, servers: Iterable[LoadedServer]) -> list[Member]:
        """Take servers in; one that is there already, and the same, stays as it is. Returns the new ones."""
        wanted = list(servers)
        changed = [server for server in wanted if not self._has(server)]
        for server in wanted:
            if self._has(server):
                self._by_id[server.server_id].take_rules(server)
        outside = [server for server in changed if server.transport != "in_process"]
        known = await load_known(self._store, outside)
        return [self._put(server, self._carried(server, known)) for server in changed]

    def _carried(self, server: LoadedServer, known: Mapping[str, Known]) -> Known:
        """What is known of a server; from the one it replaces, where that is the same and not saved yet."""
        found, old = known.get(server.server_id, Known()), self._by_id.get(server.server_id)
        if found.snapshot is None and old is not None and snapshot_key(old.server) == snapshot_key(server):
            return replace(found, snapshot=old.snapshot)
        return found

    def drop(self, server_id: str) -> None:
        """Let a server go. Its calls under way finish first."""
        self._retire(self._by_id.pop(server_id))
        self._changed()

    def keep_only(self, server_ids: Iterable[str]) -> None:
        """Let go of all others."""
        for server_id in self._by_id.keys() - set(server_ids):
            self.drop(server_id)

    async def close(self) -> None:
        """End every connection, in bounded time, and keep what is new."""
        async with anyio.create_task_group() as closing:
            for member in self:
                if member.connection is not None:
                    closing.start_soon(member.connection.aclose)
        await self._save_now()

    def _has(self, server: LoadedServer) -> bool:
        member = self._by_id.get(server.server_id)
        return member is not None and same_definition(member.server, server)

    def _put(self, server: LoadedServer, known: Known) -> Member:
        before, unsaved = self._by_id.get(server.server_id), None
        if before is not None:
            self._retire(before)
            if pins_key(before.server) == pins_key(server):
                unsaved = before.pins if self._store is None else before.unsaved_pins
        if unsaved is not None:
            known = replace(known, pins=joined(unsaved, known.pins))
        member = self._by_id[server.server_id] = Member(
            server,
            self._around,
            known,
            tasks=self._tasks,
            admission=self._admission,
            person=self._person,
            emit=self._bus.emit,
            save=self._save,
            changed=self._changed,
        )
        self._changed()
        if unsaved is not None and self._store is not None:
            # Another may take its place before they are saved.
            member.unsaved_pins = joined(member.unsaved_pins, unsaved) if member.unsaved_pins else unsaved
            self._save(member)
        self._watch_reviews_of(member)
        return member

    def _changed(self) -> None:
        self.generation += 1

    def _retire(self, member: Member) -> None:
        if member.connection is not None:
            self._tasks.start_soon(partial(member.connection.aclose, drain=True))

    def _save(self, member: Member) -> None:
        if member.server.transport == "in_process":
            return  # it is part of the program, and the next one may have another under that name
        self._watch_reviews_of(member)
        if not self._unsaved:
            self._tasks.start_soon(self._save_soon)
        self._unsaved.add(member)

    async def _save_soon(self) -> None:
        await anyio.sleep(SAVE_SECONDS)
        await self._save_now()

    async def _save_now(self) -> None:
        async with self._saving:  # so that closing waits for a save under way
            members, self._unsaved = self._unsaved, set()
            if self._store is not None:
                news = {member: _take_news(member) for member in members}
                await save_news(self._store, [*news.values()])
                for member, saved in news.items():
                    if member.unsaved_pins is saved.pins:
                        member.unsaved_pins = None

    def _watch_reviews_of(self, member: Member) -> None:
        """Let tools that are held back go as soon as somebody, in whatever process, has reviewed them."""
        held_back = member.screened is not None and bool(member.screened.quarantined)
        if held_back and self._store is not None and not self._watches_reviews:
            self._watches_reviews = True
            self._tasks.start_soon(self._watch_reviews, self._store)

    async def _watch_reviews(self, store: Store) -> None:
        try:
            async with store.subscribe(REVIEWED) as messages:
                async for _ in messages:
                    for member in [*self]:
                        if is_guarded(member.server):
                            member.repin(await load_pins(store, member.server))
        except StoreError:
            logger.warning("reviews are not noticed until the next start", exc_info=True)


def _take_news(member: Member) -> News:
    snapshot, member.unsaved = member.unsaved, None
    trouble, member.unsaved_trouble = member.unsaved_trouble, None
    # Pins that are not saved yet count beside those in the store, and so they stay until they are.
    return News(server=member.server, snapshot=snapshot, trouble=trouble, pins=member.unsaved_pins)


def same_definition(old: LoadedServer, new: LoadedServer) -> bool:
    """Do two configurations say the same of a server, but for the rules about its calls?"""
    return (old.entry, old.config, old.source, old.usable) == (new.entry, new.config, new.source, new.usable)
