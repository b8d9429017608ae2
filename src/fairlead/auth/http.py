"""HTTP requests of OAuth: SSRF-checked addresses, bounded responses, short timeouts."""

import ssl
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import urlencode

import aiohttp
import anyio
import msgspec
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from fairlead.auth.url_guard import (
    escape_text,
    literal_fault,
    read_url,
    url_fault,
    vet_for,
    without_query,
)
from fairlead.config.secrets.redaction import redact_url
from fairlead.errors import IssuerUnavailable, LoginFailed
from fairlead.net.http import AddressRefused, open_client, open_vetted_client, proxy_for, tls_context
from fairlead.net.ssrf import (
    MAX_REDIRECTS,
    Address,
    Vet,
    is_loopback_host,
    is_redirect,
    literal_address,
    redirect_target,
)

MAX_BYTES = 1 << 20
SECONDS = 10.0

_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "Connection": "close"}

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpAnswer:
    """A response, not validated yet."""

    url: URL
    status: int
    headers: Mapping[str, str]
    body: bytes
    fault: str | None = None
    """Why it is no document at any status: a redirect that is not followed, or too much content."""

    @property
    def is_json(self) -> bool:
        """Whether it says that it is JSON, or says nothing."""
        content = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return content in ("", "application/json") or content.endswith("+json")

    def read(self, shape: type[T]) -> T | None:
        """Decode its JSON as this type; None where it does not match."""
        if self.fault is not None or not self.is_json:
            return None
        try:
            return msgspec.json.decode(self.body, type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpContext:
    """Network settings of OAuth requests: proxies, resolver, TLS trust and timeouts."""

    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    resolver: Callable[[], AbstractResolver] = ThreadedResolver
    tls: Callable[[], ssl.SSLContext] = tls_context
    seconds: float = SECONDS

    async def client_for(self, server_id: str, url: str, chosen: Collection[str] = ()) -> "OAuthHttp":
        """Make the HTTP client for a login: it reaches what one MCP server may lead to, and nothing else.

        Args:
            server_id: The server.
            url: Its URL.
            chosen: Hosts that the user wrote down, which may have private addresses.

        Raises:
            LoginFailed: The server's URL cannot be used for a login.
        """
        own = read_url(url)
        if own is None or own.host is None:
            raise LoginFailed(server_id, "its `url` cannot be used for a login")
        vet = vet_for(own.host, await self._addresses(own), chosen)
        return OAuthHttp(server_id=server_id, own=own, context=self, vet=vet)

    async def _addresses(self, url: URL) -> list[Address]:
        """Look up where the MCP server itself is. Nothing is known where a proxy does the looking up."""
        host = url.host or ""
        literal = literal_address(host)
        if literal is not None or is_loopback_host(host) or proxy_for(url, self.environment):
            return [literal] if literal is not None else []
        resolver = self.resolver()
        try:
            with anyio.fail_after(self.seconds):
                found = await resolver.resolve(host, url.port or 0)
        except OSError:
            return []  # TimeoutError is one, too; the next request of the server reports what is wrong
        finally:
            await resolver.close()
        return [address for entry in found if (address := literal_address(entry["host"])) is not None]


@dataclass(frozen=True, kw_only=True, slots=True)
class OAuthHttp:
    """Requests on behalf of one MCP server.

    `LoginFailed` says that something is refused, `IssuerUnavailable` that nothing can be said right now.
    """

    server_id: str
    own: URL
    context: HttpContext
    vet: Vet

    def check_metadata_url(self, text: str, what: str) -> URL:
        """Check a URL of metadata. The MCP server's own origin is trusted like a configured one."""
        return self.require_url(text, what, own=self.own.origin())

    def require_url(self, text: str, what: str, *, own: URL | None = None) -> URL:
        """A URL that a server named, parsed, if it may be used.

        Args:
            text: The URL as the server sent it.
            what: What it is for, in words for the error.
            own: An origin that the user configured, which may for that reason be contacted over plain HTTP.

        Raises:
            LoginFailed: The URL may not be used.
        """
        url = read_url(text)
        fault = url_fault(text, own) or (literal_fault(self.vet, url) if url is not None else None)
        if fault is not None or url is None:
            raise LoginFailed(self.server_id, f"{what} is refused: {fault} ({escape_text(redact_url(text))})")
        return url

    async def get(self, url: URL) -> HttpAnswer:
        """Ask for a document. Redirects are followed within its origin, and not beyond."""
        with self._convert_errors(url):
            answer = await self._request("GET", url)
            for _ in range(MAX_REDIRECTS):
                if not is_redirect(answer.status):
                    return answer
                target = redirect_target(url, "GET", answer.status, answer.headers.get("Location", ""))
                if target is None:
                    return replace(answer, fault="redirects to another site; not followed")
                url = target
                answer = await self._request("GET", url)
        return replace(answer, fault="redirects too often") if is_redirect(answer.status) else answer

    async def post(
        self,
        url: URL,
        *,
        form: Mapping[str, str] | None = None,
        json: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send a form, or JSON. No redirect is followed: what is sent is meant for this endpoint alone.

        Args:
            url: The endpoint.
            form: The fields of a form.
            json: A JSON value, where there is no form.
            headers: Further headers.

        Raises:
            IssuerUnavailable: No answer came.
            LoginFailed: The answer is too large.
        """
        kind = "application/json" if form is None else "application/x-www-form-urlencoded"
        body = msgspec.json.encode(json) if form is None else urlencode(form).encode()
        with self._convert_errors(url):
            answer = await self._request("POST", url, body, {"Content-Type": kind, **(headers or {})})
        if answer.fault is not None:
            raise LoginFailed(self.server_id, f"{without_query(url)} {answer.fault}")
        return answer

    async def _request(
        self, method: str, url: URL, body: bytes | None = None, headers: Mapping[str, str] = _HEADERS
    ) -> HttpAnswer:
        proxy = proxy_for(url, self.context.environment)
        # A proxy resolves names itself, so only an address in the URL can be vetted here.
        if proxy is not None and (fault := literal_fault(self.vet, url)):
            raise AddressRefused(fault)
        # Each request has a connection of its own: a code can be sent once, and does not go over one that
        # the other side may be about to close.
        client = open_client() if proxy else open_vetted_client(self.vet, resolver=self.context.resolver())
        with anyio.fail_after(self.context.seconds):
            async with (
                client,
                client.request(
                    method,
                    url,
                    data=body,
                    headers={**_HEADERS, **headers},
                    allow_redirects=False,
                    proxy=proxy,
                    ssl=self.context.tls() if url.scheme == "https" else True,
                ) as response,
            ):
                content = await self._body(response)
                fault = f"sends more than {MAX_BYTES} bytes" if content is None else None
                return HttpAnswer(
                    url=url,
                    status=response.status,
                    headers=response.headers,
                    body=content or b"",
                    fault=fault,
                )

    async def _body(self, response: aiohttp.ClientResponse) -> bytes | None:
        """The content; None where there is more than any document has."""
        parts: list[bytes] = []
        size = 0
        # Counted after decompression: gzip makes 1 MiB of 1 KiB.
        while part := await response.content.readany():
            size += len(part)
            if size > MAX_BYTES:
                return None
            parts.append(part)
        return b"".join(parts)

    @contextmanager
    def _convert_errors(self, url: URL) -> Generator[None]:
        """Convert exceptions of a request to `LoginFailed` or `IssuerUnavailable`."""
        try:
            yield
        except AddressRefused as exc:
            raise LoginFailed(self.server_id, f"{without_query(url)} is refused: {exc}") from exc
        except TimeoutError as exc:
            raise IssuerUnavailable(self.server_id, f"{without_query(url)} does not answer in time") from exc
        except aiohttp.ClientConnectorCertificateError as exc:
            raise IssuerUnavailable(
                self.server_id, f"{without_query(url)} has an untrusted certificate"
            ) from exc
        except aiohttp.ClientConnectorError as exc:
            if isinstance(exc.os_error, AddressRefused):
                raise LoginFailed(self.server_id, f"{without_query(url)} is refused: {exc.os_error}") from exc
            reason = exc.os_error.strerror or "no connection"
            raise IssuerUnavailable(
                self.server_id, f"{without_query(url)} cannot be reached: {escape_text(reason)}"
            ) from exc
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise IssuerUnavailable(
                self.server_id, f"{without_query(url)} does not answer as it should"
            ) from exc
