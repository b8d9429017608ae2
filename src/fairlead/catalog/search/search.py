"""Search for tools: the few of thousands that match a query best, and why."""

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
"""Share of the hits that one server may have. Those beyond count less, so that others are shown."""
DISPUTED_WEIGHT = 0.75
TWIN_LIKENESS = 0.5
"""Share of terms in common that makes two tools of one name the same tool at two servers."""

_MOST_REASONS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchReason:
    """Why a tool was found."""

    name: str | None = None
    """Part of the query that is its name, or the end of it."""
    terms: tuple[tuple[str, float], ...] = ()
    """Its terms of the query, or related ones, with their scores; highest first."""
    likeness: float | None = None
    """Similarity of meaning, where that was computed."""

    def __str__(self) -> str:
        reasons = [f"asked for as {self.name!r}"] if self.name is not None else []
        reasons += [f"{term} {score:.1f}" for term, score in self.terms]
        if self.likeness is not None:
            reasons.append(f"likeness {self.likeness:.2f}")
        return ", ".join(reasons)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchHit:
    """A found tool. `score` is at most 1 by words and meaning; a match by name adds to it."""

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
    """Tools that match best, best first; of up to four queries, those that match one of them best.

    With `server`, only that server's. After `select:`, the tools of exactly the names that follow, however
    many. The same tools and queries give the same hits in the same order, however the index was built.
    """
    texts = (queries,) if isinstance(queries, str) else queries[:MOST_QUERIES]
    read = [query for text in texts for query in read_query(text)]
    places = [_places(index, rank(index, query, server=server, meaning=meaning)) for query in read]
    limit = max(1, min(limit, MOST_HITS), sum(query.selecting for query in read))
    kept = _select_results(index, _merge_rankings(places), limit, share=server is None)
    return tuple([_hit(index, *each) for each in kept])


class _Place(NamedTuple):
    """Rank of a tool: the smaller the better. Keys are unique, so nothing after the key is compared."""

    negative_score: float
    position: int
    key: ToolKey
    slot: int
    ranking: Ranking


_Kept = tuple[_Place, list[ToolKey]]
"""A tool, and its twins."""


def _places(index: Index, ranking: Ranking) -> Iterator[_Place]:
    """Tools of a ranking, best first."""
    best = sorted([(-score, index.tools[slot].key, slot) for slot, score in ranking.scores.items()])
    for position, (score, key, slot) in enumerate(best):
        yield _Place(score, position, key, slot, ranking)


def _merge_rankings(rankings: Sequence[Iterator[_Place]]) -> Iterator[_Place]:
    """Each tool of all rankings at its best place, best first."""
    if len(rankings) == 1:
        yield from rankings[0]
        return
    seen: set[int] = set()
    # A tool may have the same place in two rankings, and tools have no order.
    for place in merge(*rankings, key=lambda place: place[:3]):
        if place.slot not in seen:
            seen.add(place.slot)
            yield place


def _select_results(index: Index, found: Iterable[_Place], limit: int, *, share: bool) -> list[_Kept]:
    """The best without twins; no server takes more than its share while others match nearly as well."""
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
