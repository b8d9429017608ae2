"""Measure what a model sees of searches: recall over sessions, tokens of answers, and the gain by memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.definitions import definition_digest
from fairlead.catalog.search.evaluation import SearchQuestion
from fairlead.catalog.search.memory import PastQueries, ToolMemory
from fairlead.catalog.search.score import SemanticIndex
from fairlead.catalog.signatures import estimate, exact
from fairlead.catalog.tools import ToolKey
from fairlead.host.model.search_answers import SHOWN_AT_ONCE, answer_search, rank_tools
from fairlead.host.search_memory import SearchSession

EMPTY: Final[Mapping[str, SemanticIndex]] = MappingProxyType({})
KeyOf = Callable[[str], ToolKey | None]
"""Returns the tool that an id of an expected result means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerQuality:
    """Means over sessions. Recall is the share of the expected tools that a session's answers showed."""

    sessions: int
    searches: int
    signatures: float
    """Recall by signatures alone."""
    names: float
    """Recall by signatures and names."""
    tokens: float
    """Tokens of one answer."""


def measure_answers(  # noqa: PLR0913 - what the searches go by, each by name
    catalog: Catalog,
    sessions: Iterable[SearchQuestion],
    key_of: KeyOf,
    *,
    server: str | None = None,
    by_meaning: bool = False,
    past: PastQueries | None = None,
    meanings: Mapping[str, SemanticIndex] = EMPTY,
) -> AnswerQuality:
    """Play sessions, each with its searches in a row, and judge what their answers showed.

    Args:
        catalog: The tools.
        sessions: Questions; each is a session of its `searches`.
        key_of: Finds the expected tools.
        server: Search this server alone.
        by_meaning: Search by meaning, too.
        past: Past queries, and the tools that they led to.
        meanings: By a search, the tools as another model compares them.
    """
    count = exact() or estimate
    rows: list[tuple[float, float]] = []
    tokens: list[int] = []
    for question in sessions:
        session = SearchSession()
        for text in question.searches:
            ranked = rank_tools(
                catalog, [text], server=server, by_meaning=by_meaning, past=past, meaning=meanings.get(text)
            )
            answer = answer_search(catalog, ranked, session, [text], SHOWN_AT_ONCE)
            tokens.append(count("\n".join(answer.lines())))
        groups = [{key_of(name) for name in group} for group in question.gold]
        signatures = sum(not group.isdisjoint(session.signatures) for group in groups)
        names = sum(not group.isdisjoint(session.names) for group in groups)
        rows.append((signatures / len(groups), names / len(groups)))
    played = max(1, len(rows))
    return AnswerQuality(
        sessions=len(rows),
        searches=len(tokens),
        signatures=sum(row[0] for row in rows) / played,
        names=sum(row[1] for row in rows) / played,
        tokens=sum(tokens) / max(1, len(tokens)),
    )


def remember_questions(catalog: Catalog, questions: Sequence[SearchQuestion], key_of: KeyOf) -> PastQueries:
    """The memory after each query ran once, in a session of its own, and led to the expected tool."""
    found: dict[ToolKey, ToolMemory] = {}
    for number, question in enumerate(questions):
        wanted = [key_of(min(group)) for group in question.gold]
        for key in wanted:
            tool = catalog.of(key) if key is not None else None
            if key is None or tool is None:
                continue
            if key not in found:
                found[key] = ToolMemory(
                    principal="",
                    server_id=key.server_id,
                    tool=key.tool,
                    definition_digest=definition_digest(tool.entry.definition),
                    queries=[],
                )
            found[key].add(question.searches, str(number), float(number))
    return PastQueries(found.values())
