"""JSON-RPC messages as bytes: read, written, and what of a broken one is still of use."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.connection.outcomes import AnswerUnreadable, NotEncodable, RequestRejected
from fairlead.connection.transport.messages import (
    PendingRequests,
    Progress,
    error_frame,
    notification_frame,
    object_of,
    progress_of,
    request_frame,
    result_frame,
    result_of,
    with_progress_token,
)
from fairlead.jsonrpc.frames import Frame, UnusableLine, parse
from tests.connection.wire_support import (
    lines,
    split,
    text,
    values,
)

DEEP = b"[" * 100_000 + b"]" * 100_000
LONG_INTEGER = b"9" * 200_000
ids = st.integers() | text
objects = st.dictionaries(text, values, max_size=4)


def only(line: bytes) -> Frame | UnusableLine:
    (item,) = parse(line)
    return item


def only_frame(line: bytes) -> Frame:
    item = only(line)
    assert isinstance(item, Frame)
    return item


def only_unusable(line: bytes) -> UnusableLine:
    item = only(line)
    assert isinstance(item, UnusableLine)
    return item


@given(ids, text.filter(bool), objects)
def test_a_request_is_read_as_it_was_written(
    request_id: int | str, method: str, params: dict[str, Any]
) -> None:
    frame = only_frame(request_frame(request_id, method, params))

    assert (frame.id, frame.method, object_of(frame.params)) == (request_id, method, params)


@given(objects)
def test_an_answer_keeps_the_bytes_of_its_result(result: dict[str, Any]) -> None:
    data = msgspec.json.encode(result)
    frame = only_frame(b'{"jsonrpc": "2.0", "id": 1, "result": ' + data + b"}")

    assert bytes(result_of(frame)) == data
    assert object_of(result_of(frame)) == result


def test_unknown_members_are_no_reason_to_refuse_a_message() -> None:
    assert only_frame(b'{"jsonrpc": "1.0", "id": 1, "result": {}, "extra": [1]}').id == 1


def test_raw_parameters_go_out_as_they_are() -> None:
    frame = request_frame(1, "tools/call", {"name": "x", "arguments": msgspec.Raw(b'{"a" :1}')})

    assert b'"arguments":{"a" :1}' in frame


def test_empty_parameters_are_left_out() -> None:
    assert b"params" not in request_frame(1, "ping", {})
    assert b"params" not in notification_frame("notifications/initialized", None)


def test_a_batch_is_its_messages() -> None:
    first, second = parse(b'[{"id": 1, "result": {}}, {"method": "x"}]')

    assert isinstance(first, Frame)
    assert first.id == 1
    assert isinstance(second, Frame)
    assert second.method == "x"


@pytest.mark.parametrize("line", [b"", b" ", b"\r", b"\t \r", b"\xef\xbb\xbf"])
def test_a_blank_line_is_nothing(line: bytes) -> None:
    assert parse(line) == []


@pytest.mark.requirement("HARD-11")
@pytest.mark.parametrize(
    "line",
    [
        b"Listening on port 3000",
        b"\x1b[32mready\x1b[0m",
        b"{",
        b"{'a': 1}",
        b"[",
        b"[]",
        b"[1, 2]",
        b"[[{}]]",
        b"42",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"\x1b" * 100_000,
    ],
)
def test_what_is_no_message_is_unusable_and_quoted(line: bytes) -> None:
    item = only_unusable(line)

    assert (item.answers, item.asks) == (None, None)
    assert item.excerpt
    assert len(item.excerpt) <= 4_000


@pytest.mark.requirement("HARD-11")
@pytest.mark.parametrize("leftovers", [b"\xef\xbb\xbf", b"\x1b[2J\x1b[32m", b"\x1b[?25h \x00\t"])
def test_a_message_after_a_terminals_leftovers_is_read(leftovers: bytes) -> None:
    assert only_frame(leftovers + b'{"id": 1, "result": {}}').id == 1


@pytest.mark.requirement("HARD-11")
def test_a_message_in_the_middle_of_other_text_is_not_believed() -> None:
    assert only_unusable(b'GET /?q={"id": 1, "result": {}} 200').answers is None
    assert only_unusable(b'log: {"id": 1, "result": {}}').answers is None


HALVES = [
    (rb"\ud83d", "\ufffd"),
    (rb"cut \uD83D", "cut \ufffd"),
    (rb"\ude00", "\ufffd"),
    (rb"\uDE00 after", "\ufffd after"),
    (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
    (rb"\ud83d\ude00\ude00", "\U0001f600\ufffd"),
    (rb"\ude00\ud83d", "\ufffd\ufffd"),
    (rb"\ud83d\u0041", "\ufffdA"),
    (rb"\ud83d\n", "\ufffd\n"),
    (rb"\ud83d\\", "\ufffd\\"),
    (rb"\ud83d\\ude00", "\ufffd\\ude00"),
    (rb"\\ud83d\ude00", "\\ud83d\ufffd"),
    (rb"\\\ud83d", "\\\ufffd"),
    (rb"\\\\ud83d \ud83d", "\\\\ud83d \ufffd"),
    (rb"\ud83d\"", '\ufffd"'),
    (rb"\ud55c\ud83d", "\ud55c\ufffd"),
    (b"\\ud83d \xff", "\ufffd \ufffd"),
    (b"\\ud83d \xf0\x9f\x98\x80", "\ufffd \U0001f600"),
]


@pytest.mark.requirement("HARD-12")
@pytest.mark.parametrize(("written", "read"), HALVES)
@pytest.mark.parametrize("padding", [0, 100_000, 400_000])
def test_half_a_character_costs_only_itself(written: bytes, read: str, padding: int) -> None:
    pad = b"x" * (0 if b"\xff" in written else padding)
    text = b'"' + written + b'"'
    line = b'{"jsonrpc":"2.0","id":1,"result":{"pad":"%b",%b:[%b]}}' % (pad, text, text)
    (frame,) = parse(line)
    assert isinstance(frame, Frame)
    assert object_of(frame.result) == {"pad": pad.decode(), read: [read]}


def test_half_a_character_in_a_batch_an_error_or_a_request_costs_only_itself() -> None:
    first, second = parse(rb'[{"id":1,"error":{"code":1,"message":"\ud83d"}},{"id":2,"method":"a\udc00"}]')
    assert isinstance(first, Frame)
    with pytest.raises(RequestRejected, match="\ufffd"):
        result_of(first)
    assert isinstance(second, Frame)
    assert second.method == "a\ufffd"


@pytest.mark.requirement("HARD-12")
def test_bytes_that_are_no_utf8_are_replaced() -> None:
    frame = only_frame(b'{"id": 1, "result": {"text": "caf\xe9 \xed\xa0\x80"}}')

    assert object_of(result_of(frame)) == {"text": "caf\ufffd \ufffd\ufffd\ufffd"}


BROKEN = {
    "not a number": b'{"number": NaN}',
    "deep": b'{"list": ' + DEEP + b"}",
    "cut off": b'{"list": [1, 2',
    "control character": b'{"text": "\x01"}',
}


@pytest.mark.requirement("HARD-13")
@pytest.mark.parametrize("result", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc": "2.0", "id": 7, "result": %s}',
        b'{"id":7,"result":%s}',
        b'{"result": %s, "jsonrpc": "2.0", "id": 7}',
        b'{"jsonrpc": "2.0", "error": %s, "id": 7}\r',
        b'{"jsonrpc": "2.0", "id": 7.0, "result": %s}',
    ],
)
def test_a_broken_answer_still_says_whose_it_is(message: bytes, result: bytes) -> None:
    item = only_unusable(message % result)

    if result == BROKEN["cut off"] and message.startswith(b'{"result"'):
        return
    assert (item.answers, item.asks) == (7, None)


@pytest.mark.requirement("HARD-13")
def test_an_id_inside_a_broken_result_is_nobodys() -> None:
    assert only_unusable(b'{"result": {"id": 7, "x": NaN}}').answers is None
    assert only_unusable(b'{"result": {"id": 7, "x": NaN}, "id": 8}').answers == 8
    assert only_unusable(b'{"id": 8, "result": {"x": NaN, "id": 7}}').answers == 8


@pytest.mark.requirement("HARD-13")
def test_a_broken_request_is_not_taken_for_an_answer() -> None:
    for line in (
        b'{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {"a": NaN}}',
        b'{"params": {"a": NaN}, "method": "x", "id": 7}',
        b'{"id": 7, "method": 5}',
    ):
        item = only_unusable(line)
        assert (item.answers, item.asks) == (None, 7)


@pytest.mark.requirement("HARD-13")
@pytest.mark.parametrize("value", [LONG_INTEGER, b"1e400"])
def test_a_number_beyond_floats_is_an_error_when_it_is_read(value: bytes) -> None:
    frame = only_frame(b'{"id": 1, "result": {"number": ' + value + b"}}")

    with pytest.raises(ValueError, match=r"out of range|take too long to read"):
        object_of(result_of(frame))


@pytest.mark.requirement("HARD-13")
def test_an_id_that_is_a_whole_float_finds_its_call() -> None:
    calls: PendingRequests[str] = PendingRequests()
    calls.add(7, "seven")
    frame = only_frame(b'{"id": 7.0, "result": {}}')

    assert frame.id is not None
    assert calls.get(frame.id) == "seven"


@given(st.binary())
@example(b'{"id": 1, "result": ' + DEEP)
@example(b'{"id": ' + LONG_INTEGER + b', "result": {}}')
@example(b'{"id": 1' + b', "a": 1' * 10_000)
@example(b'{"id": "' + b"\\" * 9_999)
@example(b"[" + b"{}," * 10_000)
@example(b"[" * 900 + b"]" * 900)
def test_no_line_whatsoever_raises(line: bytes) -> None:
    for item in parse(line):
        assert isinstance(item, Frame | UnusableLine)


@given(st.data(), st.integers(1, 10**9), objects)
def test_a_damaged_answer_is_this_answer_or_nobodys(
    data: st.DataObject, number: int, result: dict[str, Any]
) -> None:
    line = bytearray(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (number, msgspec.json.encode(result)))
    damage = data.draw(st.integers(line.index(b"result"), len(line) - 1))
    line[damage] = data.draw(st.integers(0, 255).filter(lambda byte: byte != 0x0A))

    for item in parse(bytes(line)):
        if isinstance(item, Frame):
            assert item.id == number
        else:
            assert item.answers in (number, None)


@given(st.lists(lines | st.integers(0, 99)), st.lists(st.integers(0)))
def test_garbage_never_costs_a_neighbouring_message(stream: list[bytes | int], places: list[int]) -> None:
    data = b"".join(
        (item if isinstance(item, bytes) else b'{"id": "ours-%d", "result": {}}' % item) + b"\n"
        for item in stream
    )

    found = [item.id for line in split(data, places) for item in parse(line) if isinstance(item, Frame)]

    expected = [f"ours-{item}" for item in stream if isinstance(item, int)]
    assert [one for one in found if isinstance(one, str) and one.startswith("ours-")] == expected


@given(objects, st.sampled_from([math.nan, math.inf, -math.inf]))
def test_not_a_number_is_refused_before_it_becomes_null(params: dict[str, Any], value: float) -> None:
    with pytest.raises(NotEncodable):
        request_frame(1, "x", {**params, "arguments": {"list": [{"value": value}]}})


@pytest.mark.parametrize("value", ["\ud800", object(), lambda: None], ids=["surrogate", "object", "function"])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(NotEncodable) as caught:
        request_frame(1, "x", {"value": value})

    assert caught.value.delivery == "not_sent"


def test_parameters_without_end_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(NotEncodable):
        request_frame(1, "x", {"value": endless})


def test_null_is_a_value_like_any_other() -> None:
    assert json.loads(request_frame(1, "x", {"value": None}))["params"] == {"value": None}


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (b'{"id": 1, "error": {"code": -32602, "message": "no such tool"}}', -32602, "no such tool"),
        (b'{"id": 1, "result": {}, "error": {"code": 1, "message": "but"}}', 1, "but"),
        (b'{"id": 1, "error": "careless"}', -32603, "careless"),
        (b'{"id": 1, "error": {}}', -32603, "the server gave no reason"),
    ],
)
def test_an_error_is_a_rejection_however_it_is_written(answer: bytes, code: int, message: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        result_of(only_frame(answer))

    assert (caught.value.code, caught.value.message, caught.value.delivery) == (code, message, "done")


@pytest.mark.parametrize("answer", [b'{"id": 1}', b'{"id": 1, "result": [1]}', b'{"id": 1, "error": 1e400}'])
def test_an_answer_without_a_result_is_unreadable(answer: bytes) -> None:
    with pytest.raises(AnswerUnreadable) as caught:
        result_of(only_frame(answer))

    assert caught.value.delivery == "done"


def test_null_stands_for_an_empty_result() -> None:
    assert bytes(result_of(only_frame(b'{"id": 1, "result": null, "error": null}'))) == b"{}"


def test_answers_of_ours_can_be_read() -> None:
    assert object_of(result_of(only_frame(result_frame("a", {"x": 1})))) == {"x": 1}
    with pytest.raises(RequestRejected, match="no") as caught:
        result_of(only_frame(error_frame(1.0, 5, "no", {"why": "because"})))
    assert caught.value.data == {"why": "because"}


def test_a_number_and_its_text_are_one_id() -> None:
    calls: PendingRequests[str] = PendingRequests()
    calls.add("7", "seven")

    assert calls.get(7) == calls.get("7") == "seven"
    with pytest.raises(ValueError, match="already in flight"):
        calls.add(7, "another")
    assert [calls.mint() for _ in range(8)] == [1, 2, 3, 4, 5, 6, 8, 9]
    calls.remove(7)
    assert calls.get("7") is None
    assert len(calls) == 0


def test_progress_is_read_where_it_makes_sense() -> None:
    assert progress_of({"progressToken": 1, "progress": 2, "total": 4, "message": "half"}) == (
        1,
        Progress(progress=2.0, total=4.0, message="half"),
    )
    assert progress_of({"progressToken": "a", "progress": 0.5, "total": "?", "message": 1}) == (
        "a",
        Progress(progress=0.5, total=None, message=None),
    )
    for params in ({}, {"progressToken": True, "progress": 1}, {"progressToken": 1, "progress": "x"}):
        assert progress_of(params) is None


def test_a_progress_token_leaves_the_rest_of_the_metadata() -> None:
    params = {"name": "x", "_meta": {"a": 1}}

    assert with_progress_token(params, 5) == {"name": "x", "_meta": {"a": 1, "progressToken": 5}}
    assert params == {"name": "x", "_meta": {"a": 1}}
    assert with_progress_token(None, 5) == {"_meta": {"progressToken": 5}}
