"""How well each tool fits one query: by its very name, by what the words say about it, by what it means.

Two steps keep it quick among thousands of tools. The terms that count most bring up some to look at; these
alone are then summed up, by all terms and exactly, and the best of them scored.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Protocol, TypeVar

from fairlead.catalog.index import Index
from fairlead.catalog.query import Impacts, Query, weigh_terms
from fairlead.catalog.words import pieces, squash

NAME_BONUS = 0.6
SERVER_BONUS = 0.3
CLAUSE_SHARE = 0.3
"""How much of a score is the best clause's, so that each of several steps finds its tool."""
MEANING_SHARE = 0.4

SAME_NAME, WHOLE_NAME, END_OF_NAME = 3.0, 2.0, 1.0
"""What is added to the score of a tool called by its name as it is written, by its name, by the end of it."""

_CANDIDATES = 32
_FEWEST_CANDIDATES = 10
"""Of each clause, where there are many."""
_LOOKS = 8
"""How many postings are looked at for each candidate there may be."""
_MOST_NAMESAKES = 200
_MOST_NAME_WORDS = 12
_SERVERS = 5
_RARE_IN_SERVERS = 0.03
"""A term said about a larger share of all servers does not tell which of them is meant."""
_NEAREST = 16
_NEAR_ENOUGH = 0.25
"""Nineteen of twenty texts that have nothing to do with one another are further apart."""

K = TypeVar("K")
Scores = dict[int, float]
"""By slot."""


class Likeness(Protocol):
    """How near the tools are to one text."""

    def nearest(self, count: int, at_least: float) -> Collection[int]:
        """The slots of the nearest tools that are near enough."""
        ...

    def of(self, slots: Sequence[int]) -> Sequence[float]:
        """How near each of these is: at most 1."""
        ...


class Meaning(Protocol):
    """Something that knows which texts mean the same in other words."""

    def compare(self, text: str) -> Likeness:
        """Compare all tools with a text."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """What one query makes of the tools: scores, and what they are made of."""

    scores: Scores
    impacts: Impacts
    names: Mapping[int, tuple[float, str]]
    """For tools called by name: what that adds, and the name as it was written."""
    likeness: Scores


def rank(index: Index, query: Query, *, server: str | None = None, meaning: Meaning | None = None) -> Ranking:
    """Score the tools that may fit a query, those with 1 best; with `server`, among that server's."""
    within = None if server is None else _slots_of(index, server)
    names = {slot: how for slot, how in _named(index, query).items() if within is None or slot in within}
    only_named = bool(names) and query.selecting
    clauses = [weigh_terms(index, clause) for clause in query.clauses]
    count = max(_CANDIDATES // max(len(clauses), 1), _FEWEST_CANDIDATES)
    groups = [
        _summed(names, impacts, index.postings) if only_named else _candidates(index, impacts, count, within)
        for impacts in clauses
    ]
    slots = frozenset(names).union(*groups)
    likeness: Scores = {}
    if meaning is not None and not only_named:
        likeness = _likeness(meaning.compare(query.text), slots, within)
        slots = likeness.keys()
    impacts = _together(clauses)
    scores = _normalised(_scored(index, impacts, _summed(slots, impacts, index.postings)))
    if likeness:
        scores = _mixed(scores, _normalised(likeness), MEANING_SHARE)
    if len(clauses) > 1:
        scores = _mixed(scores, _best_clauses(index, zip(clauses, groups, strict=True)), CLAUSE_SHARE)
    for slot, (bonus, _) in names.items():
        scores[slot] = scores.get(slot, 0.0) + bonus
    return Ranking(scores=scores, impacts=impacts, names=names, likeness=likeness)


def _likeness(compared: Likeness, slots: AbstractSet[int], within: frozenset[int] | None) -> Scores:
    """How near these tools are, and the nearest of all."""
    slots = slots | set(compared.nearest(_NEAREST, _NEAR_ENOUGH))
    ordered = [*(slots if within is None else slots & within)]
    return dict(zip(ordered, compared.of(ordered), strict=True))


def _slots_of(index: Index, server_id: str) -> frozenset[int]:
    server = index.servers.get(server_id)
    return frozenset(server.slots) if server else frozenset()


# ── by name ──


def _named(index: Index, query: Query) -> dict[int, tuple[float, str]]:
    found: dict[int, tuple[float, str]] = {}
    for name in query.names:
        # A word of a sentence can look like the end of a name (`followUp`), so there it must be all of one.
        alone = name == query.text
        for slot, bonus in _by_name(index, name, alone=alone, selecting=query.selecting):
            if index.tools[slot].name == name:
                bonus = SAME_NAME
            found[slot] = max(found.get(slot, (0.0, name)), (bonus, name))
    return found


def _by_name(index: Index, name: str, *, alone: bool, selecting: bool) -> Iterable[tuple[int, float]]:
    ending = _namesakes(index, squash(name))
    whole = [(slot, WHOLE_NAME) for slot, is_whole in ending if is_whole]
    if whole:
        return whole
    words = pieces(name)
    if len(words) > _MOST_NAME_WORDS:
        return ()
    # One word alone, as in "weather", is a topic: half the tools there are end with it.
    if ending and (selecting or (alone and len(words) > 1)):
        return [(slot, END_OF_NAME) for slot, _ in ending]
    return _behind_server(index, words)


def _behind_server(index: Index, words: list[str]) -> Iterable[tuple[int, float]]:
    """Tools called by their server's name and their own: `fs.read_file`, `mcp__fs__read_file`."""
    for start in range(1, len(words)):
        server = "".join(words[:start])
        owned = [
            (slot, WHOLE_NAME)
            for slot, is_whole in _namesakes(index, "".join(words[start:]))
            if is_whole and _is_called(index, slot, server)
        ]
        if owned:
            return owned
    return ()


def _namesakes(index: Index, squashed: str) -> Collection[tuple[int, bool]]:
    found = index.names.get(squashed, {})
    if len(found) <= _MOST_NAMESAKES:
        return found.items()
    return nsmallest(_MOST_NAMESAKES, found.items(), key=lambda item: (not item[1], index.label(item[0])))


def _is_called(index: Index, slot: int, server: str) -> bool:
    called = index.servers[index.tools[slot].key.server_id].called
    return server in called or server.removeprefix("mcp") in called


# ── by words ──


def _candidates(index: Index, impacts: Impacts, count: int, within: frozenset[int] | None) -> Scores:
    """The tools most worth a closer look, and what is said about them counts."""
    if within is not None:
        sums = _summed(within, impacts, index.postings)
        return {slot: sums[slot] for slot in _best(index, sums, count)}
    leading = _leading(index, impacts, count * _LOOKS)
    servers = _best_servers(index, leading)
    looked_at = {slot for server_id, _ in servers for slot in index.servers[server_id].slots}
    looked_at.update(*map(index.champions, leading))
    sums = _summed(looked_at, impacts, index.postings)
    scores = dict(sums)
    for server_id, score in servers:
        for slot in index.servers[server_id].slots:
            scores[slot] += score
    return {slot: sums[slot] for slot in _best(index, scores, count)}


def _leading(index: Index, impacts: Impacts, looks: int) -> Impacts:
    """The terms that count most, as many as bring up so many tools."""
    leading: Impacts = {}
    for term in sorted(impacts, key=lambda term: (-impacts[term], term)):
        if looks <= 0:
            break
        leading[term] = impacts[term]
        looks -= len(index.champions(term))
    return leading


def _best_servers(index: Index, impacts: Impacts) -> list[tuple[str, float]]:
    scores: defaultdict[str, float] = defaultdict(float)
    frequent = max(len(index.servers) * _RARE_IN_SERVERS, _SERVERS)
    for term, impact in impacts.items():
        posting = index.server_postings.get(term)
        if posting and len(posting) <= frequent:
            for server_id, score in posting.items():
                scores[server_id] += impact * score
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:_SERVERS]


