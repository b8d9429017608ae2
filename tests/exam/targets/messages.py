"""JSON-RPC in both directions: what servers send us, and what clients send the gateway."""

import json
from collections.abc import Iterable
from typing import Any

from mcp_types import JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter

from fairlead.config.untyped import is_object
from fairlead.connection.outcomes import NotEncodable, RequestFailed
from fairlead.connection.transport.messages import object_of, progress_of, request_frame, result_of
from fairlead.jsonrpc.frames import Frame, LineSplitter, UnusableLine, parse
from fairlead.jsonrpc.incoming import MessageRefusal, read_messages, repair_body
from fairlead.jsonrpc.limits import LineTooLong
from tests.exam.targets import split

SMALL_LIMIT = 64
MAX_REASON = 1_000


def check(data: bytes) -> None:
    """Take the content as a stream of lines, and its lines as messages of a server and of a client."""
    choices, content = split(data)
    assert _lines([content]) == _lines(choices.chunks(content))
    for line in content.split(b"\n")[:8]:
        plain = _strict(line)
        _check_server(line, plain)
        _check_client(line, plain)


def _lines(chunks: Iterable[bytes]) -> list[bytes | UnusableLine | None]:
    """The lines of a stream; None at the end where it could not be followed any further."""
    splitter = LineSplitter(SMALL_LIMIT)
    found: list[bytes | UnusableLine | None] = []
    try:
        for chunk in chunks:
            found += map(_frozen, splitter.feed(chunk))
        found += map(_frozen, splitter.finish())
    except LineTooLong:
        found.append(None)
    return found


def _frozen(line: bytes | bytearray | UnusableLine) -> bytes | UnusableLine:
    return line if isinstance(line, UnusableLine) else bytes(line)


def _strict(line: bytes) -> dict[str, Any] | None:
    """The message as any JSON parser reads it; None where parsers may differ, or it is none."""
    try:
        message: Any = json.loads(line.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
        line.decode().encode("ascii")
    except (ValueError, RecursionError):
        return None
    if not is_object(message) or b"\\" in line or message.get("jsonrpc") != "2.0":
        return None
    return message


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("repeated name")
    return dict(pairs)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and abs(value) < 2**53)


def _check_server(line: bytes, plain: dict[str, Any] | None) -> None:
    """No line of a server raises, and an answer finds its request, whether it can be used or not."""
    frames = parse(line)
    for frame in frames:
        if isinstance(frame, UnusableLine):
            assert len(frame.reason) <= MAX_REASON
        elif frame.method is None:
            _read_answer(frame)
        else:
            _read_params(frame)
    if plain is None or not _is_id(plain.get("id")) or not isinstance(plain.get("method", ""), str):
        return
    (frame,) = frames
    if "method" in plain:
        asked = frame.asks if isinstance(frame, UnusableLine) else frame.id
        assert asked == plain["id"]
    elif isinstance(plain.get("result"), dict) and "error" not in plain:
        answered = frame.answers if isinstance(frame, UnusableLine) else frame.id
        assert answered == plain["id"]
        if isinstance(frame, Frame):
            assert json.loads(bytes(frame.result)) == plain["result"]


def _read_answer(frame: Frame) -> None:
    try:
        result = result_of(frame)
    except RequestFailed:
        return
    assert bytes(result).startswith(b"{")


def _read_params(frame: Frame) -> None:
    try:
        params = object_of(frame.params)
    except ValueError:
        return
    progress_of(params)


def _check_client(line: bytes, plain: dict[str, Any] | None) -> None:
    """Every request of a client becomes a message for the SDK, or is refused under its own id."""
    messages = read_messages(line)
    for message in messages:
        if isinstance(message, MessageRefusal):
            error = json.loads(message.encode())
            assert isinstance(error["error"]["code"], int)
            assert len(message.reason) <= MAX_REASON
        elif isinstance(message, JSONRPCRequest):
            _check_passed_on(message)
    body = repair_body(line)
    if not isinstance(body, MessageRefusal):
        sent = jsonrpc_message_adapter.validate_json(body, by_name=False)
        (read,) = messages
        assert not isinstance(read, MessageRefusal)
        assert type(sent) is type(read)
        assert json.dumps(sent.model_dump()) == json.dumps(read.model_dump())
    if plain is not None and isinstance(plain.get("method"), str) and _has_object_params(plain):
        _check_plain(plain, messages)


def _check_plain(plain: dict[str, Any], messages: list[Any]) -> None:
    (message,) = messages
    if "id" not in plain:
        assert isinstance(message, JSONRPCNotification)
    elif not _is_id(plain["id"]):
        return
    elif isinstance(message, MessageRefusal):
        assert message.id == plain["id"]
    else:
        assert isinstance(message, JSONRPCRequest)
        assert (message.id, message.method, message.params) == (
            plain["id"],
            plain["method"],
            plain.get("params"),
        )


def _has_object_params(plain: dict[str, Any]) -> bool:
    return "params" not in plain or isinstance(plain["params"], dict)


def _check_passed_on(message: JSONRPCRequest) -> None:
    """What a client asks for reaches a server unchanged."""
    try:
        sent = request_frame(message.id, message.method, message.params)
    except NotEncodable:
        return
    (frame,) = parse(sent)
    assert isinstance(frame, Frame)
    assert (frame.id, frame.method) == (message.id, message.method)
    assert object_of(frame.params) == (message.params or {})
