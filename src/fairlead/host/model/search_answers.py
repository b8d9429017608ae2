"""The answer of a search to a model: short signatures of the best tools, then names of their siblings.

An answer fits a token budget: signatures that exceed theirs are cut, the longest first. Within a session,
nothing is shown twice: what was shown before is named in one line, and its place goes to the next best.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import MappingProxyType

from fairlead.catalog.catalog import Catalog, CatalogTool
from fairlead.catalog.search.memory import PastQueries
from fairlead.catalog.search.score import Likeness, SemanticIndex
from fairlead.catalog.search.search import SearchHit
from fairlead.catalog.signatures import estimate, signature
from fairlead.catalog.tools import ToolKey
from fairlead.host.search_memory import SearchSession

SHOWN_AT_ONCE = 12
"""Signatures in an answer at most, where the model does not say how many."""
SHOWN_IN_ANY_CASE = 8
"""Signatures however long they are, cut if they must be; more only while all fit `SIGNATURE_TOKENS`."""
SIGNATURE_TOKENS = 400
"""Tokens of signatures. Where a model wants more of them, as many more."""
SHORTEST_SIGNATURE = 30
"""Tokens to which a signature is cut at most."""
RANKED = 30
"""Best hits: they are shown or named, and choose the servers whose other tools are named."""
ANSWER_TOKENS = 700
"""Tokens up to which names are added to an answer."""
WEAK = 0.3
"""Share of the best score below which a hit is no more than another tool of its server."""
MOST_SIBLINGS = 15
MOST_TWINS = 4
"""Other servers with the same tool that its line names."""
SERVERS_WITH_SIBLINGS = 5
UNAVAILABLE_NAMED = 5
"""Servers that an answer names as not available; of more, it says how many."""
_MOST_REASON_CHARACTERS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedTools:
    """The hits of a search, and the other tools of the servers that have the best of them."""

    hits: tuple[SearchHit, ...]
    siblings: Mapping[str, Sequence[ToolKey]]
    """By server, the best server first: its tools that are no hits, those first that match, too."""


def rank_tools(
    catalog: Catalog,
    queries: str | Sequence[str],
    *,
    server: str | None,
    by_meaning: bool = False,
    past: PastQueries | None = None,
    meaning: SemanticIndex | None = None,
) -> RankedTools:
    """Search a catalog for an answer."""
    if by_meaning and meaning is None:
        meaning = catalog.meaning
    if meaning is not None:
        meaning = _ComparedOnce(meaning)
    hits = _without_weak_ones(catalog.find(queries, server=server, limit=RANKED, past=past, meaning=meaning))
    # By reciprocal ranks: one good hit says more about a server than many poor ones.
    scores: dict[str, float] = {}
    for rank, hit in enumerate(hits, start=1):
        scores[hit.key.server_id] = scores.get(hit.key.server_id, 0.0) + 1 / rank
    servers = sorted(scores, key=lambda server_id: (-scores[server_id], server_id))[:SERVERS_WITH_SIBLINGS]
    found = {key for hit in hits for key in (hit.key, *hit.twins)}
    matches = catalog.score_servers(queries, servers, meaning=meaning)
    siblings: dict[str, Sequence[ToolKey]] = {}
    for server_id in servers:
        listed = [entry.key for entry in catalog.offerings[server_id].tools if entry.key not in found]
        # Those that match none of the queries keep the order of their list.
        listed.sort(key=lambda key: -matches.get(key, 0.0))
        siblings[server_id] = [key for key in listed if catalog.of(key) is not None]
    return RankedTools(hits=hits, siblings=siblings)


def _without_weak_ones(hits: tuple[SearchHit, ...]) -> tuple[SearchHit, ...]:
    """The first hits, and all that match nearly as well: where one tool stands out, an answer is short."""
    return tuple(
        hit
        for place, hit in enumerate(hits)
        if place < SHOWN_IN_ANY_CASE or hit.score >= WEAK * hits[0].score
    )


class _ComparedOnce:
    """Tools that are compared with a query once: for the hits, and for their siblings."""

    def __init__(self, meaning: SemanticIndex) -> None:
        self._compare = cache(meaning.compare)

    def compare(self, text: str) -> Likeness:
        """Compare all tools with a text."""
        return self._compare(text)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchAnswer:
    """Answer to a search, as text for the model."""

    tools: list[str]
    """Signatures."""
    shown_before: list[str]
    """Names of good hits whose signatures the session has."""
    siblings: dict[str, list[str]]
    """By server, names of other tools."""
    unavailable: dict[str, str]
    """Servers that could not be searched and were not named before, with the reason; of many, the first."""
    more_unavailable: int

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield from self.tools
        if not (self.tools or self.shown_before or any(self.siblings.values())):
            yield "nothing fits"
        if self.shown_before:
            yield f"shown before: {', '.join(self.shown_before)}"
        for server_id, names in self.siblings.items():
            if names:
                yield f"also {server_id}: {', '.join(names)}"
        yield from unavailable_lines(self.unavailable, self.more_unavailable)


def cut_unavailable(unavailable: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """The first few servers that are not available, each with a short reason, and how many more there are."""
    named = [*unavailable.items()][:UNAVAILABLE_NAMED]
    cut = {name: "".join(why.splitlines()[:1])[:_MOST_REASON_CHARACTERS] for name, why in named}
    return cut, len(unavailable) - len(cut)


def unavailable_lines(unavailable: Mapping[str, str], more: int) -> Iterator[str]:
    """What an answer says about servers that are not available."""
    for name, why in unavailable.items():
        yield f"not available: {name}: {why}"
    if more:
        yield f"not available: {more} more"


def answer_search(
    catalog: Catalog,
    ranked: RankedTools,
    session: SearchSession,
    queries: Sequence[str],
    limit: int,
    unavailable: Mapping[str, str] = MappingProxyType({}),
) -> SearchAnswer:
    """Choose what to show of a search, and note it in the session.

    Args:
        catalog: The tools.
        ranked: What was found.
        session: Knows what was shown before.
        queries: The queries: the same once more get the same answer, for a model that lost it.
        limit: How many signatures at most.
        unavailable: The servers that could not be searched, each with the reason.
    """
    again = session.repeats(queries)
    known: list[CatalogTool] = []
    fresh: list[tuple[SearchHit, CatalogTool]] = []
    for hit in ranked.hits:
        if len(fresh) == limit:
            break
        tool = catalog.of(hit.key)
        if tool is None:
            continue
        if not again and session.has_shown(tool.entry):
            # Those below the limit would have been shown now.
            if len(fresh) + len(known) < limit:
                known.append(tool)
        else:
            fresh.append((hit, tool))
    lines = _signatures(catalog, fresh, limit)
    fresh = fresh[: len(lines)]
    names = [catalog.display_name(tool.key) for tool in known]
    used = estimate("\n".join([*lines, *names]))
    described = {tool.key for _, tool in fresh} | {tool.key for tool in known}
    rest = [hit.key for hit in ranked.hits if hit.key not in described]
    siblings = _siblings(ranked, rest, session, ANSWER_TOKENS - used, again=again)
    session.note_search(
        queries,
        {key: hit.query for hit in ranked.hits if hit.key in described for key in _tools_of_hit(hit)},
        [tool.entry for _, tool in fresh],
        [
            *[key for hit, _ in fresh for key in _tools_of_hit(hit)],
            *[key for keys in siblings.values() for key in keys],
        ],
    )
    shown = {server_id: [key.shown_tool for key in keys] for server_id, keys in siblings.items()}
    down, more = cut_unavailable(session.note_unavailable(unavailable, again=again))
    return SearchAnswer(
        tools=lines, shown_before=names, siblings=shown, unavailable=down, more_unavailable=more
    )


def _signatures(catalog: Catalog, fresh: Sequence[tuple[SearchHit, CatalogTool]], limit: int) -> list[str]:
    """The lines of the tools that are shown, the longest cut where all of them are too long."""
    lines = [_line(catalog, tool, hit.twins) for hit, tool in fresh]
    budget = SIGNATURE_TOKENS
    if limit == SHOWN_AT_ONCE:
        lines = lines[: _count_that_fit(lines)]
    else:
        budget = max(budget, budget * limit // SHOWN_IN_ANY_CASE)
    most = max(_most_each([estimate(line) for line in lines], budget), SHORTEST_SIGNATURE)
    return [
        line if estimate(line) <= most else _line(catalog, tool, hit.twins, most)
        for line, (hit, tool) in zip(lines, fresh, strict=False)
    ]


def _most_each(sizes: Sequence[int], together: int) -> int:
    """The size to which the largest have to be cut, so that all have a size together."""
    for place, size in enumerate(sorted(sizes)):
        share = together // (len(sizes) - place)
        if size > share:
            return share
        together -= size
    return max(sizes, default=0)


def _count_that_fit(lines: Sequence[str]) -> int:
    """How many signatures to show: a few in any case, and more while they are short."""
    tokens = 0
    for count, line in enumerate(lines):
        tokens += estimate(line)
        if count >= SHOWN_IN_ANY_CASE and tokens > SIGNATURE_TOKENS:
            return count
    return len(lines)


def _siblings(
    ranked: RankedTools, rest: list[ToolKey], session: SearchSession, tokens: int, *, again: bool
) -> dict[str, list[ToolKey]]:
    """Names to add while they fit: the hits that got no signature, then other tools of the best servers."""
    chosen: dict[str, list[ToolKey]] = {}
    for key in (*rest, *chain.from_iterable(ranked.siblings.values())):
        named = chosen.get(key.server_id, [])
        if len(named) == MOST_SIBLINGS or (session.has_named(key) and not again):
            continue
        tokens -= estimate(f"{key.shown_tool}, " if named else f"also {key.server_id}: {key.shown_tool}\n")
        if tokens < 0:
            break
        chosen[key.server_id] = [*named, key]
    best_first = dict.fromkeys([*ranked.siblings, *chosen])
    return {server_id: chosen[server_id] for server_id in best_first if server_id in chosen}


def _tools_of_hit(hit: SearchHit) -> tuple[ToolKey, ...]:
    """The tools that a hit's line names: any of them may be called for it."""
    return hit.key, *hit.twins[:MOST_TWINS]


def _line(
    catalog: Catalog, tool: CatalogTool, twins: tuple[ToolKey, ...], most_tokens: int | None = None
) -> str:
    """The line of a tool, with the other servers that have the same one: another account, say."""
    # A few: the budget of an answer is for tools that differ.
    same = [*map(catalog.display_name, twins[:MOST_TWINS]), *(["…"] if len(twins) > MOST_TWINS else [])]
    ending = f" (the same: {', '.join(same)})" if same else ""
    most = None if most_tokens is None else most_tokens - estimate(ending)
    line = signature(tool.entry, catalog.display_name(tool.key), required_only=True, most_tokens=most)
    return f"{line}{ending}"