def _best(index: Index, scores: Scores, count: int) -> Collection[int]:
    if len(scores) <= count:
        return scores
    least = sorted(scores.values(), reverse=True)[count - 1]
    best = {slot for slot, score in scores.items() if score >= least}
    if len(best) > count:
        tied = (slot for slot in best if scores[slot] == least)
        best.difference_update(nlargest(len(best) - count, tied, key=index.label))
    return best


def _best_clauses(index: Index, clauses: Iterable[tuple[Impacts, Scores]]) -> Scores:
    """How well tools fit the clause they fit best, of those they are candidates of."""
    best: Scores = {}
    for impacts, sums in clauses:
        for slot, score in _normalised(_scored(index, impacts, sums)).items():
            best[slot] = max(score, best.get(slot, 0.0))
    return best


def _together(clauses: Iterable[Impacts]) -> Impacts:
    """The terms of all clauses: twice asked for counts once, and outright rather than as related."""
    found: Impacts = {}
    for impacts in clauses:
        for term, impact in impacts.items():
            found[term] = max(impact, found.get(term, 0.0))
    return found


def _mixed(one: Scores, other: Scores, share: float) -> Scores:
    slots = one.keys() | other.keys()
    return _normalised(
        {slot: (1 - share) * one.get(slot, 0.0) + share * other.get(slot, 0.0) for slot in slots}
    )


def _normalised(scores: Scores) -> Scores:
    most = max(scores.values(), default=0.0)
    return {slot: score / most for slot, score in scores.items() if score > 0}


def _scored(index: Index, impacts: Impacts, sums: Scores) -> Scores:
    """BM25F, with a bonus for what the name says, and one for a server that has a tool that fits well."""
    server_of = {slot: index.tools[slot].key.server_id for slot in sums}
    servers = _summed(server_of.values(), impacts, index.server_postings)
    best = dict.fromkeys(servers, 0.0)
    asked = sum(impacts.values())
    scores: Scores = {}
    for slot, server_id in server_of.items():
        score = sums[slot] + servers[server_id]
        # How much of the name was asked for, times how much of what was asked for is in the name.
        if in_name := _asked_for(index.tools[slot].name_terms, impacts):
            score *= 1 + NAME_BONUS * in_name / index.name_mass(slot) * in_name / asked
        scores[slot] = score
        if score > best[server_id]:
            best[server_id] = score
    most = max(best.values(), default=0.0) or 1.0
    for slot, server_id in server_of.items():
        scores[slot] *= 1 + SERVER_BONUS * best[server_id] / most
    return scores


def _asked_for(name_terms: tuple[str, ...], impacts: Impacts) -> float:
    total = 0.0
    for term in name_terms:
        if term in impacts:
            total += impacts[term]
    return total


def _summed(keys: Iterable[K], impacts: Impacts, postings: Mapping[str, Mapping[K, float]]) -> dict[K, float]:
    """What the terms count together for each of these, by what is said of it alone."""
    sums = dict.fromkeys(keys, 0.0)
    for term, impact in impacts.items():
        posting = postings.get(term)
        if posting:
            for key in sums.keys() & posting.keys():
                sums[key] += impact * posting[key]
    return sums
