"""JSON-RPC without I/O: responses are matched to requests, and values encoded."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import msgspec
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import INTERNAL_ERROR, RequestId

from fairlead.catalog.sanitize import gate
from fairlead.catalog.sanitize.slices import has_more_values, has_slow_numbers
from fairlead.connection.outcomes import AnswerUnreadable, NotEncodable, RequestFailed, RequestRejected
from fairlead.connection.server_messages import read_number
from fairlead.jsonrpc.frames import Frame
from fairlead.jsonrpc.limits import MAX_MESSAGE_BYTES, MAX_VALUES

_FEW_VALUES_BYTES = 16 * 1024
"""No JSON text of this length can hold enough values for their number to matter."""


CallT = TypeVar("CallT")


_BRACE = ord("{")
_NULL = msgspec.Raw(b"null")
_EMPTY_OBJECT = msgspec.Raw(b"{}")

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode

_MAX_CODE = 2**31


class _Error(msgspec.Struct, gc=False):
    """A JSON-RPC error, its parts undecoded: each may be of any type and size."""

    code: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()
    data: msgspec.Raw = msgspec.Raw()


_decode_error = msgspec.json.Decoder(_Error).decode


def object_of(
    raw: msgspec.Raw, max_bytes: int = MAX_MESSAGE_BYTES, max_values: int = MAX_VALUES
) -> dict[str, Any]:
    """Return the object in `raw`; an absent one or `null` is empty.

    Raises `ValueError` where it is none, or so long or of so many values that reading it would hold the event
    loop.
    """
    if not raw or raw == _NULL:
        return {}
    if len(memoryview(raw)) > max_bytes:
        raise ValueError(f"it is longer than {max_bytes} bytes")
    _require_few_values(raw, max_values)
    try:
        return _decode_object(raw)
    except RecursionError as exc:
        raise ValueError(str(exc)) from exc


def _require_few_values(raw: msgspec.Raw, most: int) -> None:
    view = memoryview(raw)
    if len(view) > _FEW_VALUES_BYTES and has_more_values(view, most):
        raise ValueError(f"it has more than {most} values")
    if len(view) > _FEW_VALUES_BYTES and has_slow_numbers(bytes(view)):
        raise ValueError("its numbers take too long to read (very long, or near the limits of floats)")


def result_of(frame: Frame) -> msgspec.Raw:
    """Return the result an answer carries, an object, as bytes.

    Raises `RequestRejected` if it carries an error, `AnswerUnreadable` if it carries neither.
    """
    error, result = frame.error, frame.result
    if error and error != _NULL:
        raise rejection(error)
    if result and memoryview(result)[0] == _BRACE:
        return result
    if result == _NULL:
        return _EMPTY_OBJECT
    raise AnswerUnreadable("it has no result" if not result else "its result is not an object")


def rejection(error: msgspec.Raw) -> RequestFailed:
    """Return the exception for the error a server answered with, however carelessly it is written."""
    try:
        members = _decode_error(error)
    except (ValueError, RecursionError) as exc:
        try:
            value: object = msgspec.json.decode(error) if len(error) <= gate.MAX_DATA_BYTES else None
        except (ValueError, RecursionError):
            return AnswerUnreadable(str(exc))
        return RequestRejected(INTERNAL_ERROR, gate.text(str(value)))
    # The data stays bytes until its size is known: to build objects of a few megabytes would take too long.
    message, data = gate.error(
        _scalar(members.message, str) or "the server gave no reason", bytes(members.data)
    )
    code = _scalar(members.code, int | float)
    return RequestRejected(int(code) if _is_code(code) else INTERNAL_ERROR, message, data)


def _scalar(raw: msgspec.Raw, kind: Any) -> Any:  # noqa: ANN401 - of that kind
    try:
        return msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError):
        return None


def _is_code(code: float | None) -> bool:
    return code is not None and abs(code) <= _MAX_CODE


class _RequestFrame(msgspec.Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    method: str
    id: RequestId | float | None = None
    params: Mapping[str, Any] | msgspec.Raw | None = None


class _Answer(msgspec.Struct, tag_field="jsonrpc", tag="2.0", omit_defaults=True, gc=False):
    id: RequestId | float
    result: Any = None
    error: Any = None


_encode = msgspec.json.Encoder().encode


def request_frame(request_id: RequestId, method: str, params: Mapping[str, Any] | None) -> bytes:
    """Return the bytes of a request. A `msgspec.Raw` anywhere in `params` goes out as it is."""
    return _encode_message(_RequestFrame(method, request_id, params or None), params)


def notification_frame(method: str, params: Mapping[str, Any] | None) -> bytes:
    """Return the bytes of a notification."""
    return _encode_message(_RequestFrame(method, None, params or None), params)


def result_frame(request_id: RequestId | float, result: Mapping[str, Any]) -> bytes:
    """Return the bytes of an answer with a result."""
    return _encode_message(_Answer(request_id, result), result)


def error_frame(request_id: RequestId | float, code: int, message: str, data: object = None) -> bytes:
    """Return the bytes of an answer with an error."""
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return _encode_message(_Answer(request_id, error=error), error)


def _encode_message(message: msgspec.Struct, payload: object) -> bytes:
    try:
        frame = _encode(message)
        # NaN and infinity come out as null: the server would act on a value that was not given.
        finite = b"null" not in frame or _is_finite(payload)
    except UnicodeEncodeError as exc:
        raise NotEncodable("a text in it is no valid Unicode: it has half of a surrogate pair") from exc
    except (ValueError, TypeError, RecursionError) as exc:
        raise NotEncodable(str(exc)) from exc
    if not finite:
        raise NotEncodable("NaN and infinity are not JSON")
    return frame


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_is_finite, cast("Mapping[object, object]", value).values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, cast("list[object]", value)))
    return True


class PendingRequests(Generic[CallT]):
    """Requests in flight by id: one table for all the streams an answer may come on.

    `"7"` and `7` are one id here, as the SDK has it, while the wire carries what was given.
    """

    def __init__(self) -> None:
        self._last_id = 0
        self._calls: dict[RequestId | float, CallT] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[CallT]:
        """Iterate over a copy, so that settling a call may remove it."""
        return iter([*self._calls.values()])

    def mint(self) -> int:
        """Return an id that is not in use."""
        self._last_id += 1
        while self._last_id in self._calls:
            self._last_id += 1
        return self._last_id

    def add(self, request_id: RequestId | float, call: CallT) -> None:
        """Enter a call. Raises `ValueError` if its id is taken."""
        key = coerce_request_id(request_id) if isinstance(request_id, str) else request_id
        if key in self._calls:
            raise ValueError(f"request id {request_id!r} is already in flight")
        self._calls[key] = call

    def get(self, request_id: RequestId | float) -> CallT | None:
        """Return the call with that id, or `None` if it is over or never was."""
        return self._calls.get(coerce_request_id(request_id) if isinstance(request_id, str) else request_id)

    def remove(self, request_id: RequestId | float) -> None:
        """Forget a call; what still comes for it is late and ignored."""
        self._calls.pop(coerce_request_id(request_id) if isinstance(request_id, str) else request_id, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Progress of a request."""

    progress: float
    total: float | None
    message: str | None


def progress_of(params: Mapping[str, Any]) -> tuple[RequestId, Progress] | None:
    """Return whose progress a `notifications/progress` reports and how much, or `None` if it does not say."""
    token, progress = params.get("progressToken"), read_number(params.get("progress"))
    if isinstance(token, float) and token.is_integer():
        token = int(token)
    if progress is None or isinstance(token, bool) or not isinstance(token, str | int):
        return None
    message = params.get("message")
    return token, Progress(
        progress=progress,
        total=read_number(params.get("total")),
        message=message if isinstance(message, str) else None,
    )


def with_progress_token(params: Mapping[str, Any] | None, token: RequestId) -> dict[str, Any]:
    """Return `params` asking for progress under `token`."""
    params = params or {}
    return {**params, "_meta": {**(params.get("_meta") or {}), "progressToken": token}}
