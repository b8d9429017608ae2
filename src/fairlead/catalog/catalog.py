"""Catalog of all tools of all servers at one moment: named, screened, searchable. Immutable."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fairlead.bounded_repr import count
from fairlead.catalog.definitions import definition_digest
from fairlead.catalog.naming import NameTable, Scheme, name_tools
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.definitions import CleanTool, DefinitionFinding, clean_tool, hidden_text
from fairlead.catalog.schema.normalize import needs_screening, screen_definition
from fairlead.catalog.search.index import Index, SearchDocument, document_text
from fairlead.catalog.search.memory import CurrentMemory, PastQueries
from fairlead.catalog.search.score import SemanticIndex
from fairlead.catalog.search.search import SearchHit, score_servers, search
from fairlead.catalog.tools import RejectedTool, ToolEntry, ToolKey

if TYPE_CHECKING:
    from fairlead.catalog.search.vectors import ToolVectors

Absence = Literal["denied", "rejected", "quarantined"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenTool:
    """A tool that is not offered: the kind of reason, the reason, and its origin where it has one."""

    absence: Absence
    reason: str
    origin: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogPart:
    """One server's part of a catalog: its listing, and the tools of it that are not offered."""

    server_id: str
    tools: tuple[ToolEntry, ...]
    rejected: tuple[RejectedTool, ...] = ()
    denied: Mapping[str, HiddenTool] = field(default_factory=dict[str, HiddenTool])
    description: str = ""
    first_party: bool = False


