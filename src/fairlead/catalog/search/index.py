"""Search index over all tools: immutable, and updated server by server, tool by changed tool.

The score of a term in a tool is BM25F's, computed when the index is built. What a server says about itself
holds for all of its tools, so it is stored once per server; a tool's own postings hold what it adds to that,
and the sum of both is its score. Of a tool its texts are indexed, each up to a limit and with a weight of its
own. The postings of a term are also available as columns of bytes, for `array_scores`.
"""

import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from math import ceil, log
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from fairlead.catalog.search.tokenize import pieces, squash, terms
from fairlead.catalog.tools import ToolKey
from fairlead.config.untyped import as_list, as_object, is_object

Weights = dict[str, float]
"""Weight of each term, before saturation."""


class SearchDocument(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One tool as indexed. All of it but `key` is untrusted text."""

    key: ToolKey
    name: str
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    server: str = ""
    """Display name of the server; empty where that is its id."""
    server_description: str = ""


class SearchField(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A text of a tool: the weight of a term in it, and how much less it is where the text is long.

    `usual` is a usual number of different terms. It is fixed rather than the catalog's average, so that one
    server's tools do not change another's scores.
    """

    weight: float
    length_penalty: float
    usual: int
    most_characters: int

    def weigh(self, text: str) -> Weights:
        """Weight of every different term. Repetition adds nothing, so that it does not pay."""
        found = dict.fromkeys(terms(text[: self.most_characters]))
        if not found:
            return {}
        length = 1 - self.length_penalty + self.length_penalty * len(found) / self.usual
        return dict.fromkeys(found, self.weight / length)


NAME = SearchField(weight=2, length_penalty=0.2, usual=3, most_characters=200)
DESCRIPTION = SearchField(weight=1, length_penalty=0.5, usual=10, most_characters=4_000)
PARAMETERS = SearchField(weight=0.8, length_penalty=0.75, usual=4, most_characters=1_000)
DETAILS = SearchField(weight=0.5, length_penalty=0.5, usual=16, most_characters=4_000)
SERVER = SearchField(weight=1, length_penalty=0.3, usual=3, most_characters=200)
SERVER_DESCRIPTION = SearchField(weight=0.3, length_penalty=0.75, usual=20, most_characters=2_000)

_MOST_CHARACTERS = 400
_MOST_PARAMETER_CHARACTERS = 200
"""Longest text for an encoder, which reads all of it as one: more blurs what a tool does."""

FieldTexts = tuple[tuple[SearchField, str], ...]

_MOST_SCHEMAS = 500
_MAPS = ("$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf")
_HOLDERS = frozenset({"properties", "items", *_MAPS, *_LISTS})
# Examples such as 'Asia/Tokyo' or "a@b.org" name data. A tool is not about the data of its examples.
# Possessive, so that a quote without an end is read once: the server chooses the text.
_EXAMPLE_VALUE = re.compile(r"""(?<!\w)(['"`])(?=[^'"`\s/:@.]*+[/:@.])[^'"`\s]*+\1(?!\w)""")


def tool_texts(document: SearchDocument) -> FieldTexts:
    """Texts of a tool itself."""
    names, details = _parameters(document.input_schema)
    return (
        (NAME, f"{document.name} {document.title}"),
        (DESCRIPTION, document.description),
        (PARAMETERS, " ".join(names)),
        (DETAILS, " ".join(details)),
    )


def document_text(document: SearchDocument) -> str:
    """Text of a tool that an encoder reads: its name, what it does, and the names of its parameters."""
    name = " ".join(pieces(document.name))
    text = f"{name}: {document.title} {document.description}"[:_MOST_CHARACTERS]
    parameters = " ".join(pieces(" ".join(_parameters(document.input_schema)[0])))
    return f"{text} {parameters[:_MOST_PARAMETER_CHARACTERS]}"


def server_texts(document: SearchDocument) -> FieldTexts:
    """Texts of its server, which count for all of its tools."""
    return (
        (SERVER, document.server or document.key.server_id),
        (SERVER_DESCRIPTION, document.server_description),
    )


def weigh(texts: FieldTexts) -> Weights:
    """Weight of every term in all of the texts together."""
    total: Weights = {}
    for part, text in texts:
        found = part.weigh(text)
        for term in found.keys() & total.keys():
            found[term] += total[term]
        total.update(found)
    return total


def _parameters(schema: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Names of all parameters, however deep, and their descriptions and choices."""
    names: list[str] = []
    details: list[str] = []
    waiting = [*_inner(schema, names)]
    # A list and a bound instead of recursion: the server chooses depth and width.
    for inner in waiting:
        texts = [inner.get("description"), *as_list(inner.get("enum"))]
        # No more is indexed of all of them together.
        details += [
            _EXAMPLE_VALUE.sub(" ", text[: DETAILS.most_characters])
            for text in texts
            if isinstance(text, str)
        ]
        if not _HOLDERS.isdisjoint(inner) and len(waiting) < _MOST_SCHEMAS:
            waiting += _inner(inner, names)
    return names, details


def _inner(schema: Mapping[str, Any], names: list[str]) -> Iterator[dict[str, Any]]:
    """Schemas inside a schema. Names of properties are added to `names`."""
    properties = as_object(schema.get("properties"))
    names += properties
    found = [*properties.values(), schema.get("items")]
    for keyword in _MAPS:
        found += as_object(schema.get(keyword)).values()
    for keyword in _LISTS:
        found += as_list(schema.get(keyword))
    return filter(is_object, found)


class Columns(NamedTuple):
    """Postings of a term, as 64-bit numbers."""

    slots: bytes
    scores: bytes
    champions: bytes
    """Slots of the tools that the term alone makes candidates."""
    length: int


def in_columns(posting: Mapping[int, float], champions: Collection[int]) -> Columns:
    """Columns of one term's postings."""
    return Columns(
        slots=array("q", posting).tobytes(),
        scores=array("d", posting.values()).tobytes(),
        champions=array("q", champions).tobytes(),
        length=len(posting),
    )


SATURATION = 1.6
"""BM25's k1: how slowly the score of a term approaches its maximum with its weight."""

CHAMPIONS = 120
"""Number of tools that a frequent term alone makes candidates."""

STEPS = 1024
"""Resolution of scores: parts of 1 that a float holds exactly, as it does their sums."""

_NOTHING: Mapping[int, float] = {}

K = TypeVar("K")
V = TypeVar("V")


class IndexedTool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool, and its terms."""

    key: ToolKey
    name: str
    squashed: str
    name_terms: tuple[str, ...]
    terms: tuple[str, ...]
    digest: int


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedServer:
    """A server: the slots of its tools, and the terms of its own texts."""

    slots: tuple[int, ...]
    called: frozenset[str]
    """Its id and its name, squashed."""
    reach: dict[str, int]
    """For each of its terms, the number of its tools without the term in their own texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """Inverted index of tools. A tool is a number here, its slot in `tools`."""

    tools: Sequence[IndexedTool] = ()
    servers: Mapping[str, IndexedServer] = field(default_factory=dict[str, IndexedServer])
    postings: Mapping[str, Mapping[int, float]] = field(default_factory=dict[str, dict[int, float]])
    server_postings: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, dict[str, float]])
    names: Mapping[str, Mapping[int, bool]] = field(default_factory=dict[str, dict[int, bool]])
    """Squashed names and their endings: the slots, and whether it is the whole name."""
    reach: Mapping[str, int] = field(default_factory=dict[str, int])
    free: tuple[int, ...] = ()
    known_champions: dict[str, Mapping[int, float]] = field(
        default_factory=dict[str, Mapping[int, float]], repr=False, compare=False
    )
    """Computed on first use, and cached for as long as the term's postings do not change."""
    known_columns: dict[str, Columns] = field(default_factory=dict[str, Columns], repr=False, compare=False)
    _slots: dict[str, dict[ToolKey, int]] = field(
        default_factory=dict[str, dict[ToolKey, int]], repr=False, compare=False
    )
    _rarities: dict[str, float] = field(default_factory=dict[str, float], repr=False, compare=False)
    _pairs: dict[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]], repr=False, compare=False
    )
    _name_masses: dict[int, float] = field(default_factory=dict[int, float], repr=False, compare=False)

    @classmethod
    def build(cls, documents: Iterable[SearchDocument]) -> "Index":
        """Index of these tools. Of two with one key the first counts."""
        servers: dict[str, list[SearchDocument]] = {}
        for document in documents:
            servers.setdefault(document.key.server_id, []).append(document)
        draft = _Draft(cls())
        for server_id, group in servers.items():
            draft.set_server(server_id, group)
        return draft.finish()

    def replace(self, server_id: str, documents: Iterable[SearchDocument]) -> "Index":
        """Index with these as the tools of one server; none removes the server.

        Only tools whose text changed are indexed again, and if none did, this is the same index.
        """
        group = list(documents)
        assert all(document.key.server_id == server_id for document in group)
        draft = _Draft(self)
        return draft.finish() if draft.set_server(server_id, group) else self

    def __len__(self) -> int:
        return len(self.tools) - len(self.free)

    def rarity(self, term: str) -> float:
        """BM25's IDF of a term; 0 where no tool has it."""
        return self._rarities.get(term) or self._work_out_rarity(term)

    def rarities(self, words: Iterable[str]) -> dict[str, float]:
        """IDF of each term that some tool has."""
        known, postings, reach = self._rarities, self.postings, self.reach
        known_terms = (term for term in words if term in known or term in postings or term in reach)
        return {term: known.get(term) or self._work_out_rarity(term) for term in known_terms}

    def pairs_with(self, character: str) -> Sequence[str]:
        """The terms that are two characters, this one of them: runs without spaces are indexed by these."""
        found = self._pairs.get(character)
        if found is None:
            terms = {*self.postings, *self.reach}
            pairs = sorted(term for term in terms if len(term) == 2 and character in term)
            found = self._pairs[character] = tuple(pairs)
        return found

    def _work_out_rarity(self, term: str) -> float:
        having = len(self.postings.get(term, _NOTHING)) + self.reach.get(term, 0)
        # Queries have unlimited terms, tools have not: only theirs are cached.
        if not having:
            return 0.0
        rarity = self._rarities[term] = round_impact(log(1 + (len(self) - having + 0.5) / (having + 0.5)))
        return rarity

    def score(self, term: str, slot: int) -> float:
        """Score of a term in a tool, its server's texts included."""
        about_server = self.server_postings.get(term, {}).get(self.tools[slot].key.server_id, 0.0)
        return self.postings.get(term, _NOTHING).get(slot, 0.0) + about_server

    def slot(self, key: ToolKey) -> int | None:
        """Slot of a tool, or None."""
        known = self._slots.get(key.server_id)
        if known is None:
            server = self.servers.get(key.server_id, _NO_SERVER)
            known = self._slots[key.server_id] = {self.tools[slot].key: slot for slot in server.slots}
        return known.get(key)

    def name_mass(self, slot: int) -> float:
        """Sum of the IDF of all terms in a tool's name."""
        mass = self._name_masses.get(slot)
        if mass is None:
            mass = self._name_masses[slot] = sum(map(self.rarity, self.tools[slot].name_terms))
        return mass

    def champions(self, term: str) -> Mapping[int, float]:
        """Tools with the highest scores of a term; all that have it, where they are few."""
        posting = self.postings.get(term, _NOTHING)
        if len(posting) <= CHAMPIONS:
            return posting
        best = self.known_champions.get(term)
        if best is None:
            order = nsmallest(CHAMPIONS, posting.items(), key=lambda item: (-item[1], self.label(item[0])))
            best = self.known_champions[term] = dict(order)
        return best

    def columns(self, term: str) -> Columns:
        """Postings of a term as columns."""
        known = self.known_columns.get(term)
        if known is None:
            posting = self.postings.get(term, _NOTHING)
            known = self.known_columns[term] = in_columns(posting, self.champions(term))
        return known

    def label(self, slot: int) -> str:
        """Key that breaks ties. A tool's slot depends on what came and went before."""
        return str(self.tools[slot].key)


