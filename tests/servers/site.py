"""A website on loopback under any name, and the way to it: made-up look-ups, a made-up authority."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import cast

import trustme
from aiohttp.abc import AbstractResolver, ResolveResult

from fairlead.net.ssrf import Address, Vet, why_not_public
from fairlead.servers.docs.docs import DEADLINE_SECONDS, FetchInput, FetchOutput, docs_tool
from fairlead.servers.docs.fetch import FetchContext
from fairlead.servers.framework.tools import Handler, Reply
from tests.fixtures.plain_http import Exchange, Request, read_request

PUBLIC = "127.0.0.1"
"""Stands in for an address of the internet."""
PRIVATE = "127.0.0.2"

Answer = Callable[[Exchange], Awaitable[None]]


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def certificate() -> bytes:
    leaf = authority().issue_cert("docs.test", "other.test", "evil.test", "localhost")
    return leaf.private_key_and_cert_chain_pem.bytes()


@cache
def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority().cert_pem.bytes().decode())


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with trustme.Blob(certificate()).tempfile() as file:
        context.load_cert_chain(file)
    return context


@dataclass
class Site:
    """What is served, and what was seen."""

    port: int = 0
    pages: dict[str, Answer] = field(default_factory=dict[str, Answer])
    requests: list[Request] = field(default_factory=list[Request])
    names: list[str | None] = field(default_factory=list[str | None])
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.requests]

    def url(self, path: str = "/", host: str = "docs.test") -> str:
        return f"https://{host}:{self.port}{path}"

    def page(self, path: str, body: str | bytes, content: str = "text/plain", **headers: str) -> None:
        content_bytes = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        async def answer(exchange: Exchange) -> None:
            await exchange.reply(content_bytes, content=content, headers=named)

        self.pages[path] = answer

    def redirect(self, path: str, location: str, status: int = 302) -> None:
        async def answer(exchange: Exchange) -> None:
            await exchange.reply(status=status, headers={"Location": location, "Set-Cookie": "a=b"})

        self.pages[path] = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await read_request(reader)) is not None:
                self.requests.append(request)
                await self.pages.get(request.path, not_found)(Exchange(request, reader, writer))
        except (ConnectionError, ssl.SSLError):
            self.left.set()
        finally:
            writer.close()


async def not_found(exchange: Exchange) -> None:
    await exchange.reply(b"<h1>Not here</h1>", status=404, content="text/html")


@asynccontextmanager
async def serving(*, address: str = PUBLIC, port: int = 0, tls: bool = True) -> AsyncGenerator[Site]:
    site = Site()
    context = None
    if tls:
        context = server_tls()

        def note_name(_: ssl.SSLObject | ssl.SSLSocket, name: str | None, __: ssl.SSLContext) -> None:
            site.names.append(name)

        context.sni_callback = note_name
    server = await asyncio.start_server(site.serve, address, port, ssl=context)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await server.wait_closed()


class Lookups(AbstractResolver):
    """Knows the names it was told, each with one list of addresses per look-up; the last one stays."""

    def __init__(self, **hosts: list[list[str]]) -> None:
        self.hosts = {"docs.test": [[PUBLIC]], "other.test": [[PUBLIC]], **hosts}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self.hosts:
            raise OSError(None, "unknown host")
        lists = self.hosts[host]
        addresses = lists.pop(0) if len(lists) > 1 else lists[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        pass


def stand_in(host: str, address: Address) -> str | None:
    """Vet as usual, but take one address of this machine for one of the internet."""
    return None if address == ip_address(PUBLIC) else why_not_public(address)


def web(lookups: Lookups | None = None, vet: Vet = stand_in) -> FetchContext:
    found = lookups or Lookups()
    return FetchContext(vet=vet, resolver=lambda: found, tls=client_tls)


class Progress:
    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        pass


async def fetch(
    site: Site,
    url: str,
    *,
    way: FetchContext | None = None,
    allow: list[str] | None = None,
    cache: Path | None = None,
    deadline_seconds: float = DEADLINE_SECONDS,
    **asked: int,
) -> Reply[FetchOutput]:
    """Call the tool as a server would, with the site allowed unless it is said what is."""
    allowed = [f"docs.test:{site.port}"] if allow is None else allow
    tool = docs_tool(allow=lambda: allowed, cache=cache, web=way or web(), deadline_seconds=deadline_seconds)
    handler = cast("Handler[FetchInput, FetchOutput]", tool.handler)
    answer = await handler(Progress(), FetchInput.model_validate({"url": url, **asked}))
    assert isinstance(answer, Reply)
    return answer
