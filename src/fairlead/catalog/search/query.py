"""Parsing of search queries: names of tools, or descriptions of one or several steps."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, sqrt
from operator import add

from fairlead.catalog.search.index import NAME, Index, round_impact
from fairlead.catalog.search.thesaurus import RELATED
from fairlead.catalog.search.tokenize import is_ideograph, pieces, term, terms
from fairlead.catalog.search.topics import TOPICS

MOST_CHARACTERS = 2_000
MOST_TERMS = 64
MOST_CLAUSES = 8
MOST_NAMES = 16

RELATED_WEIGHT = 0.3
"""Weight of all related words of a term together, relative to it."""
TOPIC_WEIGHT = 0.5
"""Weight of all words of the topics that a term stands for, relative to it."""
UNKNOWN_WORD = 2.0
"""How much more the related words of a term count that no tool has: nothing else is found by it."""
IMPLIED_WEIGHT = 0.6
"""Weight of a word that the kind of a value in a query implies, relative to the weightiest term."""
QUESTION_WEIGHT = 0.3
"""Weight of the words that a question implies."""

_SHORTEST_CLAUSE = 3
"""Shortest clause in terms. A shorter one is joined to its neighbour: it rather ends in "Dr." than a step."""
LONG_QUERY = 24
"""Longest query in terms that related words are added to: a longer one has its own synonyms."""
_LONG_TEXT = 200
"""Longest query in characters that is read for what its form implies: a longer one says more in words."""

Impacts = dict[str, float]
"""Impact of each term: how rare it is, and whether the query names it or only implies it."""

_SELECT = re.compile(r"\s*select\s*:", re.IGNORECASE)
# The first characters come first in the pattern: most of a text is skipped at once.
_CLAUSE_END = re.compile(
    # A run of marks is tried from its beginning alone, or a thousand of them would be a million steps.
    r"(?=[.;!?\naflmntAFLMNT])(?:(?<![.;!?\n])[.;!?\n]+(?:\s|$)"
    r"|\b(?i:then|also|after that|finally|next|additionally|lastly|moreover|furthermore)\b)"
)
# Begins with the second character, which is rare in a sentence, so that most of it is skipped at once.
_WRITTEN_AS_NAME = re.compile(r"[_./:A-Z](?:(?<=[a-z0-9][A-Z])|(?<=\w[_./:])[_./:]*\w)")

_BEFORE_SERVER = re.compile(
    r"\b(?:in|on|with|via|using|use|from|through|by)\s+(?:the\s+|my\s+|our\s+)?([\w.-]+(?:\s+[\w.-]+){0,2})",
    re.IGNORECASE,
)
_EXTENSION = (
    r"(?:md|txt|rst|csv|tsv|jsonl?|ya?ml|toml|ini|xml|html?|log|pdf|docx?|xlsx?|pptx?|od[tsp]|py|sh|sql|"
    r"png|jpe?g|gif|svg|mp[34]|zip)\b"
)
# Paths from a root, a home or a folder, and names of files that end as files do.
_PATH = (
    r"(?:^|[\s\"'`(])(?:(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.~-]|(?:[\w.~-]+[/\\])*[\w.~-]*\w\."
    + _EXTENSION
    + ")"
)
_COURTESIES = r"\A\W*(?:(?:hey|hi|hello|please|can|could|would|you|do|know|i|want|need|to)\W+){0,8}"
_FORMS = (
    # A question asks to get something. What a tool would do with it is rarely said.
    (
        re.compile(
            _COURTESIES
            + r"(?:whats?|which|who|where|when|how (?:many|much|long|far|old)|(?:tell|give) me)\b",
            re.IGNORECASE,
        ),
        QUESTION_WEIGHT,
        ("get",),
    ),
    (
        re.compile(_COURTESIES + r"(?:tell me )?what\b[\w\s]*\b(?:is it|it is)\b", re.IGNORECASE),
        QUESTION_WEIGHT,
        ("current",),
    ),
    # A value stands for what it is: its own words are in no description.
    (re.compile(_PATH, re.IGNORECASE), IMPLIED_WEIGHT, ("file", "path")),
    (
        re.compile(
            rf"\b(?:sav(?:e|es|ed|ing)|stor(?:e|es|ed|ing)|put(?:s|ting)?|dump(?:s|ed|ing)?)\b.*?{_PATH}",
            re.IGNORECASE,
        ),
        IMPLIED_WEIGHT,
        ("write",),
    ),
    (re.compile(r"\bhttps?://", re.IGNORECASE), IMPLIED_WEIGHT, ("url", "page")),
    (re.compile(r"[\w.+-]@[\w-]+\.\w"), IMPLIED_WEIGHT, ("email",)),
)
"""Forms of a query, or of a value in it, and the words that they imply."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A parsed query: the names in it, and the terms of each of its clauses."""

    text: str
    names: tuple[str, ...]
    """The whole text, which may be a name, and what can only be one: `read_file`, `fs.readFile`."""
    clauses: tuple[tuple[str, ...], ...]
    servers: frozenset[str] = frozenset()
    """Squashed words behind "in", "on" or "with", which may be the name of a server."""
    implied: tuple[tuple[str, float], ...] = ()
    """Terms that its form implies, and their weights."""
    selecting: bool = False
    """Whether it is a name, so that its words match only where no tool has that name."""


