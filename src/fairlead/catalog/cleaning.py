"""What servers define, with nothing hidden in it. What is clean, as nearly all is, stays the same object.

Texts are cleaned. What the server compares with what it is sent cannot be: to change it would break calls.
So a value that hides something is not shown (one choice of several, a default, an example, a pattern), and a
tool is unusable whose arguments have such names, or such values only. Members of other objects whose names
hide something are left out as well: none is to become another by being cleaned. Of resources and prompts,
those are left out that hide something in what their server goes by.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

import msgspec

from fairlead.catalog import gate
from fairlead.catalog.entries import ToolEntry
from fairlead.catalog.keywords import MAPS, below
from fairlead.catalog.offers import Offer, OfferT, Prompt, Resource, ResourceTemplate, read_offers
from fairlead.catalog.sanitise import Kind, inspect, made_visible
from fairlead.config.shapes import is_list, is_object

MAX_FINDINGS = 100
"""Of one tool: whoever reads as many needs no more."""

_REMEMBERED = 16_384
"""Of definitions that were looked at closely: a catalog is made anew whenever some server's tools change."""

_INPUT = "inputSchema"
_SCHEMAS = frozenset({_INPUT, "outputSchema"})
_NAMED = frozenset({*MAPS, "definitions", "dependencies"})
"""Keywords that hold schemas by name, those of older drafts too."""
_NAMES = frozenset({"required", "dependentRequired"})
_CHOICES = frozenset({"enum", "examples"})
_VALUES = frozenset({"const", "default", "example", "pattern"})
_NEEDED = frozenset({"enum", "const"})
"""Keywords without whose values nobody can make the call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something odd in a tool's definition: hidden text, or words that look like an attack."""

    where: str
    """A dotted path into the definition, such as `inputSchema.properties.tags.description`."""
    kind: Kind | Literal["suspicious"]
    count: int
    sample: str
    """The beginning of what was hidden, made readable; or what the words look like."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanTool:
    """A tool as models and people may see it, and why it cannot be used if that is so."""

    entry: ToolEntry
    rejected: str | None = None


def clean_tool(entry: ToolEntry) -> CleanTool:
    """The tool with nothing hidden in it: the very same entry if there was nothing. Its key stays."""
    try:
        if gate.is_plain(entry.definition):
            return CleanTool(entry=entry)
        cleaned = _cleaned(entry.definition, gate.generation())
    except (ValueError, RecursionError):
        definition = msgspec.json.encode({"name": entry.key.shown_tool})
        return CleanTool(entry=_with(entry, definition), rejected="its definition cannot be read")
    if cleaned.definition is None:
        return CleanTool(entry=entry)
    return CleanTool(entry=_with(entry, cleaned.definition), rejected=cleaned.rejected)


def hidden_text(entry: ToolEntry) -> tuple[Finding, ...]:
    """What is hidden in a tool as its server defined it. Nothing, if nobody can read it."""
    try:
        return tuple(islice(_hidden_in(entry.read()), MAX_FINDINGS))
    except (ValueError, RecursionError):
        return ()


def clean_offers(server_id: str, kind: type[OfferT], definitions: Iterable[bytes]) -> Iterator[OfferT]:
    """Read resources, templates or prompts that a server listed. What cannot be read is left out."""
    for definition in definitions:
        try:
            cleaned = gate.finish(gate.clean_literals_steps(definition))
        except ValueError:
            continue
        listed = read_offers(server_id, kind, (definition,))
        if cleaned is definition:
            yield from listed
            continue
        for offer, shown in zip(listed, read_offers(server_id, kind, (cleaned,)), strict=False):
            if _goes_by(offer) == _goes_by(shown):
                yield shown


def _goes_by(offer: Offer) -> tuple[str, ...]:
    """What its server knows it by."""
    match offer:
        case Resource():
            return (offer.uri,)
        case ResourceTemplate():
            return (offer.uri_template,)
        case Prompt():
            return (offer.name, *(argument.name for argument in offer.arguments))
        case _:
            return (offer.name,)


def texts(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a JSON value, names included, each with its place."""
    if isinstance(value, str):
        yield where, value
    elif is_list(value):
        for index, item in enumerate(value):
            yield from texts(item, f"{where}[{index}]")
    elif is_object(value):
        for name, item in value.items():
            place = below(where, made_visible(name))
            yield place, name
            yield from texts(item, place)


