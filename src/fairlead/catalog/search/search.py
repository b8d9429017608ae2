"""Find tools among thousands: the few that fit best what somebody asks for, and why."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.query import read_query
from fairlead.catalog.search.score import Ranking, SemanticIndex, rank
from fairlead.catalog.tools import ToolKey

MOST_QUERIES = 4
MOST_HITS = 50

UNDISPUTED = 0.6
"""The share of the hits that may be one server's. Those beyond count less, so that others get a hearing."""
DISPUTED_WEIGHT = 0.75
TWIN_LIKENESS = 0.5
"""How much of their terms two tools of one name have in common, at least, to be one tool at two servers."""

_MOST_REASONS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchReason:
    """What brought a tool into the result."""

    name: str | None = None
    """What was asked for that is its name, or the end of it."""
    terms: tuple[tuple[str, float], ...] = ()
    """The terms it has of the query, or related ones, and what they count; those that count most first."""
    likeness: float | None = None
    """How near its meaning is, where that was looked at."""

    def __str__(self) -> str:
        reasons = [f"asked for as {self.name!r}"] if self.name is not None else []
        reasons += [f"{term} {score:.1f}" for term, score in self.terms]
        if self.likeness is not None:
            reasons.append(f"likeness {self.likeness:.2f}")
        return ", ".join(reasons)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchHit:
    """A tool that was found. `score` is at most 1 for what is said about it; being called by name adds."""

    key: ToolKey
    score: float
    why: MatchReason
    twins: tuple[ToolKey, ...] = ()
    """The same tool at other servers."""


def search(
    index: Index,
    queries: str | Sequence[str],
    *,
    server: str | None = None,
    limit: int = 5,
    meaning: SemanticIndex | None = None,
) -> tuple[SearchHit, ...]:
    """The tools that fit best, best first; of up to four queries, those that fit one of them best.

    With `server`, only that server's. After `select:`, the tools of exactly the names that follow, however
    many. The same tools and queries give the same hits in the same order, however the index came about.
    """
    texts = (queries,) if isinstance(queries, str) else queries[:MOST_QUERIES]
    read = [query for text in texts for query in read_query(text)]
    places = [_places(index, rank(index, query, server=server, meaning=meaning)) for query in read]
    limit = max(1, min(limit, MOST_HITS), sum(query.selecting for query in read))
    kept = _select_results(index, _merge_rankings(places), limit, share=server is None)
    return tuple([_hit(index, *each) for each in kept])


class _Place(NamedTuple):
    """Where a tool stands: the smaller the better. No two have one key, so nothing after it is compared."""

    negative_score: float
    position: int
    key: ToolKey
    slot: int
    ranking: Ranking


_Kept = tuple[_Place, list[ToolKey]]
"""A tool, and its twins."""


def _places(index: Index, ranking: Ranking) -> Iterator[_Place]:
    """The tools of a ranking, best first."""
    best = sorted([(-score, index.tools[slot].key, slot) for slot, score in ranking.scores.items()])
    for position, (score, key, slot) in enumerate(best):
        yield _Place(score, position, key, slot, ranking)


def _merge_rankings(rankings: Sequence[Iterator[_Place]]) -> Iterator[_Place]:
    """Each tool of all rankings where it stands best, best first."""
    if len(rankings) == 1:
        yield from rankings[0]
        return
    seen: set[int] = set()
    # A tool may have the same place in two rankings, and these have no order.
    for place in merge(*rankings, key=lambda place: place[:3]):
        if place.slot not in seen:
            seen.add(place.slot)
            yield place


def _select_results(index: Index, found: Iterable[_Place], limit: int, *, share: bool) -> list[_Kept]:
    """The best, without twins; no server takes more than its share while others fit nearly as well."""
    kept: list[_Kept] = []
    by_name: dict[str, list[_Kept]] = {}
    of_server = Counter[str]()
    disputed = 0
    for place in found:
        namesakes = by_name.setdefault(index.tools[place.slot].squashed, [])
        twins = next((twins for other, twins in namesakes if _are_twins(index, other, place)), None)
        if twins is not None:
            twins.append(place.key)
            continue
        of_server[place.key.server_id] += 1
        by_words = place.slot not in place.ranking.names
        if share and by_words and of_server[place.key.server_id] > UNDISPUTED * limit:
            place = place._replace(negative_score=place.negative_score * DISPUTED_WEIGHT)
            disputed += 1
        namesakes.append((place, []))
        kept.append(namesakes[-1])
        if len(kept) - disputed == limit:
            break
    return sorted(kept, key=lambda item: item[0])[:limit]


def _are_twins(index: Index, one: _Place, other: _Place) -> bool:
    first, second = {*index.tools[one.slot].terms}, {*index.tools[other.slot].terms}
    return len(first & second) >= TWIN_LIKENESS * len(first | second)


def _hit(index: Index, place: _Place, twins: list[ToolKey]) -> SearchHit:
    ranking, slot, asked = place.ranking, place.slot, place.ranking.impacts.keys()
    said = asked & index.tools[slot].terms | asked & index.servers[place.key.server_id].reach.keys()
    counts = {term: ranking.impacts[term] * index.score(term, slot) for term in said}
    why = MatchReason(
        name=ranking.names[slot][1] if slot in ranking.names else None,
        terms=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))[:_MOST_REASONS],
        likeness=ranking.likeness.get(slot),
    )
    return SearchHit(key=place.key, score=-place.negative_score, why=why, twins=tuple(twins))
