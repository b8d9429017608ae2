"""Scores of a query over thousands of tools with numpy: needs the extra `fairlead[search]`.

The sums equal those of `PlainSums`, to the last bit.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.query import Impacts
from fairlead.catalog.search.sums import Scores, best, best_servers, leading_terms, together

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Slots = NDArray[np.int64]
    Counts = NDArray[np.float64]


class ArraySums:
    """Sums of all tools at once, as arrays."""

    def __init__(self, index: Index, clauses: Sequence[Impacts]) -> None:
        self._index = index
        self._clauses = clauses
        often = _overlap_correction(clauses)
        self._counts = self._sum_rows([*clauses, often] if often else clauses)

    def candidates(self, count: int, within: Collection[int] | None) -> list[Scores]:
        """For each clause the best candidates, at most `count`, with their sums."""
        return [
            self._candidates(impacts, counts, count, within)
            # There may be one row more, for terms that are counted too often.
            for impacts, counts in zip(self._clauses, self._counts, strict=False)
        ]

    def of_each(self, slots: Collection[int]) -> list[Scores]:
        """For each clause the sums of these slots."""
        sums = self._counts[: len(self._clauses)].take(_slot_array(slots), axis=1)
        return [dict(zip(slots, row, strict=True)) for row in sums.tolist()]

    def together(self, slots: Collection[int]) -> Scores:
        """Sums of these slots by the terms of all clauses."""
        sums = self._counts.take(_slot_array(slots), axis=1).sum(axis=0)
        return dict(zip(slots, sums.tolist(), strict=True))

    def _sum_rows(self, rows: Sequence[Impacts]) -> "Counts":
        """Sums of terms for each tool: a row for each clause, a column for each slot."""
        size = len(self._index.tools)
        columns = [self._index.columns(term) for impacts in rows for term in impacts]
        lengths = [column.length for column in columns]
        starts = [size * row for row, impacts in enumerate(rows) for _ in impacts]
        places = np.repeat(np.array(starts, dtype=np.int64), lengths)
        places += _slots([column.slots for column in columns])
        weights = np.repeat([impact for impacts in rows for impact in impacts.values()], lengths)
        weights *= np.frombuffer(b"".join([column.scores for column in columns]))
        counts = np.bincount(places, weights, size * len(rows)).astype(np.float64, copy=False)
        return counts.reshape(len(rows), size)

    def _candidates(
        self, impacts: Impacts, counts: "Counts", count: int, within: Collection[int] | None
    ) -> Scores:
        index = self._index
        if within is not None:
            sums = scores = _most(counts, _slot_array(within), count)
        else:
            leading = leading_terms(index, impacts, count)
            found = np.zeros(len(counts), dtype=np.bool_)
            found[_slots([index.columns(term).champions for term in leading])] = True
            sums = _most(counts, found.nonzero()[0], count)
            scores = dict(sums)
            # A bonus can only move a tool up: of the others no more are needed.
            for server_id, score in best_servers(index, leading):
                for slot in index.servers[server_id].slots:
                    sums[slot] = counts.item(slot)
                    scores[slot] = sums[slot] + score
        return {slot: sums[slot] for slot in best(index, scores, count)}


def _most(counts: "Counts", slots: "Slots", count: int) -> Scores:
    """The `count` tools with the highest sums, and all that tie for the last place."""
    scores = counts.take(slots)
    if len(slots) > count:
        slots = slots[scores >= np.partition(scores, -count)[-count]]
        scores = counts.take(slots)
    return dict(zip(slots.tolist(), scores.tolist(), strict=True))


def _overlap_correction(clauses: Sequence[Impacts]) -> Impacts:
    """Correction of the sum of all clauses, so that each term counts once."""
    if len(clauses) < 2:
        return {}
    missing = together(clauses)
    for clause in clauses:
        for term, impact in clause.items():
            missing[term] -= impact
    return {term: impact for term, impact in missing.items() if impact}


def _slot_array(slots: Collection[int]) -> "Slots":
    return np.fromiter(slots, dtype=np.int64, count=len(slots))


def _slots(columns: Iterable[bytes]) -> "Slots":
    return np.frombuffer(b"".join(columns), dtype=np.int64)
