import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.connection.transport.sse_parser import MAX_ID_BYTES, ServerSentEvent, SseParser
from fairlead.jsonrpc.limits import LineTooLong


def events(*chunks: bytes, limit: int = 1000) -> list[tuple[str, bytes]]:
    stream = SseParser(limit)
    return [(event.name, bytes(event.data)) for chunk in chunks for event in stream.feed(chunk)]


def test_an_event_has_a_name_and_data() -> None:
    assert events(b'event: greeting\ndata: {"a": 1}\n\n') == [("greeting", b'{"a": 1}')]


def test_an_event_without_a_name_is_a_message() -> None:
    assert events(b"data: x\n\ndata: y\n\n") == [("message", b"x"), ("message", b"y")]


def test_lines_of_data_are_joined() -> None:
    assert events(b"data: x\ndata:\ndata:  y\n\n") == [("message", b"x\n\n y")]


def test_only_one_space_after_the_colon_is_left_out() -> None:
    assert events(b"data:x\n\ndata:  x\n\n") == [("message", b"x"), ("message", b" x")]


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
def test_lines_end_in_three_ways(newline: bytes) -> None:
    lines = [b"event: a", b"data: x", b"", b"data: y", b"", b""]
    assert events(newline.join(lines)) == [("a", b"x"), ("message", b"y")]


def test_a_carriage_return_ends_a_line_before_the_next_byte_is_there() -> None:
    stream = SseParser()
    assert list(stream.feed(b"data: x\r\r")) == [ServerSentEvent("message", b"x")]
    assert list(stream.feed(b"\n")) == []
    assert list(stream.feed(b"data: y\r\n\r\n")) == [ServerSentEvent("message", b"y")]


def test_a_byte_order_mark_is_left_out_at_the_start_alone() -> None:
    mark = b"\xef\xbb\xbf"
    assert events(mark + b"data: x\n\n" + mark + b"data: y\n\n") == [("message", b"x")]
    assert events(mark[:1], mark[1:] + b"da", b"ta: x\n\n") == [("message", b"x")]


def test_comments_and_unknown_fields_are_left_out() -> None:
    assert events(b": hello\nfoo: bar\nbaz\ndata: x\n:\n\n") == [("message", b"x")]


def test_events_without_data_are_not_handed_out() -> None:
    assert events(b"event: a\n\ndata:\n\ndata\n\nid: 1\n\n") == []


def test_what_is_cut_off_is_not_handed_out() -> None:
    assert events(b"data: x\n\ndata: y\n") == [("message", b"x")]


def test_the_last_id_is_that_of_the_last_event_that_was_complete() -> None:
    stream = SseParser()
    list(stream.feed(b"id: 1\ndata:\n\n"))
    assert stream.last_id == "1"
    list(stream.feed(b"data: x\n\nid: 2\ndata: y\n"))
    assert stream.last_id == "1"
    list(stream.feed(b"\n"))
    assert stream.last_id == "2"
    list(stream.feed(b"id\n\n"))
    assert stream.last_id == ""


def test_an_id_that_fits_no_header_is_not_remembered() -> None:
    stream = SseParser(limit=10_000)
    list(stream.feed(b"id: 1\n\nid: a\0b\n\nid: " + b"x" * (MAX_ID_BYTES + 1) + b"\n\n"))
    assert stream.last_id == "1"


@pytest.mark.parametrize(("value", "retry"), [(b"500", 500), (b"1.5", None), (b"-1", None), (b"", None)])
def test_a_time_to_retry_is_a_whole_number(value: bytes, retry: int | None) -> None:
    stream = SseParser()
    list(stream.feed(b"retry: " + value + b"\n\n"))
    assert stream.retry_ms == retry


def test_a_time_to_retry_of_a_million_digits_is_read_in_no_time() -> None:
    stream = SseParser(limit=2_000_000)
    list(stream.feed(b"retry: " + b"9" * 1_000_000 + b"\n"))
    assert stream.retry_ms is not None


def test_a_restarted_stream_knows_only_how_to_be_resumed() -> None:
    stream = SseParser()
    list(stream.feed(b"id: 1\nretry: 5\ndata: x\n\nid: 2\nevent: a\ndata: cut o"))
    stream.restart()
    assert (stream.last_id, stream.retry_ms) == ("1", 5)
    assert list(stream.feed(b"\xef\xbb\xbfdata: y\n\n")) == [ServerSentEvent("message", b"y")]
    assert stream.last_id == "1"


@pytest.mark.requirement("HARD-23")
def test_an_event_past_the_limit_is_an_overflow_after_the_events_before_it() -> None:
    stream = SseParser(limit=20)
    got: list[bytes] = []
    with pytest.raises(LineTooLong) as failure:
        got.extend(bytes(event.data) for event in stream.feed(b"data: x\n\ndata: " + b"y" * 20))
    assert got == [b"x"]
    assert failure.value.limit == 20


@pytest.mark.requirement("HARD-23")
@pytest.mark.parametrize("line", [b"data: " + b"x" * 30, b": " + b"x" * 30, b"x" * 40])
def test_a_line_past_the_limit_is_an_overflow_however_it_comes(line: bytes) -> None:
    for chunks in ([line + b"\n"], [bytes([byte]) for byte in line]):
        with pytest.raises(LineTooLong):
            events(*chunks, limit=20)


@pytest.mark.requirement("HARD-23")
def test_many_short_lines_of_data_are_an_overflow_too() -> None:
    with pytest.raises(LineTooLong):
        events(*[b"data: abc\n"] * 10, limit=20)


def test_any_number_of_comments_fits() -> None:
    assert events(*[b": still here\n\n"] * 1000, b"data: x\n\n", limit=20) == [("message", b"x")]


PIECES = [b"data", b"event", b"id", b"retry", b":", b": ", b"1", b"x", b"\xff", b"\xef\xbb\xbf"]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n"]
STREAMS = st.lists(st.sampled_from(PIECES + ENDS) | st.binary(max_size=8), max_size=40).map(b"".join)


def outcome(chunks: list[bytes], limit: int) -> tuple[list[tuple[str, bytes]], str, int | None, bool]:
    stream = SseParser(limit)
    found: list[tuple[str, bytes]] = []
    try:
        for chunk in chunks:
            found.extend((event.name, bytes(event.data)) for event in stream.feed(chunk))
    except LineTooLong:
        return found, stream.last_id, stream.retry_ms, True
    return found, stream.last_id, stream.retry_ms, False


@given(STREAMS, st.lists(st.integers(0, 200), max_size=20), st.sampled_from([12, 40, 10_000]))
def test_any_chunking_gives_the_same_events(stream: bytes, cuts: list[int], limit: int) -> None:
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    pieces = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert outcome(pieces, limit) == outcome([stream], limit)
    assert outcome([bytes([byte]) for byte in stream], limit) == outcome([stream], limit)
