"""Parsing of clients' messages: repaired where possible, else refused under the request's own id.

The SDK's transports drop a message that they cannot parse, and its sender waits out its timeout. Here every
request becomes a message for the SDK's server, or a `MessageRefusal` that is sent back at once. A byte order
mark, NUL bytes, invalid UTF-8, lone surrogates, batches, whole numbers written as `16.0` and an absent
`jsonrpc` are repaired: JavaScript, Windows shells and older clients write them.
"""

import re
from typing import Any, Final, Literal

import msgspec
import pydantic_core
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from msgspec import UNSET, UnsetType

from fairlead.catalog.sanitize.slices import decode_finite
from fairlead.config.untyped import is_object
from fairlead.jsonrpc.frames import MAX_BATCH_BYTES, MAX_BATCH_MESSAGES, Frame, UnusableLine, parse

_UNREADABLE: Final = (ValueError, RecursionError)
_MAX_DEPTH: Final = 190
"""Deepest nesting that the SDK's HTTP server parses: a little less than its own limit of 200."""
_MAX_REASON: Final = 200


class _SoundError(msgspec.Struct):
    code: int
    message: str


class _Sound(msgspec.Struct):
    """A message that the SDK's server accepts."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: msgspec.Raw = msgspec.Raw()
    result: dict[str, msgspec.Raw] | UnsetType = UNSET
    error: _SoundError | UnsetType = UNSET


class _Id(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()


_decode_id = msgspec.json.Decoder(_Id).decode
_decode_sound = msgspec.json.Decoder(_Sound).decode
_decode_frame = msgspec.json.Decoder(Frame).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_decode_batch = msgspec.json.Decoder(list[msgspec.Raw]).decode
_NULL: Final = msgspec.Raw(b"null")
_BATCH_BEGINS: Final = re.compile(rb"(?:\xef\xbb\xbf|[\x00-\x20])*\[")
_encode = msgspec.json.Encoder().encode


class MessageRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Error response to a message that cannot be handled."""

    code: int
    reason: str
    id: RequestId | float | None = None
    """Id of the request, or None where the message does not show one."""

    def encode(self) -> bytes:
        """Encode the JSON-RPC error."""
        error = {"code": self.code, "message": self.reason}
        return _encode({"jsonrpc": "2.0", "id": self.id, "error": error})


def read_messages(line: bytes | bytearray | UnusableLine) -> list[JSONRPCMessage | MessageRefusal]:
    """Messages in one line, with a refusal for each request that cannot be handled."""
    if isinstance(line, UnusableLine):
        return [_refuse(line)]
    if parts := split_batch(line):
        read = map(read_part, parts)
    else:
        read = (_read_frame(frame, line) for frame in _frames(line))
    return [message for message in read if message is not None]


def split_batch(body: bytes | bytearray) -> list[bytes] | None:
    """Messages of a batch, each as its own bytes; None for anything else, or too large a batch."""
    if not (len(body) <= MAX_BATCH_BYTES and _BATCH_BEGINS.match(body)):
        return None
    try:
        messages = [bytes(message) for message in _decode_batch(body[body.index(b"[") :])]
    except _UNREADABLE:
        return None
    return messages if len(messages) <= MAX_BATCH_MESSAGES else None


def read_part(part: bytes) -> JSONRPCMessage | MessageRefusal | None:
    """Message in one part of a batch, or its refusal; None for one to be ignored."""
    if not part.startswith(b"{"):
        return MessageRefusal(code=INVALID_REQUEST, reason="a part of a batch must be a JSON object")
    (frame,) = _frames(part) or [UnusableLine(reason="it is empty", excerpt=b"")]
    return _read_frame(frame, part)


def _read_frame(
    frame: Frame | UnusableLine, line: bytes | bytearray
) -> JSONRPCMessage | MessageRefusal | None:
    """Message of a frame, given the line that held only it."""
    if isinstance(frame, UnusableLine):
        return _refuse(frame, is_json=_is_json(line))
    if frame.method is not None and frame.id is None and _has_null_id(line):
        # Not a notification: its sender waits for an answer.
        return MessageRefusal(
            code=INVALID_REQUEST, reason="an id must be a string or a whole number, not null"
        )
    return _message(frame)


def _has_null_id(line: bytes | bytearray) -> bool:
    if b"null" not in line:
        return False
    try:
        return bytes(_decode_id(line[line.index(b"{") :]).id) == b"null"
    except _UNREADABLE:
        return False


def _is_json(line: bytes | bytearray) -> bool:
    try:
        _decode_raw(line)
    except _UNREADABLE:
        return False
    return True


