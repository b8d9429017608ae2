"""What a server's HTTP response holds, read within bounds: an answer, a stream of events, or a refusal."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import aiohttp
import anyio
import msgspec
from mcp_types import METHOD_NOT_FOUND, RequestId

from fairlead.auth.challenge import MAX_HEADER
from fairlead.catalog import gate
from fairlead.catalog.slices import Turn
from fairlead.connection.dispatcher import Call
from fairlead.connection.http_outcomes import (
    AnswerLost,
    AnswerTooLong,
    HttpRejected,
    SessionExpired,
    connection_trouble,
)
from fairlead.connection.outcomes import RequestFailed
from fairlead.connection.wire import rejection

_MAX_ERROR_BYTES = 64 * 1024
_MAX_EXCERPT = 200
_MAX_PARTS = 4096
_MAX_RETRY_AFTER = 40
_READ_BYTES = 16 * 1024


@contextmanager
def until_answered(call: Call) -> Generator[None]:
    """Leave the block, whatever it waits for, once the call is over: answered elsewhere, or out of time.

    An answer that is there counts for more than what goes wrong on the way.
    """
    with anyio.CancelScope() as scope:
        call.answer.add_done_callback(lambda _: scope.cancel())
        try:
            yield
        except RequestFailed:
            if not call.answer.done():
                raise


def is_stream(response: aiohttp.ClientResponse) -> bool:
    """Tell whether a response is a stream of events."""
    content = response.headers.get("Content-Type", "").lower()
    return response.status == 200 and content.startswith("text/event-stream")


async def read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body, decompressed. Raises `AnswerTooLong` past `limit`, with no more than that read."""
    whole = bytearray()
    parts: list[bytes] = []
    size, turn = 0, Turn()
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
        raise AnswerLost(connection_trouble(exc)) from exc
    finally:
        response.close()
    return parts[0] if len(parts) == 1 and not whole else b"".join((whole, *parts))


class _ErrorBody(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    error: msgspec.Raw
    id: RequestId | None = None


_decode_error = msgspec.json.Decoder(_ErrorBody).decode


async def refusal(
    response: aiohttp.ClientResponse, *, request_id: RequestId | None = None, session_id: str | None = None
) -> RequestFailed:
    """Return what a response means that brings no answer.

    A JSON-RPC error in its body counts for more than its status, unless the status is about logging in or the
    server says that it does not know the session.
    """
    status = response.status
    try:
        body = await read_body(response, _MAX_ERROR_BYTES)
    except RequestFailed:
        body = b""
    error, error_id = _error_in(body)
    if session_id is not None and _session_unknown(status, error, named=request_id == error_id):
        return SessionExpired(status, session_id)
    if error is not None and status not in (401, 403, 429):
        return error
    detail = f": {error.message}" if error is not None else _first_line(response, body)
    message = f"the server answered with HTTP {status} {shown(response.reason)}".rstrip() + detail
    return HttpRejected(
        status,
        message,
        challenge=challenge_in(response),
        retry_after=shown(response.headers.get("Retry-After"), _MAX_RETRY_AFTER) or None,
        content_type=shown(response.headers.get("Content-Type")) or None,
    )


def challenge_in(response: aiohttp.ClientResponse) -> str | None:
    """Return what a response says about logging in."""
    # Parsed later on, so nothing that merely looks like a secret is masked: `Bearer realm="x"` does.
    said = ", ".join(response.headers.getall("WWW-Authenticate", ()))
    return gate.content(_decoded(said), MAX_HEADER) or None


def shown(text: str | None, limit: int = _MAX_EXCERPT) -> str:
    """Return what a header says, as far as it is fit to be shown."""
    return gate.text(_decoded(text or ""), limit)


def _decoded(header: str) -> str:
    return header.encode(errors="surrogateescape").decode(errors="replace")


def _error_in(body: bytes) -> tuple[RequestFailed | None, RequestId | None]:
    try:
        found = _decode_error(body)
    except (ValueError, RecursionError):
        return None, None
    return rejection(found.error), found.id


def _session_unknown(status: int, error: RequestFailed | None, *, named: bool) -> bool:
    if status == 404:
        # Servers also say so of a method they lack, and then name the request they mean.
        return not (named and error is not None and error.code == METHOD_NOT_FOUND)
    # What the protocol wants here is 404, but many servers say 400 and give the reason in words.
    return status == 400 and error is not None and not named and "session" in error.message.lower()


def _first_line(response: aiohttp.ClientResponse, body: bytes) -> str:
    if response.content_type != "text/plain":
        return ""
    line = gate.text(body.decode(errors="replace"), _MAX_EXCERPT).strip().partition("\n")[0]
    return f": {line}" if line else ""


def misfit(response: aiohttp.ClientResponse, due: str) -> HttpRejected:
    """Return what a response means whose content is of another kind than what is `due`."""
    response.close()
    content = shown(response.headers.get("Content-Type", "nothing"))
    message = f"the server answered with {content!r} where {due} is due"
    return HttpRejected(response.status, message, content_type=content)
