"""The HTTP endpoint of a server: requests with its headers, and bounded reading of responses.

Every request carries the configured headers and stays with one origin, with this machine's proxy and trust
settings. A failed request has in `delivery` whether the server may have received it.
"""

import asyncio
import base64
import logging
import os
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import aiohttp
import anyio
import msgspec
from aiohttp.abc import AbstractStreamWriter
from mcp_types import METHOD_NOT_FOUND, RequestId
from multidict import CIMultiDict
from yarl import URL

from fairlead.auth.discovery import MAX_HEADER
from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import SliceTimer
from fairlead.config.untyped import is_object
from fairlead.connection.outcomes import (
    AnswerLost,
    AnswerTooLong,
    CredentialOrigin,
    Credentials,
    HeadersUnavailable,
    HttpRejected,
    NotSent,
    RequestFailed,
    SessionExpired,
    Unreachable,
    classify_refusal,
    connection_trouble,
    trouble_kind,
)
from fairlead.connection.transport.calls import Call
from fairlead.connection.transport.messages import rejection
from fairlead.errors import FairleadError
from fairlead.net.http import proxy_for, tls_context
from fairlead.net.ssrf import MAX_REDIRECTS, is_redirect, redirect_target, within_origin

_MAX_ERROR_BYTES = 64 * 1024
_MAX_EXCERPT = 200
_MAX_PARTS = 4096
_MAX_RETRY_AFTER = 40
_READ_BYTES = 16 * 1024


@contextmanager
def cancel_when_answered(call: Call) -> Generator[None]:
    """Cancel the block once the call is over: answered elsewhere, or out of time.

    An answer that is there counts for more than what goes wrong on the way.
    """
    with anyio.CancelScope() as scope:
        call.answer.add_done_callback(lambda _: scope.cancel())
        try:
            yield
        except (NotSent, RequestFailed):
            if not call.answer.done():
                raise


def is_stream(response: aiohttp.ClientResponse) -> bool:
    """Whether a response is an event stream."""
    content = response.headers.get("Content-Type", "").lower()
    return response.status == 200 and content.startswith("text/event-stream")


