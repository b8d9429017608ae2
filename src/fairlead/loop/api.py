"""HTTP client for model APIs: one streamed request per step, retries, and errors with hints."""

import os
import random
import time
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp
import anyio
from yarl import URL

from fairlead.catalog.sanitize import gate
from fairlead.config.secrets.masking import SECRETS
from fairlead.config.secrets.redaction import redact_url
from fairlead.connection.outcomes import connection_trouble
from fairlead.connection.transport.sse_parser import SseParser
from fairlead.errors import ModelFailed, ModelUnavailable
from fairlead.jsonrpc.limits import LineTooLong
from fairlead.loop.events import RunEvent, StepRetried, TextDelta
from fairlead.loop.provider import ChatModel, Complaint, ModelTurn, ProviderApi, TurnReader, complaint_in
from fairlead.net.http import CONNECT_SECONDS, proxy_for, tls_context

_PASSING_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
_PASSING_KINDS: Final = ("overloaded", "server_error", "api_error", "rate_limit", "timeout", "unavailable")
_UNPAID: Final = ("insufficient_quota", "billing")
_TOO_LONG: Final = (
    "context_length",
    "context length",
    "context size",
    "context window",
    "maximum context",
    "prompt is too long",
    "too many tokens",
)
_MAX_WORDS = 300


