"""Fetching one page of a website within bounds, without redirects, credentials or cookies."""

import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from fairlead.errors import ToolFailed
from fairlead.net.http import AddressRefused, open_vetted_client, tls_context
from fairlead.net.ssrf import Vet, is_redirect, public_or_loopback
from fairlead.servers.docs.allowlist import escape_url
from fairlead.servers.docs.pages import MAX_INPUT, kind_of

USER_AGENT = "fairlead (docs.fetch)"

_MAX_ERROR_PAGE = 64 * 1024
_MAX_TYPE = 200
_HEADERS = {
    # Some sites have their pages as Markdown, too, and give it to those who prefer it.
    "Accept": "text/markdown, text/html;q=0.9, text/plain;q=0.9, application/json;q=0.8, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
_ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedResponse:
    """Response for a URL. The body is empty if it is not needed, and cut if it is too long."""

    url: URL
    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool

    @property
    def content_type(self) -> str:
        """The `Content-Type`."""
        return self.headers.get("Content-Type", "").encode("ascii", "replace").decode()[:_MAX_TYPE]

    @property
    def location(self) -> str | None:
        """The `Location` of a redirect."""
        return self.headers.get("Location") if is_redirect(self.status) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchContext:
    """Network settings of requests: allowed addresses, resolver, and trusted certificates."""

    vet: Vet = public_or_loopback
    resolver: Callable[[], AbstractResolver] = ThreadedResolver
    tls: Callable[[], ssl.SSLContext] = tls_context

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[aiohttp.ClientSession]:
        """Open an HTTP client for one request."""
        async with open_vetted_client(self.vet, resolver=self.resolver(), user_agent=USER_AGENT) as client:
            yield client

    async def get(
        self, client: aiohttp.ClientSession, url: URL, conditions: Mapping[str, str]
    ) -> FetchedResponse:
        """Request a URL once, without redirects. Raises `ToolFailed` with the reason of a failure."""
        try:
            async with client.get(
                url,
                headers={**_HEADERS, **conditions},
                allow_redirects=False,
                ssl=self.tls() if url.scheme == "https" else True,
            ) as response:
                body, whole = await _read(response)
                return FetchedResponse(
                    url=url, status=response.status, headers=response.headers, body=body, whole=whole
                )
        except (aiohttp.ClientError, OSError) as exc:
            raise ToolFailed(f"{escape_url(url)} cannot be read: {_trouble(exc)}") from exc


async def _read(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """Return as much of the body as is of use, decompressed, and whether that is all of it."""
    if not 200 <= response.status < 300:
        if is_redirect(response.status) or response.status == 304:
            return b"", True
        limit = _MAX_ERROR_PAGE
    else:
        limit = MAX_INPUT
    encoding = ",".join(response.headers.getall("Content-Encoding", ())).strip().lower()
    if encoding not in _ENCODINGS:
        raise ToolFailed(
            f"{escape_url(response.url)} is packed as `{escape_url(encoding)}`, which was not requested"
        )
    if kind_of(response.headers.get("Content-Type", "")) == "binary":
        return b"", True
    parts: list[bytes] = []
    while part := await response.content.readany():
        parts.append(part[:limit])
        limit -= len(part)
        if limit < 0:
            return b"".join(parts), False
    return b"".join(parts), True


def _trouble(exc: aiohttp.ClientError | OSError) -> str:
    """Return what went wrong, in words."""
    match exc:
        case aiohttp.ClientConnectorError(os_error=AddressRefused() as refused):
            return f"{refused}; such addresses are not visited"
        case aiohttp.ClientConnectorDNSError():
            return "its host name cannot be looked up"
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(exc.certificate_error, "verify_message", "")
            return f"its certificate is not to be trusted: {reason}"
        case aiohttp.ClientConnectorError():
            return exc.os_error.strerror or str(exc.os_error)
        case aiohttp.ServerTimeoutError():
            return "its server does not answer"
        case aiohttp.ClientPayloadError():
            return "the answer broke off, or is packed wrongly"
        case aiohttp.ClientResponseError():
            reason = escape_url(exc.message.partition(chr(10))[0])
            return f"its server does not speak HTTP as it should: {reason}"
        case _:
            return "its server hung up"
