"""Sums of the impacts of a query's terms, tool by tool, and the choice of candidates.

The sums are exact (see `round_impact`), so that every implementation gets the same in any order: plain Python
here, `array_scores` for many tools at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Protocol

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.query import Impacts

_LOOKS = 8
"""Postings that are visited for each candidate."""
_SERVERS = 3
_RARE_IN_SERVERS = 0.03
"""A term in the texts of a larger share of all servers does not identify one."""

Scores = dict[int, float]
"""Scores by slot."""


class ScoreSums(Protocol):
    """Sums of the impacts of each clause's terms, by tool."""

    def candidates(self, count: int, within: Collection[int] | None) -> list[Scores]:
        """For each clause the best candidates, at most `count`, with their sums."""
        ...

    def of_each(self, slots: Collection[int]) -> list[Scores]:
        """For each clause the sums of these slots."""
        ...

    def together(self, slots: Collection[int]) -> Scores:
        """Sums of these slots by the terms of all clauses."""
        ...


def together(clauses: Iterable[Impacts]) -> Impacts:
    """Terms of all clauses: a repeated one counts once, and directly rather than as related."""
    found: Impacts = {}
    for impacts in clauses:
        for term, impact in impacts.items():
            if impact > found.get(term, 0.0):
                found[term] = impact
    return found


class PlainSums:
    """Sums tool by tool, in plain Python."""

    def __init__(self, index: Index, clauses: Sequence[Impacts]) -> None:
        self._index = index
        self._clauses = clauses

    def candidates(self, count: int, within: Collection[int] | None) -> list[Scores]:
        """For each clause the best candidates, at most `count`, with their sums."""
        return [self._candidates(impacts, count, within) for impacts in self._clauses]

    def of_each(self, slots: Collection[int]) -> list[Scores]:
        """For each clause the sums of these slots."""
        return [sum_impacts(slots, impacts, self._index.postings) for impacts in self._clauses]

    def together(self, slots: Collection[int]) -> Scores:
        """Sums of these slots by the terms of all clauses."""
        return sum_impacts(slots, together(self._clauses), self._index.postings)

    def _candidates(self, impacts: Impacts, count: int, within: Collection[int] | None) -> Scores:
        index = self._index
        if within is not None:
            sums = scores = sum_impacts(within, impacts, index.postings)
        else:
            leading = leading_terms(index, impacts, count)
            servers = best_servers(index, leading)
            looked_at = {slot for server_id, _ in servers for slot in index.servers[server_id].slots}
            looked_at.update(*map(index.champions, leading))
            sums = sum_impacts(looked_at, impacts, index.postings)
            scores = dict(sums)
            for server_id, score in servers:
                for slot in index.servers[server_id].slots:
                    scores[slot] += score
        return {slot: sums[slot] for slot in best(index, scores, count)}


def leading_terms(index: Index, impacts: Impacts, count: int) -> Impacts:
    """Terms with the highest impact, as many as yield enough tools to choose `count` candidates from."""
    leading: Impacts = {}
    looks = count * _LOOKS
    for negative_impact, term in sorted([(-impact, term) for term, impact in impacts.items()]):
        if looks <= 0:
            break
        leading[term] = -negative_impact
        looks -= len(index.champions(term))
    return leading


def best_servers(index: Index, leading: Impacts) -> list[tuple[str, float]]:
    """Servers with the highest sums of these terms."""
    scores: defaultdict[str, float] = defaultdict(float)
    frequent = max(len(index.servers) * _RARE_IN_SERVERS, _SERVERS)
    for term, impact in leading.items():
        posting = index.server_postings.get(term)
        if posting and len(posting) <= frequent:
            for server_id, score in posting.items():
                scores[server_id] += impact * score
    if len(scores) > _SERVERS:
        least = sorted(scores.values(), reverse=True)[_SERVERS - 1]
        most = sorted([(-score, server_id) for server_id, score in scores.items() if score >= least])
        return [(server_id, -negative_score) for negative_score, server_id in most[:_SERVERS]]
    return [*scores.items()]


def best(index: Index, scores: Scores, count: int) -> Collection[int]:
    """Slots with the highest scores. Ties are broken by the tools' names."""
    if len(scores) <= count:
        return scores
    least = sorted(scores.values(), reverse=True)[count - 1]
    kept = {slot for slot, score in scores.items() if score >= least}
    if len(kept) > count:
        tied = (slot for slot in kept if scores[slot] == least)
        kept.difference_update(nlargest(len(kept) - count, tied, key=index.label))
    return kept


def sum_impacts(
    slots: Iterable[int], impacts: Impacts, postings: Mapping[str, Mapping[int, float]]
) -> Scores:
    """Sum of the impacts of terms for each of these slots."""
    sums = dict.fromkeys(slots, 0.0)
    for term, impact in impacts.items():
        posting = postings.get(term)
        if posting:
            for slot in sums.keys() & posting.keys():
                sums[slot] += impact * posting[slot]
    return sums