class TemporaryFailure(Exception):
    """Something went wrong that may be over soon. `midway`: the answer had begun."""

    def __init__(
        self,
        message: str,
        *,
        seconds: float | None = None,
        midway: bool = False,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.seconds = seconds
        """How long to wait, if the API said so."""
        self.midway = midway
        self.hint = hint


def error_for_response(
    status: int, body: bytes, model: ChatModel, *, named: str, wait: float | None
) -> Exception:
    """Return the error for a response that is no answer."""
    complaint = complaint_in(body) or Complaint("", "")
    words = f"HTTP {status}{_words(complaint)}"
    if _says(complaint, _UNPAID):
        return ModelFailed(f"{named}: {words}", hint="look at what your account with the provider may use")
    if status in _PASSING_STATUSES:
        return TemporaryFailure(words, seconds=wait, hint="try again later, or choose another model")
    if status == 413 or _says(complaint, _TOO_LONG):
        return _too_long(named, words)
    return ModelFailed(f"{named}: {words}", hint=_hint(status, model))


def error_for_complaint(complaint: Complaint, named: str) -> Exception:
    """Return the error for a complaint of an API in the middle of its answer."""
    words = f"it gave up{_words(complaint)}"
    if _says(complaint, _TOO_LONG):
        return _too_long(named, words)
    if complaint.kind.startswith(_PASSING_KINDS):
        return TemporaryFailure(words, midway=True)
    return ModelFailed(f"{named}: {words}")


def _too_long(named: str, words: str) -> ModelFailed:
    hint = "let it see less: fewer tools with a bundle, smaller results with `max_result_bytes`"
    return ModelFailed(f"{named}: the conversation is too long for it: {words}", hint=hint)


def _hint(status: int, model: ChatModel) -> str | None:
    match status:
        case 401 | 403 if model.api_key is None:
            return f"it wants an API key: {model.key_from}"
        case 401 | 403:
            return f"is the key right? It comes from {model.key_from}"
        case 404 if model.base_url:
            where = redact_url(model.base_url)
            return f"does it know the model `{model.name}`? Is {where} right? Most end in `/v1`"
        case 404:
            return f"does the provider have a model `{model.name}`?"
        case _ if 300 <= status < 400:
            return "it leads elsewhere, and a key is not sent there: give that address as `base_url`"
        case _:
            return None


def _says(complaint: Complaint, signs: tuple[str, ...]) -> bool:
    text = f"{complaint.kind} {complaint}".lower()
    return any(sign in text for sign in signs)


def _words(complaint: Complaint) -> str:
    """Return the message of an API, sanitized."""
    words = " ".join(gate.error_text(complaint).split())[:_MAX_WORDS]
    return f": {words}" if words else ""


Emit = Callable[[RunEvent], Awaitable[None]]

MAX_TRIES: Final = 4
"""How often a step is requested while the API is busy or unreachable."""
MAX_BROKEN: Final = 2
"""How often it is requested when the answer breaks off: nothing was called yet, but all of it is paid for."""
MAX_WAIT_SECONDS: Final = 60.0
"""Longest wait that an API may request; more is a failure."""
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024

_FIRST_WAIT_SECONDS = 0.5
_MAX_ERROR_BYTES = 64 * 1024


class ModelApi:
    """A model's API. Its errors are not the model's words."""

    def __init__(
        self, http: aiohttp.ClientSession, model: ChatModel, dialect: ProviderApi, emit: Emit
    ) -> None:
        self.model = model
        self.dialect = dialect
        self._http = http
        self._emit = emit
        self._url = _address(dialect.url(model))
        SECRETS.learn(model.api_key or "")

    async def turn(self, body: bytes) -> ModelTurn:
        """Request one step, again after temporary failures. Raises `ModelFailed`."""
        tries = broken = 0
        while True:
            try:
                return await self._once(body)
            except TemporaryFailure as exc:
                tries, broken = tries + 1, broken + exc.midway
                wait = exc.seconds if exc.seconds is not None else _backoff(tries)
                if tries == MAX_TRIES or broken == MAX_BROKEN or wait > MAX_WAIT_SECONDS:
                    later = f"; it asks for no request within {wait:.0f} s" if wait > MAX_WAIT_SECONDS else ""
                    raise ModelUnavailable(f"{self._named}: {exc}{later}", hint=exc.hint) from None
                await self._emit(StepRetried(reason=str(exc), seconds=wait))
                await anyio.sleep(wait)

    @property
    def _named(self) -> str:
        return f"the model `{self.model.name}` at {self._url.host}"

    async def _once(self, body: bytes) -> ModelTurn:
        reader = self.dialect.reader()
        began = False
        try:
            async with await self._send(body) as response:
                if response.status != 200:
                    raise await self._refusal(response)
                began = True
                await self._read(response, reader)
        # What is raised names no cause: the library's errors show URLs and headers, which may hold secrets.
        except (aiohttp.ClientError, OSError) as exc:
            if not reader.whole:
                silent = isinstance(exc, aiohttp.SocketTimeoutError)
                words = "it said nothing for too long" if silent else connection_trouble(exc)
                hint = None if began or silent else f"is it running, and is {self._url.origin()} right?"
                raise TemporaryFailure(words, midway=began or silent, hint=hint) from None
        except Complaint as exc:
            raise error_for_complaint(exc, self._named) from None
        if not reader.whole:
            raise TemporaryFailure("its answer broke off", midway=True)
        return reader.turn()

    async def _send(self, body: bytes) -> aiohttp.ClientResponse:
        try:
            return await self._http.post(
                self._url,
                data=body,
                headers={
                    "Content-Type": "application/json",
                    "Accept": "text/event-stream",
                    **self.dialect.headers(self.model),
                },
                allow_redirects=False,  # the key is meant for this address alone
                proxy=proxy_for(self._url, os.environ),
                ssl=tls_context() if self._url.scheme == "https" else True,
                timeout=aiohttp.ClientTimeout(
                    sock_connect=CONNECT_SECONDS, sock_read=self.model.silence_seconds
                ),
            )
        except ValueError:  # which is said of a URL or a key that no request can hold
            raise ModelFailed(f"{self._named} cannot be called: its URL or its key is malformed") from None

    async def _read(self, response: aiohttp.ClientResponse, reader: TurnReader) -> None:
        events, size, whole = SseParser(MAX_ANSWER_BYTES), 0, bytearray()
        streams = response.content_type != "application/json"
        try:
            while not reader.ended and (chunk := await response.content.readany()):
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    raise LineTooLong(MAX_ANSWER_BYTES)
                if streams:
                    for event in events.feed(chunk):
                        await self._take(bytes(event.data), reader)
                else:
                    whole += chunk
            if not streams:
                await self._take(bytes(whole), reader)
        except LineTooLong:
            raise ModelFailed(f"{self._named}: its answer has no end") from None

    async def _take(self, data: bytes, reader: TurnReader) -> None:
        try:
            text = reader.feed(data)
        except (ValueError, LookupError, TypeError, RecursionError):
            hint = f"does {self._url.host} speak the API of `{self.model.provider}`?"
            raise ModelFailed(f"{self._named}: its answer cannot be read", hint=hint) from None
        if text:
            await self._emit(TextDelta(text=text))

    async def _refusal(self, response: aiohttp.ClientResponse) -> Exception:
        body = bytearray()
        while len(body) < _MAX_ERROR_BYTES and (chunk := await response.content.readany()):
            body += chunk
        return error_for_response(
            response.status,
            bytes(body),
            self.model,
            named=self._named,
            wait=_retry_after(response.headers.get("Retry-After", "")),
        )


def _address(text: str) -> URL:
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        hint = "the `base_url` of a model starts with http:// or https://"
        raise ModelFailed(f"`{redact_url(text)}` is no address of a model's API", hint=hint)
    return url


def _backoff(tries: int) -> float:
    return _FIRST_WAIT_SECONDS * 2 ** (tries - 1) * (0.5 + random.random() / 2)  # noqa: S311 - no secret


def _retry_after(value: str) -> float | None:
    """Return the seconds of a `Retry-After` header, which has seconds or a date."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
