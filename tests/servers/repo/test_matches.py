"""Reading what a search prints."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.servers.repo.matches import LINE_CHARACTERS, MAX_CHARACTERS, Match, MatchReader, as_text

OUTPUT = b"""\
./a.txt\0001:one
./a.txt\0002-two
./a.txt\0003:three
./a.txt: WARNING: stopped searching binary file after match (found "\\0" byte around offset 96020)
./new
line.txt\0007:seven
./new
line.txt\0008-eight
"""


def read(output: bytes, *, limit: int = 50, context: int = 0) -> MatchReader:
    reader = MatchReader(limit=limit, context=context)
    reader.begin(str)
    reader.feed(output)
    return reader


def places(reader: MatchReader) -> list[tuple[str, int]]:
    return [(match.file_path, match.line_number) for match in reader.matches]


def test_each_match_has_its_path_its_number_and_its_text() -> None:
    reader = read(OUTPUT)
    assert places(reader) == [("a.txt", 1), ("a.txt", 3), ("new\nline.txt", 7)]
    assert [match.line_text for match in reader.matches] == ["one", "three", "seven"]
    assert not reader.is_full


def test_lines_around_a_match_go_with_it_even_if_they_match_too() -> None:
    first, second, last = read(OUTPUT, context=2).matches
    assert (first.before, first.after) == ([], ["two", "three"])
    assert (second.before, second.after) == (["one", "two"], [])
    assert (last.before, last.after) == ([], ["eight"])


@given(st.lists(st.integers(0, len(OUTPUT)), max_size=8))
def test_it_does_not_matter_how_the_output_is_cut(cuts: list[int]) -> None:
    reader = MatchReader(limit=50, context=1)
    reader.begin(str)
    edges = [0, *sorted(cuts), len(OUTPUT)]
    for start, end in pairwise(edges):
        reader.feed(OUTPUT[start:end])
    assert reader.matches == read(OUTPUT, context=1).matches


def test_it_is_full_only_when_there_is_one_match_more() -> None:
    assert not read(OUTPUT, limit=3).is_full
    reader = read(OUTPUT, limit=2)
    assert reader.is_full
    assert reader.is_done
    assert places(reader) == [("a.txt", 1), ("a.txt", 3)]


def test_the_last_match_still_gets_the_lines_below_it() -> None:
    reader = MatchReader(limit=1, context=3)
    reader.begin(str)
    reader.feed(b"a\0001:one\na\0002:two\n")
    assert reader.is_full
    assert not reader.is_done
    reader.feed(b"a\0003-three\na\0004-four\na\0005-five\n")
    assert reader.is_done
    assert reader.matches[0].after == ["two", "three", "four"]


def test_files_that_are_not_to_be_seen_are_passed_over() -> None:
    reader = MatchReader(limit=50, context=0)
    reader.begin(lambda path: None if path == "a.txt" else f"root/{path}")
    reader.feed(OUTPUT)
    assert places(reader) == [("root/new\nline.txt", 7)]


def test_searches_one_after_another_are_kept_apart() -> None:
    reader = MatchReader(limit=50, context=1)
    for root in ("one", "two"):
        reader.begin(lambda path, root=root: f"{root}/{path}")
        reader.feed(b"a\0001:first\nb\0001")
    assert places(reader) == [("one/a", 1), ("two/a", 1)]
    assert [match.before for match in reader.matches] == [[], []]


def test_files_that_came_in_any_order_are_put_in_theirs() -> None:
    reader = read(b"./z\0001:z\n", limit=4)
    other = reader.fork(limit=10)
    other.feed(b"./a.txt\0001:x\n./a/b\0001:x\n./a/b\0002:x\n./a-b\0001:x\n")
    reader.join(other)
    assert places(reader) == [("z", 1), ("a/b", 1), ("a/b", 2), ("a-b", 1)]
    assert reader.is_full


def test_a_full_reader_is_done_with_the_first_match_elsewhere() -> None:
    reader = read(b"a\0009:needle\n", limit=1, context=3)
    reader.begin(lambda path: f"other/{path}")
    reader.feed(b"a\0001:needle\n")
    assert reader.is_done
    assert places(reader) == [("a", 9)]


def test_many_long_lines_are_cut_off_together() -> None:
    line = b"a\0001:" + b"x" * LINE_CHARACTERS + b"\n"
    reader = read(line * 2_100, limit=5_000)
    assert reader.is_done
    assert len(reader.matches) == MAX_CHARACTERS // LINE_CHARACTERS


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain\ttext", "plain\ttext"),
        (b"windows\r", "windows"),
        (b"\x1b[31mred\x07\x00", "�[31mred��"),
        (b"caf\xe9 \xc2\x85", "caf� �"),
        ("ü".encode() * 501, "ü" * 500 + "…"),
        ("😀".encode() * 500, "😀" * 500),
    ],
)
def test_a_line_is_made_fit_to_be_shown(raw: bytes, text: str) -> None:
    assert read(b"a\0001:" + raw + b"\n").matches[0].line_text == text


def test_text_is_as_short_as_grep_would_have_it() -> None:
    assert as_text(read(OUTPUT).matches[:2]) == "a.txt:1: one\na.txt:3: three"
    around = [
        Match(file_path="a", line_number=2, line_text="B", before=["a"], after=["C"]),
        Match(file_path="a", line_number=3, line_text="C", before=["B"], after=["d"]),
        Match(file_path="a", line_number=9, line_text="I", before=["h"], after=[]),
        Match(file_path="b", line_number=1, line_text="A", before=[], after=[]),
    ]
    shown = ["a-1- a", "a:2: B", "a:3: C", "a-4- d", "--", "a-8- h", "a:9: I", "--", "b:1: A"]
    assert as_text(around).split("\n") == shown