def _hidden_in(value: object) -> Iterator[Finding]:
    for where, text in texts(value):
        for found in inspect(text).findings:
            yield Finding(where=where, kind=found.kind, count=found.count, sample=found.sample)


def _with(entry: ToolEntry, definition: bytes) -> ToolEntry:
    return ToolEntry(
        key=entry.key,
        definition=definition,
        title=None if entry.title is None else gate.content(entry.title),
        description=None if entry.description is None else gate.content(entry.description),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Definition:
    """A definition after cleaning; None where that changed nothing."""

    definition: bytes | None
    rejected: str | None = None


@lru_cache(maxsize=_REMEMBERED)
def _cleaned(raw: bytes, _generation: int) -> _Definition:
    definition = msgspec.json.decode(raw, type=dict[str, Any])
    cleaning = _Cleaning()
    cleaned = cleaning.read(definition)
    if cleaned == definition:
        return _Definition(definition=None)
    return _Definition(definition=msgspec.json.encode(cleaned), rejected=cleaning.rejected)


class _Cleaning:
    """One pass over a definition: makes the clean one, and notes why nobody can call the tool if so."""

    def __init__(self) -> None:
        self.rejected: str | None = None

    def read(self, definition: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self._schema(value, name) if name in _SCHEMAS else _plain(value)
            for name, value in definition.items()
            if _is_clean(name)
        }

    def _schema(self, value: object, where: str) -> Any:  # noqa: ANN401 - any JSON value
        if is_list(value):
            return [self._schema(item, f"{where}[{index}]") for index, item in enumerate(value)]
        if not is_object(value):
            return _plain(value)
        new: dict[str, Any] = {}
        for keyword, item in value.items():
            place = below(where, keyword)
            if _is_clean(keyword) and self._is_shown(keyword, item, place):
                new[keyword] = self._keyword(keyword, item, place)
        return new

    def _is_shown(self, keyword: str, value: object, where: str) -> bool:
        """Is there anything left of it? Values stay as they are, or go."""
        if keyword in _CHOICES and is_list(value):
            kept = not value or any(map(_is_clean, value))
        else:
            kept = keyword not in _VALUES or _is_clean(value)
        if not kept and keyword in _NEEDED:
            self._reject(where, "the only value it takes has")
        return kept

    def _keyword(self, keyword: str, value: object, where: str) -> Any:  # noqa: ANN401 - any JSON value
        if keyword in _CHOICES and is_list(value):
            return [item for item in value if _is_clean(item)]
        if keyword in _NAMES and not _is_clean(value):
            self._reject(where, "a name in it has")
        if keyword not in _NAMED or not is_object(value):
            return self._schema(value, where)
        if not all(map(_is_clean, value)):
            self._reject(where, "a name in it has")
        return {
            name: self._schema(item, below(where, name)) for name, item in value.items() if _is_clean(name)
        }

    def _reject(self, where: str, what: str) -> None:
        # What a tool returns need not be named to call it.
        if self.rejected is None and where.startswith(_INPUT):
            self.rejected = f"{where}: {what} hidden characters in it, which nobody can type"


def _plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return gate.content(value)
    if is_list(value):
        return [_plain(item) for item in value]
    if is_object(value):
        return {name: _plain(item) for name, item in value.items() if _is_clean(name)}
    return value


def _is_clean(value: object) -> bool:
    if isinstance(value, str):
        return gate.content(value) == value
    return _plain(value) == value
