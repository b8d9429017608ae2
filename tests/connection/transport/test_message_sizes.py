"""Large messages: the same answers as small ones, and limits to what is decoded."""

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given

from fairlead.catalog.sanitize.slices import has_more_values
from fairlead.connection.outcomes import RequestRejected
from fairlead.connection.transport.messages import (
    object_of,
    result_of,
)
from fairlead.jsonrpc.frames import Frame, UnusableLine, parse
from fairlead.jsonrpc.limits import MAX_MESSAGE_BYTES, MAX_VALUES
from tests.connection.wire_support import (
    values,
)

LARGE = {
    "content": [{"type": "text", "text": "x" * 400_000}],
    "nested": {"id": 5, "deep": {"jsonrpc": "2.0"}},
}


@pytest.mark.parametrize(
    "template",
    [
        '{"jsonrpc":"2.0","id":7,"result":%s}',
        '{"jsonrpc": "2.0", "id": 7, "result": %s }\r',
        '{"result":%s,"jsonrpc":"2.0","id":7}',
        '{"id":7,"result":%s,"jsonrpc":"2.0"}  ',
        '  {"id" : 7 , "jsonrpc" : "2.0" , "result" : %s}',
    ],
)
def test_a_large_answer_is_the_same_as_a_small_one(template: str) -> None:
    line = (template % json.dumps(LARGE)).encode()
    [frame] = parse(line)
    assert isinstance(frame, Frame)
    assert frame.id == 7
    assert object_of(result_of(frame)) == LARGE


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ('{"jsonrpc":"2.0","method":"notifications/message","params":%s}', "notification"),
        ('{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":%s}', "request"),
        ('{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m","data":%s}}', "error"),
        ('{"jsonrpc":"2.0","id":7,"extra":%s,"result":{}}', "answer"),
    ],
)
def test_a_large_message_that_is_no_plain_answer_is_read_whole(template: str, what: str) -> None:
    [frame] = parse((template % json.dumps(LARGE)).encode())
    assert isinstance(frame, Frame)
    found = {
        "notification": frame.method is not None and frame.id is None,
        "request": frame.method is not None and frame.id == 7,
        "error": bool(frame.error) and frame.id == 7,
        "answer": bytes(frame.result) == b"{}",
    }
    assert found[what]


@pytest.mark.requirement("HARD-13")
def test_a_large_answer_that_is_broken_inside_is_found_out_when_it_is_read() -> None:
    line = b'{"jsonrpc":"2.0","id":7,"result":{"text":"' + b"x" * 400_000 + b'", oops}}'
    [frame] = parse(line)
    assert isinstance(frame, Frame)
    with pytest.raises(ValueError, match="malformed"):
        object_of(result_of(frame))


def test_a_large_answer_that_breaks_off_still_says_whose_it_was() -> None:
    [item] = parse(b'{"jsonrpc":"2.0","id":7,"result":{"text":"' + b"x" * 400_000)
    assert isinstance(item, UnusableLine)
    assert item.answers == 7


