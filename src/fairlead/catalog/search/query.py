"""What somebody searching asks for: tools by name, or by what they are to do, in one step or several."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import inf, sqrt
from operator import add

from fairlead.catalog.search.index import NAME, Index, round_impact
from fairlead.catalog.search.tokenize import RELATED, term, terms

MOST_CHARACTERS = 2_000
MOST_TERMS = 64
MOST_CLAUSES = 8
MOST_NAMES = 16

RELATED_WEIGHT = 0.3
"""What all words related to one that was asked for count together, in its stead."""

_SHORTEST_CLAUSE = 3
"""Terms. What is shorter goes with its neighbour: it is rather the end of "Dr." than of a step."""
_LONG_QUERY = 24
"""Terms. Who says so much says it in more than one way, and needs no related words."""

Impacts = dict[str, float]
"""What it counts for a query that a tool has a term: how rare the term is, and how directly asked for."""

_SELECT = re.compile(r"\s*select\s*:", re.IGNORECASE)
# What it can begin with comes first: most characters are passed over at once.
_CLAUSE_END = re.compile(
    r"(?=[.;!?\naflmntAFLMNT])(?:[.;!?\n]+(?:\s|$)"
    r"|\b(?i:then|also|after that|finally|next|additionally|lastly|moreover|furthermore)\b)"
)
# Begins with what is rare in a sentence, the second character, so that others are passed over at once.
_WRITTEN_AS_NAME = re.compile(r"[_./:A-Z](?:(?<=[a-z0-9][A-Z])|(?<=\w[_./:])[_./:]*\w)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A query, read: the names in it, and the terms of each of its clauses."""

    text: str
    names: tuple[str, ...]
    """The whole text, which may be one, and what in it can be nothing else: `read_file`, `fs.readFile`."""
    clauses: tuple[tuple[str, ...], ...]
    selecting: bool = False
    """Is it a name, so that what merely has its words is wanted only where there is no tool of that name?"""


def read_query(text: str) -> tuple[Query, ...]:
    """Read a query; `select:` before names makes it one query each. Of one too long, the beginning counts."""
    text = text[:MOST_CHARACTERS]
    if select := _SELECT.match(text):
        names = dict.fromkeys(name.strip() for name in text[select.end() :].split(","))
        return tuple(
            Query(text=name, names=(name,), clauses=tuple(_clauses(name)), selecting=True)
            for name in [*filter(None, names)][:MOST_NAMES]
        )
    names = [text] if len(text) <= NAME.most_characters else []
    written = [
        _word_at(text, found.start() - 1).strip("`'\"()[]{}<>,.;:!?")
        for found in _WRITTEN_AS_NAME.finditer(text)
    ]
    names += filter(_WRITTEN_AS_NAME.search, written)
    names = tuple(dict.fromkeys(names))[:MOST_NAMES]
    return (Query(text=text, names=names, clauses=tuple(_clauses(text))),)


def _word_at(text: str, place: int) -> str:
    """The word of which a character is part, as spaces part words; not its last one."""
    return text[: place + 1].rsplit(maxsplit=1)[-1] + text[place + 1 :].split(maxsplit=1)[0]


def _clauses(text: str) -> Iterator[tuple[str, ...]]:
    clause: list[str] = []
    left = MOST_TERMS
    for part in _CLAUSE_END.split(text, maxsplit=MOST_CLAUSES - 1):
        found = terms(part)[:left]
        left -= len(found)
        if len(clause) >= _SHORTEST_CLAUSE <= len(found):
            yield tuple(clause)
            clause = []
        clause += found
    if clause:
        yield tuple(clause)


def weigh_clauses(index: Index, query: Query) -> list[Impacts]:
    """What each term of each clause, and each related to one, counts in this index."""
    clauses = [_weigh(index, clause) for clause in query.clauses]
    if sum(map(len, query.clauses)) <= _LONG_QUERY:
        for clause, impacts in zip(query.clauses, clauses, strict=True):
            _add_related(index, clause, impacts)
    return clauses


def _weigh(index: Index, clause: tuple[str, ...]) -> Impacts:
    # With every two neighbours as one: a web hook is a webhook.
    return index.rarities((*clause, *map(term, map(add, clause, clause[1:]))))


def _add_related(index: Index, clause: tuple[str, ...], impacts: Impacts) -> None:
    related = _related_terms()
    for word in dict.fromkeys(clause):
        others = [
            (other, rarity)
            for other in related.get(word, ())
            if other not in impacts and (rarity := index.rarity(other))
        ]
        # Never more than the word itself would: a rare synonym of a common word says little.
        most = impacts.get(word, inf)
        for other, rarity in others:
            impacts[other] = round_impact(RELATED_WEIGHT / sqrt(len(others)) * min(most, rarity))


@cache
def _related_terms() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for group in RELATED:
        stems = dict.fromkeys(map(term, group))
        for word in stems:
            found.setdefault(word, {}).update(stems)
    return {word: tuple(other for other in others if other != word) for word, others in found.items()}
