import gzip
import json
from math import log2
from pathlib import Path

import pytest

from fairlead.catalog.search.evaluation import SearchQuestion, judge, measure, read_questions, read_tools
from fairlead.catalog.search.index import Index
from fairlead.catalog.search.search import search
from fairlead.errors import ConfigError, ConfigInvalid, ConfigUnreadable


def gold(*groups: str) -> list[frozenset[str]]:
    return [frozenset(group.split()) for group in groups]


@pytest.mark.parametrize(
    ("found", "wanted", "recall", "reciprocal_rank", "gain"),
    [
        ("a", gold("a"), 1, 1, 1),
        ("x a", gold("a"), 1, 1 / 2, 1 / log2(3)),
        ("", gold("a"), 0, 0, 0),
        ("x y z w v a", gold("a"), 0, 1 / 6, 1 / log2(7)),
        ("a b", gold("a", "b"), 1, 1, 1),
        ("a", gold("a", "b"), 1 / 2, 1, 1 / (1 + 1 / log2(3))),
        ("a2 a1", gold("a1 a2"), 1, 1, 1),
        ("a1 a2 b", gold("a1 a2", "b"), 1, 1, (1 + 1 / log2(4)) / (1 + 1 / log2(3))),
    ],
)
def test_one_answer_to_each_group_is_what_counts(
    found: str, wanted: list[frozenset[str]], recall: float, reciprocal_rank: float, gain: float
) -> None:
    assert judge(found.split(), wanted) == pytest.approx((recall, reciprocal_rank, gain))


def test_quality_is_the_mean_over_all_questions() -> None:
    questions = [
        SearchQuestion(question_id="1", text="right", gold=tuple(gold("a"))),
        SearchQuestion(question_id="2", text="wrong", gold=tuple(gold("a"))),
    ]
    quality = measure(questions, {"right": ["a"], "wrong": ["b"]}.__getitem__)
    assert (quality.questions, quality.recall, quality.reciprocal_rank, quality.gain) == (2, 0.5, 0.5, 0.5)
    assert measure([], lambda text: [text]).questions == 0


def write_lines(path: Path, *lines: object) -> Path:
    data = "\n".join(map(json.dumps, lines)).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_a_search_is_measured_on_files(tmp_path: Path) -> None:
    tools = write_lines(
        tmp_path / "tools.jsonl.gz",
        {"id": "t1", "server": "sea", "name": "tides", "description": "High and low water.", "extra": 1},
        {"id": "t2", "name": "sail", "description": None, "input_schema": None},
    )
    questions = write_lines(
        tmp_path / "queries.jsonl",
        {"id": "q1", "query": "when is high water", "gold": [["t1"]]},
        {"id": "q2", "query": "nothing fits", "gold": []},
        {"id": "q3", "query": "sail", "gold": [["t2", "t9"], []]},
    )
    documents = read_tools(tools)
    assert [document.key.server_id for document in documents] == ["sea", "t2"]
    index = Index.build(documents)
    asked = read_questions(questions)
    assert [question.question_id for question in asked] == ["q1", "q3"]
    assert measure(asked, lambda text: [hit.key.tool for hit in search(index, text)]).recall == 1


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "tools.jsonl", {"id": "t1", "name": "tides"}, {"id": "t2"})
    with pytest.raises(ConfigInvalid) as caught:
        read_tools(file)
    assert (caught.value.problems[0].file, caught.value.problems[0].line) == (str(file), 2)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigUnreadable, match="absent"):
        read_questions(tmp_path / "absent.jsonl")
    (tmp_path / "broken.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(ConfigUnreadable, match="broken"):
        read_tools(tmp_path / "broken.jsonl.gz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("questions.jsonl", b'{"id": "1", "query": "\xff", "gold": [["x"]]}'),
        ("questions.jsonl", b"[" * 100_000),
        ("questions.jsonl.gz", b"\x1f\x8b\x08\x00no compressed data"),
        ("questions.jsonl.gz", b"not compressed"),
    ],
)
def test_a_file_of_other_bytes_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match="questions"):
        read_questions(tmp_path / name)


def test_blank_lines_and_a_mark_of_the_byte_order_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    line = b'{"id": "%d", "query": "q", "gold": [["x"]]}\r\n'
    file.write_bytes(b"\xef\xbb\xbf" + line % 1 + b"\r\n \n" + line % 2)
    assert [question.question_id for question in read_questions(file)] == ["1", "2"]
