"""What clients are told there is, over all servers: tools as prebuilt bytes, the rest by a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from fairlead.catalog.catalog import Catalog
from fairlead.catalog.entries import Listing, ToolEntry, ToolKey
from fairlead.catalog.naming import NameTable, Scheme, name_tools
from fairlead.catalog.sanitise import clean_bytes
from fairlead.config.shapes import is_object
from fairlead.host.uri_templates import UriTemplate, read_template

if TYPE_CHECKING:
    from fairlead.host.toolset import Toolset

MAX_INSTRUCTIONS: Final = 20_000
"""Characters of instructions, of all servers together."""

Definition = dict[str, Any]


class ToolList:
    """The tools of one selection as they go over the wire, made anew only when the catalog is another."""

    def __init__(self) -> None:
        self._catalog: Catalog | None = None
        self._tools = b"[]"

    async def tools(self, toolset: "Toolset") -> bytes:
        """The tools that a client is given now: a JSON array."""
        catalog = toolset.catalog
        if catalog is not self._catalog:
            offered = await toolset.offered()
            catalog = toolset.catalog  # which it may have waited for
            self._tools = b"[" + b",".join(_renamed(name, entry) for name, entry in offered) + b"]"
            self._catalog = catalog
        return self._tools


def _renamed(name: str, entry: ToolEntry) -> bytes:
    fields = msgspec.json.decode(entry.definition, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**fields, "name": msgspec.Raw(msgspec.json.encode(name))})


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """Where something is: which server has it, and what that server calls it."""

    server_id: str
    name: str


class Offered:
    """What servers offer besides tools, as they listed it, in the order they are configured."""

    def __init__(self, listings: Mapping[str, Listing], scheme: Scheme) -> None:
        self.listings = listings
        self._scheme: Scheme = scheme

    def is_of(self, listings: Mapping[str, Listing]) -> bool:
        """Was it made of these very listings?"""
        return self.listings.keys() == listings.keys() and all(
            self.listings[name] is listing for name, listing in listings.items()
        )

    def is_like(self, other: "Offered", kind: Literal["resources", "prompts"]) -> bool:
        """Would a client be told the same?"""
        if kind == "prompts":
            return self.prompts == other.prompts
        return (self.resources, self.templates) == (other.resources, other.templates)

    # Resources: a URI means the first server that lists it, or has a template for it.

    @cached_property
    def resources(self) -> dict[str, tuple[str, Definition]]:
        """Each resource by its URI, with the server that has it."""
        return self._first_of("resources", "uri")

    @cached_property
    def templates(self) -> dict[str, tuple[str, Definition]]:
        """Each template, with the server that has it."""
        return self._first_of("templates", "uriTemplate")

    @cached_property
    def _patterns(self) -> list[tuple[str, UriTemplate]]:
        patterns: list[tuple[str, UriTemplate]] = []
        for text, (server_id, _) in self.templates.items():
            try:
                patterns.append((server_id, read_template(text)))
            except ValueError:
                continue  # nobody can fill it in, either
        return patterns

    def server_of(self, uri: str) -> str | None:
        """The server that has a resource."""
        found = self.resources.get(uri)
        if found is not None:
            return found[0]
        return next(
            (server_id for server_id, pattern in self._patterns if pattern.match(uri) is not None), None
        )

    # Prompts are named as tools are.

    @cached_property
    def _prompts(self) -> dict[ToolKey, Definition]:
        return {
            ToolKey(server_id, name): definition
            for server_id, listing in self.listings.items()
            for definition in _read(listing.prompts)
            if isinstance(name := definition.get("name"), str)
        }

    @cached_property
    def _names(self) -> NameTable:
        return name_tools(self._prompts, self._scheme)

    @property
    def prompts(self) -> list[Definition]:
        """The prompts, under the names they have here."""
        return [{**definition, "name": self._names.names[key]} for key, definition in self._prompts.items()]

    def prompt(self, name: str) -> Route | None:
        """Where a prompt is."""
        key = self._names.keys.get(name)
        return Route(server_id=key.server_id, name=key.tool) if key is not None else None

    def instructions(self) -> str | None:
        """What servers want a model to know, each under its name."""
        said = [
            f"# {server_id}\n\n{listing.instructions.strip()}"
            for server_id, listing in self.listings.items()
            if listing.instructions and listing.instructions.strip()
        ]
        return "\n\n".join(said)[:MAX_INSTRUCTIONS] or None

    def _first_of(self, kind: str, identity: str) -> dict[str, tuple[str, Definition]]:
        found: dict[str, tuple[str, Definition]] = {}
        for server_id, listing in self.listings.items():
            definitions: tuple[bytes, ...] = getattr(listing, kind)
            for definition in _read(definitions):
                if isinstance(name := definition.get(identity), str):
                    found.setdefault(name, (server_id, definition))
        return found


def _read(definitions: tuple[bytes, ...]) -> Iterator[Definition]:
    """Definitions with nothing hidden in them. What cannot be read is left out."""
    for raw in definitions:
        try:
            read: object = msgspec.json.decode(clean_bytes(raw) or raw)
        except (ValueError, RecursionError):
            continue
        if is_object(read):
            yield read
