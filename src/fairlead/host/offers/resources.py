"""The resources of a host's servers: listed together, read one by one, watched for changes.

Which server a resource belongs to, over all servers of a selection: by owner, never by order.

A URI that one server lists belongs to it. Where several servers claim a URI, a trusted one comes before those
that are not trusted, and between equals none has it: such a URI is a clash, and each server's resource is
reached under a qualified URI, `fairlead://server/<id>/<uri>`, which names its owner and always leads there. A
template speaks only for URIs that no server lists, and that of an untrusted server never for what could be
another server's.
"""

import re
from bisect import bisect_left
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from fairlead.catalog.repair.content import has_scheme, quote_uri
from fairlead.catalog.sanitize import gate
from fairlead.catalog.tools import Listing, ResourceOffer, ResourceTemplate
from fairlead.config.argument_types import check_types
from fairlead.config.untyped import is_object
from fairlead.events import Event, ResourceUpdated
from fairlead.host.offers.contents import CombinedList, Completion, ResourceContents
from fairlead.host.offers.listing import gather
from fairlead.host.offers.prompts import complete
from fairlead.host.offers.uri_templates import UriTemplate, Value, read_template

if TYPE_CHECKING:
    from fairlead.host.host import Host


class Resources:
    """The resources of all servers: `host.resources`."""

    def __init__(self, host: "Host") -> None:
        self._host = host

    @check_types
    async def list(self, server_id: str | None = None) -> CombinedList[ResourceOffer]:
        """What one server has to read, or all: what is known at once, and who was never asked is asked."""
        return await gather(self._host, ResourceOffer, server_id)

    @check_types
    async def templates(self, server_id: str | None = None) -> CombinedList[ResourceTemplate]:
        """URIs with blanks to fill in; `expand` does."""
        return await gather(self._host, ResourceTemplate, server_id)

    @check_types
    async def read(self, server_id: str, uri: str) -> ResourceContents:
        """Read a resource."""
        connection = await self._host.reach(server_id)
        raw = await connection.request("resources/read", {"uri": uri}, safe_to_repeat=True)
        contents = await ResourceContents.read(server_id, raw, untrusted=self._host.is_untrusted(server_id))
        contents.uri = uri
        await contents.prepare()
        return contents

    @staticmethod
    def expand(template: str, values: Mapping[str, Value]) -> str:
        """The URI that a template becomes with these values. Raises `ValueError` for what is no template."""
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
        """What a blank of a template could be; `others` are the blanks that are filled in already."""
        reference = {"type": "ref/resource", "uri": template}
        return await complete(self._host, server_id, reference, argument, value, others)

    @check_types
    @asynccontextmanager
    async def watch(self, server_id: str, *uris: str) -> AsyncGenerator[AsyncIterator[str]]:
        """Be told of changes: `async with host.resources.watch("files", uri) as changed: async for uri in …`.

        The wish outlives a connection that is lost; what changed meanwhile is for you to look at.
        """
        connection = await self._host.reach(server_id)
        async with self._host.events() as events, connection.watching(uris):
            yield _Changes(events, server_id, uris)


class _Changes:
    """The URIs of resources as they change. One who stops waiting may wait again."""

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
    """Is this what is watched, or a part of it? Servers may tell of either."""
    return uri == watched or (uri.startswith(watched) and (watched[-1:] == "/" or uri[len(watched)] in "/?#"))


PREFIX: Final = "fairlead://server/"
MAX_TEMPLATES: Final = 100
"""Templates of one server that speak for plain URIs. The others have qualified URIs only."""
MAX_COMPARED: Final = 32
"""URIs of other servers that a template is compared with; one that could match more is taken to."""

Definition = dict[str, Any]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TRIPLET = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnedUri:
    """The server that a URI leads to, and what that server calls it."""

    server_id: str
    uri: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UriConflict:
    """A URI that several servers claim and none has."""

    uri: str
    servers: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(f"`{name}`" for name in self.servers)
        return f"several servers have a resource `{self.uri}`: {names}"

    @property
    def hint(self) -> str:
        """How each of them is reached."""
        return "say which one: " + " or ".join(f"`{qualify(name, self.uri)}`" for name in self.servers)


def qualify(server_id: str, uri: str) -> str:
    """The URI, or URI template, that leads to this server and no other."""
    return f"{PREFIX}{server_id}/{uri}"


def _is_public(uri: str) -> bool:
    """Would every client take it for a URI? It has a scheme, and no space or the like."""
    return has_scheme(uri) and quote_uri(uri) == uri


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
    """A template that speaks for plain URIs."""

    server_id: str
    beginning: str
    """Its text before the first blank."""
    template: UriTemplate

    def claims(self, uri: str) -> bool:
        """Could this URI be one of its? Where values cannot be told from a URI, its beginning decides."""
        if not uri.startswith(self.beginning):
            return False
        return self.template.match(uri) is not None if self.template.is_matchable else bool(self.beginning)


class ResourceOwners:
    """The resources and templates of several servers, and who owns which URI.

    Args:
        listings: What each server offers.
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
        """URIs and templates that several servers list, none of which has the plain one for that."""
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
        """Whom a URI leads to; a clash where several servers claim it, and None where no server does."""
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
        """Whom a template leads to, or a URI that was made of one."""
        return self._plain_templates.get(text) or self.resolve(text)

    def public_uri(self, server_id: str, uri: str) -> str:
        """The URI under which a resource of this server is reached: the plain one if that leads to it."""
        owner = None if _is_reserved(uri) else self._find_owner(uri)
        is_plain = isinstance(owner, OwnedUri) and owner.server_id == server_id and _is_public(uri)
        return uri if is_plain else qualify(server_id, quote_uri(uri))

    # Claims.

    def _find_owner(self, uri: str) -> OwnedUri | UriConflict | None:
        listing = self._by_canonical.get(_canonical(uri), ())
        templates = self._matching(uri)
        for candidates in (
            [name for name in listing if name in self._trusted],
            [name for name in templates if name in self._trusted],
            listing,
            templates,
        ):
            if len(candidates) == 1:
                return OwnedUri(server_id=candidates[0], uri=uri)
            if candidates:
                return UriConflict(uri=uri, servers=tuple(candidates))
        return None

    def _matching(self, uri: str) -> list[str]:
        return [*dict.fromkeys(each.server_id for each in self._patterns if each.claims(uri))]

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
        """The templates that clients see as they are, with their owners."""
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
        """The templates that speak for plain URIs."""
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
        """Does a template match what other servers list, or any scheme? It may match what they have, too."""
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
        """What all other servers list, in order."""
        if server_id not in self._sorted:
            found = {uri for name, by_uri in self._listed.items() if name != server_id for uri in by_uri}
            self._sorted[server_id] = sorted(found)
        return self._sorted[server_id]

    @cached_property
    def _sorted(self) -> dict[str, list[str]]:
        return {}


def read_definitions(definitions: Iterable[bytes]) -> Iterator[Definition]:
    """Definitions with nothing hidden in them. What cannot be read is left out."""
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
    """The same text for URIs that differ in nothing but how they are written (RFC 3986, 6.2.2)."""
    scheme = _SCHEME.match(uri)
    if scheme is not None:
        uri = scheme[0].lower() + uri[scheme.end() :]
    return _TRIPLET.sub(_plainer, uri) if "%" in uri else uri


def _plainer(triplet: re.Match[str]) -> str:
    letter = unquote(triplet[0], errors="replace")
    return letter if letter in _UNRESERVED else triplet[0].upper()
