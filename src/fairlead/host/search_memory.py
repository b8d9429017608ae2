"""Memory of which tool a search led to: per principal in the store, capped and aged, and used by that
principal's searches alone.

A call counts if it was permitted, did not fail, and its tool was shown by a search of the same session.
"""

import hashlib
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

import msgspec

from fairlead.catalog.definitions import definition_digest
from fairlead.catalog.sanitize import gate
from fairlead.catalog.search.memory import PastQueries, ToolMemory
from fairlead.catalog.search.query import MOST_CHARACTERS
from fairlead.catalog.tools import ToolEntry, ToolKey
from fairlead.config.principal import LOCAL
from fairlead.errors import StoreError, VersionConflict
from fairlead.host.background import run_off_loop, size_of_definitions
from fairlead.store.protocol import ANY, Store, StoredValue

NAMESPACE: Final = "search_memory"
MOST_QUERIES: Final = 10_000
"""Queries remembered for one principal; the oldest go first."""
MAX_AGE_SECONDS: Final = 180 * 86_400.0
FRESH_SECONDS: Final = 30.0
"""Seconds for which what was read is used: other processes remember and forget, too."""

_MOST_PRINCIPALS = 64
_ATTEMPTS = 3
_RECENT_SEARCHES = 4
_MOST_SHOWN = 2_000

logger = logging.getLogger(__name__)


def memory_prefix(principal: str) -> str:
    """Beginning of the keys of a principal's memory: a digest, since names may contain any character."""
    return hashlib.sha256(principal.encode()).hexdigest()[:32] + "/"


def _store_key(principal: str, key: ToolKey) -> str:
    tool = hashlib.sha256(msgspec.json.encode((key.server_id, key.tool))).hexdigest()[:32]
    return memory_prefix(principal) + tool


def read_memory(stored: Iterable[StoredValue]) -> list[ToolMemory]:
    """Decode stored memory. What cannot be read is left out: it is only a memory."""
    found: list[ToolMemory] = []
    for value in stored:
        try:
            found.append(msgspec.json.decode(value.value, type=ToolMemory))
        except (msgspec.DecodeError, RecursionError):
            continue
    return found


def keep_newest(remembered: Sequence[ToolMemory], now: float) -> list[ToolMemory]:
    """The queries that are neither too old nor too many."""
    oldest = now - MAX_AGE_SECONDS
    times = sorted((past.last_used for memory in remembered for past in memory.queries), reverse=True)
    if len(times) > MOST_QUERIES:
        oldest = max(oldest, times[MOST_QUERIES - 1])
    for memory in remembered:
        memory.age(oldest)
    return [memory for memory in remembered if memory.queries]


@dataclass(slots=True)
class _RecalledMemory:
    """The memory of a principal as it was last read."""

    versions: dict[str, int]
    past: PastQueries
    read_at: float


@dataclass(eq=False, slots=True)
class _MemoryReading:
    """A reading of a principal's memory that is under way."""

    principal: str
    is_outdated: bool = False


