"""What of a tool is searched: its texts, each at most so long, and how much each says about it."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fairlead.catalog.entries import ToolKey
from fairlead.catalog.words import terms
from fairlead.config.shapes import as_list, as_object, is_object

Weights = dict[str, float]
"""How much is said about each term, before saturation."""


class Document(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One tool as the search sees it. All of it but `key` is a server's own words."""

    key: ToolKey
    name: str
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    server: str = ""
    """What people call the server; empty where that is its id."""
    server_description: str = ""


class Field(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A part of a tool: what a term in it weighs, and how much less it does where the part is long.

    `usual` is a usual number of different terms. It is fixed rather than the catalog's average, so that
    what one server says of its tools changes nothing about another's.
    """

    weight: float
    length_penalty: float
    usual: int
    most_characters: int

    def weigh(self, text: str) -> Weights:
        """The weight of every different term. Saying one twice adds nothing: nobody gains by repetition."""
        found = dict.fromkeys(terms(text[: self.most_characters]))
        if not found:
            return {}
        length = 1 - self.length_penalty + self.length_penalty * len(found) / self.usual
        return dict.fromkeys(found, self.weight / length)


NAME = Field(weight=2, length_penalty=0.2, usual=3, most_characters=200)
DESCRIPTION = Field(weight=1, length_penalty=0.5, usual=10, most_characters=4_000)
PARAMETERS = Field(weight=0.8, length_penalty=0.75, usual=4, most_characters=1_000)
DETAILS = Field(weight=0.5, length_penalty=0.5, usual=16, most_characters=4_000)
SERVER = Field(weight=1, length_penalty=0.3, usual=3, most_characters=200)
SERVER_DESCRIPTION = Field(weight=0.3, length_penalty=0.75, usual=20, most_characters=2_000)

Texts = tuple[tuple[Field, str], ...]

_MOST_SCHEMAS = 500
_MAPS = ("$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf")
_HOLDERS = frozenset({"properties", "items", *_MAPS, *_LISTS})


def tool_texts(document: Document) -> Texts:
    """What is said about a tool itself."""
    names, details = _parameters(document.input_schema)
    return (
        (NAME, f"{document.name} {document.title}"),
        (DESCRIPTION, document.description),
        (PARAMETERS, " ".join(names)),
        (DETAILS, " ".join(details)),
    )


def server_texts(document: Document) -> Texts:
    """What is said about its server, and so about all tools there."""
    return (
        (SERVER, document.server or document.key.server_id),
        (SERVER_DESCRIPTION, document.server_description),
    )


def weigh(texts: Texts) -> Weights:
    """The weight of every term in all of the texts together."""
    total: Weights = {}
    for part, text in texts:
        found = part.weigh(text)
        for term in found.keys() & total.keys():
            found[term] += total[term]
        total.update(found)
    return total


def _parameters(schema: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The names of all parameters, however deep, and the descriptions and choices given for them."""
    names: list[str] = []
    details: list[str] = []
    waiting = [*_inner(schema, names)]
    # A list and a bound instead of recursion: how deep and how wide it is, the server decides.
    for inner in waiting:
        said = [inner.get("description"), *as_list(inner.get("enum"))]
        details += [text for text in said if isinstance(text, str)]
        if not _HOLDERS.isdisjoint(inner) and len(waiting) < _MOST_SCHEMAS:
            waiting += _inner(inner, names)
    return names, details


def _inner(schema: Mapping[str, Any], names: list[str]) -> Iterator[dict[str, Any]]:
    """The schemas inside a schema. Those of properties are known by name: it is added to `names`."""
    properties = as_object(schema.get("properties"))
    names += properties
    found = [*properties.values(), schema.get("items")]
    for keyword in _MAPS:
        found += as_object(schema.get(keyword)).values()
    for keyword in _LISTS:
        found += as_list(schema.get(keyword))
    return filter(is_object, found)