async def read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body, decompressed. Raises `AnswerTooLong` past `limit`, with no more than that read."""
    whole = bytearray()
    parts: list[bytes] = []
    size, turn = 0, SliceTimer()
    try:
        # What is there already is read without a pause, and may be in as many pieces as it has bytes.
        while part := await response.content.read(_READ_BYTES):
            if turn.is_over():
                await asyncio.sleep(0)
            size += len(part)
            if size > limit:
                raise AnswerTooLong(limit)
            parts.append(part)
            if len(parts) > _MAX_PARTS:  # a body may come byte by byte, and each part takes 34 bytes more
                whole += b"".join(parts)
                parts.clear()
    except aiohttp.ClientError as exc:
        is_damaged = isinstance(exc, aiohttp.ClientPayloadError)
        raise AnswerLost(connection_trouble(exc), kind="damaged" if is_damaged else None) from exc
    finally:
        response.close()
    return parts[0] if len(parts) == 1 and not whole else b"".join((whole, *parts))


class _ErrorBody(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    error: msgspec.Raw
    id: RequestId | None = None


_decode_error = msgspec.json.Decoder(_ErrorBody).decode


async def refusal(
    response: aiohttp.ClientResponse,
    origin: CredentialOrigin = "headers",
    *,
    request_id: RequestId | None = None,
    session_id: str | None = None,
) -> RequestFailed:
    """Return the error for a response that brings no answer.

    A JSON-RPC error in its body counts for more than its status, unless the status is about logging in or the
    server says that it does not know the session. `origin` is where the request's credentials came from.
    """
    status = response.status
    try:
        body = await read_body(response, _MAX_ERROR_BYTES)
    except RequestFailed:
        body = b""
    error, error_id = _error_in(body)
    if session_id is not None and _is_session_unknown(status, error, named=request_id == error_id):
        return SessionExpired(status, session_id)
    if error is not None and status not in (401, 403, 429):
        return error
    detail = error.message if error is not None else _words_in(response, body)
    message = f"the server answered with HTTP {status} {escape_text(response.reason)}".rstrip()
    challenge = challenge_in(response)
    return HttpRejected(
        status,
        f"{message}: {detail}" if detail else message,
        challenge=challenge,
        credentials=credentials_in(response, origin, f"{challenge or ''} {detail}"),
        detail=detail,
        retry_after=escape_text(response.headers.get("Retry-After"), _MAX_RETRY_AFTER) or None,
        content_type=escape_text(response.headers.get("Content-Type")) or None,
    )


def challenge_in(response: aiohttp.ClientResponse) -> str | None:
    """Return the authentication challenges of a response (`WWW-Authenticate`)."""
    # Parsed later on, so nothing that merely looks like a secret is masked: `Bearer realm="x"` does.
    challenges = ", ".join(response.headers.getall("WWW-Authenticate", ()))
    return gate.content(_decode_header(challenges), MAX_HEADER) or None


def escape_text(text: str | None, limit: int = _MAX_EXCERPT) -> str:
    """Return the text of a header, sanitized and of bounded length."""
    return gate.text(_decode_header(text or ""), limit)


def _decode_header(header: str) -> str:
    return header.encode(errors="surrogateescape").decode(errors="replace")


def _error_in(body: bytes) -> tuple[RequestFailed | None, RequestId | None]:
    try:
        found = _decode_error(body)
    except (ValueError, RecursionError):
        return None, None
    return rejection(found.error), found.id


def _is_session_unknown(status: int, error: RequestFailed | None, *, named: bool) -> bool:
    if status == 404:
        # Servers also say so of a method they lack, and then name the request they mean.
        return not (named and error is not None and error.code == METHOD_NOT_FOUND)
    # What the protocol wants here is 404, but many servers say 400 and give the reason in words.
    return status == 400 and error is not None and not named and "session" in error.message.lower()


def _words_in(response: aiohttp.ClientResponse, body: bytes) -> str:
    """Text of a response for people: its first line, or the message in its JSON."""
    if response.content_type == "text/plain":
        return gate.text(body.decode(errors="replace"), _MAX_EXCERPT).strip().partition("\n")[0]
    if not response.content_type.endswith("json"):
        return ""
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return ""
    words = _message_in(found)
    return gate.text(words, _MAX_EXCERPT).strip().partition("\n")[0] if words else ""


def _message_in(body: object, depth: int = 2) -> str | None:
    """The message in an error document, in one of the usual forms of web APIs."""
    if isinstance(body, str):
        return body
    if not is_object(body) or not depth:
        return None
    for name in _MESSAGES:
        if name in body and (found := _message_in(body[name], depth - 1)):
            return found
    return None


_MESSAGES = ("error_description", "message", "detail", "title", "error", "reason")

_CREDENTIAL = re.compile(r"auth|key|token|secret|cookie|password|session", re.IGNORECASE)
_PROTOCOL = re.compile(r"mcp-.*|proxy-authorization", re.IGNORECASE)
_EXPIRED = re.compile(r"\bexpired?\b|\bexpiry\b", re.IGNORECASE)


def credentials_in(response: aiohttp.ClientResponse, origin: CredentialOrigin, value: str) -> Credentials:
    """Return the credentials of a request, and whether they expired, by themselves or by `value`."""
    sent = response.request_info.headers
    names = credential_names(sent)
    expired = bool(_EXPIRED.search(value)) or any(_has_expired(sent[name]) for name in names)
    return Credentials(origin=origin, names=names, expired=bool(names) and expired)


def credential_names(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the headers that authenticate a request."""
    found = (name for name in headers if _CREDENTIAL.search(name) and not _PROTOCOL.fullmatch(name))
    return tuple(dict.fromkeys(found))


