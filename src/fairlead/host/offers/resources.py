"""Resources of servers: list, read and watch them, and find the server that owns a URI.

A URI that one server lists belongs to it. If several servers claim a URI, a trusted server comes before
untrusted ones; between equals it is a conflict, and each server's resource has a qualified URI,
`fairlead://server/<id>/<uri>`. A template matches only URIs that no server lists; that of an untrusted server
never matches what could be another server's.
"""

import re
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from pydantic_core import Url

from fairlead.catalog.repair.content import has_scheme, quote_uri
from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import Listing, ResourceOffer, ResourceTemplate
from fairlead.config.argument_types import check_types
from fairlead.config.untyped import is_object
from fairlead.events import Event, ResourceUpdated
from fairlead.host.offers.contents import CombinedList, Completion, ResourceContents
from fairlead.host.offers.offer_requests import OfferRequests
from fairlead.host.offers.uri_templates import TemplateValue, UriTemplate, read_template


class Resources:
    """The resources of all servers: `host.resources`."""

    def __init__(self, requests: OfferRequests) -> None:
        self._requests = requests

    @check_types
    async def list(self, server_id: str | None = None) -> CombinedList[ResourceOffer]:
        """The resources of one server, or of all. Servers that were never listed are connected.

        Args:
            server_id: The server; all enabled servers if not given.

        Returns:
            The resources, and the servers that could not be listed.
        """
        return await self._requests.gather(ResourceOffer, server_id)

    @check_types
    async def templates(self, server_id: str | None = None) -> CombinedList[ResourceTemplate]:
        """The resource templates of one server, or of all. `expand` makes a URI of one.

        Args:
            server_id: The server; all enabled servers if not given.

        Returns:
            The templates, and the servers that could not be listed.
        """
        return await self._requests.gather(ResourceTemplate, server_id)

    @check_types
    async def read(self, server_id: str, uri: str) -> ResourceContents:
        """Read a resource.

        Args:
            server_id: The server.
            uri: The resource's own URI at the server.

        Raises:
            CallFailed: No contents came.
        """
        contents = await self._requests.fetch(ResourceContents, server_id, "resources/read", {"uri": uri})
        contents.uri = uri
        await contents.prepare()
        return contents

    @staticmethod
    def expand(template: str, values: Mapping[str, TemplateValue]) -> str:
        """Expand a URI template (RFC 6570).

        Args:
            template: The template.
            values: The values of its variables.

        Raises:
            ValueError: It is not a valid template.
        """
        return read_template(template).expand(values)

    @check_types
    async def complete(
        self,
        server_id: str,
        template: str,
        argument: str,
        value: str = "",
        *,
        others: Mapping[str, str] | None = None,
    ) -> Completion:
        """Complete a variable of a resource template.

        Args:
            server_id: The server.
            template: The template.
            argument: The variable to complete.
            value: What was typed so far.
            others: The variables that have values already.

        Raises:
            CallFailed: No completion came, or it cannot be read.
        """
        reference = {"type": "ref/resource", "uri": template}
        return await self._requests.complete(server_id, reference, argument, value, others)

    @check_types
    @asynccontextmanager
    async def watch(self, server_id: str, *uris: str) -> AsyncGenerator[AsyncIterator[str]]:
        """Watch resources: `async with host.resources.watch("files", uri) as changed: async for uri in …`.

        The subscription outlives a lost connection; changes during the outage are not reported.

        Args:
            server_id: The server.
            uris: The resources to watch.

        Raises:
            CallFailed: The server refused the subscription.
        """
        async with self._requests.watch(server_id, uris) as events:
            yield _Changes(events, server_id, uris)


class _Changes:
    """The URIs of resources as they change. A cancelled wait can be repeated."""

    def __init__(self, events: AsyncIterator[Event], server_id: str, uris: tuple[str, ...]) -> None:
        self._events = events
        self._server_id = server_id
        self._uris = uris

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        while True:
            event = await anext(self._events)
            if isinstance(event, ResourceUpdated) and self._is_wanted(event):
                return event.uri

    def _is_wanted(self, event: ResourceUpdated) -> bool:
        return event.server_id == self._server_id and any(_is_within(event.uri, uri) for uri in self._uris)


def _is_within(uri: str, watched: str) -> bool:
    """Whether a URI is the watched one or below it: servers may report either."""
    return uri == watched or (uri.startswith(watched) and (watched[-1:] == "/" or uri[len(watched)] in "/?#"))


PREFIX: Final = "fairlead://server/"
MAX_TEMPLATES: Final = 100
"""How many templates of one server match plain URIs. The others have qualified URIs only."""
MAX_COMPARED: Final = 32
"""How many URIs of other servers a template is compared with; one that could match more counts as a match."""