class CatalogTool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An offered tool under its public name, with a sanitized definition."""

    name: str
    """The public name, which models see."""
    entry: ToolEntry
    """What its server lists."""
    first_party: bool
    """Whether it is of Fairlead's own servers or of the program's, which keep their names."""

    @property
    def key(self) -> ToolKey:
        """Its identity."""
        return self.entry.key


class Catalog:
    """Snapshot of the tools of several servers.

    The same parts give the same names in the same order, byte for byte.

    Args:
        offerings: The listings of the servers.
        scheme: How public names are made.
        reserved: Names that no tool may have.
        before: The catalog that this one replaces: its search index is extended rather than built anew.
    """

    def __init__(
        self,
        offerings: Iterable[CatalogPart] = (),
        *,
        scheme: Scheme = "stable",
        reserved: frozenset[str] = frozenset(),
        before: "Catalog | None" = None,
    ) -> None:
        self.scheme: Scheme = scheme
        self.offerings = {offering.server_id: offering for offering in offerings}
        self.hidden: dict[ToolKey, HiddenTool] = {}
        self._hiding: list[ToolEntry] = []
        offered = [
            (offering, entry) for offering in self.offerings.values() for entry in self._sound(offering)
        ]
        first_party = {entry.key for offering, entry in offered if offering.first_party}
        keys = sorted(entry.key for _, entry in offered)
        self.names: NameTable = name_tools(keys, scheme, first_party=first_party, reserved=reserved)
        tools = [
            CatalogTool(name=self.names.names[entry.key], entry=entry, first_party=offering.first_party)
            for offering, entry in offered
        ]
        self.tools = tuple(sorted(tools, key=lambda tool: tool.key))
        """Every offered tool, in the same order on every machine."""
        self._by_name = {tool.name: tool for tool in self.tools}
        self._by_key = {tool.key: tool for tool in self.tools}
        self._before = before

    def __repr__(self) -> str:
        return f"<Catalog: {count(len(self.tools), 'tool')} of {count(len(self.offerings), 'server')}>"

    def __len__(self) -> int:
        return len(self.tools)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> CatalogTool:
        return self._by_name[name]

    def get(self, name: str) -> CatalogTool | None:
        """Tool of that public name, or None."""
        return self._by_name.get(name)

    def of(self, key: ToolKey) -> CatalogTool | None:
        """Tool with that identity, or None."""
        return self._by_key.get(key)

    def find_tool(self, name: str) -> CatalogTool | None:
        """Tool of a public name, or of `server.tool`, literally or as displayed."""
        if (tool := self._by_name.get(name)) is not None:
            return tool
        server_id, _, rest = name.partition(".")  # ids of servers have no dots
        key = ToolKey(server_id, rest)
        return self._by_key.get(key) or self._by_shown_key.get(key)

    def find_hidden_tool(self, name: str) -> ToolKey | None:
        """Hidden tool that a name means: `server.tool`, or the public name it would have.

        The public name is parsed, not rendered: there may be thousands of hidden tools.
        """
        server_id, dot, rest = name.partition(".")
        if dot and (key := ToolKey(server_id, rest)) in self.hidden:
            return key
        begun = name.removeprefix("mcp_")
        for server_id in self.offerings:
            rest = begun.removeprefix(f"{server_id}_")
            if rest != begun:
                for tool in (rest, rest.rpartition("_")[0]):  # a hash may follow it
                    if (key := ToolKey(server_id, tool)) in self.hidden:
                        return key
        return None

    def display_name(self, key: ToolKey) -> str:
        """Display name for a model: `server.tool`, or the public name where that would mean another tool."""
        name = f"{key.server_id}.{key.shown_tool}"
        tool = self._by_key.get(key)
        return name if tool is None or self.find_tool(name) is tool else tool.name

    @cached_property
    def _by_shown_key(self) -> dict[ToolKey, CatalogTool]:
        """Tools whose display name differs from their name, where it is unique."""
        count = Counter(_display_key(key) for key in {*self._by_key, *self.hidden})
        tools = {_display_key(tool.key): tool for tool in self.tools}
        return {key: tool for key, tool in tools.items() if key != tool.key and count[key] == 1}

    def find(
        self,
        queries: str | Sequence[str],
        *,
        server: str | None = None,
        limit: int = 5,
        by_meaning: bool = False,
        past: PastQueries | None = None,
        meaning: SemanticIndex | None = None,
    ) -> tuple[SearchHit, ...]:
        """The tools that match best, best first.

        Args:
            queries: One query, or up to four; `select:` and names picks exactly those tools.
            server: Only tools of this server.
            limit: How many tools at most.
            by_meaning: Also find synonyms, which needs the extra `search`.
            past: Past queries of the same principal, and the tools that they led to.
            meaning: The tools as vectors of another model, made for the index of this catalog.
        """
        index = self.index
        if by_meaning and meaning is None:
            meaning = self.meaning
        memory = CurrentMemory(past, self._is_current) if past is not None and len(past) else None
        return search(index, queries, server=server, limit=limit, meaning=meaning, memory=memory)

    def score_servers(
        self, queries: str | Sequence[str], servers: Iterable[str], *, meaning: SemanticIndex | None = None
    ) -> Mapping[ToolKey, float]:
        """How well the tools of some servers match: to order what is named beside the hits of `find`."""
        return score_servers(self.index, queries, servers, meaning=meaning)

    def _is_current(self, key: ToolKey, digest: str) -> bool:
        tool = self._by_key.get(key)
        return tool is not None and definition_digest(tool.entry.definition) == digest

    @cached_property
    def findings(self) -> dict[ToolKey, tuple[DefinitionFinding, ...]]:
        """Hidden text in the definitions of tools, offered or not. Computed on first use."""
        found = ((entry.key, hidden_text(entry)) for entry in self._hiding)
        return {key: findings for key, findings in found if findings}

    @cached_property
    def index(self) -> Index:
        """Search index, built on first use, from the previous catalog's where there is one."""
        before, self._before = self._before, None
        if before is None or "index" not in before.__dict__:
            return Index.build(document for name in self.offerings for document in self._documents(name))
        index = before.index
        for gone in before.offerings.keys() - self.offerings.keys():
            index = index.replace(gone, ())
        changed = [name for name in self.offerings if before.offerings.get(name) != self.offerings[name]]
        for name in changed:
            index = index.replace(name, self._documents(name))
        if "meaning" in before.__dict__:
            documents = (document for name in changed for document in self._documents(name))
            self.__dict__["meaning"] = before.meaning.renew(index, documents)
        return index

    @cached_property
    def meaning(self) -> "ToolVectors":
        """Tools as vectors, for search by meaning. Needs the extra `search`."""
        from fairlead.catalog.search.vectors import ToolVectors, load_shared_encoder  # an extra, and large

        documents = (document for name in self.offerings for document in self._documents(name))
        return ToolVectors.build(load_shared_encoder(), self.index, documents)

    def texts_for_vectors(self) -> dict[ToolKey, str]:
        """The texts of all tools that a model makes vectors of."""
        return {
            document.key: document_text(document)
            for name in self.offerings
            for document in self._documents(name)
        }

    def _documents(self, server_id: str) -> Iterator[SearchDocument]:
        offering = self.offerings[server_id]
        for listed in offering.tools:
            if (tool := self._by_key.get(listed.key)) is not None:
                yield SearchDocument(
                    key=tool.key,
                    name=tool.key.shown_tool,
                    title=tool.entry.title or "",
                    description=tool.entry.description or "",
                    input_schema=_schema_of(tool.entry),
                    server_description=offering.description,
                )

    def _sound(self, offering: CatalogPart) -> Iterator[ToolEntry]:
        """Offered tools of a server; the reasons for the others go into `hidden`."""
        for tool in offering.rejected:
            key = ToolKey(offering.server_id, tool.name)
            self.hidden[key] = HiddenTool(absence="rejected", reason=tool.reason)
        for entry in offering.tools:
            usable = entry.derive(usable_tool)
            if usable.entry is not entry:
                self._hiding.append(entry)
            if (hidden := offering.denied.get(entry.key.tool)) is not None:
                self.hidden[entry.key] = hidden
            elif usable.rejected is not None:
                self.hidden[entry.key] = HiddenTool(absence="rejected", reason=usable.rejected)
            else:
                yield usable.entry


def _display_key(key: ToolKey) -> ToolKey:
    return ToolKey(key.server_id, key.shown_tool)


class _ToolDefinition(msgspec.Struct, rename="camel"):
    input_schema: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_ToolDefinition).decode


def _schema_of(entry: ToolEntry) -> dict[str, Any]:
    """Schema of a tool, unvalidated: the search only takes words from it."""
    try:
        return _decode(entry.definition).input_schema
    except (msgspec.DecodeError, RecursionError):
        return {}


def usable_tool(entry: ToolEntry) -> CleanTool:
    """A tool as it may be offered; `rejected` is why its definition cannot be used, if so."""
    reason = unsound(entry)
    cleaned = clean_tool(entry)
    reason = reason or cleaned.rejected
    if cleaned.entry is not entry:
        reason = reason or unsound(cleaned.entry)
    return CleanTool(entry=cleaned.entry, rejected=None if reason is None else gate.content(reason))


def unsound(entry: ToolEntry) -> str | None:
    """Why a tool's schema makes it unusable, if it does."""
    return screen_definition(entry.definition).rejected if needs_screening(entry.definition) else None
