"""What the terms of a query count for the tools, clause by clause, and which tools are worth a closer look.

Two steps keep it quick among thousands of tools. The terms that count most bring up some to look at; these
alone are then summed up, by all terms. The sums are exact (see `rounded`), so that whoever makes them, in
whatever order, makes the same: here in plain Python, in `array_sums` for many tools at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Protocol

from fairlead.catalog.index import Index
from fairlead.catalog.query import Impacts

_LOOKS = 8
"""How many postings are looked at for each candidate there may be."""
_SERVERS = 3
_RARE_IN_SERVERS = 0.03
"""A term said about a larger share of all servers does not tell which of them is meant."""

Scores = dict[int, float]
"""By slot."""


class Sums(Protocol):
    """What the terms of each clause count for a tool, by what is said of it alone."""

    def candidates(self, count: int, within: Collection[int] | None) -> list[Scores]:
        """For each clause the tools most worth a closer look, so many at most, and their sums."""
        ...

    def of_each(self, slots: Collection[int]) -> list[Scores]:
        """For each clause the sums of these."""
        ...

    def together(self, slots: Collection[int]) -> Scores:
        """The sums of these by the terms of all clauses."""
        ...


def together(clauses: Iterable[Impacts]) -> Impacts:
    """The terms of all clauses: twice asked for counts once, and outright rather than as related."""
    found: Impacts = {}
    for impacts in clauses:
        for term, impact in impacts.items():
            if impact > found.get(term, 0.0):
                found[term] = impact
    return found


class PlainSums:
    """The sums, tool by tool."""

    def __init__(self, index: Index, clauses: Sequence[Impacts]) -> None:
        self._index = index
        self._clauses = clauses

    def candidates(self, count: int, within: Collection[int] | None) -> list[Scores]:
        """For each clause the tools most worth a closer look, so many at most, and their sums."""
        return [self._candidates(impacts, count, within) for impacts in self._clauses]

    def of_each(self, slots: Collection[int]) -> list[Scores]:
        """For each clause the sums of these."""
        return [_summed(slots, impacts, self._index.postings) for impacts in self._clauses]

    def together(self, slots: Collection[int]) -> Scores:
        """The sums of these by the terms of all clauses."""
        return _summed(slots, together(self._clauses), self._index.postings)

    def _candidates(self, impacts: Impacts, count: int, within: Collection[int] | None) -> Scores:
        index = self._index
        if within is not None:
            sums = scores = _summed(within, impacts, index.postings)
        else:
            leading = leading_terms(index, impacts, count)
            servers = best_servers(index, leading)
            looked_at = {slot for server_id, _ in servers for slot in index.servers[server_id].slots}
            looked_at.update(*map(index.champions, leading))
            sums = _summed(looked_at, impacts, index.postings)
            scores = dict(sums)
            for server_id, score in servers:
                for slot in index.servers[server_id].slots:
                    scores[slot] += score
        return {slot: sums[slot] for slot in best(index, scores, count)}


def leading_terms(index: Index, impacts: Impacts, count: int) -> Impacts:
    """The terms that count most, as many as bring up enough tools to choose so many candidates from."""
    leading: Impacts = {}
    looks = count * _LOOKS
    for negative_impact, term in sorted([(-impact, term) for term, impact in impacts.items()]):
        if looks <= 0:
            break
        leading[term] = -negative_impact
        looks -= len(index.champions(term))
    return leading


def best_servers(index: Index, leading: Impacts) -> list[tuple[str, float]]:
    """The servers about which these terms say most, and how much."""
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
    """The slots with the highest scores. Ties are broken by what the tools are called."""
    if len(scores) <= count:
        return scores
    least = sorted(scores.values(), reverse=True)[count - 1]
    kept = {slot for slot, score in scores.items() if score >= least}
    if len(kept) > count:
        tied = (slot for slot in kept if scores[slot] == least)
        kept.difference_update(nlargest(len(kept) - count, tied, key=index.label))
    return kept


def _summed(slots: Iterable[int], impacts: Impacts, postings: Mapping[str, Mapping[int, float]]) -> Scores:
    """What the terms count together for each of these."""
    sums = dict.fromkeys(slots, 0.0)
    for term, impact in impacts.items():
        posting = postings.get(term)
        if posting:
            for slot in sums.keys() & posting.keys():
                sums[slot] += impact * posting[slot]
    return sums