class _Claims(msgspec.Struct):
    exp: float


_decode_claims = msgspec.json.Decoder(_Claims).decode


def _has_expired(value: str) -> bool:
    """Whether a header holds a JSON Web Token that is past its time; the server checks its signature."""
    parts = value.rpartition(" ")[2].split(".")
    if len(parts) != 3:
        return False
    try:
        claims = _decode_claims(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return False
    return claims.exp < time.time()


def misfit(response: aiohttp.ClientResponse, due: str) -> HttpRejected:
    """Return the error for a response whose content type is not `due`."""
    response.close()
    content = escape_text(response.headers.get("Content-Type", "nothing"))
    what = f"a web page of type {content!r}" if "html" in content else repr(content)
    message = f"the server answered with {what} where {due} is due"
    return HttpRejected(response.status, message, content_type=content)


logger = logging.getLogger(__name__)

EXCHANGE_FAILURES = (NotSent, RequestFailed, FairleadError)
"""The exceptions of an exchange: sending, receiving, and the source of its headers."""

_MAX_READ_BYTES = 64 * 1024
"""Taken from a socket at once. 64 KiB may be 11,000 HTTP chunks, which aiohttp takes 15 ms to tell apart."""
_TELLS_AT_ONCE = 8
_TELL_SECONDS = 10.0
_LINGER_SECONDS = 1.0
_HANDSHAKE_SECONDS = 2.0

Method: TypeAlias = Literal["GET", "POST", "DELETE"]
OnSent: TypeAlias = Callable[[], None] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedRequest:
    """A request that was turned down: what the server said about logging in, and the headers it refused."""

    status: Literal[401, 403] = 401
    www_authenticate: str | None
    refused: Mapping[str, str] = field(repr=False)
    nonce: str | None = None
    """The nonce that the server demands in a proof of possession."""

    @property
    def kind(self) -> Literal["login", "scope", "nonce"]:
        """The remedy: a login, wider OAuth scopes, or another proof of possession."""
        if self.status == 403:
            return "scope"
        return "nonce" if self.nonce and "use_dpop_nonce" in (self.www_authenticate or "") else "login"


class HeaderSource(Protocol):
    """Gives the headers a request needs besides the protocol's own, such as `Authorization`.

    It is called before every request. When the server turns the request down for want of a login or of
    rights, and so did not carry it out, it is called again with the `Challenge`, once for each kind there is,
    and the request goes out again if the headers are others.
    """

    def __call__(
        self, method: str, url: URL, challenge: RejectedRequest | None = None, /
    ) -> Awaitable[Mapping[str, str]]:
        """Return the headers. A `FairleadError` reaches the caller of the request unchanged."""
        ...


def fixed_headers(headers: Mapping[str, str]) -> HeaderSource:
    """Return a source that always gives these headers."""

    async def source(
        _method: str, _url: URL, _challenge: RejectedRequest | None = None, /
    ) -> Mapping[str, str]:
        return headers

    return source


class _Body(aiohttp.Payload):
    """A message on its way out, which knows whether any of it may have left."""

    _autoclose = True

    def __init__(self, message: bytes, on_sent: OnSent) -> None:
        super().__init__(message, content_type="application/json")
        self.sent = False
        self.kept_back: Exception | None = None
        """Why it must not leave. The library raises an error of its own in place of this."""
        self._size = len(message)
        self._message = message
        self._on_sent = on_sent

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._message.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        _limit_read_size(writer.transport)
        # It may refuse. The library writes in a task of its own, which runs on for a moment when the request
        # is cancelled: a call that has failed as not sent would be sent.
        if self._on_sent is not None:
            try:
                self._on_sent()
            except Exception as exc:
                self.kept_back = exc
                raise
        self.sent = True
        await writer.write(self._message)


def _limit_read_size(transport: asyncio.BaseTransport | None) -> None:
    """Limit how much an asyncio connection reads at once: 256 KiB may block the event loop."""
    if hasattr(transport, "max_size"):
        setattr(transport, "max_size", _MAX_READ_BYTES)  # noqa: B010 - no part of the public interface


class HttpEndpoint:
    """A URL and how to send requests to it. Close it when no more responses are wanted.

    Args:
        url: The URL.
        client: The HTTP client, which many endpoints share.
        headers: Returns the headers that authorize each request.
    """

    def __init__(self, url: str | URL, client: aiohttp.ClientSession, headers: HeaderSource) -> None:
        self.url = URL(url)
        self._client = client
        self._headers = headers
        self._proxy = proxy_for(self.url, os.environ)
        self._tls = tls_context() if self.url.scheme == "https" else True
        self._lingering: dict[aiohttp.ClientResponse, asyncio.TimerHandle] = {}
        self._closed = False
        self._has_answered = False
        self._telling = anyio.Semaphore(_TELLS_AT_ONCE)

    @property
    def credential_origin(self) -> CredentialOrigin:
        """Origin of the credentials of its requests."""
        return getattr(self._headers, "origin", "headers")

    def at(self, url: URL) -> "HttpEndpoint":
        """Return another endpoint of the same server."""
        return HttpEndpoint(url, self._client, self._headers)

    async def request(
        self,
        method: Method,
        headers: Mapping[str, str],
        message: bytes | None = None,
        on_sent: OnSent = None,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the response, of any status, once its headers are there.

        `on_sent` is called when `message` is about to leave, and may keep it back by raising `NotSent` or
        `DecisionOutdated`, after every wait for headers, a redirect or a connection.
        Raises `NotSent` before that, `AnswerLost` after, `HttpRejected` for a redirect that is not followed,
        and any `FairleadError` the source of the headers raises.
        """
        provided = await self._fetch_headers(method, None)
        tried: set[str] = set()
        while True:
            response = await self._follow(method, _merge_headers(provided, headers), message, on_sent)
            challenge = _challenge_in(response, provided)
            if challenge is None or challenge.kind in tried:
                return response
            tried.add(challenge.kind)
            try:
                renewed = await self._fetch_headers(method, challenge)
            except BaseException:
                response.close()
                raise
            if renewed == provided:
                return response  # what it says is for the caller to read
            response.close()
            provided = renewed

    async def _fetch_headers(self, method: Method, challenge: RejectedRequest | None) -> Mapping[str, str]:
        try:
            return await self._headers(method, self.url, challenge)
        except (NotSent, FairleadError):
            raise
        except Exception as exc:
            # A source may be code of the program, and a request fails in known ways only.
            raise HeadersUnavailable(f"the headers are not available: {exc}") from exc

    async def tell(self, headers: Mapping[str, str], message: bytes) -> None:
        """Post a message that has no answer, in bounded time. That it cannot be sent is noted and no more.

        A few at once: a server that asks for many answers would have the event loop make as many connections.
        """
        with anyio.move_on_after(_TELL_SECONDS):
            try:
                async with self._telling:
                    self.let_go(await self.request("POST", headers, message))
            except EXCHANGE_FAILURES as exc:
                logger.debug("a message could not be sent", extra={"reason": str(exc)})

    def let_go(self, response: aiohttp.ClientResponse) -> None:
        """Abandon a response. If it ends soon, its connection is used again."""
        if self._closed:
            response.close()
        elif not response.closed:
            loop = asyncio.get_running_loop()
            self._lingering[response] = loop.call_later(_LINGER_SECONDS, self._drop, response)
            response.content.on_eof(lambda: self._drop(response))

    def _drop(self, response: aiohttp.ClientResponse) -> None:
        timer = self._lingering.pop(response, None)
        if timer is not None:
            timer.cancel()
            response.close()

    def close(self) -> None:
        """Close the responses that were left and have not ended."""
        self._closed = True
        for response in [*self._lingering]:
            self._drop(response)

    async def _follow(
        self, method: Method, headers: CIMultiDict[str], message: bytes | None, on_sent: OnSent
    ) -> aiohttp.ClientResponse:
        url, redirects = self.url, 0
        while True:
            body = None if message is None else _Body(message, on_sent)
            response = await self._exchange(method, url, headers, body)
            if not is_redirect(response.status):
                return response
            response.close()
            location = response.headers.get("Location", "")
            target = redirect_target(url, method, response.status, location)
            if target is None or redirects == MAX_REDIRECTS:
                raise _refused_redirect(response.status, url, location, is_circle=target is not None)
            url, redirects = target, redirects + 1

    async def _exchange(
        self, method: Method, url: URL, headers: CIMultiDict[str], body: _Body | None
    ) -> aiohttp.ClientResponse:
        try:
            response = await self._client.request(
                method,
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
                ssl=self._tls,
            )
            _limit_read_size(response.connection.transport if response.connection is not None else None)
            self._has_answered = True
            return response
        # What is raised names no cause: the library's errors show URLs and headers, which may hold secrets.
        except (aiohttp.ClientError, OSError) as exc:
            if body is not None and body.kept_back is not None:
                raise body.kept_back from None
            words, kind = connection_trouble(exc), classify_refusal(trouble_kind(exc), url.host)
            if kind == "closed" and url.scheme == "https":
                kind = "closed_tls"
            if kind in ("closed", "not_http") and await self._expects_tls(url):
                words, kind = f"{url.host}:{url.port} speaks TLS, and `url` says `http://`", "wants_tls"
            if body is not None and body.sent:
                raise AnswerLost(words, kind=kind) from None
            raise Unreachable(words, kind) from None
        except ValueError as exc:
            raise NotSent(f"the request cannot be sent: {exc}") from None

    async def _expects_tls(self, url: URL) -> bool:
        """Whether a port that understood no plain HTTP speaks TLS. Nothing but a handshake is sent."""
        if url.scheme != "http" or self._proxy is not None or self._has_answered:
            return False
        anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # what it says is of no interest here
        anything.check_hostname = False
        anything.verify_mode = ssl.CERT_NONE
        with anyio.move_on_after(_HANDSHAKE_SECONDS):
            try:
                _, writer = await asyncio.open_connection(url.host, url.port, ssl=anything)
            except OSError:
                return False
            writer.transport.abort()
            return True
        return False


def _refused_redirect(status: int, url: URL, location: str, *, is_circle: bool) -> HttpRejected:
    """The error for a redirect that is not followed. Its `location` is empty where it leads nowhere else."""
    where = f"{url.origin()}{location}" if location.startswith("/") and location[1:2] != "/" else location
    if not location:
        return HttpRejected(status, "a redirect names no place to go to", location="")
    if is_circle or within_origin(url, location) == url:
        return HttpRejected(status, f"it redirects in a circle, to {escape_text(where)!r}", location="")
    refused = f"a redirect to {escape_text(where)!r} was not followed"
    return HttpRejected(status, refused, location=escape_text(location))


def _merge_headers(provided: Mapping[str, str], own: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers to send: the protocol's own are not for others to change."""
    headers = CIMultiDict(provided)
    headers.update(own)
    return headers


def _challenge_in(response: aiohttp.ClientResponse, provided: Mapping[str, str]) -> RejectedRequest | None:
    challenge = challenge_in(response) if response.status in (401, 403) else None
    nonce = response.headers.get("DPoP-Nonce")
    if response.status == 401:
        return RejectedRequest(www_authenticate=challenge, refused=provided, nonce=nonce)
    if response.status == 403 and challenge is not None and "insufficient_scope" in challenge:
        return RejectedRequest(status=403, www_authenticate=challenge, refused=provided, nonce=nonce)
    return None
