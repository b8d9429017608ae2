"""Directory of replicas: which gateway processes share a store, where they are, and which of them live.

Each replica announces itself under a lease and renews it; one that stops renewing is gone when its lease
ended. Readers measure leases with their own clock, from the moment they first saw an announcement, so that
no two clocks need to agree, and known replicas stay known while the store is away.
"""

import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Final

import anyio
import anyio.abc
import msgspec

from fairlead.errors import StoreError, VersionConflict
from fairlead.store.protocol import ANY, Expected, Store, scan_readable

LEASE_SECONDS: Final = 5.0
"""How long an announcement holds."""
RENEW_SECONDS: Final = 1.5
LOOK_SECONDS: Final = 0.75
"""How often the directory is read: each replica knows of a change after that."""
PEER_PROTOCOL: Final = 3
"""Version of what replicas say to each other. Those with another one keep out of each other's way."""
REPLICA_ID_BYTES: Final = 8

_LEAVE_SECONDS: Final = 2.0
_FINISH_SECONDS: Final = 6.5
"""How long a replica that left may still work on what came last: it gives that five seconds."""

logger = logging.getLogger(__name__)


class ReplicaDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Details of a replica for people to see; nothing depends on them."""

    name: str = ""
    """The name of its machine, or which worker it is."""
    pid: int = 0
    is_ready: bool = True
    """Whether every server is ready that its configuration requires."""
    connections: int = 0
    """Connections of clients and of other replicas."""
    requests_in_minute: int = 0
    """Requests that ended in the last minute."""
    cpu_percent: float = 0.0
    """Of one core, in the last seconds."""
    memory_bytes: int | None = None
    """Resident memory; None where the system does not tell cheaply."""
    servers: tuple[str, ...] = ()
    """The servers whose one process it runs for all replicas."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaLoad:
    """Load of a replica at one moment."""

    sessions: int = 0
    """Sessions of clients that are open."""
    calls: int = 0
    """Requests under way."""
    details: ReplicaDetails = field(default_factory=ReplicaDetails)


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway process, as it announced itself."""

    id: str
    """Random for each start of a process, in hexadecimal."""
    address: str
    """Where its peers reach it: `http://host:port`, or `unix:/path`."""
    version: str
    """Fairlead's version."""
    protocol: int = PEER_PROTOCOL
    """What it speaks with its peers: only those with the same `PEER_PROTOCOL` forward to each other."""
    started: float
    """When it started, in seconds since 1970 by its own clock."""
    sessions: int = 0
    calls: int = 0
    is_draining: bool = False
    """Whether it takes no new sessions, because it is about to stop."""
    renewals: int = 0
    """How often it has announced itself: another number is another lease."""
    details: ReplicaDetails = ReplicaDetails()


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenReplica:
    """A replica as it was last heard from."""

    replica: Replica
    seconds: float
    """How long ago that was."""
    is_living: bool
    """Whether its lease holds. One whose lease ended stays known while the store is away."""


@dataclass(slots=True)
class _KnownReplica:
    replica: Replica
    lease_ends: float


def new_replica_id() -> str:
    """Make an id for a replica that starts."""
    return secrets.token_hex(REPLICA_ID_BYTES)


