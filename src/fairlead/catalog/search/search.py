"""Search for tools: the few of thousands that match a query best, and why."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.query import Query, read_query
from fairlead.catalog.search.score import QueryMemory, Ranking, SemanticIndex, rank, score_within
from fairlead.catalog.tools import ToolKey

MOST_QUERIES = 4
MOST_HITS = 50

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
    remembered: tuple[str, float] | None = None
    """The most similar past query that led to it, and how well its past queries match."""

    def __str__(self) -> str:
        reasons = [f"named as {self.name!r}"] if self.name is not None else []
        reasons += [f"{term} {score:.1f}" for term, score in self.terms]
        if self.likeness is not None:
            reasons.append(f"likeness {self.likeness:.2f}")
        if self.remembered is not None:
            text, match = self.remembered
            reasons.append(f"called before after {text!r} {match:.2f}")
        return ", ".join(reasons)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchHit:
    """A found tool. `score` is at most 1 by words and meaning; a match by name adds to it."""

    key: ToolKey
    """The tool."""
    score: float
    """How well it fits."""
    why: MatchReason
    """Why it was found."""
    twins: tuple[ToolKey, ...] = ()
    """The same tool at other servers."""
    query: str = ""
    """The query that found it, of several."""


def search(
    index: Index,
    queries: str | Sequence[str],
    *,
    server: str | None = None,
    limit: int = 5,
    meaning: SemanticIndex | None = None,
    memory: QueryMemory | None = None,
) -> tuple[SearchHit, ...]:
    """Tools that match best, best first; of up to four queries, those that match one of them best.

    With `server`, only that server's. After `select:`, the tools of exactly the names that follow, however
    many. The same tools and queries give the same hits in the same order, however the index was built.
    """
    texts = (queries,) if isinstance(queries, str) else queries[:MOST_QUERIES]
    read = [query for text in texts for query in read_query(text)]
    places = [
        _places(index, query, rank(index, query, server=server, meaning=meaning, memory=memory))
        for query in read
    ]
    limit = max(1, min(limit, MOST_HITS), sum(query.selecting for query in read))
    kept = _select_results(index, _merge_rankings(places), limit)
    return tuple([_hit(index, *each) for each in kept])


def score_servers(
    index: Index,
    queries: str | Sequence[str],
    servers: Iterable[str],
    *,
    meaning: SemanticIndex | None = None,
) -> dict[ToolKey, float]:
    """How well each tool of some servers matches one of the queries; those that match none are left out."""
    texts = (queries,) if isinstance(queries, str) else queries[:MOST_QUERIES]
    known = [index.servers[server_id] for server_id in servers if server_id in index.servers]
    slots = [slot for server in known for slot in server.slots]
    best: dict[ToolKey, float] = {}
    for query in (query for text in texts for query in read_query(text)):
        for slot, score in score_within(index, query, slots, meaning).items():
            key = index.tools[slot].key
            best[key] = max(score, best.get(key, 0.0))
    return best


class _Place(NamedTuple):
    """Rank of a tool: the smaller the better. Keys are unique, so nothing after the key is compared."""

    negative_score: float
    position: int
    key: ToolKey
    slot: int
    ranking: Ranking
    query: Query


_Kept = tuple[_Place, list[ToolKey]]
"""A tool, and its twins."""


def _places(index: Index, query: Query, ranking: Ranking) -> Iterator[_Place]:
    """Tools of a ranking, best first."""
    best = sorted([(-score, index.tools[slot].key, slot) for slot, score in ranking.scores.items()])
    for position, (score, key, slot) in enumerate(best):
        yield _Place(score, position, key, slot, ranking, query)


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


def _select_results(index: Index, found: Iterable[_Place], limit: int) -> list[_Kept]:
    """The best without twins."""
    kept: list[_Kept] = []
    by_name: dict[str, list[_Kept]] = {}
    for place in found:
        namesakes = by_name.setdefault(index.tools[place.slot].squashed, [])
        twins = next((twins for other, twins in namesakes if _are_twins(index, other, place)), None)
        if twins is not None:
            twins.append(place.key)
            continue
        if len(kept) == limit:
            break
        namesakes.append((place, []))
        kept.append(namesakes[-1])
    return kept


def _are_twins(index: Index, one: _Place, other: _Place) -> bool:
    first, second = {*index.tools[one.slot].terms}, {*index.tools[other.slot].terms}
    return len(first & second) >= TWIN_LIKENESS * len(first | second)


def _hit(index: Index, place: _Place, twins: list[ToolKey]) -> SearchHit:
    ranking, slot, query_terms = place.ranking, place.slot, place.ranking.impacts.keys()
    matching = (
        query_terms & index.tools[slot].terms | query_terms & index.servers[place.key.server_id].reach.keys()
    )
    counts = {term: ranking.impacts[term] * index.score(term, slot) for term in matching}
    why = MatchReason(
        name=ranking.names[slot][1] if slot in ranking.names else None,
        terms=tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))[:_MOST_REASONS],
        likeness=ranking.likeness.get(slot),
        remembered=(match.text, match.score) if (match := ranking.remembered.get(slot)) else None,
    )
    return SearchHit(
        key=place.key,
        score=-place.negative_score,
        why=why,
        twins=tuple(twins),
        query=place.query.text,
    )