def count_values(value: Any) -> int:
    """Count values as `has_more_values` does: by brackets, commas and strings."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return 1 + max(len(members) - 1, 0) + len(members) + sum(map(count_values, members.values()))
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return 1 + max(len(items) - 1, 0) + sum(map(count_values, items))
    return 1 if isinstance(value, str) else 0


@pytest.mark.requirement("HARD-66")
@given(values)
@example({"a": 'x"[,{', 'b\\"': ["\\", '\\"', "[[["]})
@example(["\\" * 65_530 + '"[,', [1, 2]])
def test_values_are_counted_outside_strings(value: Any) -> None:
    encoded = msgspec.json.encode(value)
    count = count_values(value)
    assert has_more_values(encoded, count - 1)
    assert not has_more_values(encoded, count)


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("item", [b"[],", b"{},", b"1,", b'"",', b'{"a":1},', b"[[[]]],", b"null,"])
def test_what_has_too_many_values_is_not_decoded(item: bytes) -> None:
    bomb = b"[" + item * (2 * MAX_VALUES) + b"1]"
    with pytest.raises(ValueError, match="values"):
        object_of(msgspec.Raw(b'{"a":' + bomb + b"}"))
    # An error keeps its message; its data is not decoded either.
    with pytest.raises(RequestRejected, match="m"):
        result_of(Frame(id=1, error=msgspec.Raw(b'{"code":1,"message":"m","data":' + bomb + b"}")))
    spaced = b'{"method":"x","params":{"a":' + bomb + b" " * 300_000 + b"}}"
    (found,) = parse(spaced)
    assert isinstance(found, UnusableLine)


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize("number", [b"1e300", b"1E+308", b"-5e-324", b"0.1e300"])
def test_numbers_that_take_long_to_read_are_not_decoded(number: bytes) -> None:
    with pytest.raises(ValueError, match="numbers take too long to read"):
        object_of(msgspec.Raw(b'{"a":[' + (number + b",") * 5_000 + b"1]}"))
    assert len(object_of(msgspec.Raw(b'{"a":[' + (number + b",") * 100 + b"1]}"))["a"]) == 101


@pytest.mark.requirement("HARD-66")
def test_usual_numbers_with_exponents_are_decoded_however_many() -> None:
    assert len(object_of(msgspec.Raw(b'{"a":[' + b"1.25e-05," * 5_000 + b"1]}"))["a"]) == 5_001


@pytest.mark.requirement("HARD-66")
def test_a_long_text_of_commas_and_quotes_is_one_value() -> None:
    text = {"a": 'a,"[{' * 100_000}
    assert object_of(msgspec.Raw(msgspec.json.encode(text))) == text


@pytest.mark.requirement("HARD-66")
@pytest.mark.parametrize(
    ("head", "answers", "asks"),
    [(b'"method":"x",', None, None), (b'"id":7,"method":"x",', None, 7), (b'"id":7,"error":{},,', 7, None)],
)
def test_a_message_that_is_too_long_is_refused_by_its_ends(
    head: bytes, answers: int | None, asks: int | None
) -> None:
    (found,) = parse(b"{" + head + b'"params":{"a":"' + b"a" * MAX_MESSAGE_BYTES + b'"}}')
    assert isinstance(found, UnusableLine)
    assert (found.answers, found.asks) == (answers, asks)


@pytest.mark.requirement("HARD-66")
def test_a_batch_of_too_many_messages_is_unusable() -> None:
    (found,) = parse(b"[" + b'{"method":"x"},' * 2_000 + b'{"method":"x"}]')
    assert isinstance(found, UnusableLine)


@pytest.mark.parametrize(
    ("head", "tail", "answers"),
    [
        ('{"jsonrpc":"2.0","id":7,"result":{"text":"', '"}}', 7),
        ('{"jsonrpc": "2.0", "id": 7, "result": {"text": "', '"}}', 7),
        ('{"jsonrpc":"2.0","id":0,"result":{"text":"', '"}}', 0),
        ('{"jsonrpc":"2.0","id":"7","result":{"text":"', '"}}', "7"),
        ('{"id":7,"jsonrpc":"2.0","result":{"text":"', '"}}', 7),
        ('{"jsonrpc":"2.0","id":7,"result":{"text":"', '"} }', 7),
        ('{"jsonrpc":"2.0","result":{"text":"', '"},"id":7}', 7),
        ('{"jsonrpc":"2.0","id":123456789012345,"result":{"text":"', '"}}', 123456789012345),
        ('{"jsonrpc":"2.0","id":1234567890123456,"result":{"text":"', '"}}', 1234567890123456),
    ],
)
@pytest.mark.parametrize("size", [10, 70_000, 300_000])
def test_an_answer_of_any_size_finds_its_call(head: str, tail: str, answers: int | str, size: int) -> None:
    (frame,) = parse(f"{head}{'x' * size}{tail}".encode())
    assert isinstance(frame, Frame)
    assert frame.id == answers
    assert json.loads(bytes(result_of(frame))) == {"text": "x" * size}


@pytest.mark.parametrize("size", [10, 70_000])
def test_an_id_with_zeros_before_it_is_no_id_in_an_answer_of_any_size(size: int) -> None:
    (item,) = parse(b'{"jsonrpc":"2.0","id":007,"result":{"text":"%b"}}' % (b"x" * size))
    assert isinstance(item, UnusableLine)
