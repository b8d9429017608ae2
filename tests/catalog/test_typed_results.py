"""Results of tools as values of Python types."""

import datetime
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from fairlead.catalog.results import ResultNotes, ToolResult
from fairlead.errors import CallFailed, ResultInvalid, WrongType


class Zone(Enum):
    BERLIN = "Europe/Berlin"


class CurrentTime(BaseModel):
    timezone: Zone
    datetime: datetime.datetime


@dataclass
class Point:
    x: int
    y: int = 0


class Movie(TypedDict):
    name: str
    year: int


def result(structured: Any = None, *texts: str, **rest: Any) -> ToolResult:
    body: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts]}
    if structured is not None:
        body["structuredContent"] = structured
    return ToolResult("time", json.dumps(body).encode(), tool="now", **rest)


def test_structured_content_becomes_a_model() -> None:
    now = result({"timezone": "Europe/Berlin", "datetime": "2026-01-02T03:04:05Z"}).as_type(CurrentTime)
    assert now.timezone is Zone.BERLIN
    assert now.datetime.year == 2026


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Point, {"x": 1}, Point(1)),
        (Movie, {"name": "M", "year": 1931}, {"name": "M", "year": 1931}),
        (list[Point], [{"x": 1}, {"x": 2, "y": 3}], [Point(1), Point(2, 3)]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (int, 5, 5),
        (bool, True, True),
        (int | None, 5, 5),
        (float, 0.5, 0.5),
    ],
)
def test_structured_content_and_json_text_become_values_of_a_type(
    kind: Any, value: Any, expected: Any
) -> None:
    assert result(value).as_type(kind) == expected
    assert result(None, json.dumps(value)).as_type(kind) == expected
    assert result({"result": value}).as_type(kind) == expected


def test_structured_content_counts_before_the_text_and_as_it_is_before_what_it_wraps() -> None:
    assert result({"x": 1}, '{"x": 2}').as_type(Point) == Point(1)
    assert result({"result": 3}).as_type(dict[str, int]) == {"result": 3}


def test_text_that_is_no_json_is_a_str_and_nothing_else() -> None:
    assert result(None, "it is noon", "or later").as_type(str) == "it is noon\nor later"
    assert result({"result": "noon"}).as_type(str) == "noon"
    with pytest.raises(ResultInvalid, match=r"tool `now` returned something else than `int`.*it is noon"):
        result(None, "it is noon").as_type(int)


def test_a_number_beyond_the_range_of_floats_arrives() -> None:
    raw = b'{"content": [], "structuredContent": {"n": 1e999}}'
    assert ToolResult("x", raw, tool="big").as_type(dict[str, float]) == {"n": float("inf")}


def test_our_notes_are_no_part_of_the_text() -> None:
    assert result(None, "[1, 2]").with_note("it was slow").as_type(list[int]) == [1, 2]


def test_what_does_not_fit_is_told_with_tool_type_and_a_bounded_look() -> None:
    came = {"timezone": "Europe/Berlin", "text": "long " * 10_000 + "\x1b[2J"}
    with pytest.raises(ResultInvalid) as caught:
        result(came).as_type(CurrentTime)
    error = caught.value
    assert isinstance(error, CallFailed)
    assert (error.server_id, error.tool, error.delivery, error.code) == (
        "time",
        "now",
        "done",
        "result_invalid",
    )
    assert (
        "server `time`: tool `now` returned something else than `CurrentTime`: datetime: Field required"
        in str(error)
    )
    assert '{"timezone": "Europe/Berlin"' in str(error)
    assert len(str(error)) < 1000
    assert "\x1b" not in str(error)
    assert error.__cause__ is None


def test_many_problems_are_counted() -> None:
    with pytest.raises(ResultInvalid, match="and 97 more"):
        result({"result": ["a"] * 100}).as_type(list[int])


def test_a_failed_tool_has_no_value() -> None:
    failed = ToolResult(
        "time", b'{"content": [{"type": "text", "text": "no zone"}], "isError": true}', tool="now"
    )
    with pytest.raises(ResultInvalid, match="tool `now` failed: no zone; `Point` was expected"):
        failed.as_type(Point)


def test_a_cut_result_names_the_option_that_has_it_whole() -> None:
    cut = ToolResult(
        "x",
        b'{"content": [{"type": "text", "text": "[1, 2"}]}',
        original=b"{}",
        remarks=ResultNotes(notes=("cut",)),
        tool="long",
    )
    with pytest.raises(ResultInvalid) as caught:
        cut.as_type(list[int])
    assert "full_result=True" in str(caught.value.hint)


@pytest.mark.parametrize("kind", [object(), "int", 5])
def test_what_is_no_type_is_refused(kind: Any) -> None:
    with pytest.raises(WrongType, match="as_type"):
        result({}).as_type(kind)


class Odd:
    pass


def test_a_type_that_values_cannot_be_checked_against_is_refused() -> None:
    with pytest.raises(WrongType) as caught:
        result({}).as_type(Odd)
    assert "pydantic model" in str(caught.value.hint)