class ReplicaDirectory:
    """The replicas that share a store, this one among them. `run` keeps it up to date.

    Args:
        store: The store, Redis or SQLite.
        address: Where peers reach this replica: `http://host:port`, or `unix:/path`.
        load: Returns what this replica has to do now.
        replica_id: The id of this replica; a new one if not given.
        namespace: Where in the store they announce themselves: only those under the same one are peers.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        store: Store,
        *,
        address: str,
        load: Callable[[], ReplicaLoad] = ReplicaLoad,
        replica_id: str | None = None,
        namespace: str = "replicas",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id: Final = replica_id or new_replica_id()
        self.address: Final = address
        self.is_draining = False
        """Whether this replica takes no new sessions. Set by `drain`."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a replica came or went, or is ready or draining now. The load tells nothing."""
        self._told: frozenset[tuple[str, bool, bool]] = frozenset()
        self._store = store
        self._load = load
        self._namespace = namespace
        self._clock = clock
        self._started = time.time()
        self._fairlead = version("fairlead")  # reads a file
        self._known: dict[str, _KnownReplica] = {}
        self._left: dict[str, float] = {}
        """Replicas that left before their lease ended, and until when they may finish what they have."""
        self._missing: dict[str, float] = {}
        """Replicas that a reading did not find, and until when it is not read for them again."""
        self._misread: set[str] = set()
        """Announcements that the last reading did not understand."""
        self._reading = anyio.Lock()
        self._read_at = float("-inf")
        self._announcing = anyio.Lock()
        self._is_away = False
        self._version: int | None = None
        """Version of this replica's announcement as stored, once there is one."""
        self._renewals = 0
        self._lease_ends = float("-inf")
        self._absence_counts_from = float("-inf")
        self._has_left = False

    @property
    def is_announced(self) -> bool:
        """Whether peers find this replica: its lease holds, so that the store was there a moment ago."""
        return self._clock() < self._lease_ends and not self._has_left

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Announce this replica and follow the others, until cancelled; then leave.

        Raises:
            StoreError: The first announcement failed: a replica that no peer finds must not begin to serve.
        """
        try:
            await self.announce()
            await self.refresh()
            task_status.started()
            renewed_at = self._clock()
            while True:
                # Not all at the same moments, even if all were started, or lost the store, at one.
                await anyio.sleep(LOOK_SECONDS * random.uniform(0.8, 1.0))  # noqa: S311 - no secret
                if self._clock() - renewed_at >= RENEW_SECONDS - LOOK_SECONDS / 2 and not self._has_left:
                    renewed_at = self._clock()
                    await self._try("replica not announced", self.announce)
                await self._try("replicas not read", self.refresh)
        finally:
            with anyio.move_on_after(_LEAVE_SECONDS, shield=True):
                await self.leave()

    async def drain(self) -> None:
        """Announce that this replica takes no new sessions. Without a store, peers learn it from refusals.

        Who the others are is read again: what this one has goes to them.
        """
        self.is_draining = True
        await self._try("drain not announced", self.announce)
        await self._try("replicas not read", self.refresh)

    async def leave(self) -> None:
        """Take this replica out of the directory, so that its peers need not wait for its lease to end."""
        if not self._has_left:
            self._has_left = True
            await self._try("replica not taken out", self._withdraw)

    def living(self) -> list[Replica]:
        """Return the replicas whose lease holds, this one included, oldest first."""
        now = self._clock()
        found = [known.replica for known in self._known.values() if known.lease_ends > now]
        return sorted(found, key=lambda replica: (replica.started, replica.id))

    def seen(self) -> list[SeenReplica]:
        """Return every known replica with when it was heard from, this one included, oldest first."""
        now = self._clock()
        found = [
            SeenReplica(
                replica=known.replica,
                seconds=max(0.0, now - (known.lease_ends - LEASE_SECONDS)),
                is_living=known.lease_ends > now,
            )
            for known in self._known.values()
        ]
        return sorted(found, key=lambda each: (each.replica.started, each.replica.id))

    def known(self, replica_id: str) -> Replica | None:
        """Return a replica whose lease holds, as far as it is known here. Waits for nothing."""
        known = self._known.get(replica_id)
        return known.replica if known is not None and known.lease_ends > self._clock() else None

    def last_known(self, replica_id: str) -> Replica | None:
        """Return a replica as it was known last, even if its lease ended while the store was away."""
        known = self._known.get(replica_id)
        return known.replica if known is not None else None

    def has_left(self, replica_id: str) -> bool:
        """Whether a replica left of its own accord a moment ago: it may still finish what was under way."""
        return self._left.get(replica_id, float("-inf")) > self._clock()

    async def find(self, replica_id: str) -> Replica | None:
        """Return a living replica; None where it is gone. One that is not known is looked for in the store.

        Raises:
            StoreError: It is not known, and the store cannot be read: it may live.
        """
        if found := self.known(replica_id):
            return found
        # Ids are random, and a replica announces itself before it gives any out: one that a reading did not
        # find is gone, so that its clients' requests do not cost a reading each.
        if self._missing.get(replica_id, float("-inf")) > self._clock():
            return None
        await self.refresh()
        found = self.known(replica_id)
        if found is None:
            self._missing[replica_id] = self._clock() + LOOK_SECONDS
        return found

    def note_alive(self, replica_id: str) -> None:
        """Take note that a replica itself answered: while the store is away, that renews what is known."""
        known = self._known.get(replica_id)
        if known is not None:
            known.lease_ends = max(known.lease_ends, self._clock() + LEASE_SECONDS)

    # The announcement.

    async def announce(self) -> None:
        """Announce this replica, with a new lease, unless it has left. `run` does so. Raises `StoreError`."""
        async with self._announcing:
            if self._has_left:
                return
            began = self._clock()
            load = self._load()
            self._renewals += 1
            own = Replica(
                id=self.id,
                address=self.address,
                version=self._fairlead,
                started=self._started,
                sessions=load.sessions,
                calls=load.calls,
                is_draining=self.is_draining,
                renewals=self._renewals,
                details=load.details,
            )
            value = msgspec.json.encode(own)
            try:
                self._version = await self._put(value, self._version)
            except VersionConflict:
                # The store lost it, or this process was suspended. Others may not have renewed theirs yet,
                # so that for a moment one that is not there need not be gone.
                self._absence_counts_from = self._clock() + 2 * RENEW_SECONDS
                self._version = await self._put(value, ANY)
            self._lease_ends = began + LEASE_SECONDS
            self._known[self.id] = _KnownReplica(own, self._lease_ends)

    async def _put(self, value: bytes, expect: Expected) -> int:
        return await self._store.put(
            self._namespace, self.id, value, expect=expect, durable=False, expires_in=LEASE_SECONDS
        )

    async def _withdraw(self) -> None:
        self._known.pop(self.id, None)
        await self._store.delete(self._namespace, self.id, expect=ANY)

    # The others.

    async def refresh(self) -> None:
        """Read which replicas there are. `run` does so. Raises `StoreError`."""
        asked_at = self._clock()
        async with self._reading:
            if self._read_at > asked_at:
                return  # another task has read it meanwhile
            began = self._clock()
            values, unreadable = await scan_readable(self._store, self._namespace)
            self._read_at = began
        found: dict[str, Replica] = {}
        misread = {*unreadable}  # one that was left behind with an old cluster key stops no other
        for value in values:
            try:
                replica = msgspec.json.decode(value.value, type=Replica)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                misread.add(value.key)
                continue
            if replica.id == value.key:
                found[replica.id] = replica
        for key in sorted(misread - self._misread):  # once: they are read again and again
            logger.warning(
                "a replica announces itself in a way that is not understood", extra={"replica": key}
            )
        self._misread = misread
        self._merge(found, began)
        every = (known.replica for known in self._known.values())
        states = frozenset((each.id, each.is_draining, each.details.is_ready) for each in every)
        if states != self._told:
            self._told = states
            self.on_change()

    def _merge(self, found: dict[str, Replica], read_at: float) -> None:
        for replica_id, replica in found.items():
            known = self._known.get(replica_id)
            # The same renewal is the same lease, however often it is read.
            if known is None or known.replica.renewals < replica.renewals:
                self._known[replica_id] = _KnownReplica(replica, read_at + LEASE_SECONDS)
        # A store that lost this replica has lost others, too. Then leases count, which are known here.
        is_whole = self.id in found and read_at >= self._absence_counts_from
        for replica_id, known in [*self._known.items()]:
            if replica_id not in found and (is_whole or known.lease_ends <= read_at):
                del self._known[replica_id]
                # One that did not renew its lease is missing when that ends, or hardly before.
                if known.lease_ends - read_at > RENEW_SECONDS:
                    self._left[replica_id] = read_at + _FINISH_SECONDS
        self._left = {name: until for name, until in self._left.items() if until > read_at}
        self._missing = {name: until for name, until in self._missing.items() if until > read_at}

    async def _try(self, trouble: str, work: Callable[[], Awaitable[None]]) -> None:
        """Access the store; where that fails, what is known stays in effect."""
        try:
            await work()
        except StoreError as exc:
            if not self._is_away:
                logger.warning(trouble, extra={"reason": str(exc)})
            self._is_away = True
        else:
            self._is_away = False