def repair_body(body: bytes) -> bytes | MessageRefusal:
    """Body of an HTTP request as JSON-RPC that the SDK's server can parse, or a refusal.

    A body without anything to repair is returned as the same object. Invalid UTF-8 is refused over HTTP.
    """
    is_utf8 = body.isascii() or _is_utf8(body)
    frames = _frames(body)
    if len(frames) > 1:
        return MessageRefusal(
            code=INVALID_REQUEST, reason="batches are not supported: send one message at a time"
        )
    message = _read_frame(frames[0] if frames else UnusableLine(reason="it is empty", excerpt=b""), body)
    if not is_utf8 or message is None or isinstance(message, MessageRefusal):
        return MessageRefusal(
            code=message.code if isinstance(message, MessageRefusal) else PARSE_ERROR,
            reason=message.reason if isinstance(message, MessageRefusal) else "the body is not JSON in UTF-8",
            id=getattr(message, "id", None) if isinstance(message, MessageRefusal | JSONRPCRequest) else None,
        )
    try:
        sound = (
            body if _is_sound(body) else message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        )
        if sound.count(b"[") + sound.count(b"{") > _MAX_DEPTH:
            pydantic_core.from_json(sound)
    except _UNREADABLE as exc:
        request_id = message.id if isinstance(message, JSONRPCRequest) else None
        return MessageRefusal(code=PARSE_ERROR, reason=f"it cannot be parsed: {_shorten(exc)}", id=request_id)
    return sound


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_sound(body: bytes) -> bool:
    try:
        _decode_sound(body)
    except _UNREADABLE:
        return False
    return True


def _frames(line: bytes | bytearray) -> list[Frame | UnusableLine]:
    # A valid message may have any size: the limits for servers' messages would refuse large arguments here.
    try:
        return [_decode_frame(line)] if line.isascii() else parse(line)
    except _UNREADABLE:
        return parse(line)


def _message(frame: Frame) -> JSONRPCMessage | MessageRefusal | None:
    request_id = _whole(frame.id)
    if frame.method is None:
        return _answer(frame, request_id)
    try:
        params = _read_object(bytes(frame.params or b"null"))
    except _UNREADABLE as exc:
        # A notification gets no response, not even this one.
        reason = f"`params` cannot be parsed: {_shorten(exc)}"
        return (
            None if request_id is None else MessageRefusal(code=INVALID_PARAMS, reason=reason, id=request_id)
        )
    if request_id is None:
        return JSONRPCNotification(jsonrpc="2.0", method=frame.method, params=params)
    if isinstance(request_id, float):
        return MessageRefusal(
            code=INVALID_REQUEST, reason="an id must be a string or a whole number", id=request_id
        )
    return JSONRPCRequest(jsonrpc="2.0", id=request_id, method=frame.method, params=params)


def _answer(frame: Frame, request_id: RequestId | float | None) -> JSONRPCMessage | MessageRefusal | None:
    """Client's answer to a request of ours; an invalid one ends our wait all the same."""
    if not frame.result and not frame.error:
        reason = "a message must have a `method`, a `result` or an `error`"
        return MessageRefusal(code=INVALID_REQUEST, reason=reason, id=request_id)
    if request_id is None or isinstance(request_id, float):
        return None
    try:
        if frame.error and frame.error != _NULL:
            error = ErrorData.model_validate(decode_finite(bytes(frame.error)))
            return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)
        result: dict[str, Any] = _read_object(bytes(frame.result)) or {}
    except _UNREADABLE as exc:
        return _unreadable_answer(request_id, _shorten(exc))
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result)


def _unreadable_answer(request_id: RequestId, reason: str) -> JSONRPCError:
    error = ErrorData(code=INTERNAL_ERROR, message=f"the client's answer cannot be parsed: {reason}")
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _refuse(line: UnusableLine, *, is_json: bool = False) -> JSONRPCMessage | MessageRefusal:
    if line.answers is not None:
        return _unreadable_answer(line.answers, line.reason)
    reason = f"it cannot be parsed as JSON-RPC: {line.reason[:_MAX_REASON]}"
    return MessageRefusal(code=INVALID_REQUEST if is_json else PARSE_ERROR, reason=reason, id=line.asks)


def _read_object(raw: bytes) -> dict[str, Any] | None:
    value: object = decode_finite(raw)
    if value is not None and not is_object(value):
        raise ValueError("it is not an object")
    return value


def _whole(request_id: float | str | None) -> RequestId | float | None:
    """Id in the SDK's form: JSON has one kind of number, and `16.0` is `16`."""
    if isinstance(request_id, float) and request_id.is_integer():
        return int(request_id)
    return request_id


def _shorten(exc: BaseException) -> str:
    return str(exc)[:_MAX_REASON]
