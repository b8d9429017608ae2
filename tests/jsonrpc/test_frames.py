"""Lines of a stream: whole, bounded and in linear time, however the stream is cut."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.jsonrpc.frames import LineSplitter, UnusableLine
from fairlead.jsonrpc.limits import LineTooLong
from tests.connection.wire_support import (
    cut,
    lines,
    split,
    whole,
)


@given(st.lists(lines), st.lists(st.integers(0)))
def test_a_stream_is_the_same_lines_however_it_is_cut(expected: list[bytes], places: list[int]) -> None:
    data = b"".join(line + b"\n" for line in expected)

    assert split(data, places) == [line for line in expected if line]


@given(lines.filter(bool))
def test_a_last_line_without_a_newline_is_a_line(line: bytes) -> None:
    assert split(b"first\n" + line) == [b"first", line]


@pytest.mark.requirement("HARD-16")
@given(st.lists(st.integers(0)))
def test_a_line_over_the_limit_is_reported_after_the_lines_before_it(places: list[int]) -> None:
    splitter = LineSplitter(limit=10)
    pieces = cut(b"one\n" + b"x" * 10 + b"\n" + b"x" * 11 + b"\ntwo\n", places)
    found: list[bytes] = []

    with pytest.raises(LineTooLong) as caught:
        found.extend(whole(line) for piece in pieces for line in splitter.feed(piece))

    assert found == [b"one", b"x" * 10]
    assert caught.value.limit == 10


@pytest.mark.requirement("HARD-16")
@pytest.mark.parametrize("piece", [b"x" * 10_000, b"{" * 10_000])
def test_a_line_without_end_is_cut_off(piece: bytes) -> None:
    splitter = LineSplitter(limit=100_000)

    with pytest.raises(LineTooLong):
        _ = [line for _ in range(1_000) for line in splitter.feed(piece)]


@pytest.mark.requirement("HARD-16")
@pytest.mark.parametrize(
    ("line", "answers", "asks"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"text":"%s"}}', 7, None),
        (b'{"result":{"text":"%s"},"jsonrpc":"2.0","id":7}', 7, None),
        (b'{"id":"seven","error":{"code":1,"message":"%s"},"jsonrpc":"2.0"}', "seven", None),
        (b' {"result":{"text":"%s","id":9},"jsonrpc":"2.0","id":7}\r', 7, None),
        (b'{"method":"sampling/createMessage","params":{"text":"%s"},"jsonrpc":"2.0","id":8}', None, 8),
        (b'{"method":"notifications/message","params":{"text":"%s"}}', None, None),
        (b'{"jsonrpc":"2.0","result":{"text":"%s","id":9}}', None, None),
    ],
)
@given(places=st.lists(st.integers(0)))
def test_a_message_over_the_limit_costs_itself_alone(
    line: bytes, answers: object, asks: object, places: list[int]
) -> None:
    splitter = LineSplitter(limit=20_000)
    long = line % (b"x" * 30_000)

    found = [line for piece in cut(b"one\n" + long + b"\ntwo\n", places) for line in splitter.feed(piece)]

    assert [found[0], *found[2:]] == [b"one", b"two"]
    assert isinstance(found[1], UnusableLine)
    assert (found[1].answers, found[1].asks) == (answers, asks)
    assert "20000 bytes" in found[1].reason


@pytest.mark.requirement("HARD-16")
def test_a_long_line_in_many_pieces_takes_linear_time() -> None:
    splitter = LineSplitter(limit=64 * 1024 * 1024)
    piece = b"x" * 4096
    began = time.process_time()

    for _ in range(8 * 1024):
        assert not list(splitter.feed(piece))
    (line,) = splitter.feed(b"\n")

    assert len(whole(line)) == 32 * 1024 * 1024
    # To go over all that is there for every piece would be to copy 100 GB.
    assert time.process_time() - began < 5


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n", b"\r\n", b"x"])
@pytest.mark.parametrize("sizes", [(20_000,), (1, 20_000, 3), (0, 0, 17_000, 0), (9_000, 9_000), (70_000, 2)])
def test_large_reads_are_cut_at_newlines_as_small_ones_are(sizes: tuple[int, ...], ending: bytes) -> None:
    data = b"\n".join(bytes((65 + place,)) * size for place, size in enumerate(sizes)) + ending
    assert len(data) > 16 * 1024
    expected = [line for line in data.split(b"\n") if line]
    large = LineSplitter()
    found = [*large.feed(data), *large.finish()]
    assert found == expected
    assert large.completed == data.count(b"\n")
    small = LineSplitter()
    pieces = [data[start : start + 1_000] for start in range(0, len(data), 1_000)]
    assert [*(line for piece in pieces for line in small.feed(piece)), *small.finish()] == expected
