"""Sanitizing and masking of definitions. A clean one, as nearly all are, stays the same object.

Texts are sanitized. Values that the server compares with what it receives cannot be: changing them would
break calls. So a value with hidden characters is not shown (one choice of several, a default, an example, a
pattern), and a tool is unusable whose arguments have such names, or only such values. Members of other
objects with hidden characters in their names are left out as well: sanitizing must not turn one name into
another. Resources and prompts are left out that have hidden characters in their identity.

Known secrets are treated the same way. Listings are stored with secrets masked (`mask_listing`), since the
process that reads one need not know the server's secrets; all else is stored unchanged.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

import msgspec

from fairlead.catalog.definitions import all_digests
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.text import HiddenKind, inspect, reveal_hidden
from fairlead.catalog.schema.keywords import MAPS, below
from fairlead.catalog.tools import (
    SECRET_IN_NAME,
    Listing,
    OfferT,
    PromptOffer,
    RejectedTool,
    ResourceOffer,
    ResourceTemplate,
    ServerOffer,
    ToolEntry,
    read_offers,
)
from fairlead.config.untyped import is_list, is_object

MAX_FINDINGS = 100
"""Most findings in one tool: more would tell a reviewer nothing new."""

_REMEMBERED = 16_384
"""Most inspected definitions that are cached: a catalog is rebuilt whenever some server's tools change."""

_INPUT = "inputSchema"
_SCHEMAS = frozenset({_INPUT, "outputSchema"})
_NAMED = frozenset({*MAPS, "definitions", "dependencies"})
"""Keywords that hold schemas by name, including those of older drafts."""
_NAMES = frozenset({"required", "dependentRequired"})
_CHOICES = frozenset({"enum", "examples"})
_VALUES = frozenset({"const", "default", "example", "pattern"})
_NEEDED = frozenset({"enum", "const"})
"""Keywords whose values are needed to make a call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DefinitionFinding:
    """A finding in a tool's definition: hidden text, or text that looks like an attack."""

    where: str
    """Dotted path into the definition, such as `inputSchema.properties.tags.description`."""
    kind: HiddenKind | Literal["suspicious"]
    count: int
    sample: str
    """Beginning of the hidden text, made readable; or what the text looks like."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanTool:
    """A tool that is safe to show, and why it cannot be used if so."""

    entry: ToolEntry
    rejected: str | None = None


def clean_tool(entry: ToolEntry) -> CleanTool:
    """Sanitize a tool: returns the very same entry if there was nothing to do. Its key stays."""
    try:
        if gate.is_plain(entry.definition):
            return CleanTool(entry=entry)
        cleaned = _clean_definition(entry.definition, gate.generation())
    except (ValueError, RecursionError):
        definition = msgspec.json.encode({"name": entry.key.shown_tool})
        return CleanTool(entry=_with(entry, definition), rejected="its definition cannot be parsed")
    rejected = SECRET_IN_NAME if entry.key.holds_secret else cleaned.rejected
    if cleaned.definition is None:
        return CleanTool(entry=entry, rejected=rejected)
    return CleanTool(entry=_with(entry, cleaned.definition), rejected=rejected)


def mask_tool(entry: ToolEntry) -> CleanTool:
    """Mask known secrets in a tool for the store, all else unchanged. Its digests stay."""
    try:
        if gate.is_plain(entry.definition):
            return CleanTool(entry=entry)
        definition = msgspec.json.decode(entry.definition, type=dict[str, Any])
        masking = _Cleaning(gate.mask_secrets)
        masked = masking.read(definition)
    except (ValueError, RecursionError):
        if not gate.holds_secret(entry.definition.decode(errors="replace")):
            return CleanTool(entry=entry)
        return CleanTool(entry=entry, rejected="its definition cannot be parsed, and holds a secret")
    if masked == definition:
        return CleanTool(entry=entry)
    shown = replace(
        entry,
        definition=msgspec.json.encode(masked),
        title=None if entry.title is None else gate.mask_secrets(entry.title),
        description=None if entry.description is None else gate.mask_secrets(entry.description),
        listed_digests=all_digests(entry),
    )
    return CleanTool(entry=shown, rejected=masking.rejected)


def mask_listing(listing: Listing) -> Listing:
    """Mask known secrets in a listing for the store. An entry that a secret makes unusable is left out."""
    masked = [mask_tool(entry) for entry in listing.tools]
    rejected = [
        RejectedTool(name=tool.entry.key.tool, reason=tool.rejected)
        for tool in masked
        if tool.rejected is not None
    ]
    return replace(
        listing,
        tools=tuple(tool.entry for tool in masked if tool.rejected is None),
        rejected=tuple(
            RejectedTool(name=gate.mask_secrets(tool.name), reason=gate.mask_secrets(tool.reason))
            for tool in (*listing.rejected, *rejected)
        ),
        resources=tuple(_mask_offers(ResourceOffer, listing.resources)),
        templates=tuple(_mask_offers(ResourceTemplate, listing.templates)),
        prompts=tuple(_mask_offers(PromptOffer, listing.prompts)),
        instructions=None if listing.instructions is None else gate.mask_secrets(listing.instructions),
        notes=tuple(map(gate.mask_secrets, listing.notes)),
    )


def _mask_offers(kind: type[ServerOffer], definitions: Iterable[bytes]) -> Iterator[bytes]:
    """Mask known secrets in definitions, without those that a secret identifies."""
    for definition in definitions:
        try:
            if gate.is_plain(definition):
                yield definition
                continue
            offer = msgspec.json.decode(definition)
            masked = _plain(offer, gate.mask_secrets)
        except (ValueError, RecursionError):
            if not gate.holds_secret(definition.decode(errors="replace")):
                yield definition
            continue
        if masked == offer:
            yield definition
            continue
        shown = msgspec.json.encode(masked)
        listed, kept = [*read_offers("", kind, (definition,))], [*read_offers("", kind, (shown,))]
        if list(map(_goes_by, listed)) == list(map(_goes_by, kept)):
            yield shown


def hidden_text(entry: ToolEntry) -> tuple[DefinitionFinding, ...]:
    """Hidden text in a tool's definition; none if it cannot be parsed."""
    try:
        return tuple(islice(_find_hidden(entry.read()), MAX_FINDINGS))
    except (ValueError, RecursionError):
        return ()


