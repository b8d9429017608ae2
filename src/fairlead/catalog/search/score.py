"""Scores of tools for one query: by name, by words, and by meaning.

Two steps keep it quick among thousands of tools. The terms with the highest impact yield candidates; only
these are then summed up, by all terms. The sums are exact (see `round_impact`), so that every implementation
gets the same in any order: plain Python here, `array_scores` for many tools at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from heapq import nlargest, nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.memory import MemoryMatch
from fairlead.catalog.search.query import LONG_QUERY, Impacts, Query, weigh_clauses
from fairlead.catalog.search.tokenize import pieces, squash
from fairlead.catalog.tools import ToolKey

if TYPE_CHECKING:
    from fairlead.catalog.search.array_scores import ArraySums


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
        return [_sum_impacts(slots, impacts, self._index.postings) for impacts in self._clauses]

    def together(self, slots: Collection[int]) -> Scores:
        """Sums of these slots by the terms of all clauses."""
        return _sum_impacts(slots, together(self._clauses), self._index.postings)

    def _candidates(self, impacts: Impacts, count: int, within: Collection[int] | None) -> Scores:
        index = self._index
        if within is not None:
            sums = scores = _sum_impacts(within, impacts, index.postings)
        else:
            leading = leading_terms(index, impacts, count)
            servers = best_servers(index, leading)
            looked_at = {slot for server_id, _ in servers for slot in index.servers[server_id].slots}
            looked_at.update(*map(index.champions, leading))
            sums = _sum_impacts(looked_at, impacts, index.postings)
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


def _sum_impacts(
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


NAME_BONUS = 0.6
SERVER_BONUS = 0.3
NAMED_SERVER_BONUS = 0.2
"""Bonus for the tools of a server that the query names: "create an issue in Jira"."""
CLAUSE_SHARE = 0.3
"""Share of the best clause in a score, so that each of several steps finds its tool."""
MEANING_SHARE = 0.4
MEMORY_SHARE = 0.55
"""Share of past queries in a score. They count as far as they match, so that a weak match moves little; a
query of one session alone does not outdo the best match by words, one of two sessions does."""

SAME_NAME, WHOLE_NAME, END_OF_NAME = 3.0, 2.0, 1.0
"""Bonus for a tool that is called by its exact name, by its name, or by the end of it."""

MANY_TOOLS = 2_000
"""From this number of tools on, numpy saves a third of the time. Fewer are not worth loading it."""

_CANDIDATES = 32
_FEWEST_CANDIDATES = 10
"""Candidates of each clause, where there are many."""
_MOST_NAMESAKES = 200
_MOST_NAME_WORDS = 12
_NEAREST = 16
_NEAR_ENOUGH = 0.25
"""Nineteen of twenty unrelated texts are further apart."""

Said = dict[str, list[tuple[str, float]]]
"""By server, the terms of the query in its own texts, and their scores."""


class Likeness(Protocol):
    """Similarity of the tools to one text."""

    def nearest(self, count: int, at_least: float) -> Collection[int]:
        """Slots of the most similar tools, above a threshold."""
        ...

    def of(self, slots: Sequence[int]) -> Sequence[float]:
        """Similarity of each of these: at most 1."""
        ...


class QueryMemory(Protocol):
    """Past queries, and the tools that they led to."""

    def recall(self, index: Index, asked: Iterable[str]) -> Mapping[ToolKey, MemoryMatch]:
        """The tools that past queries with such terms led to."""
        ...


class SemanticIndex(Protocol):
    """Index by meaning, which finds synonyms."""

    def compare(self, text: str) -> Likeness:
        """Compare all tools with a text."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """Scores of one query, and their parts."""

    scores: Scores
    impacts: Impacts
    names: Mapping[int, tuple[float, str]]
    """For tools called by name: the bonus, and the name as written."""
    likeness: Scores
    remembered: Mapping[int, MemoryMatch]
    """For tools that past queries led to: how well these match."""


def rank(
    index: Index,
    query: Query,
    *,
    server: str | None = None,
    meaning: SemanticIndex | None = None,
    memory: QueryMemory | None = None,
) -> Ranking:
    """Score the tools that may match a query, the best with 1; with `server`, among that server's."""
    within = None if server is None else _slots_of(index, server)
    names = {
        slot: how for slot, how in _match_names(index, query).items() if within is None or slot in within
    }
    only_named = bool(names) and query.selecting
    clauses = weigh_clauses(index, query)
    count = max(_CANDIDATES // max(len(clauses), 1), _FEWEST_CANDIDATES)
    sums = _sums(index, clauses)
    groups = sums.of_each(names) if only_named else sums.candidates(count, within)
    slots = frozenset(names).union(*groups)
    likeness: Scores = {}
    if meaning is not None and not only_named:
        likeness = _likeness(meaning.compare(query.text), slots, within)
        slots = likeness.keys()
    impacts = together(clauses)
    servers = _match_servers(index, impacts, slots)
    scores = _score_tools(index, servers, impacts, sums.together(slots))
    for slot in scores if query.servers else ():
        if not query.servers.isdisjoint(index.servers[index.tools[slot].key.server_id].called):
            scores[slot] *= 1 + NAMED_SERVER_BONUS
    scores = _normalize_scores(scores)
    if likeness:
        scores = _mix_scores(scores, _normalize_scores(likeness), MEANING_SHARE)
    if len(clauses) > 1:
        by_clause = _best_clauses(index, servers, zip(clauses, groups, strict=True))
        scores = _mix_scores(scores, by_clause, CLAUSE_SHARE)
    remembered = _recall(index, query, memory, within) if memory is not None and not only_named else {}
    if remembered:
        for slot, match in remembered.items():
            scores[slot] = scores.get(slot, 0.0) + MEMORY_SHARE / (1 - MEMORY_SHARE) * match.score
        scores = _normalize_scores(scores)
    for slot, (bonus, _) in names.items():
        scores[slot] = scores.get(slot, 0.0) + bonus
    return Ranking(scores=scores, impacts=impacts, names=names, likeness=likeness, remembered=remembered)


def _recall(
    index: Index, query: Query, memory: QueryMemory, within: frozenset[int] | None
) -> dict[int, MemoryMatch]:
    """Matches of past queries, by the slots of the tools that they led to."""
    # A longer one describes a whole task, which is like no single past query.
    if sum(map(len, query.clauses)) > LONG_QUERY:
        return {}
    matches = memory.recall(index, chain.from_iterable(query.clauses))
    found = {index.slot(key): match for key, match in matches.items()}
    return {
        slot: match
        for slot, match in found.items()
        if slot is not None and (within is None or slot in within)
    }


def _likeness(compared: Likeness, slots: AbstractSet[int], within: frozenset[int] | None) -> Scores:
    """Similarity of these tools, and of the most similar of all."""
    slots = slots | set(compared.nearest(_NEAREST, _NEAR_ENOUGH))
    ordered = [*(slots if within is None else slots & within)]
    return dict(zip(ordered, compared.of(ordered), strict=True))


def _slots_of(index: Index, server_id: str) -> frozenset[int]:
    server = index.servers.get(server_id)
    return frozenset(server.slots) if server else frozenset()


# ── by name ──


def _match_names(index: Index, query: Query) -> dict[int, tuple[float, str]]:
    found: dict[int, tuple[float, str]] = {}
    for name in query.names:
        # A word of a sentence can look like the end of a name (`followUp`), so there it must be a whole one.
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
    # One word alone, as in "weather", is a topic: many tools end with it.
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


def _sums(index: Index, clauses: Sequence[Impacts]) -> ScoreSums:
    if len(index) >= MANY_TOOLS and (in_arrays := _array_sums()):
        return in_arrays(index, clauses)
    return PlainSums(index, clauses)


@cache
def _array_sums() -> "type[ArraySums] | None":
    try:
        from fairlead.catalog.search.array_scores import ArraySums  # an extra
    except ImportError:
        return None
    return ArraySums


def _match_servers(index: Index, asked: Impacts, slots: Iterable[int]) -> Said:
    """Terms of the query in the texts of these tools' servers, looked up once for all clauses."""
    said: Said = {index.tools[slot].key.server_id: [] for slot in slots}
    for term in asked:
        posting = index.server_postings.get(term)
        if posting:
            for server_id in said.keys() & posting.keys():
                said[server_id].append((term, posting[server_id]))
    return said


def _best_clauses(index: Index, servers: Said, clauses: Iterable[tuple[Impacts, Scores]]) -> Scores:
    """Score of each tool in its best clause, of those it is a candidate of."""
    best: Scores = {}
    for impacts, sums in clauses:
        for slot, score in _normalize_scores(_score_tools(index, servers, impacts, sums)).items():
            if score > best.get(slot, 0.0):
                best[slot] = score
    return best


def _mix_scores(one: Scores, other: Scores, share: float) -> Scores:
    slots = one.keys() | other.keys()
    return _normalize_scores(
        {slot: (1 - share) * one.get(slot, 0.0) + share * other.get(slot, 0.0) for slot in slots}
    )


def _normalize_scores(scores: Scores) -> Scores:
    most = max(scores.values(), default=0.0)
    return {slot: score / most for slot, score in scores.items() if score > 0}


def _score_tools(index: Index, servers: Said, impacts: Impacts, sums: Scores) -> Scores:
    """BM25F, with a bonus for terms in the name, and one for a server with a well-matching tool."""
    tools, name_mass = index.tools, index.name_mass
    about_server: dict[str, float] = {}
    best: dict[str, float] = {}
    scored: list[tuple[int, float, str]] = []
    asked = sum(impacts.values())
    for slot, score in sums.items():
        tool = tools[slot]
        server_id = tool.key.server_id
        if server_id not in best:
            best[server_id] = 0.0
            parts = [impacts.get(term, 0.0) * part for term, part in servers[server_id]]
            about_server[server_id] = sum(parts)
        score += about_server[server_id]
        in_name = 0.0
        for term in tool.name_terms:
            if term in impacts:
                in_name += impacts[term]
        # The share of the name that was asked for, times the share of the query that is in the name.
        if in_name:
            score *= 1 + NAME_BONUS * in_name / name_mass(slot) * in_name / asked
        if score > best[server_id]:
            best[server_id] = score
        scored.append((slot, score, server_id))
    most = max(best.values(), default=0.0) or 1.0
    return {slot: score * (1 + SERVER_BONUS * best[server_id] / most) for slot, score, server_id in scored}