def read_query(text: str) -> tuple[Query, ...]:
    """Parse a query; `select:` before names makes it one query each. Too long a query is cut."""
    text = text[:MOST_CHARACTERS]
    if select := _SELECT.match(text):
        names = dict.fromkeys(name.strip() for name in text[select.end() :].split(","))
        return tuple(
            Query(text=name, names=(name,), clauses=tuple(split_clauses(name)), selecting=True)
            for name in [*filter(None, names)][:MOST_NAMES]
        )
    names = [text] if len(text) <= NAME.most_characters else []
    written = [
        _word_at(text, found.start() - 1).strip("`'\"()[]{}<>,.;:!?")
        for found in _WRITTEN_AS_NAME.finditer(text)
    ]
    names += filter(_WRITTEN_AS_NAME.search, written)
    names = tuple(dict.fromkeys(names))[:MOST_NAMES]
    clauses = tuple(split_clauses(text))
    return (
        Query(text=text, names=names, clauses=clauses, servers=_servers(text), implied=_find_implied(text)),
    )


def _servers(text: str) -> frozenset[str]:
    found = [pieces(match[1]) for match in _BEFORE_SERVER.finditer(text)]
    return frozenset("".join(words[:end]) for words in found for end in range(1, len(words) + 1))


def _find_implied(text: str) -> tuple[tuple[str, float], ...]:
    if len(text) > _LONG_TEXT:
        return ()
    found = [(words, weight) for form, weight, words in _FORMS if form.search(text)]
    return tuple((term(word), weight) for words, weight in found for word in words)


def _word_at(text: str, place: int) -> str:
    """Word around a character, between spaces; not its last one."""
    return text[: place + 1].rsplit(maxsplit=1)[-1] + text[place + 1 :].split(maxsplit=1)[0]


def split_clauses(text: str) -> Iterator[tuple[str, ...]]:
    """The terms of each clause of a text, as they are searched for."""
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
    """Impact of each term of each clause, and of related terms, in this index."""
    clauses = [_weigh(index, clause) for clause in query.clauses]
    length = sum(map(len, query.clauses))
    if length <= LONG_QUERY:
        for clause, impacts in zip(query.clauses, clauses, strict=True):
            _add_related(index, clause, _build_related_terms(), RELATED_WEIGHT, impacts)
            _add_related(index, clause, _build_topics(), TOPIC_WEIGHT, impacts)
            _add_implied(index, query.implied, impacts)
    return clauses


def _weigh(index: Index, clause: tuple[str, ...]) -> Impacts:
    # With every two neighbours as one word: a web hook is a webhook.
    impacts = index.rarities((*clause, *map(term, map(add, clause, clause[1:]))))
    for word in clause:
        # One ideograph is a word, and in longer runs a half of two pairs.
        if len(word) == 1 and is_ideograph(word):
            pairs = index.rarities(index.pairs_with(word))
            for pair, rarity in pairs.items():
                impacts.setdefault(pair, round_impact(rarity / sqrt(len(pairs))))
    return impacts


def _add_related(
    index: Index,
    clause: tuple[str, ...],
    related: Mapping[str, Sequence[str]],
    weight: float,
    impacts: Impacts,
) -> None:
    for word in dict.fromkeys(clause):
        if word in related:
            others = index.rarities([other for other in related[word] if other not in impacts])
            # Never more than the word itself: a rare synonym of a common word says little.
            most = impacts.get(word, inf)
            each = weight * (1 if word in impacts else UNKNOWN_WORD) / sqrt(len(others) or 1)
            for other, rarity in others.items():
                impacts[other] = round_impact(each * min(most, rarity))


def _add_implied(index: Index, implied: Sequence[tuple[str, float]], impacts: Impacts) -> None:
    most = max(impacts.values(), default=inf)
    for word, weight in implied:
        rarity = index.rarity(word)
        if rarity:
            impacts[word] = max(impacts.get(word, 0.0), round_impact(weight * min(most, rarity)))


@cache
def _build_related_terms() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for group in RELATED:
        stems = dict.fromkeys(map(term, group))
        for word in stems:
            found.setdefault(word, {}).update(stems)
    return {word: tuple(other for other in others if other != word) for word, others in found.items()}


@cache
def _build_topics() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for heads, members in TOPICS:
        topic = dict.fromkeys(map(term, heads))
        for word in map(term, members):
            found.setdefault(word, {}).update(topic)
    return {word: tuple(other for other in others if other != word) for word, others in found.items()}