def clean_offers(server_id: str, kind: type[OfferT], definitions: Iterable[bytes]) -> Iterator[OfferT]:
    """Parse and sanitize listed resources, templates or prompts. Invalid ones are left out."""
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


def _goes_by(offer: ServerOffer) -> tuple[str, ...]:
    """Identity of an offer on its server."""
    match offer:
        case ResourceOffer():
            return (offer.uri,)
        case ResourceTemplate():
            return (offer.uri_template,)
        case PromptOffer():
            return (offer.name, *(argument.name for argument in offer.arguments))
        case _:
            return (offer.name,)


def texts(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a JSON value, names included, with its path."""
    if isinstance(value, str):
        yield where, value
    elif is_list(value):
        for index, item in enumerate(value):
            yield from texts(item, f"{where}[{index}]")
    elif is_object(value):
        for name, item in value.items():
            place = below(where, reveal_hidden(name))
            yield place, name
            yield from texts(item, place)


def mask_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """JSON value for a reviewer: known secrets masked, in names too, and nothing sanitized."""
    if isinstance(value, str):
        return gate.mask_secrets(value)
    if is_list(value):
        return [mask_value(item) for item in value]
    if is_object(value):
        return {gate.mask_secrets(name): mask_value(item) for name, item in value.items()}
    return value


def _find_hidden(value: object) -> Iterator[DefinitionFinding]:
    for where, text in texts(value):
        for found in inspect(text).findings:
            sample = gate.sample(found.sample)  # hidden text may spell a secret
            yield DefinitionFinding(
                where=gate.mask_secrets(where), kind=found.kind, count=found.count, sample=sample
            )


def _with(entry: ToolEntry, definition: bytes) -> ToolEntry:
    return ToolEntry(
        key=entry.key,
        definition=definition,
        title=None if entry.title is None else gate.content(entry.title),
        description=None if entry.description is None else gate.content(entry.description),
    )


_Change = Callable[[str], str]
"""Change of a text: sanitized and masked, or masked alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _CleanDefinition:
    """A definition after sanitizing; None where that changed nothing."""

    definition: bytes | None
    rejected: str | None = None


@lru_cache(maxsize=_REMEMBERED)
def _clean_definition(raw: bytes, _generation: int) -> _CleanDefinition:
    definition = msgspec.json.decode(raw, type=dict[str, Any])
    cleaning = _Cleaning(gate.content)
    cleaned = cleaning.read(definition)
    if cleaned == definition:
        return _CleanDefinition(definition=None)
    return _CleanDefinition(definition=msgspec.json.encode(cleaned), rejected=cleaning.rejected)


class _Cleaning:
    """One pass over a definition: builds the sanitized one, and notes why the tool cannot be called if so."""

    def __init__(self, change: _Change) -> None:
        self.rejected: str | None = None
        self._change = change

    def _is_clean(self, value: object) -> bool:
        return _plain(value, self._change) == value

    def read(self, definition: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self._schema(value, name) if name in _SCHEMAS else _plain(value, self._change)
            for name, value in definition.items()
            if self._is_clean(name)
        }

    def _schema(self, value: object, where: str) -> Any:  # noqa: ANN401 - any JSON value
        if is_list(value):
            return [self._schema(item, f"{where}[{index}]") for index, item in enumerate(value)]
        if not is_object(value):
            return _plain(value, self._change)
        new: dict[str, Any] = {}
        for keyword, item in value.items():
            place = below(where, keyword)
            if self._is_clean(keyword) and self._is_shown(keyword, item, place):
                new[keyword] = self._keyword(keyword, item, place)
        return new

    def _is_shown(self, keyword: str, value: object, where: str) -> bool:
        """Whether anything of it is left. Values stay unchanged, or are removed."""
        if keyword in _CHOICES and is_list(value):
            kept = not value or any(map(self._is_clean, value))
        else:
            kept = keyword not in _VALUES or self._is_clean(value)
        if not kept and keyword in _NEEDED:
            self._reject(where, "its only value has")
        return kept

    def _keyword(self, keyword: str, value: object, where: str) -> Any:  # noqa: ANN401 - any JSON value
        if keyword in _CHOICES and is_list(value):
            return [item for item in value if self._is_clean(item)]
        if keyword in _NAMES and not self._is_clean(value):
            self._reject(where, "a name in it has")
        if keyword not in _NAMED or not is_object(value):
            return self._schema(value, where)
        if not all(map(self._is_clean, value)):
            self._reject(where, "a name in it has")
        return {
            name: self._schema(item, below(where, name))
            for name, item in value.items()
            if self._is_clean(name)
        }

    def _reject(self, where: str, what: str) -> None:
        # Names in a result are not needed for a call.
        if self.rejected is None and where.startswith(_INPUT):
            self.rejected = f"{where}: {what} hidden characters or a secret in it"


def _plain(value: object, change: _Change) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return change(value)
    if is_list(value):
        return [_plain(item, change) for item in value]
    if is_object(value):
        return {name: _plain(item, change) for name, item in value.items() if change(name) == name}
    return value
