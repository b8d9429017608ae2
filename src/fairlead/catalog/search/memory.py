"""Past queries of one principal, each with the tool that was then called: an index of its own.

A query is matched with past queries by the rarity of the words they share. Nothing but the text of a query is
kept, never arguments. A server cannot gain by making itself called: of a tool only so many queries count, of
a query only how many different sessions searched for it, up to a few, and of several like queries of one
session only the most similar. A match says how many sessions it comes from: what one session alone was led to
outdoes nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import inf, log, sqrt
from typing import Final, NamedTuple, TypeVar

import msgspec

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.query import split_clauses
from fairlead.catalog.search.tokenize import squash
from fairlead.catalog.tools import ToolKey

MOST_QUERIES_OF_TOOL: Final = 32
"""Queries remembered of one tool; the oldest go first."""
MOST_QUERY_CHARACTERS: Final = 200
MOST_SESSIONS: Final = 4
"""Distinct sessions counted for one query."""

_MOST_TERMS = 24
_VISITS = 96
"""Past queries that are looked at for one query, those with its rarest words first."""
_CANDIDATES = 16
"""Past queries that are compared word by word."""
_NEIGHBOURS = 8
"""Most similar past queries of a tool that count."""
_OF_ONE_SERVER = 8
"""Past queries of one server that are compared before those of others."""
_SESSION_WEIGHTS = (0.0, 0.7, 0.85, 0.95, 1.0)
"""Weight of a past query by the number of sessions that searched for it."""
_AS_LIKE = 0.6
"""Share of a tool's best match that the query of another session needs to count as another session."""


class PastQuery(msgspec.Struct, kw_only=True):
    """A query that led to a tool."""

    text: str
    sessions: list[str]
    """Sessions that searched for it, as random ids; at most `MOST_SESSIONS`."""
    last_used: float
    """Time of the last search for it, in seconds since 1970."""


class ToolMemory(msgspec.Struct, kw_only=True):
    """Past queries that led to one tool, for one principal, as stored."""

    principal: str
    server_id: str
    tool: str
    definition_digest: str
    """The definition that was called: another one starts anew."""
    queries: list[PastQuery]

    @property
    def key(self) -> ToolKey:
        """The tool."""
        return ToolKey(self.server_id, self.tool)

    def add(self, texts: Iterable[str], session: str, now: float) -> None:
        """Remember that these queries of a session led to the tool: those with words to find them by."""
        known = {squash(past.text): past for past in self.queries}
        for text in texts:
            text = " ".join(text.split())[:MOST_QUERY_CHARACTERS]
            if not _split(text):
                continue
            past = known.get(squash(text))
            if past is None:
                past = known[squash(text)] = PastQuery(text=text, sessions=[], last_used=now)
            past.last_used = now
            if session not in past.sessions and len(past.sessions) < MOST_SESSIONS:
                past.sessions.append(session)
        newest = sorted(known.values(), key=lambda past: -past.last_used)
        self.queries = newest[:MOST_QUERIES_OF_TOOL]

    def age(self, oldest: float) -> None:
        """Forget the queries whose last search was before a time."""
        self.queries = [past for past in self.queries if past.last_used >= oldest]


KeyT = TypeVar("KeyT")
IsCurrent = Callable[[ToolKey, str], bool]
"""Whether a tool is there, with the definition of that digest."""


class MemoryMatch(NamedTuple):
    """Similarity of a tool's past queries to a query: from 0 to 1, with the most similar of them."""

    score: float
    text: str
    sessions: int
    """Distinct sessions that searched for much the same."""


class _Past(NamedTuple):
    key: ToolKey
    digest: str
    text: str
    ordered: tuple[str, ...]
    terms: frozenset[str]
    sessions: frozenset[str]
    last_used: float
    weight: float


class _Likeness(NamedTuple):
    """Similarity of a past query, times its weight."""

    score: float
    text: str
    sessions: frozenset[str]


def _age_key(past: _Past) -> float:
    return past.last_used


def _split(text: str) -> tuple[str, ...]:
    """The different terms of a text, those that a query of it is matched by."""
    return tuple(dict.fromkeys(chain.from_iterable(split_clauses(text))))[:_MOST_TERMS]