Definition = dict[str, Any]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedUri:
    """The server that owns a URI, and the resource's own URI there."""

    server_id: str
    uri: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UriConflict:
    """A URI that several servers claim, so that none owns it."""

    uri: str
    servers: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(f"`{name}`" for name in self.servers)
        return f"several servers have a resource `{self.uri}`: {names}"

    @property
    def hint(self) -> str:
        """The qualified URIs to use instead."""
        return "say which one: " + " or ".join(f"`{qualify(name, self.uri)}`" for name in self.servers)


def qualify(server_id: str, uri: str) -> str:
    """The qualified URI, or URI template, of a server's resource."""
    return f"{PREFIX}{server_id}/{uri}"


def _is_public(uri: str) -> bool:
    """Whether every client accepts it as a URI: it has a scheme, no space or the like, and a valid host."""
    if not has_scheme(uri) or quote_uri(uri) != uri:
        return False
    try:
        Url(uri)  # as the Python SDK 1 reads it: `memo://user:today` has a port that is no number
    except ValueError:
        return False
    return True


def split_qualified(uri: str) -> OwnedUri | None:
    """The owner that a qualified URI names; None for a plain one."""
    if not _is_reserved(uri):
        return None
    server_id, _, rest = uri[len(PREFIX) :].partition("/")
    return OwnedUri(server_id=server_id, uri=rest)


def _is_reserved(uri: str) -> bool:
    return uri[: len(PREFIX)].lower() == PREFIX


@dataclass(frozen=True, kw_only=True, slots=True)
class _PlainTemplate:
    """A template that matches plain URIs."""

    server_id: str
    beginning: str
    """Its text before the first expression."""
    template: UriTemplate

    def claims(self, uri: str) -> bool:
        """Whether a URI could come from it. If values cannot be read from a URI, its beginning decides."""
        if not uri.startswith(self.beginning):
            return False
        return self.template.match(uri) is not None if self.template.is_matchable else bool(self.beginning)


