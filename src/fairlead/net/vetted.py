"""An HTTP client that dials only vetted addresses, for URLs that came from somebody else."""

import socket
from typing import Any, TypeAlias

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from fairlead.net.addresses import Vet, literal_address, public_only

CONNECT_SECONDS = 10.0

_AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]


class AddressRefused(OSError):
    """A host has no address that may be dialled. None was."""


class VettingResolver(AbstractResolver):
    """Looks a name up once and hands on only the addresses that passed: those are the ones dialled."""

    def __init__(self, vet: Vet, resolver: AbstractResolver) -> None:
        self._vet = vet
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses that may be dialled. `AddressRefused` says what is wrong if there are none."""
        found = await self._resolver.resolve(host, port, family)
        faults = [_fault(self._vet, host, result["host"]) for result in found]
        vetted = [result for result, fault in zip(found, faults, strict=True) if fault is None]
        if not vetted:
            raise AddressRefused(faults[0] if faults else f"{host} has no address")
        return vetted

    async def close(self) -> None:
        """Close what does the looking up."""
        await self._resolver.close()


def open_vetted_client(
    vet: Vet = public_only, *, resolver: AbstractResolver | None = None, user_agent: str = "fairlead"
) -> aiohttp.ClientSession:
    """Return a client for strangers' URLs: vetted addresses, no proxy, no `.netrc`, no cookies, no memory.

    Whoever opens it closes it. Only connecting is bounded in time. A host whose addresses are refused fails
    with a `ClientConnectorError` whose `os_error` is an `AddressRefused`.
    """

    def open_socket(info: _AddressInfo) -> socket.socket:
        # An address that stands in the URL itself never gets to see a resolver.
        family, kind, protocol, _, place = info
        host = str(place[0])
        fault = _fault(vet, host, host)
        if fault is not None:
            raise AddressRefused(fault)
        return socket.socket(family, kind, protocol)

    connector = aiohttp.TCPConnector(
        resolver=VettingResolver(vet, resolver or ThreadedResolver()),
        socket_factory=open_socket,
        use_dns_cache=False,
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers={"User-Agent": user_agent},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        trust_env=False,
    )


def _fault(vet: Vet, host: str, written: str) -> str | None:
    address = literal_address(written)
    if address is None:
        return f"{host} has no address"
    fault = vet(host, address)
    if fault is None:
        return None
    return f"{host} is {fault}" if host == written else f"{host} is at {address}, {fault}"