def round_impact(impact: float) -> float:
    """Round an impact to steps, at least one: sums are then the same in any order."""
    return ceil(impact * STEPS) / STEPS


# The possible scores, in steps too small to matter: 200,000 postings share these few objects.
_SCORES = [step / STEPS for step in range(round((SATURATION + 1) * STEPS) + 1)]


def _saturate(weight: float) -> float:
    return _SCORES[int(weight * (SATURATION + 1) / (SATURATION + weight) * STEPS + 0.5)]


def _score_addition(weight: float, already: float) -> float:
    """Weight that a tool adds to a term beyond its server's texts."""
    return _SCORES[int((_saturate(weight + already) - _saturate(already)) * STEPS + 0.5)]


class _Shelves(Generic[K, V]):
    """Copy-on-write dict of dicts, which shares every unchanged inner dict with the original."""

    def __init__(self, original: Mapping[str, Mapping[K, V]]) -> None:
        self.content: dict[str, Mapping[K, V]] = dict(original)
        self._mine: dict[str, dict[K, V]] = {}
        self.changed: set[str] = set()

    def put(self, name: str, key: K, value: V) -> None:
        """Set an item; setting the same value changes nothing."""
        shelf = self._mine.get(name)
        if shelf is None:
            if self.content.get(name, {}).get(key) == value:
                return
            shelf = self._own(name)
        shelf[key] = value

    def drop(self, name: str, key: K) -> None:
        """Delete an item, and its inner dict once that is empty."""
        shelf = self._mine.get(name) or self._own(name)
        del shelf[key]
        if not shelf:
            del self.content[name], self._mine[name]

    def _own(self, name: str) -> dict[K, V]:
        self.changed.add(name)
        shelf = self._mine[name] = self.content[name] = dict(self.content.get(name, {}))
        return shelf


