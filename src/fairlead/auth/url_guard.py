"""Checks of untrusted URLs: which are used for OAuth, and which addresses may be connected to for them.

The URLs come from MCP servers and may be malicious: a URL that a shell would run, an unencrypted endpoint, an
address inside the user's own network (SSRF).
"""

import re
from collections.abc import Collection

from yarl import URL

from fairlead.catalog.sanitize import gate
from fairlead.net.ssrf import (
    Address,
    Vet,
    is_loopback_host,
    literal_address,
    public_only,
    public_or_loopback,
    why_not_public,
)

MAX_URL = 2048

# What RFC 3986 has no place for, and of the rest what shells read as more than text. `&` stays: it separates.
_UNWANTED = re.compile(r"[^!-~]|[\"<>\\^`{|}$'();]")
_INSIDE = ("a private address", "an address inside a carrier's network")


def escape_text(text: object, limit: int = 200) -> str:
    """Escape untrusted text for a message: bounded, with control and invisible characters spelled out."""
    visible = "".join(
        character if character.isprintable() else ascii(character)[1:-1]
        for character in str(text)[: gate.head_length(limit) + 1]
    )
    return gate.content(visible, limit + len("…".encode()))  # masked, and then cut


def without_query(url: URL) -> str:
    """Return a URL without its query, which may hold secrets."""
    return escape_text(url.with_query(None))


def read_url(text: str) -> URL | None:
    """Return a web URL with its path and query as they are written, or None if it is none.

    Scheme and host are in lower case and a port says something new, so that origins can be compared. A user
    name is left out: nothing here is sent to one.
    """
    try:
        written, usual = URL(text, encoded=True), URL(text)
        if usual.scheme not in ("http", "https") or not usual.raw_host or not usual.port:
            return None
        return URL.build(
            scheme=usual.scheme,
            authority=usual.host_port_subcomponent or "",
            path=written.raw_path,
            query_string=written.raw_query_string,
            encoded=True,
        )
    except ValueError:
        return None


def url_fault(text: str, own: URL | None = None) -> str | None:
    """Say what is wrong with a URL that a server named, or None.

    `own` is an origin that the user configured, which may for that reason be contacted over plain HTTP.
    """
    if len(text) > MAX_URL:
        return "it is too long"
    if _UNWANTED.search(text):
        return "it contains characters that have no place in a URL"
    url = read_url(text)
    if url is None or url.host is None:
        return "it is no http or https URL"
    # `https://issuer.example@attacker.example` reads like the one and leads to the other.
    if "@" in text.partition("//")[2].partition("/")[0].partition("?")[0]:
        return "it contains a user name"
    if "#" in text:
        return "it contains a fragment"
    if url.scheme == "http" and not is_loopback_host(url.host) and (own is None or url.origin() != own):
        return "it is not https"
    return None


def vet_for(host: str, addresses: Collection[Address], chosen: Collection[str] = ()) -> Vet:
    """Return the address check for connections made on behalf of an MCP server at `host`.

    A server on this machine may lead to this machine and the internet, one inside a private network to that
    network and the internet, any other to the internet alone. `chosen` are hosts the user wrote down.
    """
    is_inside = bool(addresses) and all(map(_is_inside, addresses))
    own = frozenset(addresses) if is_inside else frozenset[Address]()
    rule = _inside_or_public if is_inside else public_only
    if is_loopback_host(host):
        rule = public_or_loopback
    granted: set[Address] = set()

    def vet(name: str, address: Address) -> str | None:
        if name in chosen or (name == host and address in own):
            granted.add(address)
            return None
        # Once a name has been resolved, only its address is checked again before the connection is opened.
        if address in granted and literal_address(name) == address:
            return None
        return rule(name, address)

    return vet


def _inside_or_public(name: str, address: Address) -> str | None:
    fault = why_not_public(address)
    return None if fault in _INSIDE else fault


def _is_inside(address: Address) -> bool:
    return address.is_loopback or why_not_public(address) in _INSIDE


def literal_fault(vet: Vet, url: URL) -> str | None:
    """Vet an address that stands in the URL itself, before anything is resolved or connected."""
    address = literal_address(url.host or "")
    fault = vet(url.host or "", address) if address is not None else None
    return f"{url.host} is {fault}" if fault else None