class SearchMemory:
    """The memory of searches of all principals of one store: `host.search_memory`.

    Without a store nothing is remembered, and searches work as ever.
    """

    def __init__(self, store: Store | None, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._known: OrderedDict[str, _RecalledMemory] = OrderedDict()
        self._readings: set[_MemoryReading] = set()

    async def recall(self, principal: str = LOCAL) -> PastQueries:
        """The past queries of a principal. Where they cannot be read, those that were read before."""
        known = self._known.get(principal)
        now = self._clock()
        if self._store is None or (known is not None and 0 <= now - known.read_at < FRESH_SECONDS):
            return known.past if known is not None else PastQueries()
        reading = _MemoryReading(principal)
        self._readings.add(reading)
        try:
            known = await self._read(self._store, principal, known, now)
        except StoreError:
            logger.warning("the memory of searches cannot be read", exc_info=True)
            return known.past if known is not None else PastQueries()
        finally:
            self._readings.discard(reading)
        # What was remembered or forgotten here meanwhile may be missing: the next search reads again.
        known.read_at = 0.0 if reading.is_outdated else now
        self._known[principal] = known
        self._known.move_to_end(principal)
        if len(self._known) > _MOST_PRINCIPALS:
            self._known.popitem(last=False)
        return known.past

    async def _read(
        self, store: Store, principal: str, known: _RecalledMemory | None, now: float
    ) -> _RecalledMemory:
        """Read the memory of a principal, and trim in the store what is too old or too much."""
        stored = await store.scan(NAMESPACE, memory_prefix(principal))
        versions = {value.key: value.version for value in stored}
        if known is not None and known.versions == versions and not self._needs_trimming(known.past, now):
            return known
        before = known.past if known is not None else None
        size = size_of_definitions([value.value for value in stored])
        past, trimmed = await run_off_loop(lambda: _decode(stored, now, before), size)
        for key, value in trimmed.items():
            try:  # unless it was renewed meanwhile
                if value is None:
                    await store.delete(NAMESPACE, key, expect=versions[key])
                    del versions[key]
                else:
                    versions[key] = await store.put(
                        NAMESPACE,
                        key,
                        value,
                        expect=versions[key],
                        durable=False,
                        expires_in=MAX_AGE_SECONDS,
                    )
            except StoreError:
                logger.info("an aged memory of a search stays", exc_info=True)
        return _RecalledMemory(versions, past, now)

    def _needs_trimming(self, past: PastQueries, now: float) -> bool:
        return len(past) > MOST_QUERIES or past.oldest < now - MAX_AGE_SECONDS

    def _mark_outdated(self, principal: str) -> None:
        for reading in self._readings:
            if reading.principal == principal:
                reading.is_outdated = True

    async def remember(self, principal: str, entry: ToolEntry, texts: Sequence[str], session: str) -> None:
        """Remember that queries of a session led to a tool. A changed definition clears what there was.

        Args:
            principal: The identity whose searches get better by it.
            entry: The tool that was called.
            texts: The queries.
            session: The random id of the session.
        """
        if self._store is None or not texts:
            return
        # A model may have put a secret into a query. What is known to be one is not written.
        masked = [gate.mask_secrets(text[:MOST_CHARACTERS]) for text in texts]
        key = _store_key(principal, entry.key)
        try:
            for _ in range(_ATTEMPTS):
                found = await self._store.get(NAMESPACE, key)
                now = self._clock()
                memory = _continue(found, principal, entry)
                memory.age(now - MAX_AGE_SECONDS)
                memory.add(masked, session, now)
                if not memory.queries:
                    return
                version = found.version if found is not None else None
                # Not durable: a power cut may cost a memory, and no call waits for a disk.
                value = msgspec.json.encode(memory)
                try:
                    version = await self._store.put(
                        NAMESPACE, key, value, expect=version, durable=False, expires_in=MAX_AGE_SECONDS
                    )
                except VersionConflict:
                    continue
                self._mark_outdated(principal)
                if (known := self._known.get(principal)) is not None:
                    # That one tool alone: to read everything again would hold up the next search.
                    known.past.put(memory)
                    known.versions[key] = version
                break
        except StoreError:
            logger.warning("a search is not remembered", exc_info=True)

    async def forget(self, principal: str = LOCAL) -> int:
        """Forget the searches of a principal, and return how many queries those were."""
        if self._store is None:
            return 0
        stored = await self._store.scan(NAMESPACE, memory_prefix(principal))
        for value in stored:
            await self._store.delete(NAMESPACE, value.key, expect=ANY)
        self._mark_outdated(principal)
        self._known.pop(principal, None)
        return sum(len(memory.queries) for memory in read_memory(stored))


def _continue(found: StoredValue | None, principal: str, entry: ToolEntry) -> ToolMemory:
    """The stored memory of a tool; an empty one where there is none, or of another definition."""
    digest = definition_digest(entry.definition)
    memory = next(iter(read_memory([found] if found is not None else [])), None)
    if memory is not None and memory.definition_digest == digest:
        return memory
    return ToolMemory(
        principal=principal,
        server_id=entry.key.server_id,
        tool=entry.key.tool,
        definition_digest=digest,
        queries=[],
    )


def _decode(
    stored: Sequence[StoredValue], now: float, before: PastQueries | None
) -> tuple[PastQueries, dict[str, bytes | None]]:
    """The memory in stored values, and what of these is to be replaced, or deleted (None), by key."""
    trimmed: dict[str, bytes | None] = {}
    kept: list[ToolMemory] = []
    read = {value.key: next(iter(read_memory([value])), None) for value in stored}
    sizes = {key: len(memory.queries) for key, memory in read.items() if memory is not None}
    keep_newest([memory for memory in read.values() if memory is not None], now)
    for key, memory in read.items():
        if memory is None or not memory.queries:
            trimmed[key] = None
            continue
        kept.append(memory)
        if len(memory.queries) < sizes[key]:
            trimmed[key] = msgspec.json.encode(memory)
    return PastQueries(kept, before), trimmed


@dataclass(slots=True)
class _RecentSearch:
    queries: tuple[str, ...]
    found_by: Mapping[ToolKey, str]
    """For each hit, the query that found it."""
    shown: frozenset[ToolKey]
    counted: set[ToolKey] = field(default_factory=set[ToolKey])
    """Tools that it has led to already."""


class SearchSession:
    """Searches of one agent's session, and the tools it was shown.

    Args:
        is_one_agent: Whether all its searches come from one agent. Otherwise what one was shown, another may
            never have seen.
        part_of: The session that its searches count for: a call may follow one of another part of it.
    """

    def __init__(self, *, is_one_agent: bool = True, part_of: "SearchSession | None" = None) -> None:
        self.id: str = secrets.token_hex(8) if part_of is None else part_of.id
        self._is_one_agent = is_one_agent
        self._own: deque[_RecentSearch] = deque(maxlen=_RECENT_SEARCHES)
        self._recent = self._own if part_of is None else part_of._recent
        """Searches that a call may follow."""
        self._signatures: OrderedDict[ToolKey, bytes] = OrderedDict()
        self._names: OrderedDict[ToolKey, None] = OrderedDict()
        self._unavailable: frozenset[str] = frozenset()

    @property
    def has_searched(self) -> bool:
        """Whether there was a search at all: most calls need not look further."""
        return bool(self._recent)

    @property
    def signatures(self) -> AbstractSet[ToolKey]:
        """The tools whose signatures were shown."""
        return self._signatures.keys()

    @property
    def names(self) -> AbstractSet[ToolKey]:
        """The tools that were shown or named."""
        return self._signatures.keys() | self._names.keys()

    def repeats(self, queries: Sequence[str]) -> bool:
        """Whether a recent search was the same. What it showed is then wanted again."""
        return any(search.queries == tuple(queries) for search in self._own)

    def has_shown(self, entry: ToolEntry) -> bool:
        """Whether the signature of a tool was shown, as the tool is defined now."""
        return self._is_one_agent and self._signatures.get(entry.key) == entry.definition

    def has_named(self, key: ToolKey) -> bool:
        """Whether a tool was shown or named."""
        return self._is_one_agent and (key in self._names or key in self._signatures)

    def note_unavailable(self, unavailable: Mapping[str, str], *, again: bool) -> Mapping[str, str]:
        """Note the servers that cannot be searched, and return those to name: each once while it is away."""
        told = frozenset[str]() if again or not self._is_one_agent else self._unavailable
        self._unavailable = frozenset(unavailable)
        return {server_id: why for server_id, why in unavailable.items() if server_id not in told}

    def note_search(
        self,
        queries: Sequence[str],
        found_by: Mapping[ToolKey, str],
        signatures: Iterable[ToolEntry],
        names: Iterable[ToolKey],
    ) -> None:
        """Note a search, and what its answer shows: signatures, and names alone."""
        for entry in signatures:
            self._signatures[entry.key] = entry.definition
        named = [*names]
        self._names.update(dict.fromkeys(named))
        for shown in (self._signatures, self._names):
            while len(shown) > _MOST_SHOWN:
                shown.popitem(last=False)
        shown_now = frozenset([*found_by, *named])
        search = _RecentSearch(tuple(queries), found_by, shown_now)
        self._own.appendleft(search)
        if self._recent is not self._own:
            self._recent.appendleft(search)

    def take_queries(self, key: ToolKey) -> Sequence[str]:
        """The queries of the latest search that showed a tool. Each search leads to a tool once.

        Of several queries, the one that found the tool; if none of them did, it is unknown.
        """
        for search in (*self._own, *self._recent):
            if key in search.shown:
                if key in search.counted:
                    return ()
                search.counted.add(key)
                if key in search.found_by:
                    return (search.found_by[key],)
                return search.queries if len(search.queries) == 1 else ()
        return ()