class _Draft:
    """A mutable copy of an index."""

    def __init__(self, original: Index) -> None:
        self._tools = [*original.tools]
        self._free = [*original.free]
        self._servers = dict(original.servers)
        self._postings = _Shelves(original.postings)
        self._server_postings = _Shelves(original.server_postings)
        self._names = _Shelves(original.names)
        self._reach = dict(original.reach)
        self._champions = dict(original.known_champions)
        self._columns = dict(original.known_columns)

    def set_server(self, server_id: str, group: Sequence[SearchDocument]) -> bool:
        """Set the tools of a server. False, and nothing done, where they are unchanged."""
        about_server = server_texts(group[0]) if group else ()
        wanted = {document.key: (document.name, tool_texts(document)) for document in reversed(group)}
        digests = {key: hash((own_texts, about_server)) for key, own_texts in wanted.items()}
        server = self._servers.get(server_id, _NO_SERVER)
        slots = {self._tools[slot].key: slot for slot in server.slots}
        if digests == {key: self._tools[slot].digest for key, slot in slots.items()}:
            return False
        self._forget(server_id, server)
        for key in slots.keys() - wanted.keys():
            self._take_out(slots.pop(key))
        if wanted:
            weights = weigh(about_server)
            for key, (name, texts) in wanted.items():
                slot = slots.get(key)
                if slot is None:
                    slot = slots[key] = self._free_slot()
                if self._tools[slot].digest != digests[key]:
                    self._put(slot, key, name, texts, weights, digest=digests[key])
            called = frozenset({squash(server_id), squash(group[0].server)} - {""})
            self._remember(server_id, tuple(slots.values()), called, weights)
        return True

    def finish(self) -> Index:
        """The new index. The draft must not be used again."""
        for term in self._postings.changed:
            self._champions.pop(term, None)
            self._columns.pop(term, None)
        return Index(
            tools=tuple(self._tools),
            servers=self._servers,
            postings=self._postings.content,
            server_postings=self._server_postings.content,
            names=self._names.content,
            reach=self._reach,
            free=tuple(self._free),
            known_champions=self._champions,
            known_columns=self._columns,
        )

    def _free_slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._tools.append(_NO_TOOL)
        return len(self._tools) - 1

    def _put(
        self, slot: int, key: ToolKey, name: str, texts: FieldTexts, server_weights: Weights, *, digest: int
    ) -> None:
        before = self._tools[slot]
        weights = weigh(texts)
        for term in before.terms:
            if term not in weights:
                self._postings.drop(term, slot)
        put = self._postings.put
        for term, weight in weights.items():
            server_weight = server_weights.get(term)
            put(term, slot, _score_addition(weight, server_weight) if server_weight else _saturate(weight))
        if before.name != name:
            self._rename(slot, before.name, name)
        self._tools[slot] = IndexedTool(
            key=key,
            name=name,
            squashed=squash(name),
            name_terms=tuple(dict.fromkeys(terms(name[: NAME.most_characters]))),
            terms=tuple(weights),
            digest=digest,
        )

    def _take_out(self, slot: int) -> None:
        for term in self._tools[slot].terms:
            self._postings.drop(term, slot)
        self._rename(slot, self._tools[slot].name, "")
        self._tools[slot] = _NO_TOOL
        self._free.append(slot)

    def _rename(self, slot: int, before: str, after: str) -> None:
        for ending, _ in _endings(before):
            self._names.drop(ending, slot)
        for ending, whole in _endings(after):
            self._names.put(ending, slot, whole)

    def _remember(
        self, server_id: str, slots: tuple[int, ...], called: frozenset[str], weights: Weights
    ) -> None:
        reach: dict[str, int] = {}
        those = frozenset(slots)
        for term, weight in weights.items():
            self._server_postings.put(term, server_id, _saturate(weight))
            saying = self._postings.content.get(term, _NOTHING).keys()
            reach[term] = len(those) - len(those & saying)
            if reach[term]:
                self._reach[term] = self._reach.get(term, 0) + reach[term]
        self._servers[server_id] = IndexedServer(slots=slots, called=called, reach=reach)

    def _forget(self, server_id: str, server: IndexedServer) -> None:
        self._servers.pop(server_id, None)
        for term, count in server.reach.items():
            self._server_postings.drop(term, server_id)
            if count:
                self._reach[term] -= count


# No hash is -1.
_NO_TOOL = IndexedTool(key=ToolKey("", ""), name="", squashed="", name_terms=(), terms=(), digest=-1)
_NO_SERVER = IndexedServer(slots=(), called=frozenset(), reach={})


def _endings(name: str) -> Iterable[tuple[str, bool]]:
    """A squashed name and its endings, word by word: `findsymbol`, `symbol`."""
    name = name[: NAME.most_characters]
    words = pieces(name)
    endings = {"".join(words[start:]): False for start in range(1, len(words))}
    whole = squash(name)
    return {**endings, whole: True}.items() if whole else ()
