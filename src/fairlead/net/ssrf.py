"""SSRF checks: which addresses may be connected to, and which redirects may be followed.

Allowed are public addresses, and loopback where the caller chose so. A redirect is followed only within its
origin and with the same method.
"""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

from yarl import URL

Address: TypeAlias = IPv4Address | IPv6Address

Vet: TypeAlias = Callable[[str, Address], str | None]
"""Check of an address for a host: returns why it may not be connected to, or None. The host is a name, or the
address itself where the URL holds one."""

# Python's own `is_global` is true of several of these, and of others in some versions only, so this list is
# the whole truth. The first match counts; the last three networks are all of IPv6 outside `2000::/3`.
_NOT_PUBLIC = tuple(
    (ip_network(network), kind)
    for kind, networks in (
        ("a loopback address", ("127.0.0.0/8", "::1/128")),
        ("a private address", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")),
        ("a link-local address", ("169.254.0.0/16", "fe80::/10")),
        ("an address inside a carrier's network", ("100.64.0.0/10",)),
        ("an address of a cloud's own services", ("168.63.129.16/32",)),
        ("a multicast address", ("224.0.0.0/4", "ff00::/8")),
        ("an IPv4 address in disguise", ("::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16")),
        ("an address of a tunnel or relay", ("192.88.99.0/24", "2001::/32")),
        ("an address for examples", ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")),
        ("an address for examples", ("2001:db8::/32", "3fff::/20")),
        ("a reserved address", ("0.0.0.0/8", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "2001::/23")),
        ("a reserved address", ("::/3", "4000::/2", "8000::/1")),
    )
    for network in networks
)


def why_not_public(address: Address) -> str | None:
    """Kind of an address that is not on the public internet; None for a public one."""
    return next((kind for network, kind in _NOT_PUBLIC if address in network), None)


def literal_address(host: str) -> Address | None:
    """Address that a host is written as, or None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_loopback_host(host: str) -> bool:
    """Whether a host means this machine by its name: no look-up can make it so."""
    address = literal_address(host)
    if address is not None:
        return address.is_loopback
    # Names of this machine (RFC 6761). Where one resolves elsewhere, the check of its address refuses it.
    return host == "localhost" or host.endswith(".localhost")


def public_only(host: str, address: Address) -> str | None:
    """Check for traffic to the internet: public addresses only."""
    return why_not_public(address)


def public_or_loopback(host: str, address: Address) -> str | None:
    """Check that also allows this machine: `localhost` must be loopback, and nothing else may be."""
    if is_loopback_host(host):
        return None if address.is_loopback else "not this machine, as its name says"
    return why_not_public(address)


MAX_REDIRECTS = 3

_KEEPING_METHOD = (307, 308)
_CHANGING_METHOD = (301, 302, 303)


def is_redirect(status: int) -> bool:
    """Whether a status is a redirect."""
    return status in _KEEPING_METHOD or status in _CHANGING_METHOD


def within_origin(url: URL, reference: str) -> URL | None:
    """Resolve `reference`, found at `url`; None if that is another origin or invalid."""
    try:
        target = url.join(URL(reference))
    except ValueError:
        return None
    # The port counts: another service on the same host may be of another owner.
    same_origin = (target.scheme, target.host, target.port) == (url.scheme, url.host, url.port)
    return target if same_origin and target.user is None else None


def redirect_target(url: URL, method: str, status: int, location: str) -> URL | None:
    """Target of a redirect, or None if it must not be followed.

    What a request carries (credentials, arguments, a session) was meant for one origin and goes to no other;
    and a POST that became a GET would be another request.

    Args:
        url: The URL that redirects.
        method: The method of the request.
        status: The status of the response.
        location: Its header `Location`.
    """
    if status not in _KEEPING_METHOD and method != "GET":
        return None
    return within_origin(url, location)