def _read_past(memory: ToolMemory) -> Sequence[_Past]:
    """The past queries of a tool, ready to be compared."""
    found: list[_Past] = []
    for past in memory.queries:
        ordered = _split(past.text)
        if not ordered:
            continue
        found.append(
            _Past(
                key=memory.key,
                digest=memory.definition_digest,
                text=past.text,
                ordered=ordered,
                terms=frozenset(ordered),
                sessions=frozenset(past.sessions),
                last_used=past.last_used,
                weight=_SESSION_WEIGHTS[min(len(past.sessions), MOST_SESSIONS)],
            )
        )
    return found


def _take_place(places: dict[KeyT, list[int]], key: KeyT, place: int) -> None:
    """Take a place out of an ordered list, and the list with its last one."""
    found = places[key]
    del found[bisect_left(found, place)]
    if not found:
        del places[key]


class PastQueries:
    """The past queries of one principal, to match others with.

    Searches in other threads may match while a tool's past is put in: each change is a single step for them.

    Args:
        remembered: What is remembered, by tool.
        known: The past queries as they were before: what did not change is not read again.
    """

    def __init__(self, remembered: Iterable[ToolMemory] = (), known: "PastQueries | None" = None) -> None:
        self._past: dict[int, _Past] = {}
        """By place: each new one gets the next, which is never used again."""
        self._next_place = 0
        self._places: dict[ToolKey, list[int]] = {}
        self._of_tools: dict[ToolKey, tuple[ToolMemory, Sequence[_Past]]] = {}
        self._postings: dict[str, list[int]] = {}
        """By term, the places of past queries with it, the newest last."""
        self._same: dict[frozenset[str], list[int]] = {}
        """By all of its terms, the places of a past query."""
        self._rarities: dict[str, float] = {}
        self._masses: tuple[Index | None, dict[int, float]] = (None, {})
        """For an index, by place the sum of the rarities of a past query's words."""
        known_tools = known._of_tools if known is not None else {}
        read: list[_Past] = []
        for memory in remembered:
            before = known_tools.get(memory.key)
            past = before[1] if before is not None and before[0] == memory else _read_past(memory)
            self._of_tools[memory.key] = (memory, past)
            read += past
        for each in sorted(read, key=_age_key):
            self._add(each)

    def __len__(self) -> int:
        return len(self._past)

    @property
    def oldest(self) -> float:
        """Time of the search that is longest ago; infinite where there is none."""
        # They are added by age, and what is put in later is newer.
        return next((past.last_used for past in self._past.values()), inf)

    def put(self, memory: ToolMemory) -> None:
        """Replace what is known of one tool, which costs no more than that tool's queries."""
        before = set(self._of_tools[memory.key][1]) if memory.key in self._of_tools else set[_Past]()
        now = _read_past(memory)
        kept = before.intersection(now)
        for place in [place for place in self._places.get(memory.key, ()) if self._past[place] not in kept]:
            self._take_out(place)
        for each in sorted(now, key=_age_key):
            if each not in kept:
                self._add(each)
        self._of_tools[memory.key] = (memory, now)
        self._rarities, self._masses = {}, (None, {})

    def _take_out(self, place: int) -> None:
        past = self._past.pop(place)
        self._places[past.key].remove(place)
        for term in past.ordered:
            _take_place(self._postings, term, place)
        _take_place(self._same, past.terms, place)

    def _add(self, past: _Past) -> None:
        place = self._next_place
        self._next_place += 1
        self._past[place] = past  # first: another thread that finds the place below looks it up
        self._places.setdefault(past.key, []).append(place)
        postings = self._postings
        for term in past.ordered:
            posting = postings.get(term)
            if posting is None:
                postings[term] = [place]
            else:
                posting.append(place)
        self._same.setdefault(past.terms, []).append(place)

    def match(
        self, index: Index, query_terms: Iterable[str], is_current: IsCurrent
    ) -> dict[ToolKey, MemoryMatch]:
        """The tools whose past queries share words with a query, and how well each matches.

        Args:
            index: The tools, which say how rare a word is.
            query_terms: The terms of the query.
            is_current: Whether a tool is there with the definition of that digest. What was remembered of
                another definition does not count.
        """
        if not self._past:
            return {}
        rarities = {term: self._rarity(index, term) for term in query_terms}
        mass = sum(rarities.values())
        if not mass:
            return {}
        masses = self._masses_of(index)
        found: dict[ToolKey, list[_Likeness]] = {}
        for place in self._candidates(rarities):
            past = self._past.get(place)
            if past is not None and is_current(past.key, past.digest):
                shared = sum([rarities[term] for term in rarities.keys() & past.terms])
                # The cosine of two sets of words, weighed by their rarity.
                if (past_mass := masses.get(place)) is None:
                    past_mass = masses[place] = sum([self._rarity(index, term) for term in past.terms])
                likeness = shared / sqrt(mass * past_mass)
                similar = _Likeness(past.weight * likeness, past.text, past.sessions)
                found.setdefault(past.key, []).append(similar)
        return {
            key: _join(sorted(likenesses, key=lambda each: each[:2], reverse=True))
            for key, likenesses in found.items()
        }

    def _candidates(self, rarities: Mapping[str, float]) -> list[int]:
        """Past queries of just these words, then those that share the rarest, the most similar first."""
        # However many share its words: the same query again is not to be missed among them.
        same = self._same.get(frozenset(rarities), [])[: -_VISITS - 1 : -1]
        sums: dict[int, float] = {}
        visits = _VISITS
        for rarity, term in sorted([(rarity, term) for term, rarity in rarities.items()], reverse=True):
            posting = self._postings.get(term)
            if posting:
                # The newest, where a frequent word is in more than can be looked at.
                for place in posting[-visits:]:
                    sums[place] = sums.get(place, 0.0) + rarity
                visits -= len(posting)
                if visits <= 0:
                    break
        best = sorted([(score, place) for place, score in sums.items()], reverse=True)
        return self._spread([*dict.fromkeys([*same, *(place for _, place in best)])])[:_CANDIDATES]

    def _spread(self, places: list[int]) -> list[int]:
        """Some of each server first, so that many queries of one do not keep out those of another."""
        of_servers: dict[str, int] = {}
        first: list[int] = []
        rest: list[int] = []
        for place in places:
            past = self._past.get(place)
            server_id = past.key.server_id if past is not None else ""
            count = of_servers[server_id] = of_servers.get(server_id, 0) + 1
            (first if count <= _OF_ONE_SERVER else rest).append(place)
        return first + rest

    def _masses_of(self, index: Index) -> dict[int, float]:
        """The sums of rarities that are known for an index. Another thread may have another one."""
        known = self._masses
        if known[0] is not index:
            known = self._masses = (index, {})
        return known[1]

    def _rarity(self, index: Index, term: str) -> float:
        """Rarity of a word among the tools; of one that no tool has, among past queries."""
        rarity = index.rarity(term) or self._rarities.get(term)
        if not rarity:
            having = len(self._postings.get(term, ()))
            rarity = log(1 + (len(self._past) - having + 0.5) / (having + 0.5))
            if having:  # queries have unlimited words, past ones have not
                self._rarities[term] = rarity
        return rarity


def _join(likenesses: Sequence[_Likeness]) -> MemoryMatch:
    """The score of a tool by the most similar of its past queries: each of another session makes it likelier.

    A session that asks for one thing in many words counts once, as it does where it repeats itself.
    """
    unlikely = 1.0
    counted: set[str] = set()
    alike: set[str] = set()
    neighbours = 0
    for each in likenesses:
        if neighbours == _NEIGHBOURS:
            break
        if not counted.issuperset(each.sessions):
            counted |= each.sessions
            unlikely *= 1 - each.score
            neighbours += 1
        if each.score >= _AS_LIKE * likenesses[0].score:
            alike |= each.sessions
    return MemoryMatch(1 - unlikely, likenesses[0].text, len(alike))


class CurrentMemory:
    """Past queries as far as they led to tools that are still as they were: a `QueryMemory`."""

    def __init__(self, past: PastQueries, is_current: IsCurrent) -> None:
        self._past = past
        self._is_current = is_current

    def recall(self, index: Index, query_terms: Iterable[str]) -> dict[ToolKey, MemoryMatch]:
        """The tools that past queries with such terms led to."""
        return self._past.match(index, query_terms, self._is_current)