class ResourceOwners:
    """The resources and templates of several servers, and the owner of each URI.

    Args:
        listings: The listing of each server.
        trusted: The servers that are trusted.
    """

    def __init__(self, listings: Mapping[str, Listing], trusted: Iterable[str]) -> None:
        self._listings = listings
        self._trusted = frozenset(trusted)

    @cached_property
    def resources(self) -> list[tuple[OwnedUri, Definition]]:
        """Every resource of every server, defined under its public URI."""
        return [
            (OwnedUri(server_id=server_id, uri=uri), {**definition, "uri": self.public_uri(server_id, uri)})
            for server_id, by_uri in self._listed.items()
            for uri, definition in by_uri.items()
        ]

    @cached_property
    def templates(self) -> list[tuple[OwnedUri, Definition]]:
        """Every template of every server, defined under its public form."""
        plain = {(owned.server_id, owned.uri) for owned in self._plain_templates.values()}
        return [
            (
                OwnedUri(server_id=server_id, uri=text),
                {
                    **definition,
                    "uriTemplate": text if (server_id, text) in plain else qualify(server_id, text),
                },
            )
            for server_id, by_text in self._templates.items()
            for text, definition in by_text.items()
        ]

    @cached_property
    def clashes(self) -> tuple[UriConflict, ...]:
        """The URIs and templates that several servers list, so that none owns the plain one."""
        uris = {uri: None for by_uri in self._listed.values() for uri in by_uri}
        found = [clash for uri in uris if isinstance(clash := self._find_owner(uri), UriConflict)]
        texts = {text: self._with_template(text) for by_text in self._templates.values() for text in by_text}
        found += [
            UriConflict(uri=text, servers=servers)
            for text, servers in texts.items()
            if len(servers) > 1 and text not in self._plain_templates
        ]
        return tuple(found)

    def resolve(self, uri: str) -> OwnedUri | UriConflict | None:
        """The owner of a URI; a conflict if several servers claim it, None if no server does."""
        qualified = split_qualified(uri)
        if qualified is None:
            return self._find_owner(uri)
        listed = self._listed.get(qualified.server_id)
        if listed is None:
            return None
        # What the server itself calls it may have characters that no URI has; `public_uri` encodes those.
        if qualified.uri not in listed and (plain := unquote(qualified.uri)) in listed:
            return OwnedUri(server_id=qualified.server_id, uri=plain)
        return qualified

    def resolve_template(self, text: str) -> OwnedUri | UriConflict | None:
        """The owner of a template, or of a URI that was made from one."""
        return self._plain_templates.get(text) or self.resolve(text)

    def public_uri(self, server_id: str, uri: str) -> str:
        """The URI of a server's resource for clients: the plain one if the server owns it, else qualified."""
        owner = None if _is_reserved(uri) else self._find_owner(uri)
        is_plain = isinstance(owner, OwnedUri) and owner.server_id == server_id and _is_public(uri)
        return uri if is_plain else qualify(server_id, quote_uri(uri))

    # Claims.

    def _find_owner(self, uri: str) -> OwnedUri | UriConflict | None:
        for candidates in self._claims(uri):
            if len(candidates) == 1:
                return OwnedUri(server_id=candidates[0], uri=uri)
            if candidates:
                return UriConflict(uri=uri, servers=tuple(candidates))
        return None

    def _claims(self, uri: str) -> Iterator[list[str]]:
        """The servers that claim a URI, the strongest claim first.

        Templates are compared only where no stronger claim decides: a server chooses how many it has, and
        comparing them with every listed URI would take minutes.
        """
        listing = self._by_canonical.get(_canonical(uri), [])
        yield [name for name in listing if name in self._trusted]
        yield self._find_matching(uri, trusted=True)
        yield listing
        yield self._find_matching(uri, trusted=False)

    def _find_matching(self, uri: str, *, trusted: bool) -> list[str]:
        patterns = [each for each in self._patterns if (each.server_id in self._trusted) == trusted]
        return [*dict.fromkeys(each.server_id for each in patterns if each.claims(uri))]

    @cached_property
    def _listed(self) -> dict[str, dict[str, Definition]]:
        return {name: _by(listing.resources, "uri") for name, listing in self._listings.items()}

    @cached_property
    def _templates(self) -> dict[str, dict[str, Definition]]:
        return {name: _by(listing.templates, "uriTemplate") for name, listing in self._listings.items()}

    @cached_property
    def _by_canonical(self) -> dict[str, list[str]]:
        """The servers that list a URI, however they spell it."""
        found: dict[str, list[str]] = {}
        for server_id, by_uri in self._listed.items():
            for canonical in {_canonical(uri) for uri in by_uri}:
                found.setdefault(canonical, []).append(server_id)
        return found

    # Templates.

    def _with_template(self, text: str) -> tuple[str, ...]:
        return tuple(name for name, by_text in self._templates.items() if text in by_text)

    @cached_property
    def _plain_templates(self) -> dict[str, OwnedUri]:
        """The templates that clients see unqualified, with their owners."""
        plain: dict[str, OwnedUri] = {}
        for each in self._patterns:
            text = each.template.text
            servers = self._with_template(text)
            owners = [name for name in servers if name in self._trusted] or [*servers]
            if owners == [each.server_id]:
                plain[text] = OwnedUri(server_id=each.server_id, uri=text)
        return plain

    @cached_property
    def _patterns(self) -> list[_PlainTemplate]:
        """The templates that match plain URIs."""
        patterns: list[_PlainTemplate] = []
        for server_id, by_text in self._templates.items():
            for text in [*by_text][:MAX_TEMPLATES]:
                try:
                    template = read_template(text)
                except ValueError:
                    continue  # it cannot be filled in, either
                each = _PlainTemplate(
                    server_id=server_id, beginning=text.partition("{")[0], template=template
                )
                if not _is_reserved(each.beginning) and (
                    server_id in self._trusted or not self._could_be_others(each)
                ):
                    patterns.append(each)
        return patterns

    def _could_be_others(self, each: _PlainTemplate) -> bool:
        """Whether a template could match resources of other servers: URIs they list, or any scheme."""
        if len(self._listings) == 1:
            return False
        beginning = each.beginning
        if _SCHEME.match(beginning) is None:
            return True
        uris = self._uris_beside(each.server_id)
        first = bisect_left(uris, beginning)
        compared = uris[first : first + MAX_COMPARED]
        begun = [uri for uri in compared if uri.startswith(beginning)]
        return len(begun) == MAX_COMPARED or any(map(each.claims, begun))

    def _uris_beside(self, server_id: str) -> list[str]:
        """The URIs that all other servers list, sorted."""
        if server_id not in self._sorted:
            found = {uri for name, by_uri in self._listed.items() if name != server_id for uri in by_uri}
            self._sorted[server_id] = sorted(found)
        return self._sorted[server_id]

    @cached_property
    def _sorted(self) -> dict[str, list[str]]:
        return {}


def read_definitions(definitions: Iterable[bytes]) -> Iterator[Definition]:
    """Sanitized definitions. Those that cannot be parsed are left out."""
    for raw in definitions:
        try:
            read: object = gate.value(msgspec.json.decode(raw))
        except (ValueError, RecursionError):
            continue
        if is_object(read):
            yield read


def _by(definitions: Iterable[bytes], identity: str) -> dict[str, Definition]:
    found: dict[str, Definition] = {}
    for definition in read_definitions(definitions):
        if isinstance(name := definition.get(identity), str):
            found.setdefault(name, definition)
    return found


def _canonical(uri: str) -> str:
    """A URI in normal form: equal for equivalent spellings (RFC 3986, 6.2.2)."""
    scheme = _SCHEME.match(uri)
    if scheme is not None:
        uri = scheme[0].lower() + uri[scheme.end() :]
    return _TRIPLET.sub(_plainer, uri) if "%" in uri else uri


def _plainer(triplet: re.Match[str]) -> str:
    letter = unquote(triplet[0], errors="replace")
    return letter if letter in _UNRESERVED else triplet[0].upper()
