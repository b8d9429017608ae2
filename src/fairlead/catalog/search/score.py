"""Scores of tools for one query: by name, by words, and by meaning.

Two steps keep it quick among thousands of tools. The terms with the highest impact yield candidates; only
these are then summed up, by all terms (see `sums`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from fairlead.catalog.search.index import Index
from fairlead.catalog.search.memory import MemoryMatch
from fairlead.catalog.search.query import LONG_QUERY, Impacts, Query, weigh_clauses
from fairlead.catalog.search.sums import PlainSums, Scores, ScoreSums, together
from fairlead.catalog.search.tokenize import pieces, squash
from fairlead.catalog.tools import ToolKey

if TYPE_CHECKING:
    from fairlead.catalog.search.array_scores import ArraySums


NAME_BONUS = 0.6
SERVER_BONUS = 0.3
NAMED_SERVER_BONUS = 0.2
"""Bonus for the tools of a server that the query names: "create an issue in Jira"."""
CLAUSE_SHARE = 0.3
"""Share of the best clause in a score, so that each of several steps finds its tool."""
MEANING_SHARE = 0.4
MEMORY_SHARE = 0.55
"""Share of past queries in a score. They count as far as they match, so that a weak match moves little; a
query of one session alone does not outdo the best match without it, one of two sessions does."""
FEWEST_SESSIONS = 2
"""Sessions that must have searched for much the same before their memory outdoes what is found without it."""
_BEHIND = 0.01
"""How far behind the best match a tool stays at most that one session lifts to it."""

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

ServerMatches = dict[str, list[tuple[str, float]]]
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

    def recall(self, index: Index, query_terms: Iterable[str]) -> Mapping[ToolKey, MemoryMatch]:
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
        scores = _normalize_scores(_add_memory(scores, remembered))
    for slot, (bonus, _) in names.items():
        scores[slot] = scores.get(slot, 0.0) + bonus
    return Ranking(scores=scores, impacts=impacts, names=names, likeness=likeness, remembered=remembered)


def score_within(
    index: Index, query: Query, slots: Sequence[int], meaning: SemanticIndex | None = None
) -> Scores:
    """Scores of just these tools, however poorly they match: to order what is named beside the hits."""
    clauses = weigh_clauses(index, query)
    impacts = together(clauses)
    sums = _sums(index, clauses).together(slots)
    scores = _normalize_scores(_score_tools(index, _match_servers(index, impacts, slots), impacts, sums))
    if meaning is None:
        return scores
    likeness = dict(zip(slots, meaning.compare(query.text).of(slots), strict=True))
    return _mix_scores(scores, _normalize_scores(likeness), MEANING_SHARE)


def _add_memory(scores: Scores, remembered: Mapping[int, MemoryMatch]) -> Scores:
    """The scores with what past queries add to them."""
    added = dict(scores)
    best = max(scores.values(), default=0.0)
    for slot, match in remembered.items():
        own = scores.get(slot, 0.0)
        score = own + MEMORY_SHARE / (1 - MEMORY_SHARE) * match.score
        if best and match.sessions < FEWEST_SESSIONS:
            # A server may have led that one session astray. Of several such tools, the order stays.
            score = max(own, min(score, best * (1 - _BEHIND / (1 + score))))
        added[slot] = score
    return added


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
    squashed = squash(name)
    whole = _with_name(index, squashed, name)
    if whole:
        return [(slot, WHOLE_NAME) for slot in whole]
    words = pieces(name)
    if len(words) > _MOST_NAME_WORDS:
        return ()
    # One word alone, as in "weather", is a topic: many tools end with it.
    if (selecting or (alone and len(words) > 1)) and (ending := _with_ending(index, squashed)):
        return [(slot, END_OF_NAME) for slot in ending]
    return _behind_server(index, name, words)


def _behind_server(index: Index, name: str, words: list[str]) -> Iterable[tuple[int, float]]:
    """Tools called by their server's name and their own: `fs.read_file`, `mcp__fs__read_file`."""
    for start in range(1, len(words)):
        server = "".join(words[:start])
        owned = [
            (slot, WHOLE_NAME)
            for slot in _with_name(index, "".join(words[start:]), name)
            if _is_called(index, slot, server)
        ]
        if owned:
            return owned
    return ()


def _with_name(index: Index, squashed: str, written: str) -> Sequence[int]:
    """Tools with a name. However many spellings of it a server has, it has the name once.

    Otherwise a server with a hundred spellings of another's name would take all places. What is spelled as
    it was written comes first.
    """
    found = [slot for slot, is_whole in index.names.get(squashed, {}).items() if is_whole]
    if len(found) < 2:
        return found
    found.sort(key=lambda slot: (not written.endswith(index.tools[slot].name), index.label(slot)))
    of_servers: dict[str, int] = {}
    for slot in found:
        of_servers.setdefault(index.tools[slot].key.server_id, slot)
    return [*of_servers.values()][:_MOST_NAMESAKES]


def _with_ending(index: Index, squashed: str) -> Sequence[int]:
    """Tools whose names end so; where they are many, some of each server."""
    found = [*index.names.get(squashed, {})]
    if len(found) <= _MOST_NAMESAKES:
        return found
    found.sort(key=index.label)
    count: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []
    for slot in found:
        server_id = index.tools[slot].key.server_id
        count[server_id] += 1
        turns.append((count[server_id], slot))
    turns.sort(key=itemgetter(0))
    return [slot for _, slot in turns[:_MOST_NAMESAKES]]


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


def _match_servers(index: Index, query_terms: Impacts, slots: Iterable[int]) -> ServerMatches:
    """Terms of the query in the texts of these tools' servers, looked up once for all clauses."""
    matches: ServerMatches = {index.tools[slot].key.server_id: [] for slot in slots}
    for term in query_terms:
        posting = index.server_postings.get(term)
        if posting:
            for server_id in matches.keys() & posting.keys():
                matches[server_id].append((term, posting[server_id]))
    return matches


def _best_clauses(index: Index, servers: ServerMatches, clauses: Iterable[tuple[Impacts, Scores]]) -> Scores:
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


def _score_tools(index: Index, servers: ServerMatches, impacts: Impacts, sums: Scores) -> Scores:
    """BM25F, with a bonus for terms in the name, and one for a server with a well-matching tool."""
    tools, name_mass = index.tools, index.name_mass
    about_server: dict[str, float] = {}
    best: dict[str, float] = {}
    scored: list[tuple[int, float, str]] = []
    query_mass = sum(impacts.values())
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
        # The share of the name that the query covers, times the share of the query that is in the name.
        if in_name:
            score *= 1 + NAME_BONUS * in_name / name_mass(slot) * in_name / query_mass
        if score > best[server_id]:
            best[server_id] = score
        scored.append((slot, score, server_id))
    most = max(best.values(), default=0.0) or 1.0
    return {slot: score * (1 + SERVER_BONUS * best[server_id] / most) for slot, score, server_id in scored}
