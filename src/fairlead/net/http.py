"""HTTP clients that all connections share, with one TLS context and the proxies of the environment.

`open_vetted_client` connects only to allowed addresses, for URLs that come from untrusted sources (SSRF).
"""

import asyncio
import functools
import ipaddress
import os
import re
import socket
import ssl
import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import aiohttp
import truststore
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from fairlead.errors import ConfigUnreadable
from fairlead.net.http_log import request_traces
from fairlead.net.ssrf import Vet, literal_address, public_only

CONNECT_SECONDS = 15.0

# Servers commonly close a connection that was idle for 5 seconds. If they do while a request is on its way,
# it is unknown whether the request was carried out; so idle ones are closed here a little earlier.
_IDLE_SECONDS = 4.0

_MAX_INTERIM = 16
# More interim responses (1xx) than that in a row, as they arrive in one read.
_FLOOD = re.compile(rb"(?:HTTP/1\.[01] 1\d\d[^\n]{0,200}\n(?:[^\n]{2,200}\n){0,20}\r?\n){17}")


class _ResponseReader(ResponseHandler):
    """aiohttp's reader of responses, which closes a connection that is flooded with interim responses.

    aiohttp reads and discards all of them in one step of the event loop.
    """

    def data_received(self, data: bytes) -> None:
        payload = self._payload
        is_flood = (payload is None or payload.is_eof()) and _FLOOD.search(data, 0, 4096) is not None
        if not is_flood:
            super().data_received(data)
            # Responses that are not taken yet; without pipelining there is one final response at most.
            is_flood = len(self._buffer) > _MAX_INTERIM
        if is_flood:
            self._buffer.clear()
            self.set_exception(aiohttp.ServerDisconnectedError("too many interim responses (1xx)"))
            if self.transport is not None:
                self.transport.abort()


def _guard(connector: aiohttp.TCPConnector) -> aiohttp.TCPConnector:
    """Have a connector read responses with `_ResponseReader`."""
    reader: functools.partial[ResponseHandler] = functools.partial(
        _ResponseReader, loop=asyncio.get_running_loop()
    )
    connector._factory = reader  # pyright: ignore[reportPrivateUsage] - aiohttp has no option for it
    return connector


def open_client() -> aiohttp.ClientSession:
    """Open a client with a connection pool and no state: no cookies, no `.netrc`.

    The caller closes it. Only connecting has a timeout; the rest is for the caller to set.
    """
    return aiohttp.ClientSession(
        connector=_guard(aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS)),
        headers={"User-Agent": "fairlead"},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        trust_env=False,
        trace_configs=request_traces(),
    )


@functools.cache
def tls_context() -> ssl.SSLContext:
    """TLS context that trusts what this machine trusts, or only what `SSL_CERT_FILE`/`_DIR` name.

    It takes tens of milliseconds to build, so it is built once, for the first `https` URL.
    """
    context = _make_tls_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _make_tls_context() -> ssl.SSLContext:
    paths = ssl.get_default_verify_paths()
    file, folder = os.environ.get(paths.openssl_cafile_env), os.environ.get(paths.openssl_capath_env)
    if file or folder:
        try:
            return ssl.create_default_context(cafile=file or None, capath=folder or None)
        except OSError as exc:
            names = " and ".join(filter(None, (file, folder)))
            raise ConfigUnreadable(
                f"no certificates can be read from {names}: {exc.strerror}",
                hint=f"correct or unset {paths.openssl_cafile_env} and {paths.openssl_capath_env}",
            ) from exc
    # Elsewhere the operating system has to verify each certificate. Here OpenSSL reads the same files as the
    # rest of the system, and reads them once rather than for every connection.
    if sys.platform not in ("darwin", "win32") and (paths.cafile or paths.capath):
        return ssl.create_default_context(cafile=paths.cafile, capath=paths.capath)
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def proxy_for(url: URL, environment: Mapping[str, str]) -> str | None:
    """Proxy that `HTTP_PROXY` or `HTTPS_PROXY` name for `url`, unless `NO_PROXY` exempts it.

    A lower-case variable takes precedence over its upper-case twin. Loopback never uses a proxy.
    """
    proxy = _variable(environment, f"{url.scheme}_proxy")
    host = (url.host or "").rstrip(".")
    if not proxy or is_loopback(host):
        return None
    exempt = _variable(environment, "no_proxy").lower().split(",")
    if any(_covers(entry.strip(), host, url.port) for entry in exempt):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper(), "")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


async def read_beginning(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body of a response, or so much of a longer one.

    One `read` of the library returns what has arrived by then, which may be a part.

    Args:
        response: The response.
        limit: The most bytes to read.
    """
    body = bytearray()
    while len(body) < limit and (part := await response.content.read(limit - len(body))):
        body += part
    return bytes(body)


def is_loopback(host: str) -> bool:
    """Whether a host, by its name or address, is this machine."""
    network = _network(host)
    if network is None:
        return host == "localhost" or host.endswith(".localhost")
    return network.is_loopback


def _covers(entry: str, host: str, port: int | None) -> bool:
    """Whether an entry of `NO_PROXY` (name, address, network, `*`, `name:port`) matches this host."""
    if entry == "*":
        return True
    name, colon, named_port = entry.rpartition(":")
    if colon and named_port.isdecimal() and _network(entry) is None:
        if int(named_port) != port:
            return False
        entry = name
    address, network = _network(host), _network(entry)
    if address is not None:
        return (
            network is not None and network.version == address.version and address.network_address in network
        )
    entry = entry.removeprefix("*").removeprefix(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))


VETTED_CONNECT_SECONDS = 10.0

_AddressInfo: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]


class AddressRefused(OSError):
    """A host has no address that may be connected to. None was."""


class VettingResolver(AbstractResolver):
    """Resolver that returns only allowed addresses: the ones that are then connected to."""

    def __init__(self, vet: Vet, resolver: AbstractResolver) -> None:
        self._vet = vet
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the allowed addresses. Raises `AddressRefused` with the reason if there are none."""
        found = await self._resolver.resolve(host, port, family)
        faults = [_fault(self._vet, host, result["host"]) for result in found]
        vetted = [result for result, fault in zip(found, faults, strict=True) if fault is None]
        if not vetted:
            raise AddressRefused(faults[0] if faults else f"{host} has no address")
        return vetted

    async def close(self) -> None:
        """Close the inner resolver."""
        await self._resolver.close()


def open_vetted_client(
    vet: Vet = public_only, *, resolver: AbstractResolver | None = None, user_agent: str = "fairlead"
) -> aiohttp.ClientSession:
    """Open a client for untrusted URLs: allowed addresses only, no proxy, no `.netrc`, no cookies.

    The caller closes it. Only connecting has a timeout. A host whose addresses are refused fails with a
    `ClientConnectorError` whose `os_error` is an `AddressRefused`.

    Args:
        vet: Tells which addresses are allowed.
        resolver: Resolves names; the system's if not given.
        user_agent: The header `User-Agent`.
    """

    def open_socket(info: _AddressInfo) -> socket.socket:
        # An address in the URL itself never reaches a resolver.
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
        connector=_guard(connector),
        headers={"User-Agent": user_agent},
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=VETTED_CONNECT_SECONDS),
        trust_env=False,
        trace_configs=request_traces(),
    )


def _fault(vet: Vet, host: str, written: str) -> str | None:
    address = literal_address(written)
    if address is None:
        return f"{host} has no address"
    fault = vet(host, address)
    if fault is None:
        return None
    return f"{host} is {fault}" if host == written else f"{host} is at {address}, {fault}"
